# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fifteen ways in which a rented machine never becomes a node, injected one by one: what the user is told, what stays on file, and that
nothing is paid any longer (L-11, S1-46, S3-31, A-08).

Most are played on Vast.ai's VMs, whose boot log can be read; those that need none again on Lambda, which shows no log.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import stat
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet import cloud_config

from ...chaos.grounds import GROUNDS
from .rig import Rig

Build = t.Callable[..., Rig]
FORBIDDEN = "node-role.kubernetes.io/gpu"


def rented(build: Build, cloud: str, *, minutes: int = 6, boot: int = 60) -> Rig:
    """A sandbox whose documents know one cloud, whose machines boot slowly enough to do something to them meanwhile."""
    ground = GROUNDS[cloud]
    scenario = copy.deepcopy(ground.scenario)
    for offers in scenario.values():
        for offer in offers["offers"] if isinstance(offers, dict) else offers:
            offer["boot"] = boot
    rig = build(**{"machines": [], "lambda": [], **scenario})
    rig.demo_class["providers"] = [{"name": cloud, "settings": ground.settings}]
    rig.training.clear()
    rig.training.update(
        {"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "4.00", "registrationTimeout": f"{minutes}m"}
    )
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    return rig


class Told:
    """What the user is told of the only machine, which failed and was given back in the same run."""

    def __init__(self, rig: Rig, done: dict[str, t.Any], *, left: dict[str, int] | None = None) -> None:
        (self.row,) = done["machines"]
        assert self.row["result"] == "failed", self.row
        assert self.row["message"].endswith("(terminated)"), self.row
        assert rig.left() == (left or {})
        self.diagnosis: dict[str, t.Any] = self.row["diagnosis"]
        self.code, self.cause = self.diagnosis["code"], self.diagnosis["cause"]
        self.evidence = "\n".join(self.diagnosis["evidence"])
        self.screen = self._screen(rig)
        (line,) = rig.ledger()
        assert (line["reason"], line["joined"]) == ("FailedJoin", False)
        assert self.cause in line["why"] and self.diagnosis["file"] in line["why"]
        self._check_file(rig)
        print("", *self.screen, sep="\n")  # pytest -s shows one screen for each failure

    def _screen(self, rig: Rig) -> list[str]:
        """One screen, with every step of the machine, cause, evidence and remedy."""
        start = next(at for at, text in enumerate(rig.lines) if "did not become usable" in text)
        shown = []
        for text in rig.lines[start:]:
            shown.append(text)
            if text.startswith("  all of it"):
                break
        assert len(shown) <= 24 and max(map(len, shown)) <= 200, shown
        heads = [text[:11].strip() for text in shown]
        for head in ("launched", "instance", "csr", "node", "ready", "cause", "evidence", "remedy"):
            assert head in heads, (head, shown)
        assert self.row["seen"] and f"[{self.code}]" in "\n".join(shown).replace("\n            ", " ")
        return shown

    def _check_file(self, rig: Rig) -> None:
        path = Path(self.diagnosis["file"])
        assert path.parent == rig.folder / "state" / "evidence"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        content = json.loads(path.read_text())
        assert content["diagnosis"]["code"] == self.code and content["claim"] == self.row["name"]
        readable = path.with_suffix(".txt").read_text()
        assert self.cause.split()[0] in readable
        secrets = [key.secret for key in rig.box.tailnet._keys.values()] + list(rig.world.secrets.values())
        for secret in filter(None, secrets):
            assert secret not in path.read_text() + readable


def told(rig: Rig, **more: t.Any) -> Told:
    return Told(rig, rig.join(), **more)


def note(rig: Rig, kind: str, name: str, namespace: str, reason: str, message: str) -> None:
    """A warning, three times, as the kubelet writes it."""
    stamp = rig.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": kind, "name": name, **({"namespace": namespace} if kind == "Pod" else {})}
    meta = {"name": f"{name}.{reason.lower()}", "namespace": namespace}
    times = {"firstTimestamp": stamp, "lastTimestamp": stamp, "count": 3}
    body = {"metadata": meta, "involvedObject": about, "type": "Warning", "reason": reason, "message": message, **times}
    rig.kube("POST", f"/api/v1/namespaces/{namespace}/events", body)


# ---- the fifteen


def test_01_wrong_token(build: Build) -> None:
    rig = rented(build, "vast")
    rig.rent()
    path = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{rig.claim()['token_id']}"
    rig.kube("PATCH", path, {"data": {"token-secret": base64.b64encode(b"another0another0").decode()}})
    said = told(rig)
    assert said.code == "wrong_token"
    assert "does not accept the machine's bootstrap token: it is not the one in the cluster" in said.cause
    assert "fail api: the API server does not know the bootstrap token" in said.evidence
    assert "exists and is valid" in said.evidence


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_01_a_token_that_somebody_deleted(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.rent()
    token = f"bootstrap-token-{rig.claim()['token_id']}"
    rig.kube("DELETE", f"/api/v1/namespaces/kube-system/secrets/{token}")
    said = told(rig)
    assert said.code == "wrong_token" and "was deleted before" in said.cause
    assert f"kube-system has no Secret {token}" in said.evidence


def test_02_wrong_ca(build: Build) -> None:
    rig = rented(build, "vast")
    rig.behave("wrong_ca")
    rig.rent()
    said = told(rig)
    assert said.code == "wrong_ca" and "does not trust the API server" in said.cause
    assert "unable to get local issuer certificate" in said.evidence
    assert "talos_secrets" in said.diagnosis["remedy"]


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_03_expired_key(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.rent()
    key = rig.box.tailnet.key(rig.claim()["mesh_key_id"])
    assert key is not None
    key.expires = rig.clock.now() - timedelta(seconds=1)
    said = told(rig)
    assert said.code == "expired_key" and "expired before the machine used it" in said.cause
    assert f"the key {key.id} expired at" in said.evidence


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_04_used_key(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.rent()
    key = rig.box.tailnet.key(rig.claim()["mesh_key_id"])
    assert key is not None
    rig.box.tailnet.join(key.secret, "stranger")
    said = told(rig, left={"devices": 1})
    assert said.code == "used_key" and "had been used before" in said.cause
    assert "stranger" in said.evidence and "joined at" in said.evidence


def test_05_no_capacity_after_launch(build: Build) -> None:
    rig = rented(build, "paperspace")
    plan = rig.plan("provision", pools=["training"], nodes=1)
    for offer in rig.world.offers:
        offer.stock = 0
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    said = told(rig)
    assert said.code == "no_capacity" and "took the order and then had no machine" in said.cause
    assert "insufficient capacity" in said.evidence


def test_06_blocked_6443(build: Build) -> None:
    rig = rented(build, "vast")
    rig.behave("blocked", port=6443)
    rig.rent()
    said = told(rig)
    assert said.code == "blocked_6443" and "cannot reach the API server" in said.cause
    assert "cannot be reached" in said.evidence and "is online" in said.evidence
    assert "grant" in said.diagnosis["remedy"]


def test_06_without_a_log_all_that_fits_is_named(build: Build) -> None:
    rig = rented(build, "lambda")
    rig.behave("blocked", port=6443)
    rig.rent()
    said = told(rig)
    assert (said.code, said.diagnosis["certain"]) == ("no_request", False)
    assert "is blocked, or its CA or token is wrong" in said.cause


@pytest.mark.parametrize(
    "behaviour, code, step",
    [
        ({"kind": "wrong_ca"}, "no_request", "device"),
        ({"kind": "own_label", "label": FORBIDDEN}, "no_request", "device"),
        ({"kind": "disk_too_small", "gib": 9}, "not_in_mesh", "instance"),
        ({"kind": "clock_skew", "seconds": 400 * 86400}, "not_in_mesh", "instance"),
    ],
    ids=lambda one: one["kind"] if isinstance(one, dict) else "",
)
def test_without_a_log_the_last_step_is_told_and_not_more(build: Build, behaviour: dict[str, t.Any], code: str, step: str) -> None:
    rig = rented(build, "lambda")
    rig.behave(**behaviour)
    rig.rent()
    said = told(rig)
    assert (said.code, said.diagnosis["step"]) == (code, step)


def test_07_blocked_50001(rig: Rig) -> None:
    rig.document("GPUNodePool", "own")["spec"]["registrationTimeout"] = "6m"
    rig.behave("blocked", port=50001)
    rig.rent(pool="own")
    joined = rig.join()
    assert [one["result"] for one in joined["machines"]] == ["ready"], "pods run there; nobody but Talos itself is hurt yet"
    (said,) = [one for one in rig.warnings if "Talos API" in one]
    assert "port 50000 of the node refuses connections" in said and "cannot reach trustd; open tcp 50001" in said
    assert "reboots after 70 minutes" in said
    rig.destroy()
    assert rig.left() == {}


def test_07_blocked_50001_of_a_node_that_is_not_ready(rig: Rig) -> None:
    """Not Ready, and no Talos API either: what Talos waits for is the cause, and the machine is given back."""
    rig.document("GPUNodePool", "own")["spec"]["registrationTimeout"] = "6m"
    rig.behave("blocked", port=50001)
    rig.behave("never_ready")
    rig.rent(pool="own")
    (name,) = rig.claims()
    rig.until(lambda: name in rig.nodes(), "registers")
    down = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"}
    rig.kube("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [down]}})
    said = told(rig)
    assert said.code == "blocked_50001" and "cannot reach trustd (port 50001 of the control plane)" in said.cause
    assert "port 50000 of the node refuses connections" in said.evidence and "Node: container runtime is down" in said.evidence
    assert "Open tcp:50001 to every control plane" in said.diagnosis["remedy"]


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_08_wrong_kubelet_version(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.behave("other_kubelet", version="v1.99.0")
    rig.rent()
    started = rig.clock.now()
    said = told(rig)
    assert said.code == "wrong_kubelet_version" and "the kubelet v1.99.0 is newer than the API server" in said.cause
    assert (rig.clock.now() - started).total_seconds() < 300, "hopeless states are not waited for"


def test_09_forbidden_label(build: Build) -> None:
    rig = rented(build, "vast")
    rig.behave("own_label", label=FORBIDDEN)
    rig.rent()
    said = told(rig)
    assert said.code == "forbidden_label" and "NodeRestriction keeps for administrators" in said.cause
    assert FORBIDDEN in said.evidence


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_10_stale_node_of_the_same_name(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    plan = rig.plan("provision", pools=["training"], nodes=1)
    (name,) = plan["launch"]
    rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    rig.advance(120)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    said = told(rig)
    assert said.code == "stale_node" and f"A Node named {name} existed before this machine" in said.cause
    assert f"kubectl delete node {name}" in said.diagnosis["remedy"]


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_11_gpu_missing(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.behave("gpu_missing")
    rig.rent()
    said = told(rig)
    assert said.code == "gpu_missing" and "only 0 of 1 nvidia.com/gpu became allocatable" in said.cause


@pytest.mark.parametrize("cloud", ["vast", "lambda"])
def test_12_cni_not_ready(build: Build, cloud: str) -> None:
    rig = rented(build, cloud)
    rig.behave("never_ready")
    rig.rent()
    name = rig.machine().name
    rig.let_in(rig.claim()["token_id"])
    rig.until(lambda: name in rig.nodes(), "registers")
    meta = {"name": "kube-flannel-x1", "namespace": "kube-system"}
    spec = {"nodeName": name, "containers": [{"name": "flannel", "image": "x"}], "tolerations": [{"operator": "Exists"}]}
    rig.kube("POST", "/api/v1/namespaces/kube-system/pods", {"metadata": meta, "spec": spec})
    rig.until(
        lambda: rig.kube("GET", "/api/v1/namespaces/kube-system/pods/kube-flannel-x1")["status"].get("phase") == "Running", "runs"
    )
    waits = {"name": "flannel", "ready": False, "image": "x", "imageID": "", "restartCount": 0}
    state = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}
    status = {"phase": "Pending", "containerStatuses": [{**waits, **state}]}
    rig.kube("PATCH", "/api/v1/namespaces/kube-system/pods/kube-flannel-x1/status", {"status": status})
    note(
        rig, "Pod", "kube-flannel-x1", "kube-system", "Failed", 'Failed to pull image "x": not found, with abcdef.0123456789abcdef'
    )
    note(rig, "Node", name, "default", "InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
    said = told(rig)
    assert said.code == "cni_not_ready" and "its pod network never came up" in said.cause
    assert "cni plugin not initialized" in said.evidence
    assert "kube-system/kube-flannel-x1: flannel: ImagePullBackOff" in said.evidence
    assert 'event of kube-system/kube-flannel-x1: Failed (3 times): Failed to pull image "x": not found' in said.evidence
    assert "InvalidDiskCapacity" not in said.evidence, "every kubelet says that when it starts"
    kept = json.loads(Path(said.diagnosis["file"]).read_text())["findings"]["events"]
    assert {"Failed", "Starting"} <= {one["reason"] for one in kept} and "0123456789abcdef" not in json.dumps(kept)


def test_13_disk_too_small(build: Build) -> None:
    rig = rented(build, "vast")
    rig.behave("disk_too_small", gib=9)
    rig.rent()
    said = told(rig)
    assert said.code == "disk_too_small" and "disk is too small" in said.cause
    assert "9 GiB free on the root disk" in said.evidence


def test_what_the_payload_does_not_print_is_not_diagnosed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine as in 13, whose program keeps its failure to itself: the diagnosis knows less, and is not certain."""
    spoken = '  say "fail $STEP: '
    assert spoken in cloud_config.BOOTSTRAP
    monkeypatch.setattr(cloud_config, "BOOTSTRAP", cloud_config.BOOTSTRAP.replace(spoken, '  : "fail $STEP: '))
    rig = rented(build, "vast")
    rig.behave("disk_too_small", gib=9)
    rig.rent()
    said = told(rig)
    assert (said.code, said.diagnosis["certain"], "GiB free" in said.evidence) == ("not_in_mesh", False, False)
    assert "console: 2 lines, the last: tgp-step preflight" in said.diagnosis["looked_at"]


def test_14_clock_skew(build: Build) -> None:
    rig = rented(build, "vast")
    rig.behave("clock_skew", seconds=400 * 86400)
    rig.rent()
    said = told(rig)
    assert said.code == "clock_skew" and "The machine's clock is wrong" in said.cause
    assert "is before" in said.evidence


@pytest.mark.parametrize("cloud", ["vast", "lambda", "paperspace"])
def test_15_machine_gone(build: Build, cloud: str) -> None:
    rig = rented(build, cloud, minutes=15, boot=240)
    rig.behave("vanish", seconds=180)  # two minutes after Vast.ai began to list it, so that somebody saw it
    rig.rent()
    said = told(rig)
    assert said.code == "machine_gone" and f"{cloud} took the machine away" in said.cause


# ---- when not all can be asked


def test_what_cannot_be_asked_is_named_and_ends_nothing(build: Build) -> None:
    rig = rented(build, "lambda", minutes=3)
    rig.behave("mesh_fails")
    rig.rent()
    rig.fault("status", "tailscale", "GET", "/keys", status=403, times=None)
    rig.fault("status", "kubernetes", "GET", "certificatesigning", status=403, times=None)
    done = rig.join()
    (row,) = done["machines"]
    looked = "\n".join(row["diagnosis"]["looked_at"])
    assert "mesh key: could not be read" in looked and "certificate requests: could not be read" in looked
    assert row["diagnosis"]["code"] == "not_in_mesh" and "is unused and valid" not in str(row["diagnosis"])


@pytest.mark.parametrize(
    "behaviour, code, words", [("unhealthy_path", "unhealthy", "503"), ("never_boots", "never_booted", "runpod calls it")]
)
def test_a_service_that_never_answers_is_explained_too(build: Build, behaviour: str, code: str, words: str) -> None:
    rig = rented(build, "runpod")
    rig.training.update(copy.deepcopy(GROUNDS["runpod"].pool))
    rig.behave(behaviour)
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and row["message"].endswith("(terminated)")
    assert row["diagnosis"]["code"] == code and words in "\n".join(row["diagnosis"]["evidence"]), row["diagnosis"]
    shown = [line for line in rig.lines if line.startswith("  ") and line.split()[0] in ("launched", "device", "healthy", "csr")]
    assert [line.split()[0] for line in shown if "-" in line or "Z" in line][:3] == ["launched", "device", "healthy"]


def test_S3_31_every_step_has_its_time(rig: Rig) -> None:
    (row,) = rig.provision()["machines"]
    assert (row["result"], row["diagnosis"]) == ("ready", None)
    assert list(row["seen"]) == sorted(row["seen"], key=lambda step: row["seen"][step])
    assert {"instance", "node", "ready", "complete"} <= set(row["seen"])
    assert not (rig.folder / "state" / "evidence").exists()


def test_S1_46_evidence_that_cannot_be_saved_ends_nothing(build: Build) -> None:
    rig = rented(build, "lambda", minutes=3)
    rig.behave("never_boots")
    rig.rent()
    (rig.folder / "state" / "evidence").write_text("in the way")
    (row,) = rig.join()["machines"]
    assert row["message"].endswith("(terminated)") and row["diagnosis"]["file"] == ""
    assert [text for text in rig.warnings if "its evidence could not be saved" in text]
