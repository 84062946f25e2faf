# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-55: XIDs that dcgm-exporter shows of GPUs, read through the API server (sandbox/dcgm_exporter.py): what runs, status and diagnosis say of
them, and which of them end a machine."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig
from .test_utilization import Watched

EIGHT = {"lambda": [{"type": "gpu_8x_a100_80gb_sxm4", "region": "us-south-2", "stock": 4, "boot": 20}], "machines": []}


def watched(rig: Rig, action: str = "", **more: t.Any) -> Watched:
    """A machine with a pod; ``action`` of its pool on XID 79 and 119 after 20 minutes, none without it."""
    if action:
        rig.training["unhealthyConditions"] = [{"xids": [79, 119], "for": "20m", "action": action}]
    here = Watched(rig, "pods", **more)
    rig.pod(here.node)
    return here


def test_L55_an_xid_that_stays_ends_its_machine_where_the_pool_says_so_and_the_next_one_stays(rig: Rig) -> None:
    here = watched(rig, "Replace")
    assert "XID" not in here.why(here.reap()) and here.exporters.asked[here.node] == 1
    here.exporters.xid(here.node, 0, 79)
    assert "XID 79 of GPU 0 since" in here.why(here.reap()) and len(rig.machines()) == 1
    assert here.row()["state"] == "Ready, XID 79 of GPU 0" and here.row()["signs"] == ["XID 79 of GPU 0"]
    (row,) = here.row()["xids"]
    assert (row["gpu"], row["xid"], row["kind"]) == ("0", 79, "machine") and here.row()["xids_unknown"] == ""
    line = next(line for line in rig.lines if "XID 79 of GPU 0 (machine)" in line)
    assert line.strip().startswith(f"{here.node}: ") and "fallen off the bus" in line and "replace it" in line
    here.reap()
    writes = rig.writes()
    rig.reap()
    assert rig.writes() == writes and len(rig.machines()) == 1, "a quiet run writes nothing"
    rig.advance(660)
    assert "Unhealthy" in str(rig.plan("reap", check=True)["plan"]) and rig.writes() == writes, (
        "check mode says it and writes nothing"
    )
    rig.reap()
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Unhealthy"
    rig.advance(7200)
    rig.provision()
    rig.pod(rig.machine().name, name="job-2")
    for _run in range(3):
        here.reap(20)
    assert len(rig.machines()) == 1 and "XID" not in str(here.reap()["plan"]["plan"]), "one old value ends one machine"


def test_L55_an_xid_that_vanishes_or_cannot_be_read_ends_nothing(rig: Rig) -> None:
    """The exporter starts again, which takes the XID away; then it does not answer, and the time that has begun is kept."""
    here = watched(rig, "Replace")
    here.exporters.xid(here.node, 0, 119)
    assert "XID 119 of GPU 0" in here.why(here.reap())
    here.exporters.restart(here.node)
    assert "XID" not in here.why(here.reap(30)) and len(rig.machines()) == 1
    here.exporters.xid(here.node, 0, 119)
    here.reap()
    for fault in ("down", "no_xids", "stale", "garbage", "other_node"):
        here.exporters.use(here.node, fault=fault)
        assert "XID" not in here.why(here.reap(30)) and len(rig.machines()) == 1, fault
    assert here.row()["xids_unknown"] and here.row()["xids"] == [] and here.row()["state"] == "Ready"
    assert f"unknown: XIDs of {here.node}: " in "\n".join(rig.lines)
    here.exporters.use(here.node)
    here.reap()
    assert rig.left() == {}, "it was there before, and is there now"


def test_L55_several_gpus_and_without_an_entry_nothing_is_asked(build: t.Callable[..., Rig]) -> None:
    rig = build(**EIGHT)
    rig.training["maxHourlyPrice"] = "25.00"
    rig.training["template"]["spec"]["requirements"] = []
    rig.demo_class["limits"] = {"maxNodes": 3, "maxHourlyCost": "60.00"}
    here = watched(rig)
    for gpu, number in ((1, 13), (2, 79), (5, 200), (7, 48)):
        here.exporters.xid(here.node, gpu, number)
    here.reap()
    assert here.row()["xids"] == [] and here.exporters.asked == {}, "no pool goes by it, so nothing is read"
    rig.training["unhealthyConditions"] = [
        {"xids": [79], "for": "20m", "action": "ReplaceWhenEmpty"},
        {"xids": [48], "action": "Ignore"},
    ]
    here.reap()
    kept = here.why(here.reap(25))
    assert "kept: pod default/job works there" in kept and "GPU 1" not in kept and "GPU 5" not in kept and "GPU 7" not in kept
    row = here.row()
    assert row["state"] == "Ready, XID 79 of GPU 2" and [one["kind"] for one in row["xids"]] == [
        "program",
        "machine",
        "unknown",
        "reset",
    ]
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    here.reap()
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Replaced"


@pytest.mark.parametrize(
    ("number", "state", "code"), [(0, "ok", ""), (31, "warn", "xid_seen"), (79, "NO", "xid"), (None, "unknown", "")]
)
def test_L55_the_diagnosis_reads_each_exporter_whatever_the_pool_asks_for(
    rig: Rig, number: int | None, state: str, code: str
) -> None:
    here = watched(rig)
    here.exporters.use(here.node, fault="down" if number is None else "")
    here.exporters.xid(here.node, 0, number or 0)
    writes = rig.writes()
    try:
        checks = rig.run("diagnose")["checks"]
    except InvalidInput as error:
        checks = error.result["checks"]  # type: ignore[attr-defined]
    (check,) = [one for one in checks if one["check"] == "XIDs"]
    assert (check["subject"], check["state"], check["code"]) == (f"node {here.node}", state, code) and rig.writes() == writes
    assert number != 79 or ("XID 79 of GPU 0: the GPU has fallen off the bus" in check["seen"] and "replace it" in check["remedy"])
