# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server in the tailnet: annotations of its Service, objects of the operator, and whether both doors of the control plane can be
used."""

from __future__ import annotations

import pathlib
import socket
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import control_plane_info, tailscale_expose, tailscale_operator_object

from sandbox.clock import SimClock
from sandbox.kube import KubeApi, serve

from ...fixtures.tailscale_operator import DEFINITIONS, definitions
from ...fixtures.tls_door import TlsDoors

SERVICE = "/api/v1/namespaces/default/services/kubernetes"
Result = dict[str, t.Any]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> t.Iterator[tuple[KubeApi, str]]:
    api = KubeApi(SimClock(1.0), seed=1, node_grace=None).start()
    server = serve(api)
    api.write_kubeconfig(str(tmp_path / "kubeconfig"), server.url)
    yield api, str(tmp_path / "kubeconfig")
    server.stop()
    api.stop()


def call(module: t.Any, *, check: bool = False, diff: bool = False, **params: t.Any) -> Result:
    defaults = {name: option.get("default") for name, option in module.SPEC["argument_spec"].items()}
    return execute(module.SPEC, module.run, Task({**defaults, **params}, check_mode=check, diff_mode=diff))


def annotations(api: KubeApi) -> dict[str, str]:
    return dict(api.request("GET", SERVICE)[1]["metadata"].get("annotations") or {})


# ---- annotations


def test_S0_11_expose_is_done_once_and_undone_without_a_trace(cluster: tuple[KubeApi, str]) -> None:
    api, kubeconfig = cluster
    api.request("PATCH", SERVICE, {"metadata": {"annotations": {"theirs": "stays"}}}, media="application/merge-patch+json")
    spec = {"kubeconfig": kubeconfig, "hostname": "k8s-api", "tags": ["tag:k8s"]}
    planned = call(tailscale_expose, check=True, diff=True, **spec)
    ours = {"tailscale.com/expose": "true", "tailscale.com/hostname": "k8s-api", "tailscale.com/tags": "tag:k8s"}
    assert planned["changed"] and planned["diff"] == {"before": {"annotations": {}}, "after": {"annotations": ours}}
    assert annotations(api) == {"theirs": "stays"}
    done = call(tailscale_expose, **spec)
    assert done["changed"] and annotations(api) == {"theirs": "stays", **ours}
    assert done["endpoints"] == ["https://k8s-api:443"] and done["cert_sans"] == ["k8s-api"]  # the Service's port, not 6443
    assert call(tailscale_expose, **spec)["changed"] is False
    assert call(tailscale_expose, kubeconfig=kubeconfig, hostname="k8s-api")["changed"] is True  # the tags went
    assert "tailscale.com/tags" not in annotations(api)
    gone = {"kubeconfig": kubeconfig, "state": "absent"}
    assert call(tailscale_expose, **gone)["changed"] is True and annotations(api) == {"theirs": "stays"}
    assert call(tailscale_expose, **gone)["changed"] is False


def test_S3_05_the_proxy_may_have_a_class_of_the_operator(cluster: tuple[KubeApi, str]) -> None:
    api, kubeconfig = cluster
    spec = {"kubeconfig": kubeconfig, "hostname": "k8s-api"}
    call(tailscale_expose, proxy_class="small", **spec)
    assert annotations(api)["tailscale.com/proxy-class"] == "small"
    assert call(tailscale_expose, **spec)["changed"] is True and "tailscale.com/proxy-class" not in annotations(api)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostname": "k8s-api.tail.ts.net"}, "one label"),
        ({"hostname": "K8S"}, "cannot be the name"),
        ({"hostname": None}, "no hostname"),
        ({"hostname": "api", "tags": ["k8s"]}, "no tags of a tailnet"),
        ({"hostname": "api", "service": "other"}, "no Service default/other"),
    ],
)
def test_bad_input_says_what_to_write(cluster: tuple[KubeApi, str], spec: dict[str, t.Any], words: str) -> None:
    told = call(tailscale_expose, kubeconfig=cluster[1], **spec)
    assert told["failed"] and words in told["msg"]


# ---- objects of the operator

CONNECTORS = "/apis/tailscale.com/v1alpha1/connectors"
LAN = {
    "hostname": "control-planes",
    "tags": ["tag:k8s"],
    "proxyClass": "small",
    "subnetRouter": {"advertiseRoutes": ["192.168.10.0/24"]},
}


@pytest.fixture
def operator(cluster: tuple[KubeApi, str]) -> tuple[KubeApi, t.Callable[..., Result]]:
    """A cluster with the operator's definitions, and the module on it."""
    api, kubeconfig = cluster
    for definition in definitions():
        assert api.request("POST", DEFINITIONS, definition)[0] == 201

    def module(**params: t.Any) -> Result:
        given = {"kind": "Connector", "name": "lan", **params}
        return call(tailscale_operator_object, kubeconfig=kubeconfig, **given)

    return api, module


