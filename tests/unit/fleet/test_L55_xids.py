# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-55: XIDs in the metrics of dcgm-exporter: what they say of a machine, since when they count, and what ends a machine for one."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.facts import ClusterGpus, GpuNodeFacts
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.gpus.node_checks import xid_check
from ansible_collections.tgp.gpu.plugins.module_utils.kube import dcgm_exporter
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import UTILIZATION, pool_features
from ansible_collections.tgp.gpu.plugins.module_utils.model import GpuXids, Plan, Pool, UnhealthyCondition
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.node_conditions import DEFAULTS, xid_signs
from ansible_collections.tgp.gpu.plugins.module_utils.planner.xids import XidKind, broken, meaning, xid_line, xid_rows
from hypothesis import given
from hypothesis import strategies as st

from sandbox.dcgm_exporter import DcgmExporters, GpuUse
from sandbox.kube import KubeApi

from .build import NOON, at, claim, decide, instance, node, of, one, pod, pool, seen, specs

NAME = "tgp-a1b2c3d4-p-00001"
MADE = claim().created
STARTED = at("11:00")  # of the exporter; the claim is older
ENDS = UnhealthyCondition(xids=(79, 119), lasts=600, action="Replace")
WAITS = UnhealthyCondition(xids=(79, 119), lasts=600, action="ReplaceWhenEmpty")


def xids(last: t.Mapping[str, tuple[int, ...]], why: str = "", since: datetime | None = STARTED) -> GpuXids:
    return GpuXids(last, why, since)


def asking(*entries: UnhealthyCondition, **facts: t.Any) -> Pool:
    return pool(unhealthy_conditions=entries or (ENDS,), **facts)


def key(xid: int = 79, gpu: str = "3", name: str = NAME) -> str:
    return f"UnhealthySign|lambda|{name}|XID {xid} of GPU {gpu}"


def run(found: GpuXids | None, now: str = "12:00", first: str | None = "11:50", wanted: Pool | None = None, **facts: t.Any) -> Plan:
    usual: dict[str, t.Any] = {"claims": (claim(),), "nodes": (node(),), "instances": (instance(),), "pods": (pod(),)}
    usual["findings"] = {} if first is None else {key(): at(first)}
    world = seen(at(now), **{**usual, **facts})
    world = dataclasses.replace(world, xids={} if found is None else {NAME: found})
    return decide(world, specs(wanted or asking()))


def told(found: Plan) -> str:
    return str([action.detail for action in of(found, "report")])


LOST = xids({"0": (), "3": (79,)})


# ---- what an XID says


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ((79, 54, 151, 160), XidKind.MACHINE),
        ((46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 156, 158), XidKind.RESET),
        ((13, 31, 32, 43, 45, 68, 69, 94), XidKind.PROGRAM),
        ((63, 78, 92, 93, 121, 154), XidKind.NOTE),
        ((1, 61, 200, 9999), XidKind.UNKNOWN),
    ],
)
def test_L55_E_what_the_numbers_say(numbers: tuple[int, ...], kind: XidKind) -> None:
    """[E] the stored table of NVSentinel, section 5 of the facts; 109 as there, although the DRA driver has it as a program's."""
    assert {meaning(xid).kind for xid in numbers} == {kind}
    assert all((xid in broken()) is (kind in (XidKind.MACHINE, XidKind.RESET)) for xid in numbers)


def test_L55_a_row_says_what_it_is_and_what_to_do() -> None:
    rows = xid_rows({"3": (79,), "0": (13, 200)})
    assert [(row["gpu"], row["xid"], row["kind"]) for row in rows] == [
        ("0", 13, "program"),
        ("0", 200, "unknown"),
        ("3", 79, "machine"),
    ]
    assert xid_line(rows[2]).startswith("XID 79 of GPU 3 (machine): the GPU has fallen off the bus. ")
    assert "replace it" in rows[2]["remedy"] and "machine stays" in rows[0]["remedy"]


