# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_diagnose: all is well, and each of the faults of the sandbox with its remedy (S4-10 to S4-12, S4-19 to S4-22)."""

from __future__ import annotations

import dataclasses
import threading
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.operations import gpu_test

from sandbox.gpu_stack import FAULTS, NAMESPACE, NODE, GpuStack
from sandbox.talos_api import TalosApi

from .rig import Rig

#: fault -> (subject, check, code, words of its remedy)
TOLD: dict[str, tuple[str, str, str, str]] = {
    "module not loaded": ("node gpu-1", "driver", "modules_not_loaded", "machine.kernel.modules"),
    "cdi-gen failed": ("node gpu-1", "CDI", "cdi_failed", "log of ext-nvidia-cdi-gen"),
    "wrong module for the GPU": ("node gpu-1", "extensions", "wrong_driver", "Make an image"),
    "driver and library mismatch": ("node gpu-1", "driver", "version_mismatch", "one track"),
    "mixed extension tracks": ("node gpu-1", "extensions", "mixed_tracks", "of one track"),
    "toolkit extension missing": ("node gpu-1", "extensions", "no_toolkit", "siderolabs/nvidia-container-toolkit-lts"),
    "RuntimeClass missing": ("cluster", "RuntimeClass", "no_runtime_class", "Create it"),
    "plugin does not tolerate a taint": ("node gpu-1", "device plugin", "plugin_not_scheduled", "team=research:NoSchedule"),
    "plugin without NVML": ("node gpu-1", "device plugin", "no_nvml", "runtimeClassName: nvidia"),
    "unhealthy GPU": ("node gpu-1", "GPUs", "gpus_unhealthy", "XID"),
    "slices not in effect": ("node gpu-1", "GPUs", "slices_missing", "restart its pod"),
    "broken plugin configuration": ("cluster", "plugin configuration", "config_invalid", "Correct it"),
    "power limit forbidden": ("node gpu-1", "power limit", "power_forbidden", "opt-in label"),
    "CDI hook at a wrong path": ("pod default/job", "waits", "hook_path", "NVIDIA_CDI_HOOK_PATH"),
    "two slices for one pod": ("pod default/job", "waits", "slices_per_pod", "nvidia.com/gpu: 1"),
    "taint not tolerated": ("pod default/job", "waits", "taint_not_tolerated", "tgp.io/ephemeral"),
    "selector matches no node": ("pod default/job", "waits", "not_selected", "nodeSelector"),
    "no free GPU": ("pod default/job", "waits", "no_free_gpu", "time-slicing"),
    "image cannot be pulled": ("pod default/job", "waits", "image_pull", "imagePullSecret"),
}