def writes(api: KubeApi, run: t.Callable[[], Result]) -> tuple[Result, bool]:
    """The result, and whether the object's version changed."""
    before = api.request("GET", f"{CONNECTORS}/lan")[1].get("metadata", {}).get("resourceVersion")
    result = run()
    return result, before != api.request("GET", f"{CONNECTORS}/lan")[1].get("metadata", {}).get("resourceVersion")


def test_S3_05_a_connector_is_applied_once_changed_and_deleted(operator: tuple[KubeApi, t.Callable[..., Result]]) -> None:
    api, module = operator
    planned, written = writes(api, lambda: module(spec=LAN, check=True, diff=True))
    assert planned["changed"] and not written and "192.168.10.0/24" in planned["diff"][0]["after"]
    done = module(spec=LAN)
    assert done["objects"] == [{"kind": "Connector", "namespace": "", "name": "lan", "result": "created"}]
    assert api.request("GET", f"{CONNECTORS}/lan")[1]["spec"] == LAN
    again, written = writes(api, lambda: module(spec=LAN))
    assert again["changed"] is False and not written
    fewer = {key: value for key, value in LAN.items() if key != "proxyClass"}
    assert module(spec=fewer)["changed"] is True
    assert api.request("GET", f"{CONNECTORS}/lan")[1]["spec"] == fewer  # a field that is left out goes
    looked, written = writes(api, lambda: module(state="absent", check=True))
    assert looked["changed"] and not written
    assert module(state="absent")["objects"][0]["result"] == "deleted"
    assert api.request("GET", f"{CONNECTORS}/lan")[0] == 404
    assert module(state="absent")["changed"] is False


def test_S3_05_an_object_of_another_owner_is_left_alone(operator: tuple[KubeApi, t.Callable[..., Result]]) -> None:
    api, module = operator
    theirs = {"apiVersion": "tailscale.com/v1alpha1", "kind": "Connector", "metadata": {"name": "lan"}, "spec": {"exitNode": True}}
    assert api.request("POST", CONNECTORS, theirs)[0] == 201
    for params in ({"spec": LAN}, {"state": "absent"}):
        (told, written) = writes(api, lambda params=params: module(**params))
        assert told["failed"] and "did not create it" in told["msg"] and not written
    assert module(spec=LAN, force=True)["changed"] is True
    assert module(state="absent")["changed"] is True


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"spec": None}, "has no spec"),
        ({"spec": {"tags": ["k8s"], "exitNode": True}}, "no tags of a tailnet"),
        ({"spec": {"subnetRouter": {"advertiseRoutes": ["192.168.10.7/24"]}}}, "'192.168.10.7/24' is not a network"),
        ({"spec": {"appConnector": {"routes": ["all"]}}}, "'all' is not a network"),
        (
            {"spec": {"subnetRouter": {"advertiseRoutes": ["10.0.0.0/8"], "routes": ["10.0.0.0/8"]}}},
            "no field spec.subnetRouter.routes",
        ),
        ({"spec": {"hostname": "lan"}}, "at least one of exit node"),
        ({"kind": "ProxyClass", "spec": {"metrics": {}}}, "enable"),
    ],
)
def test_S3_05_a_faulty_spec_is_refused_before_anything_is_written(
    operator: tuple[KubeApi, t.Callable[..., Result]], params: dict[str, t.Any], words: str
) -> None:
    api, module = operator
    told = module(**params)
    assert told["failed"] and words in told["msg"], told
    assert api.request("GET", CONNECTORS)[1]["items"] == []


