# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what an Ubuntu node answers by SSH to the rows of the diagnosis (S4-11, S4-12)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.evidence.ssh_node import parse
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.facts import ClusterGpus, GpuNodeFacts
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.host_checks import host_checks
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.node_checks import xid_check
from ansible_collections.tgp.gpu.plugins.module_utils.model import GpuXids, Node
from ansible_collections.tgp.gpu.plugins.module_utils.planner.xids import meaning
from hypothesis import given
from hypothesis import strategies as st

NODE = GpuNodeFacts(Node("gpu-2", "uid-1", datetime(2026, 8, 21, tzinfo=timezone.utc), True), {}, gpus=2, model="A10")
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build  (dvs-builder@U22)  Wed Jan 14 2026"
WELL = {
    "kernel": "6.8.0-90-generic",
    "modules": "nvidia_uvm\nnvidia_drm\nnvidia_modeset\nnvidia\nxfs",
    "version": f"{VERSION}\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)",
    "packages": "ii  linux-modules-nvidia-580-server-open-6.8.0-90-generic 6.8.0-90.91\n"
    "hi  nvidia-utils-580-server 580.126.20-0ubuntu0.24.04.1\nrc  nvidia-utils-570-server 570.1\nii  nvidia-container-toolkit 1.19.1-1",
    "toolkit": "NVIDIA Container Toolkit CLI version 1.19.1\ncommit: 0a1b",
    "runtime": "/etc/containerd/conf.d/99-nvidia.toml",
    "smi": "GPU 0: NVIDIA A10 (UUID: GPU-1c)\nGPU 1: NVIDIA A10 (UUID: GPU-2d)\n==exit 0",
    "xids": "",
    "end": "",
}
XID = "2026-08-21T12:00:00+0000 gpu-2 kernel: NVRM: Xid (PCI:0000:07:00): {}, pid='<unknown>', name=<unknown>"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.142\n==exit 18"
UNREADABLE = "groups adm"


def answer(**parts: str) -> str:
    told = {**WELL, **parts}
    return "Welcome to a cloud\n" + "".join(f"\n==tgp {name}\n{text}\n" for name, text in told.items())


def rows(text: str) -> dict[str, tuple[str, str, str]]:
    return {one.check: (one.state, one.code, f"{one.seen} {one.remedy}") for one in host_checks(NODE, parse(text))}


def test_a_node_that_is_well() -> None:
    found = rows(answer())
    assert {check: (state, code) for check, (state, code, _words) in found.items()} == dict.fromkeys(
        ("driver", "nvidia-smi", "container toolkit", "kernel log"), ("ok", "")
    )
    assert "580.126.20 for kernel 6.8.0-90-generic" in found["driver"][2] and "2 GPUs" in found["nvidia-smi"][2]
    assert parse(answer()).packages == (
        "linux-modules-nvidia-580-server-open-6.8.0-90-generic 6.8.0-90.91",
        "nvidia-utils-580-server 580.126.20-0ubuntu0.24.04.1",
        "nvidia-container-toolkit 1.19.1-1",
    )


