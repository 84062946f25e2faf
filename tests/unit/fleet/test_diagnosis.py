# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what was seen of a machine to the cause that a user is told (L-11, S1-46)."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis import rules
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.evidence import gpus
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import Condition, Findings, JoinRequest, PodSeen
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.facts import ClusterGpus, PluginConfigMap, SharingConfig
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.node_checks import node_checks
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.join import MADE_FOR, OTHER_NODE
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.node import wrong_image, wrong_version
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import Diagnosis, diagnose
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.view import screen, steps_of
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import _places
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.model import Device, Instance, InstanceState, Lane, MeshKey, Node, Taint

from . import build

NAME = "tgp-a1b2c3d4-training-x1y2z"
START = datetime(2026, 8, 21, 12, 0, tzinfo=timezone.utc)
NOW = START + timedelta(minutes=20)
WAITS = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message: cni plugin not initialized"


def machine(state: InstanceState = InstanceState.RUNNING, raw: str = "running", problem: str = "", **more: t.Any) -> Instance:
    return Instance(cloud="vast", id="4711", name=NAME, state=state, raw_state=raw, problem=problem, **more)


def key(**more: t.Any) -> MeshKey:
    return MeshKey("kABC", f"tgp {NAME}", START, **{"expires": START + timedelta(hours=1), "invalid": False, **more})


def node(ready: bool | None = True, message: str = "", *, version: str = "v1.36.3", **more: t.Any) -> Node:
    return Node(NAME, "uid-1", START + timedelta(minutes=3), ready, ready_message=message, kubelet_version=version, **more)


TAINT = Taint("x/y", "", "NoSchedule")
DEVICE = Device("n1", NAME, NAME, online=True, created=START)
RUNS = Findings(
    name=NAME,
    now=NOW,
    cloud="vast",
    lane=Lane.KUBELET,
    launched=START,
    steps=(("instance", START + timedelta(seconds=40)),),
    step="instance",
    message="the machine runs and is not in the mesh yet",
    instance_id="4711",
    instance=machine(),
    instance_listed=True,
    uses_mesh=True,
    devices_read=True,
    key_id="kABC",
    key=key(),
    keys_read=True,
    token_id="abc123",
    token_found=True,
    token_expires=START + timedelta(hours=1),
    requests_read=True,
    nodes_read=True,
    pods_read=True,
    gpu_resource="nvidia.com/gpu",
    gpus_expected=1,
    server_version="v1.36.3",
)
IN_MESH = dataclasses.replace(RUNS, device=DEVICE, step="device")
HAS_NODE = dataclasses.replace(
    IN_MESH, node=node(), step="node", requests=(JoinRequest("csr-1", "system:bootstrap:abc123", "issued"),)
)


def seen(base: Findings, *console: str, **more: t.Any) -> Findings:
    return dataclasses.replace(base, console=console or None, **more)


