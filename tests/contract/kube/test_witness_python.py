# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The official Python client against the emulator, over TLS."""

from __future__ import annotations

import pathlib
import threading
import typing as t

import httpx
import pytest

from sandbox.kube import KubeApi, serve

from ..clouds.witness import installed
from . import probes

pytestmark = pytest.mark.witness

kubernetes = installed("kubernetes")


@pytest.fixture
def core(api: KubeApi, tmp_path: pathlib.Path) -> t.Iterator[t.Any]:
    server = serve(api)
    api.write_kubeconfig(str(tmp_path / "kubeconfig"), server.url)
    with kubernetes.config.new_client_from_config(str(tmp_path / "kubeconfig")) as client:
        yield kubernetes.client.CoreV1Api(client)
    server.stop()


def test_typed_objects_and_errors(core: t.Any, kube: httpx.Client, space: str) -> None:
    probes.new_node(kube, "gpu-1", {"tgp.io/provisioned": "true"})
    core.patch_node("gpu-1", {"spec": {"unschedulable": True}})
    (node,) = core.list_node(label_selector="tgp.io/provisioned=true").items
    assert node.spec.unschedulable and node.status.node_info.kubelet_version == ""
    probes.run_pod(kube, space, "web", {"app": "web"})
    probes.new_budget(kube, space, "web", {"app": "web"}, minAvailable=1)
    eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name="web", namespace=space))
    with pytest.raises(kubernetes.client.ApiException) as refusal:
        core.create_namespaced_pod_eviction("web", space, eviction)
    assert refusal.value.status == 429 and "DisruptionBudget" in refusal.value.body and "Retry-After" not in refusal.value.headers


def test_pages_and_watch(core: t.Any, kube: httpx.Client, space: str) -> None:
    for number in range(5):
        probes.new_map(kube, space, f"m{number}", {"mine": "yes"})
    first = core.list_namespaced_config_map(space, limit=3, label_selector="mine=yes")
    rest = core.list_namespaced_config_map(space, limit=3, label_selector="mine=yes", _continue=first.metadata._continue)
    assert [item.metadata.name for item in first.items + rest.items] == ["m0", "m1", "m2", "m3", "m4"]
    threading.Timer(0.3, lambda: probes.new_map(kube, space, "late", {"mine": "yes"})).start()
    options = {"resource_version": first.metadata.resource_version, "label_selector": "mine=yes", "timeout_seconds": 2}
    stream = kubernetes.watch.Watch().stream(core.list_namespaced_config_map, space, **options)
    assert [(event["type"], event["object"].metadata.name) for event in stream] == [("ADDED", "late")]


def test_a_server_stops_although_somebody_watches(api: KubeApi, space: str) -> None:
    server = serve(api)
    headers = {"authorization": f"Bearer {api.admin_token}"}
    trust = probes.ssl_context(api.authority.pem)
    with httpx.Client(base_url=server.url, headers=headers, verify=trust, trust_env=False) as client:
        with client.stream("GET", "/api/v1/nodes", params={"watch": "true", "resourceVersion": "0"}) as response:
            assert response.status_code == 200, "the headers come before the first event"
            stopping = threading.Thread(target=server.stop, daemon=True)
            stopping.start()
            stopping.join(60)
            assert not stopping.is_alive()
