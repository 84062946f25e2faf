# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real API server takes the Services of containers and their lists of endpoints as we write them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.services import (
    apply_service,
    change_list,
    path_of,
    remove_service,
    services_of,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Device, Lane, Offer, Phase, Pool, ServiceSpec
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import service_endpoints

pytestmark = pytest.mark.cluster
NAME, CLUSTER = "tgp-a1b2c3d4-llm-00001", "a1b2c3d4"
NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
OFFER = Offer("runpod", "a40", "NVIDIA A40", "A40", 1, Decimal("0.40"))
CLAIM = Claim(NAME, "default/llm", "c", "runpod", Lane.SERVICE, Phase.READY, NOW, NOW, OFFER, Decimal("0.40"))
POOL = Pool(
    "default", "llm", "c", labels={"team": "a"}, service=ServiceSpec("registry.example/llm:1", (8000, 9000), "/health", 8000)
)
DEVICE = Device("nX1", NAME, f"{NAME}.tail1.ts.net", ("100.64.0.7",), online=True)


def put(kube: Kube, line: dict[str, object] | None) -> bool:
    name = service_endpoints.list_name("llm")
    return change_list(
        kube, "default", name, service_endpoints.ENDPOINTS, lambda text: service_endpoints.with_endpoint(text, NAME, line), "[]"
    )


def test_S3_35_a_service_is_published_and_forgotten(kube: Kube) -> None:
    """Validation and defaults of a real API server leave nothing to change for a second run."""
    body = service_endpoints.service_object(CLAIM, POOL, DEVICE, CLUSTER)
    kube.create(path_of("default", "services"), body, dry_run=True)
    assert kube.find(path_of("default", "services", NAME)) is None
    assert apply_service(kube, body) is True
    assert apply_service(kube, body) is False
    found = kube.get(path_of("default", "services", NAME))
    assert found["metadata"]["annotations"]["tailscale.com/tailnet-fqdn"] == f"{NAME}.tail1.ts.net"
    assert [(one["name"], one["port"]) for one in found["spec"]["ports"]] == [("port-8000", 8000), ("port-9000", 9000)]
    kube.patch(path_of("default", "services", NAME), {"spec": {"externalName": "ts-proxy.tailscale.svc.cluster.local"}})
    assert apply_service(kube, service_endpoints.service_object(CLAIM, POOL, DEVICE, CLUSTER)) is False
    assert [one.name for one in services_of(kube, "default", CLUSTER)] == [NAME]
    assert put(kube, service_endpoints.endpoint(CLAIM, POOL, DEVICE)) is True
    assert put(kube, service_endpoints.endpoint(CLAIM, POOL, DEVICE)) is False
    listed = kube.get(path_of("default", "configmaps", "tgp-endpoints-llm"))
    assert [one["name"] for one in json.loads(listed["data"]["endpoints.json"])] == [NAME]
    assert put(kube, None) is True and kube.find(path_of("default", "configmaps", "tgp-endpoints-llm")) is None
    assert remove_service(kube, "default", NAME) is True
    assert services_of(kube, "default", CLUSTER) == []


def test_what_the_server_would_refuse_is_known_before_anything_is_rented(kube: Kube) -> None:
    """The real dry run refuses what the object schema does not say: a label's value and a missing namespace."""
    wrong = Pool("default", "llm", "c", labels={"team": "no label value!"}, service=POOL.service)
    with pytest.raises(ApiError, match="label"):
        kube.create(path_of("default", "services"), service_endpoints.service_object(CLAIM, wrong, DEVICE, CLUSTER), dry_run=True)
    nowhere = service_endpoints.service_object(CLAIM, POOL, DEVICE, CLUSTER)
    with pytest.raises(ApiError, match="nowhere"):
        kube.create(
            path_of("nowhere", "services"), {**nowhere, "metadata": {**nowhere["metadata"], "namespace": "nowhere"}}, dry_run=True
        )