@pytest.mark.parametrize(
    ("parts", "check", "state", "code", "words"),
    [
        ({"modules": "nouveau\nxfs"}, "driver", "NO", "nouveau_loaded", "blacklists nouveau"),
        ({"modules": "xfs", "packages": "ii  nvidia-container-toolkit 1.19.1-1"}, "driver", "NO", "no_driver_package", "start script"),
        ({"modules": "xfs", "packages": ""}, "driver", "NO", "no_driver_package", "nvidia, nvidia_uvm are not loaded"),
        ({"modules": "xfs", "kernel": "6.8.0-94-generic"}, "driver", "NO", "module_of_other_kernel", "installed for 6.8.0-90-generic"),
        ({"modules": "xfs"}, "driver", "NO", "modules_not_loaded", "modprobe nvidia nvidia_uvm"),
        ({"modules": "nvidia"}, "driver", "NO", "modules_not_loaded", "modprobe nvidia_uvm."),
        ({"version": ""}, "driver", "NO", "driver_without_gpu", "NVRM"),
        ({"smi": MISMATCH}, "nvidia-smi", "NO", "version_mismatch", "reboot it"),
        ({"smi": "==absent"}, "nvidia-smi", "NO", "smi_failed", "not installed"),
        ({"smi": "==exit 124"}, "nvidia-smi", "NO", "smi_failed", "no answer within 20 s"),
        ({"smi": "No devices found.\n==exit 6"}, "nvidia-smi", "NO", "smi_failed", "No devices found."),
        ({"smi": "==exit 9"}, "nvidia-smi", "NO", "smi_failed", "exit status 9"),
        ({"smi": "GPU 0: NVIDIA A10 (UUID: GPU-1c)\n==exit 0"}, "nvidia-smi", "NO", "gpus_missing", "1 of 2 GPUs"),
        ({"toolkit": "", "runtime": ""}, "container toolkit", "NO", "no_toolkit", "join_kubelet"),
        ({"runtime": ""}, "container toolkit", "NO", "no_runtime", "nvidia-ctk runtime configure"),
        ({"xids": f"{XID.format(79)}\n{XID.format(31)}"}, "kernel log", "NO", "xid", "XID 79: "),
        ({"xids": XID.format(31)}, "kernel log", "warn", "xid", "XID 31: an access to a page of memory that is not there"),
        ({"xids": "kernel: NVRM: Xid of another form"}, "kernel log", "warn", "xid", "see NVIDIA's XID catalogue"),
        ({"xids": "==unreadable"}, "kernel log", "unknown", "", UNREADABLE),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_its_remedy(parts: dict[str, str], check: str, state: str, code: str, words: str) -> None:
    found = rows(answer(**parts))
    assert found[check][:2] == (state, code) and words in found[check][2], found
    others = {name: row for name, row in found.items() if name != check and not (name == "driver" and check == "nvidia-smi")}
    assert {row[0] for row in others.values()} == {"ok"}, others


@pytest.mark.parametrize("xid", [13, 31, 48, 54, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 154, 999])
def test_L55_the_kernel_log_says_of_an_xid_what_the_metrics_say(xid: int) -> None:
    """One table for both: what dcgm-exporter shows and what the kernel has written."""
    node = dataclasses.replace(NODE, xids=GpuXids({"0": (xid,)}, "", None))
    shown = xid_check(node, ClusterGpus())
    state, code, words = rows(answer(xids=XID.format(xid)))["kernel log"]
    assert shown is not None and state == shown.state
    assert meaning(xid).text in words and meaning(xid).remedy in words and meaning(xid).text in shown.seen


def test_L55_a_broken_gpu_is_said_before_the_faults_of_programs() -> None:
    log = "\n".join(XID.format(xid) for xid in (48, 13, 31))
    state, _code, words = rows(answer(xids=log))["kernel log"]
    assert state == "NO" and "XID 48: an error of two bits" in words and "XID 13" not in words and "): 48, pid" in words


@given(st.integers(0, len(answer())))
def test_an_answer_that_ends_early_is_never_a_fault(length: int) -> None:
    """The connection may break anywhere. What did not come is unknown."""
    states = {state for state, _code, _words in rows(answer()[:length]).values()}
    assert states <= {"ok", "unknown"}
    assert answer()[:length].count("==tgp ") == len(WELL) or "unknown" in states  # what stands before the last mark is whole


@given(st.text())
def test_a_strange_answer_raises_nothing(text: str) -> None:
    found = rows(text)
    assert {state for state, _code, _words in found.values()} == {"unknown"} or "==tgp" in text


def test_every_part_that_is_asked_for_is_read() -> None:
    """A part of the script that no field is made of would be an accident."""
    empty: dict[str, t.Any] = {field.name: field.default for field in dataclasses.fields(parse(answer()))}
    told = dataclasses.asdict(parse(answer()))
    assert [name for name in told if told[name] == empty[name] and name not in ("unread",)] == []
