# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine becomes a node by three writes about what was seen last. Whoever writes to the same objects meanwhile costs one read more."""

from __future__ import annotations

import base64
import re
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr

from sandbox import kubelet

from .rig import Rig

THEIRS = {"key": "example.test/theirs", "value": "x", "effect": "NoSchedule"}
APPROVAL = r"/certificatesigningrequests/[^/]+/approval$"
STATUS, NODE = r"/api/v1/nodes/[^/]+/status$", r"/api/v1/nodes/[^/]+$"


def join(rig: Rig, before: t.Callable[[str], None] = lambda _call: None) -> list[str]:
    """Let the only machine join. Returns the calls about its certificate request and its Node, and calls ``before`` each of them."""
    calls: list[str] = []

    def watch(request: httpx.Request) -> None:
        call = f"{request.method} {request.url.path}"
        if re.search("|".join((APPROVAL, STATUS, NODE, r"/certificatesigningrequests/[^/]+$")), call):
            calls.append(call)
            before(call)

    rig.rent()
    rig.watcher = watch
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    return calls


def forms(calls: list[str]) -> list[str]:
    return [re.sub(r"/[^/]+(/approval|/status|)$", r"/NAME\1", call).removeprefix("https://") for call in calls]


REQUEST, MACHINE = "/apis/certificates.k8s.io/v1/certificatesigningrequests/NAME", "/api/v1/nodes/NAME"
THREE = [f"PUT {REQUEST}/approval", f"PATCH {MACHINE}/status", f"PATCH {MACHINE}"]


def complete(rig: Rig) -> dict[str, t.Any]:
    """The only Node, which has all of our marks."""
    (node,) = rig.nodes().values()
    assert node["status"]["allocatable"]["tgp.io/gpu"] == "1" and node["metadata"]["labels"]["tgp.io/nodepool"] == "training"
    assert "tgp.io/initializing" not in [one["key"] for one in node["spec"].get("taints", [])]
    return node


def test_a_machine_becomes_a_node_by_three_writes(rig: Rig) -> None:
    assert forms(join(rig)) == THREE
    complete(rig)


@pytest.mark.parametrize(
    ("method", "path", "reads"), [("PUT", APPROVAL, [f"GET {REQUEST}"]), ("PATCH", STATUS, []), ("PATCH", NODE, [f"GET {MACHINE}"])]
)
def test_a_conflict_costs_one_try_more(rig: Rig, method: str, path: str, reads: list[str]) -> None:
    fault = rig.fault("status", "kubernetes", method, path, status=409)
    calls = forms(join(rig))
    assert fault.hits == 1
    (index,) = [number for number, call in enumerate(THREE) if re.search(f"^{method} .*{path}", call)]
    assert calls == [*THREE[: index + 1], *reads, *THREE[index:]]
    complete(rig)


@pytest.mark.parametrize("moment", [STATUS, NODE])
def test_what_others_write_to_the_node_is_kept(rig: Rig, moment: str) -> None:
    def others(call: str) -> None:
        if call.startswith("PATCH") and re.search(moment, call) and not written:
            name = rig.claim()["name"]
            written.append(name)
            taints = [*rig.nodes()[name]["spec"].get("taints", []), THEIRS]
            rig.kube(
                "PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {"example.test/team": "a"}}, "spec": {"taints": taints}}
            )

    written: list[str] = []
    join(rig, others)
    node = complete(rig)
    assert THEIRS in node["spec"]["taints"] and node["metadata"]["labels"]["example.test/team"] == "a" and written


def put(rig: Rig, name: str, node: str) -> None:
    """A certificate request of this name, for this node, made with the machine's token."""
    data = rig.kube("GET", f"/api/v1/namespaces/kube-system/secrets/{rig.tokens()[0]}")["data"]
    token = ".".join(base64.b64decode(data[key]).decode() for key in ("token-id", "token-secret"))
    spec = {"signerName": csr.SIGNER, "usages": ["digital signature", "client auth"]}
    spec["request"] = base64.b64encode(kubelet.new_key(node)[0].encode()).decode()
    status, answer = rig.api.request("POST", csr.PATH, {"metadata": {"name": name}, "spec": spec}, token=token)
    assert status == 201, answer


def test_a_request_that_becomes_another_before_its_approval_is_denied(rig: Rig) -> None:
    """Somebody with the machine's token puts a request for another node in its place."""

    def swap(request: httpx.Request) -> None:
        if request.method == "PUT" and re.search(APPROVAL, request.url.path) and not swapped:
            path = request.url.path.removesuffix("/approval")
            swapped.append(path)
            rig.kube("DELETE", path)
            put(rig, path.rpartition("/")[2], "tgp-a1b2c3d4-victim")

    swapped: list[str] = []
    rig.rent()
    rig.watcher = swap
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and "denied" in row["message"]
    assert [csr.parse(raw).state for raw in rig.kube("GET", csr.PATH)["items"]] == ["denied"]
    assert rig.left() == {} and swapped and not rig.nodes()