CASES: list[tuple[str, str, Findings]] = [
    (
        "wrong token",
        "wrong_token",
        seen(IN_MESH, "tgp-step api", "fail api: the API server does not know the bootstrap token: expired, deleted, or of another cluster"),
    ),
    ("token deleted, no console", "wrong_token", seen(IN_MESH, token_found=False)),
    ("token of a kubelet", "wrong_token", seen(IN_MESH, "kubelet: cannot create certificate signing request: Unauthorized")),
    (
        "wrong CA",
        "wrong_ca",
        seen(
            IN_MESH,
            "fail api: the certificate of 100.64.0.1:6443 is not of the cluster's CA, or this machine's clock is wrong: curl: (60) SSL "
            "certificate problem: unable to get local issuer certificate",
        ),
    ),
    ("wrong CA, Talos", "wrong_ca", seen(IN_MESH, "kubelet: tls: failed to verify certificate: x509: certificate signed by unknown authority")),
    ("expired key", "expired_key", seen(RUNS, key=key(expires=START), now=NOW)),
    ("expired key, headscale", "expired_key", seen(RUNS, "tailscale up: authkey expired", keys_read=None, key=None)),
    ("used key", "used_key", seen(RUNS, key=key(invalid=True))),
    ("used key by the log", "used_key", seen(RUNS, "tailscale up: invalid key: API key kABC not valid", keys_read=None, key=None)),
    (
        "used key by the bootstrap program",
        "used_key",
        seen(
            RUNS,
            "fail mesh: tailscale up failed (key used or expired, its tag not owned, or no way to the server): invalid key: "
            "API key kABC not valid",
            key=key(invalid=True),
        ),
    ),
    (
        "clock not synchronised, and something else",
        "blocked_6443",
        seen(
            IN_MESH,
            "the clock is not synchronised; a wrong one shows in step api",
            "fail api: the API server 100.64.0.1:6443 cannot be reached: no route or a firewall",
        ),
    ),
    (
        "no capacity after launch",
        "no_capacity",
        seen(RUNS, instance=machine(InstanceState.STOPPED, "off", "Failed to start: insufficient capacity"), hopeless="off"),
    ),
    ("blocked 6443", "blocked_6443", seen(IN_MESH, "fail api: the API server 100.64.0.1:6443 cannot be reached: it does not answer")),
    ("blocked 6443, Talos", "blocked_6443", seen(IN_MESH, "kubelet: dial tcp 100.64.0.1:6443: i/o timeout")),
    (
        "blocked 50001, not Ready for another reason than the network",
        "blocked_50001",
        seen(
            IN_MESH,
            node=node(False, "container runtime is down"),
            talos_api="port 50000 of the node refuses connections",
            requests=HAS_NODE.requests,
        ),
    ),
    (
        "blocked 50001 of a node without a network",
        "cni_not_ready",
        seen(HAS_NODE, node=node(False, WAITS), talos_api="port 50000 of the node refuses connections"),
    ),
    (
        "not Ready, and managed",
        "node_not_ready",
        seen(HAS_NODE, node=node(False, "container runtime is down")),
    ),
    (
        "blocked 50001",
        "blocked_50001",
        seen(HAS_NODE, lane=Lane.TALOS, node=node(allocatable={"nvidia.com/gpu": 1}), talos_api="port 50000 of the node refuses connections"),
    ),
    ("newer kubelet", "wrong_kubelet_version", seen(HAS_NODE, node=node(version="v1.37.0"))),
    ("kubelet not to be had", "wrong_kubelet_version", seen(RUNS, "fail repositories: the Kubernetes repository has no kubelet 1.36.9")),
    (
        "key of a repository",
        "repository_key",
        seen(
            RUNS,
            f"fail repositories: the signing key of docker is not the pinned one: expected {'A' * 40}, came {'B' * 40}. Take a newer "
            "tgp.gpu, or set KEY_DOCKER if its owner says that it is new (docs/how_to/kubelet_lane.md)",
        ),
    ),
    (
        "hub that is silent",
        "hub_unreachable",
        seen(RUNS, "tgp-step mesh", "fail mesh: no handshake with the hub at 203.0.113.10:51820: nothing listens there"),
    ),
    (
        "tunnel that does not come up",
        "no_mesh_client",
        seen(RUNS, "fail mesh: the tunnel wg-tgp does not come up: RTNETLINK answers: Operation not permitted"),
    ),
    ("kernel without WireGuard", "no_mesh_client", seen(RUNS, "fail kernel: the kernel has no module wireguard")),
    (
        "forbidden label",
        "forbidden_label",
        seen(IN_MESH, "fail kubelet: kubelet: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [x]"),
    ),
    ("stale Node", "stale_node", seen(HAS_NODE, stale=True, requests=())),
    ("GPU missing", "gpu_missing", seen(HAS_NODE, pods=(PodSeen("kube-system/nvidia-device-plugin-x", "Pending", "p: ImagePullBackOff"),))),
    ("failed test", "acceptance_failed", seen(HAS_NODE, hopeless="acceptance test vectoradd failed", test_log=("error 999",))),
    ("failed test whose log could not be read", "acceptance_failed", seen(HAS_NODE, hopeless="it failed", test_log=())),
    ("test without a result", "acceptance_unknown", seen(HAS_NODE, untested="acceptance test own: the image own cannot be pulled")),
    ("GPU not in the machine", "gpu_missing", seen(RUNS, "fail driver: 0 GPUs found, 1 ordered")),
    ("CNI not ready", "cni_not_ready", seen(HAS_NODE, node=node(False, WAITS), pods=(PodSeen("kube-system/kube-flannel-x", "Pending"),))),
    ("disk too small", "disk_too_small", seen(RUNS, "fail preflight: 8 GiB free on the root disk, 20 wanted")),
    ("disk pressure", "disk_too_small", seen(HAS_NODE, conditions=(Condition("DiskPressure", "True", message="low"),))),
    (
        "clock skew",
        "clock_skew",
        seen(
            IN_MESH,
            "fail api: the certificate of 100.64.0.1:6443 is not of the cluster's CA, or this machine's clock is wrong: curl: (60) SSL "
            "certificate problem: certificate is not yet valid",
        ),
    ),
    ("clock ahead", "clock_skew", seen(HAS_NODE, conditions=(Condition("Ready", "False", heartbeat=NOW + timedelta(hours=1)),))),
    ("machine gone", "machine_gone", seen(RUNS, instance=None, hopeless="vast does not list the machine 4711 any more")),
    ("machine taken back", "machine_gone", seen(HAS_NODE, instance=machine(InstanceState.TERMINATED, "preempted", "taken back"))),
    # beyond the fifteen
    ("no client", "no_mesh_client", seen(RUNS, "fail mesh: the image has no extension siderolabs/tailscale")),
    ("key of another server", "mesh_login_refused", seen(RUNS, "fail mesh: tailscale up: invalid key: invalid API token")),
    ("not in the mesh", "not_in_mesh", RUNS),
    ("offline", "device_offline", seen(IN_MESH, device=dataclasses.replace(DEVICE, online=False, last_seen=START))),
    ("no request", "no_request", IN_MESH),
    ("no Node", "no_node", seen(IN_MESH, requests=HAS_NODE.requests)),
    ("not ready", "node_not_ready", seen(HAS_NODE, node=node(False, "PLEG is not healthy"))),
    ("image", "wrong_image", seen(HAS_NODE, node=node(annotations={"extensions.talos.dev/schematic": "b" * 64}), schematic="a" * 64)),
    ("labels", "labels_missing", seen(HAS_NODE, node=node(allocatable={"nvidia.com/gpu": 1}), desired_labels={"tgp.io/x": "y"},
                                      message="kubernetes: not allowed to set label")),
    ("never boots", "never_booted", seen(RUNS, instance=machine(InstanceState.PENDING, "booting"))),
    ("no image", "image_not_pulled", seen(RUNS, "error pulling image: not found", instance=machine(InstanceState.PENDING, "RUNNING"))),
    ("broken", "machine_broken", seen(RUNS, instance=machine(InstanceState.UNKNOWN, "unhealthy", "no heartbeat"), hopeless="unhealthy")),
    ("mesh unreachable", "mesh_unreachable", seen(RUNS, 'control: LoginHot -> fetch control key: Get "https://x": i/o timeout')),
    ("revoked key", "revoked_key", seen(RUNS, "tailscale up: invalid key: API key does not exist", key=None)),
    ("tags", "tag_not_permitted", seen(RUNS, "tailscale up: requested tags [tag:x] are invalid or not permitted")),
    ("held", "device_held", seen(IN_MESH, device=dataclasses.replace(DEVICE, problem="it waits for approval by an administrator"))),
    ("misused", "token_misused", seen(IN_MESH, requests=(
        JoinRequest("csr-1", "system:bootstrap:abc123", "denied", f"{MADE_FOR}a, but x", reason=OTHER_NODE),))),
    ("not ours", "request_refused", seen(IN_MESH, requests=(
        JoinRequest("csr-1", "system:bootstrap:abc123", "denied", f"{MADE_FOR}a, but x", reason="SomebodyElse"),))),
    ("denied", "request_refused", seen(IN_MESH, requests=(JoinRequest("csr-1", "system:bootstrap:abc123", "denied", "by policy"),))),
    ("pending", "request_pending", seen(IN_MESH, requests=(JoinRequest("csr-1", "system:bootstrap:abc123", "pending"),))),
    ("silent", "node_silent", seen(HAS_NODE, node=node(None, "Kubelet stopped posting node status."))),
    ("Talos token", "wrong_token", seen(HAS_NODE, "failed to sign API server CSR: code = Unauthenticated desc = invalid token",
                                        node=node(allocatable={"nvidia.com/gpu": 1}))),
    ("a taint of others", "startup_taint", seen(HAS_NODE, node=node(allocatable={"nvidia.com/gpu": 1}, taints=(TAINT,)),
                                                message="taint x/y")),
    ("unhealthy", "unhealthy", seen(IN_MESH, lane=Lane.SERVICE, message="unhealthy: it answers 503")),
    ("container", "start_script_failed", seen(RUNS, "tgp-fail no curl or wget", lane=Lane.SERVICE)),
    ("container's key", "used_key", seen(RUNS, "tgp-fail login: tailscale up: authkey already used", lane=Lane.SERVICE)),
    ("container's way", "mesh_unreachable", seen(RUNS, "tgp-fail login: tailscale up: control: LoginHot: i/o timeout", lane=Lane.SERVICE)),
    ("container's login", "start_script_failed", seen(RUNS, "tgp-fail login: tailscale up: killed", lane=Lane.SERVICE)),
]  # fmt: skip