# ---- when it ends a machine


def test_L55_two_runs_see_it_and_it_stands_for_its_time() -> None:
    first = run(LOST, first=None)
    assert not of(first, "destroy") and first.findings == {key(): NOON}
    assert not of(run(LOST, "12:09:59", "12:00"), "destroy")
    gone = one(run(LOST, "12:10", "12:00"), "destroy")
    assert gone.reason == "Unhealthy" and gone.detail.startswith("XID 79 of GPU 3 since 2026-08-20T12:00:00Z (the GPU has fallen")
    quick = asking(dataclasses.replace(ENDS, lasts=0))
    assert not of(run(LOST, "12:00:59", "12:00", quick), "destroy") and of(run(LOST, "12:01", "12:00", quick), "destroy")


def test_L55_without_an_entry_it_is_reported_and_ends_nothing() -> None:
    """Also on a machine without pods, and in a pool whose exporters are read for their use only."""
    plain = pool(idle_signal="both")
    found = run(LOST, "15:00", "11:00", plain, pods=())
    assert not of(found, "destroy") and "XID 79 of GPU 3" in told(found) and "action Report after 20m" in told(found)
    assert [notice.kind for notice in found.notices] == ["node_condition"]
    assert [entry.action for entry in DEFAULTS if entry.xids] == ["Report"]


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 63, 92, 94, 200])
def test_L55_faults_of_programs_notes_and_unknown_numbers_are_no_signs(xid: int) -> None:
    found = run(xids({"3": (xid,)}), "15:00", None)
    assert not of(found, "destroy") and not found.findings and "XID" not in told(found)
    named = asking(dataclasses.replace(ENDS, xids=(xid,)))
    assert of(run(xids({"3": (xid,)}), findings={key(xid): at("11:50")}, wanted=named), "destroy"), "the pool names it"


def test_L55_what_waits_until_it_is_empty_keeps_work() -> None:
    busy = run(LOST, wanted=asking(WAITS, min_nodes=1))
    assert not of(busy, "destroy") and "kept: pod default/job works there" in told(busy)
    assert not of(run(LOST, wanted=asking(WAITS), pods=None), "destroy")
    assert one(run(LOST, wanted=asking(WAITS, min_nodes=1), pods=()), "destroy").reason == "Replaced"


def test_L55_an_old_value_ends_nothing() -> None:
    """The exporter is older than the record of the machine: the XID may be of an earlier use of an own machine."""
    for since in (MADE - timedelta(seconds=1), None):
        found = run(xids({"3": (79,)}, since=since), "15:00", "11:00")
        assert not of(found, "destroy") and "only reported, as its exporter is older" in told(found), since
    assert of(run(xids({"3": (79,)}, since=MADE), "15:00", "11:00"), "destroy")


def test_L55_the_exporter_that_starts_again_ends_the_time() -> None:
    cleared = run(xids({"0": (), "3": ()}), "12:00", "11:00")
    assert not cleared.findings and not of(cleared, "destroy")
    again = run(LOST, "12:05", findings=cleared.findings)
    assert again.findings == {key(): at("12:05")}
    assert not of(run(LOST, "12:14:59", findings=again.findings), "destroy")
    assert of(run(LOST, "12:15", findings=again.findings), "destroy")


@pytest.mark.parametrize(
    "found", [None, GpuXids(why="no dcgm-exporter runs on it"), xids({"0": ()}, "its metrics name 1 of 8 GPUs")]
)
def test_L55_a_gpu_that_is_unknown_neither_begins_its_time_nor_ends_it(found: GpuXids | None) -> None:
    before = {key(): at("11:00"), key(gpu="0"): at("11:00"), key(gpu="33"): at("11:00")}
    kept = run(found, "12:30", findings=before)
    assert not of(kept, "destroy"), "an XID of earlier is no XID of now"
    known = found is not None and "0" in found.last
    assert kept.findings == {one: first for one, first in before.items() if not (known and one == key(gpu="0"))}
    assert not run(found, "12:30", first=None).findings