def test_S3_05_without_the_operator_the_error_says_how_to_install_it(cluster: tuple[KubeApi, str]) -> None:
    params = {"kubeconfig": cluster[1], "kind": "ProxyClass", "name": "small", "spec": {"metrics": {"enable": True}}}
    told = call(tailscale_operator_object, **params)
    assert told["failed"] and "operator is not installed" in told["msg"] and "prereqs_install=true" in told["msg"]
    assert call(tailscale_operator_object, check=True, **params)["changed"] is True  # the operator may come with the same run
    assert call(tailscale_operator_object, **{**params, "state": "absent"})["changed"] is False


# ---- doors


@pytest.fixture
def door(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[..., int]]:
    """Opens a TLS server on loopback with a certificate for the given names; its port."""
    doors = TlsDoors(tmp_path)
    yield doors.open
    doors.close()


def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def look(port: int, trustd: int, **params: t.Any) -> Result:
    spec = {"endpoint": f"https://127.0.0.1:{port}", "trustd_port": trustd, "timeout": 1.0, **params}
    return call(control_plane_info, **spec)


def test_both_doors_open(door: t.Callable[..., int]) -> None:
    told = look(door("127.0.0.1", "kubernetes"), door("127.0.0.1"))
    assert (told["ok"], told["kubelet_lane"], told["talos_lane"]) == (True, True, True)
    assert [one["what"] for one in told["doors"]] == ["API server", "trustd"]
    assert set(told["doors"][0]["certificate_names"]) == {"127.0.0.1", "kubernetes"}


def test_S0_11_without_50001_talos_machines_cannot_join_and_kubelets_can(door: t.Callable[..., int]) -> None:
    told = look(door("127.0.0.1"), closed())
    assert (told["ok"], told["kubelet_lane"], told["talos_lane"]) == (False, True, False)
    (wrong,) = [one for one in told["doors"] if not one["ok"]]
    assert wrong["stage"] == "refused" and "forwards the API server's port only" in wrong["remedy"]
    assert "siderolabs/tailscale" in wrong["remedy"]
    assert look(door("127.0.0.1"), closed(), talos=False)["ok"] is True


def test_every_control_plane_is_asked_for_trustd(door: t.Callable[..., int]) -> None:
    told = look(door("127.0.0.1"), door("127.0.0.1"), control_planes=["127.0.0.1", "127.0.0.2"])
    assert [(one["host"], one["ok"]) for one in told["doors"][1:]] == [("127.0.0.1", True), ("127.0.0.2", False)]


@pytest.mark.parametrize(
    ("names", "plain", "host", "stage", "words"),
    [
        (("k8s-api",), False, "127.0.0.1", "certificate", "certSANs"),
        ((), True, "127.0.0.1", "tls", "speaks no TLS"),
        (("127.0.0.1",), False, "no-such-host.invalid", "name", "extraHostEntries"),
    ],
)
def test_what_is_wrong_with_the_api_server(
    door: t.Callable[..., int], names: tuple[str, ...], plain: bool, host: str, stage: str, words: str
) -> None:
    told = look(0, 1, endpoint=f"https://{host}:{door(*names, plain=plain)}", talos=False)
    (wrong,) = told["doors"]
    assert told["kubelet_lane"] is False and told["talos_lane"] is None
    assert wrong["stage"] == stage and words in wrong["problem"] + wrong["remedy"]


def test_a_refused_api_server_names_the_port(door: t.Callable[..., int]) -> None:
    told = look(closed(), 1, talos=False)
    assert told["doors"][0]["stage"] == "refused" and ("6443" in told["doors"][0]["remedy"] or ":443" in told["doors"][0]["remedy"])


@pytest.mark.parametrize(
    "endpoint", ["100.64.0.1:6443", "http://100.64.0.1:6443", "https://", "https://x:y", "https://x/api", None]
)
def test_what_is_no_endpoint_is_refused(endpoint: str | None) -> None:
    told = call(control_plane_info, endpoint=endpoint)
    assert told["failed"] and "endpoint" in told["msg"]