@pytest.mark.parametrize("code, findings", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_S1_46_the_cause_is_named(code: str, findings: Findings) -> None:
    found = diagnose(findings)
    assert found.code == code, found
    assert found.cause.endswith(".") and found.remedy and found.evidence, found
    assert len(lines(found)) <= 24 and max(map(len, lines(found))) <= 110, lines(found)


def lines(found: Diagnosis) -> list[str]:
    return screen(
        NAME, found, dict(RUNS.steps), expected=steps_of(Lane.KUBELET, mesh=True), launched=START, now=NOW, file="/s/e.json"
    )


def test_S1_46_unknown_is_said_with_what_was_looked_at() -> None:
    found = diagnose(
        seen(
            RUNS,
            devices_read=None,
            keys_read=None,
            key=None,
            unread=(("mesh devices", "could not be read: 500"), ("console", "timed out")),
        )
    )
    assert (found.code, found.certain) == ("unknown", False)
    assert "mesh devices" not in found.cause
    assert "mesh device: could not be read: 500" in found.evidence
    assert "console: timed out" in found.evidence
    assert "cloud: 4711 running" in found.evidence


def test_an_unread_list_proves_nothing() -> None:
    """What could not be read is no absence: no key is called used, no machine gone, no token deleted because of it."""
    blind = dataclasses.replace(
        RUNS,
        instance=None,
        instance_listed=None,
        devices_read=None,
        key=None,
        keys_read=None,
        token_found=None,
        requests_read=None,
        nodes_read=None,
    )
    assert diagnose(blind).code == "unknown"


def test_without_a_log_a_silent_machine_is_not_blamed_on_one_cause() -> None:
    found = diagnose(IN_MESH)
    assert (found.code, found.certain) == ("no_request", False)
    for word in ("blocked", "CA", "token"):
        assert word in found.cause


def test_a_valid_token_that_is_refused_is_another_one() -> None:
    found = diagnose(seen(IN_MESH, "kubelet: Unauthorized"))
    assert "not the one in the cluster" in found.cause
    late = seen(IN_MESH, "kubelet: Unauthorized", token_found=False, now=START + timedelta(hours=2))
    assert "expired" not in diagnose(seen(IN_MESH, token_found=False)).cause
    assert "expired before" in diagnose(late).cause


@pytest.mark.parametrize(
    "kubelet, server, fits",
    [("v1.36.3", "v1.36.0", True), ("v1.33.1", "v1.36.0", True), ("v1.32.9", "v1.36.0", False), ("v1.37.0", "v1.36.9", False),
     ("", "v1.36.0", True), ("v1.36.3+k3s1", "v1.36.1", True)],
)  # fmt: skip
def test_the_version_of_a_kubelet(kubelet: str, server: str, fits: bool) -> None:
    assert (wrong_version(kubelet, server) == "") is fits


def test_the_image_of_a_node() -> None:
    assert wrong_image({}, "a" * 64) == "" and wrong_image({"extensions.talos.dev/schematic": "a" * 64}, "") == ""
    assert "schematic bbbb" in wrong_image({"extensions.talos.dev/schematic": "b" * 64}, "a" * 64)


def test_one_screen_shows_steps_with_their_times() -> None:
    shown = lines(diagnose(RUNS))
    assert shown[0] == f"{NAME} did not become usable after 20m00s"
    assert "  instance  12:00:40Z      40s" in shown
    assert "  device    -" in shown
    assert shown[-1].endswith("/s/e.json")


def test_every_cause_is_documented() -> None:
    """docs/how_to/diagnosis.md has a row for each code that a rule can give, and for no other; each is a case above."""
    folder = Path(rules.__file__).resolve().parent
    page = next(parent for parent in folder.parents if (parent / "docs").is_dir()) / "docs" / "how_to" / "diagnosis.md"
    told = {code for _name, code, _findings in CASES} | {"unknown"}
    joins = page.read_text().partition("\n## Why pods get no GPU")[0]
    assert set(re.findall(r"^\| `([a-z_0-9]+)` \|", joins, re.M)) == told
    text = "".join(file.read_text() for file in folder.glob("diagnosis*.py"))
    assert set(re.findall(r'ProbableCause\(\s*"([a-z_0-9]+)"', text)) <= told


def test_what_a_node_lacks_of_the_wished_is_looked_at() -> None:
    desired = seen(HAS_NODE, desired_labels={"tgp.io/x": "y"}, desired_taints=(TAINT,))
    assert "marks: not yet set: label tgp.io/x, taint x/y:NoSchedule" in diagnose(desired).looked_at
    complete = seen(desired, node=node(labels={"tgp.io/x": "y"}, taints=(TAINT,)))
    assert "marks: all set" in diagnose(complete).looked_at


def test_fields_that_are_named_to_people_exist() -> None:
    """Whoever is told to change a field has to find it in the documents."""
    kubernetes = {"nodeLabels", "tagOwners", "emptyDir"}  # of Talos, of the mesh's policy, of pods
    fields = {path.rpartition(".")[2] for kind in KINDS.values() for path in _places(kind)}
    told = []
    for file in sorted(Path(rules.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                words = set(re.findall(r"\b[a-z]+(?:[A-Z][a-z]+)+\b", node.value))
                told += [f"{file.name}:{node.lineno} {word}" for word in words - fields - kubernetes]
    assert told == []
    lost = dataclasses.replace(RUNS, instance=machine(InstanceState.STOPPED, "stopped", interrupted=True))
    assert {"bidMargin", "spotAllowed"} <= fields and "spotAllowed: false" in diagnose(lost).remedy


@pytest.mark.parametrize(("shown", "state"), [(8, "ok"), (2, "NO"), (32, "warn")])
def test_S4_10_the_slices_of_a_rented_machine_are_counted_once(shown: int, state: str) -> None:
    """Its claim says how many slices must become allocatable, and its offer how many GPUs it has."""
    rented = build.claim(offer=build.offer(gpu_count=2), expected_gpus=8)
    seen = build.node(allocatable={"nvidia.com/gpu": shown})
    facts = gpus._gpu_node(seen, {"nvidia.com/gpu": shown}, rented)
    cluster = ClusterGpus(config=PluginConfigMap("nvidia-device-plugin-config", {"config.yaml": SharingConfig(4)}, "config.yaml"))
    (row,) = [check for check in node_checks(facts, cluster) if check.check == "GPUs"]
    assert row.state == state and "2 GPUs × 4 slices" in row.seen, row
