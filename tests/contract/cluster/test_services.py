# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of machines and lists of endpoints: what is written, when nothing is, and what is not ours."""

from __future__ import annotations

import json
import threading
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Conflict, NotFound
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.services import apply_service, change_list, remove_service
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Device, Lane, Offer, Phase, Pool, ServiceSpec
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import service_endpoints

from .conftest import START, Cluster

NAME = "tgp-a1b2c3d4-llm-00001"
OFFER = Offer("runpod", "a40", "NVIDIA A40", "A40", 1, Decimal("0.40"))
CLAIM = Claim(NAME, "default/llm", "c", "runpod", Lane.SERVICE, Phase.READY, START, START, OFFER, Decimal("0.40"))
SPEC = ServiceSpec("registry.example/llm:1", (8000, 9000), "/health", 8000)
POOL = Pool("default", "llm", "c", labels={"team": "a"}, annotations={"tailscale.com/proxy-group": "egress"}, service=SPEC)
DEVICE = Device("nX1", NAME, f"{NAME}.tail1.ts.net", ("100.64.0.7", "fd7a::7"), online=True)
PATH = f"/api/v1/namespaces/default/services/{NAME}"
LIST = "/api/v1/namespaces/default/configmaps/tgp-endpoints-llm"


def body(pool: Pool = POOL, device: Device = DEVICE) -> dict[str, t.Any]:
    return service_endpoints.service_object(CLAIM, pool, device, "a1b2c3d4")


def test_S3_35_a_service_leads_the_operator_to_the_machine(kube: Kube) -> None:
    assert apply_service(kube, body())
    found = kube.get(PATH)
    assert found["spec"]["type"] == "ExternalName"
    assert found["metadata"]["annotations"] == {
        "tailscale.com/tailnet-fqdn": f"{NAME}.tail1.ts.net", "tailscale.com/proxy-group": "egress"
    }  # fmt: skip
    labels = found["metadata"]["labels"]
    assert (labels["tgp.io/nodepool"], labels["tgp.io/provider"], labels["team"], labels["tgp.io/claim"]) == (
        "llm",
        "runpod",
        "a",
        NAME,
    )
    assert [(one["name"], one["port"]) for one in found["spec"]["ports"]] == [("port-8000", 8000), ("port-9000", 9000)]


def test_without_a_full_name_the_address_stands_there(kube: Kube) -> None:
    short = Device("1", NAME, NAME, ("100.64.0.7",), online=True)
    assert body(device=short)["metadata"]["annotations"]["tailscale.com/tailnet-ip"] == "100.64.0.7"
    assert service_endpoints.endpoint(CLAIM, POOL, short)["fqdn"] == ""


def test_I9_what_is_right_is_not_written_again(cluster: Cluster, kube: Kube) -> None:
    apply_service(kube, body())
    kube.patch(
        PATH, {"spec": {"externalName": "ts-proxy.tailscale.svc.cluster.local"}, "metadata": {"annotations": {"others": "x"}}}
    )
    before = cluster.writes()
    assert apply_service(kube, body()) is False
    assert cluster.writes() == before
    assert apply_service(kube, body(Pool("default", "llm", "c", labels={"team": "b"}, service=SPEC)))
    found = kube.get(PATH)
    assert (found["metadata"]["labels"]["team"], found["metadata"]["annotations"]["others"]) == ("b", "x")
    assert found["spec"]["externalName"] == "ts-proxy.tailscale.svc.cluster.local"


def test_a_service_of_somebody_else_is_neither_changed_nor_removed(kube: Kube) -> None:
    other = {"metadata": {"name": NAME}, "spec": {"ports": [{"port": 80}]}}
    kube.create("/api/v1/namespaces/default/services", other)
    with pytest.raises(Conflict, match="is not ours"):
        apply_service(kube, body())
    assert remove_service(kube, "default", NAME) is False
    assert kube.find(PATH) is not None


def test_it_is_removed_once(kube: Kube) -> None:
    apply_service(kube, body())
    assert remove_service(kube, "default", NAME) is True
    assert (kube.find(PATH), remove_service(kube, "default", NAME)) == (None, False)


def test_a_missing_namespace_is_said(kube: Kube) -> None:
    with pytest.raises(NotFound):
        apply_service(kube, {**body(), "metadata": {**body()["metadata"], "namespace": "nowhere"}})
    with pytest.raises(NotFound):
        change_list(kube, "nowhere", "tgp-endpoints-llm", "endpoints.json", lambda _text: "[1]", "[]")


def put(kube: Kube, name: str, line: dict[str, t.Any] | None) -> bool:
    return change_list(
        kube,
        "default",
        "tgp-endpoints-llm",
        service_endpoints.ENDPOINTS,
        lambda text: service_endpoints.with_endpoint(text, name, line),
        "[]",
    )


def test_the_list_of_endpoints_is_written_only_when_it_changes(cluster: Cluster, kube: Kube) -> None:
    line = service_endpoints.endpoint(CLAIM, POOL, DEVICE)
    assert put(kube, NAME, line)
    assert json.loads(kube.get(LIST)["data"]["endpoints.json"]) == [
        {
            "name": NAME,
            "fqdn": f"{NAME}.tail1.ts.net",
            "address": "100.64.0.7",
            "ports": [8000, 9000],
            "cloud": "runpod",
            "model": "A40",
        }
    ]
    before = cluster.writes()
    assert put(kube, NAME, line) is False and put(kube, "other", None) is False
    assert cluster.writes() == before
    assert put(kube, NAME, None) and kube.find(LIST) is None
    assert put(kube, NAME, None) is False


def test_many_at_once_all_get_their_line(kube: Kube) -> None:
    names = [f"m-{number}" for number in range(6)]
    threads = [threading.Thread(target=put, args=(kube, name, {"name": name})) for name in names]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one["name"] for one in json.loads(kube.get(LIST)["data"]["endpoints.json"])] == names