def test_L55_a_pool_that_does_not_ask_forgets() -> None:
    assert not run(None, "12:30", "11:00", pool()).findings


def test_L55_each_gpu_and_number_has_its_time() -> None:
    both = run(xids({"2": (119,), "3": (79,)}), "12:00", "11:50")
    assert both.findings == {key(): at("11:50"), key(119, "2"): NOON} and one(both, "destroy").detail.startswith("XID 79 of GPU 3")
    other = run(xids({"3": (119,)}), "12:00", "11:00")
    assert other.findings == {key(119): NOON} and not of(other, "destroy")


def test_L55_the_pools_own_entries_come_first() -> None:
    own = (UnhealthyCondition(xids=(13, 79), action="Ignore"), UnhealthyCondition(xids=(79, 119), lasts=60, action="Replace"))
    shown = {sign.name: sign.entry.action for sign in xid_signs(xids({"0": (13,), "1": (79,), "2": (119,), "3": (48,)}), own, MADE)}
    assert shown == {"XID 119 of GPU 2": "Replace", "XID 48 of GPU 3": "Report"}


@pytest.mark.parametrize(("sick", "ends"), [(2, 2), (3, 0)])
def test_L55_more_than_forty_per_cent_are_not_believed(sick: int, ends: int) -> None:
    names = [f"tgp-a1b2c3d4-p-0000{place}" for place in range(5)]
    world = seen(
        claims=tuple(map(claim, names)), nodes=tuple(map(node, names)), instances=tuple(map(instance, names)), pods=None,
        findings={key(name=name): at("11:00") for name in names},
    )  # fmt: skip
    world = dataclasses.replace(world, xids={name: LOST if place < sick else xids({"3": ()}) for place, name in enumerate(names)})
    found = decide(world, specs(asking()))
    assert len(of(found, "destroy")) == ends and bool(found.problems) is not bool(ends)


def test_L55_a_held_node_and_one_that_is_not_ready_stay() -> None:
    held = node(annotations={"tgp.io/do-not-disrupt": "true"})
    assert not of(run(LOST, nodes=(held,)), "destroy")
    silent = run(LOST, nodes=(node(ready=None, ready_since=at("11:55")),))
    assert not of(silent, "destroy") and silent.findings[key()] == at("11:50")


_LAST = st.dictionaries(
    st.sampled_from("0123"), st.lists(st.sampled_from([13, 48, 79, 119, 200]), max_size=2, unique=True).map(tuple)
)


@given(_LAST, st.sampled_from(["Report", "ReplaceWhenEmpty", "Replace"]), st.booleans(), st.integers(0, 3600))
def test_L55_only_what_is_named_known_and_lasting_ends_a_machine(
    last: dict[str, tuple[int, ...]], action: str, old: bool, ago: int
) -> None:
    entry = UnhealthyCondition(xids=(79, 200), lasts=600, action=action)
    known = xids(last, since=MADE - timedelta(days=1) if old else STARTED)
    findings = {key(xid, gpu): NOON - timedelta(seconds=ago) for gpu in "0123" for xid in (13, 48, 79, 119, 200)}
    found = run(known, "12:00", wanted=asking(entry), findings=findings)
    named = any(xid in entry.xids for numbers in last.values() for xid in numbers)
    assert bool(of(found, "destroy")) is (named and action == "Replace" and not old and ago >= 600)
    assert {name for name in found.findings if name.rpartition(" ")[2] in last} == {
        key(xid, gpu) for gpu, numbers in last.items() for xid in numbers if xid in (48, 79, 119, 200)
    }


def test_L55_a_pool_that_names_xids_needs_the_right_to_read_exporters() -> None:
    assert UTILIZATION in pool_features([asking()]) and UTILIZATION not in pool_features([pool()])


# ---- the metrics, as the sandbox's exporter gives them


