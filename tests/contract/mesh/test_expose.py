# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server in the tailnet: annotations of its Service, and whether both doors of the control plane can be used."""

from __future__ import annotations

import pathlib
import socket
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import control_plane_info, tailscale_expose

from sandbox.clock import SimClock
from sandbox.kube import KubeApi, serve

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