@dataclasses.dataclass
class Stand:
    """A rig with two GPU nodes, and what fleet_diagnose says of them."""

    rig: Rig
    stack: GpuStack
    config: str

    def checks(self, **options: t.Any) -> list[dict[str, str]]:
        """All checks, whether the module failed or not."""
        try:
            return t.cast("list[dict[str, str]]", self.rig.run("diagnose", **{"talosconfig": self.config, **options})["checks"])
        except InvalidInput as error:
            return t.cast("list[dict[str, str]]", error.result["checks"])  # type: ignore[attr-defined]

    def states(self, **options: t.Any) -> set[str]:
        return {check["state"] for check in self.checks(**options)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[tuple[Rig, TalosApi]]:
    """One world for all tests here: to build one takes a second."""
    folder = tmp_path_factory.mktemp("gpus")
    with pytest.MonkeyPatch.context() as patch, TalosApi() as talos:
        patch.setenv("TGP_RUNTIME_DIR", str(folder / "pace"))
        rig = Rig(folder, device_plugin=False)
        yield rig, talos
        rig.close()


@pytest.fixture
def stand(place: tuple[Rig, TalosApi]) -> t.Iterator[Stand]:
    rig, talos = place
    stack = GpuStack(rig.api, talos).healthy()
    rig.lines.clear()
    path = rig.folder / "talosconfig"
    path.write_text(talos.talosconfig())
    yield Stand(rig, stack, str(path))
    stack.clear()


def test_S4_11_all_is_well_and_nothing_is_written(stand: Stand) -> None:
    before = list(stand.rig.world.writes)
    result = stand.rig.run("diagnose", talosconfig=stand.config)
    assert {check["state"] for check in result["checks"]} == {"ok"}, result["checks"]
    assert result["changed"] is False and stand.rig.world.writes == before
    checked = {check["check"] for check in result["checks"] if check["subject"] == f"node {NODE}"}
    assert checked == {"node", "extensions", "driver", "services", "CDI", "device plugin", "GPUs", "power limit"}
    table = "\n".join(stand.rig.lines)
    assert "8 allocatable = 2 GPUs × 4 slices" in table and "580.126.20, 4 modules loaded" in table


class Kubelets:
    """While the block runs, test pods are run as kubelets would; ``seen`` counts them. Pods of other tests are left alone."""

    def __init__(self, stack: GpuStack, broken: str = "") -> None:
        self._stack, self._broken = stack, broken
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.seen = 0

    def _work(self) -> None:
        while not self._end.wait(0.005):
            self.seen += self._stack.run_test_pods(broken=self._broken)

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()


def labelled(stack: GpuStack) -> list[str]:
    listed = stack.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=tgp.io/gpu-test")["items"]
    return [pod["metadata"]["name"] for pod in listed]


@pytest.mark.parametrize(
    ("broken", "state", "words"),
    [("", "ok", "4 pods shared GPUs on gpu-2 and passed"), ("CDI", "NO", "2 of 4 failed. "), ("wrapper", "NO", "2 of 4 failed. ")],
)
def test_S4_13_four_pods_share_a_gpu_and_are_gone_afterwards(stand: Stand, broken: str, state: str, words: str) -> None:
    with Kubelets(stand.stack, broken) as kubelets:
        checks = stand.checks(gpu_test=True)
    [found] = [one for one in checks if one["check"] == "GPU test"]
    assert (found["state"], kubelets.seen) == (state, 4) and words in found["seen"], found
    if broken:
        assert f"({broken})" in found["seen"] and "no CUDA-capable device" in found["seen"] and found["remedy"] != ""
    assert labelled(stand.stack) == []


def test_S4_13_test_pods_that_never_start_and_those_of_a_killed_run_go(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet runs nothing here. A run that is killed leaves its pods, and the next one removes them once their time is over."""
    removed = gpu_test._removed
    monkeypatch.setattr(gpu_test, "_removed", lambda *_what: None)
    stand.checks(gpu_test=True, gpu_test_timeout=30)
    assert len(labelled(stand.stack)) == 4
    monkeypatch.setattr(gpu_test, "_removed", removed)
    checks = stand.checks(gpu_test=True, gpu_test_timeout=30)
    [found] = [one for one in checks if one["check"] == "GPU test"]
    assert found["state"] == "NO" and "it did not end in time" in found["seen"]
    assert labelled(stand.stack) == []


def test_S4_13_check_mode_makes_no_pod(stand: Stand) -> None:
    before = list(stand.rig.world.writes)
    result = stand.rig.run("diagnose", check=True, talosconfig=stand.config, gpu_test=True)
    assert stand.rig.world.writes == before and "GPU test" not in {one["check"] for one in result["checks"]}


@pytest.mark.parametrize("fault", FAULTS)
def test_S4_19_each_fault_is_told_with_its_remedy(stand: Stand, fault: str) -> None:
    FAULTS[fault](stand.stack)
    subject, check, code, remedy = TOLD[fault]
    checks = stand.checks()
    found = [one for one in checks if (one["subject"], one["check"]) == (subject, check)]
    assert [(one["state"], one["code"]) for one in found] == [("NO", code)], checks
    assert remedy in found[0]["remedy"]
    assert {one["state"] for one in checks if one["subject"] == "node gpu-2"} == {"ok"}, "the other node is well"
    assert any(f"→ {found[0]['remedy']}" in line for line in stand.rig.lines)