def read(use: GpuUse, gpus: int = 8) -> GpuXids:
    exporters = DcgmExporters(KubeApi(seed=1))
    _status, text = exporters._answer("n", gpus, use)
    return dcgm_exporter.read(text, {"n"}, gpus, exporters._api.now()).xids


def test_L55_the_last_xid_of_each_gpu_is_read() -> None:
    found = read(GpuUse(xids={1: 79, 5: 31}), 8)
    assert found == GpuXids({str(gpu): {1: (79,), 5: (31,)}.get(gpu, ()) for gpu in range(8)})
    assert read(GpuUse(mig=True, xids={0: 94}), 1) == GpuXids({"0": (94,)})


@pytest.mark.parametrize(
    ("fault", "words", "known"),
    [
        ("no_xids", "GPU 0 has no DCGM_FI_DEV_XID_ERRORS", ""),
        ("down", "its metrics name no GPU", ""),
        ("garbage", "its metrics name no GPU", ""),
        ("stale", "DCGM_FI_DEV_XID_ERRORS of GPU 0 is a sample of another time than now", ""),
        ("nan", "DCGM_FI_DEV_XID_ERRORS of GPU 0 is NaN", "12"),
        ("one_missing", "its metrics name 2 of 3 GPUs", "01"),
        ("other_node", "its metrics are those of another-node", ""),
        ("missing", "", "012"),
    ],
)
def test_L55_what_is_missing_odd_or_old_is_unknown(fault: str, words: str, known: str) -> None:
    found = read(GpuUse(fault=fault, xids={1: 79}), 3)
    assert found.why.startswith(words) and bool(found.why) is bool(words) and set(found.last) == set(known)
    assert found.last.get("1", (79,)) == (79,)


@pytest.mark.parametrize("value", ["-1", "79.5", "+Inf", "99999", "x"])
def test_L55_a_value_that_is_no_xid_is_unknown_and_says_nothing_of_the_use(value: str) -> None:
    text = f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="a"}} {value}\nDCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="a"}} 0\n'
    found = dcgm_exporter.read(text, {"n"}, 1, NOON)
    assert not found.xids.last and value[:5] in found.xids.why and not found.utilization.why


def test_L55_lines_of_pods_and_instances_of_one_gpu_count_together() -> None:
    rows = [("", 0), (',pod="a"', 79), (',pod="b"', 79), (',GPU_I_ID="7"', 48)]
    text = "".join(f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="a"{more}}} {xid}\n' for more, xid in rows)
    assert dcgm_exporter.read(text, {"n"}, 1, NOON).xids == GpuXids({"0": (48, 79)})


# ---- the diagnosis


@pytest.mark.parametrize(
    ("found", "state", "code", "words"),
    [
        (None, None, "", ""),
        (xids({"0": (), "1": ()}), "ok", "", "none of 2 GPUs"),
        (LOST, "NO", "xid", "XID 79 of GPU 3: the GPU has fallen off the bus"),
        (xids({"1": (119, 13)}), "NO", "xid", "XID 13 of GPU 1: an exception"),
        (xids({"1": (31,)}), "warn", "xid_seen", "Look at the program"),
        (xids({"1": (200,)}), "warn", "xid_seen", "not in the table"),
        (GpuXids(why="it cannot be read"), "unknown", "", "it cannot be read"),
        (xids({"1": (79,)}, "its metrics name 1 of 2 GPUs"), "NO", "xid", "1 of 2 GPUs"),
        (xids({"1": ()}, "its metrics name 1 of 2 GPUs"), "unknown", "", "1 of 2 GPUs"),
    ],
)
def test_L55_the_diagnosis_names_gpu_meaning_and_remedy(found: GpuXids | None, state: str | None, code: str, words: str) -> None:
    check = xid_check(GpuNodeFacts(node(), {}, gpus=2, xids=found), ClusterGpus())
    assert (check.state if check else None) == state
    if check is not None:
        assert check.code == code and words in f"{check.seen} {check.remedy}" and check.subject == f"node {NAME}"
