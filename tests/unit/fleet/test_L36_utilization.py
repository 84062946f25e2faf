# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-36: a node is idle by the use of its GPUs. Unknown is never idle, and no use that is higher makes it idle sooner."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube import dcgm_exporter, rbac
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, GpuUtilization, Node, Plan, Pod, Pool, Probe
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION, LOW_UTILIZATION_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.utilization import gpu_verdict
from hypothesis import strategies as st

from sandbox.dcgm_exporter import FAULTS, DcgmExporters, GpuUse
from sandbox.kube import KubeApi

from .build import NOON, at, claim, decide, instance, node, of, one, pod, pool, seen, specs

GPU = {"nvidia.com/gpu": 1}
USED, LOW = GpuUtilization(Decimal("0.40")), GpuUtilization(Decimal("0.02"))
UNKNOWN = GpuUtilization(why="no dcgm-exporter runs on it")
KEPT = {"initialized": at("10:00"), "launch_started": at("09:50")}


class Machine:
    """A machine with one GPU over several runs; what a plan notes is applied."""

    def __init__(self, signal: str = "utilization", **facts: t.Any) -> None:
        self.pool: Pool = pool(idle_signal=signal, **facts)
        self.claim: Claim = claim(**KEPT)
        self.node: Node = node()
        self.writes = 0

    def run(self, moment: str, use: GpuUtilization | None = LOW, *pods: Pod, idle: bool | None = None) -> Plan:
        world = seen(at(moment), claims=(self.claim,), nodes=(self.node,), pods=pods, instances=(instance(),))
        utilization = {} if use is None else {self.node.name: use}
        world = dataclasses.replace(world, utilization=utilization, probes={self.claim.name: Probe(idle=idle)})
        found = decide(world, specs(self.pool))
        for action in of(found, "annotate"):
            self.writes += 1
            key = LOW_UTILIZATION_ANNOTATION if action.reason in ("GpusUnused", "GpusUsed") else IDLE_SINCE_ANNOTATION
            notes = {name: value for name, value in self.node.annotations.items() if name != key}
            self.node = dataclasses.replace(self.node, annotations={**notes, **({key: action.value} if action.value else {})})
        for action in of(found, "update"):
            self.claim = t.cast(Claim, action.claim)
        return found

    @property
    def low(self) -> str | None:
        return self.node.annotations.get(LOW_UTILIZATION_ANNOTATION)


def work(name: str = "train", *, started: datetime = at("10:30"), **facts: t.Any) -> Pod:
    usual: dict[str, t.Any] = {"owner_kind": "ReplicaSet", "owner_api": "apps/v1"}
    return pod(name, requests=GPU, started=started, **{**usual, **facts})


def why(found: Plan) -> str:
    return "; ".join(action.detail for action in of(found, "report"))


# ---- the signal


def test_L36_a_machine_whose_pod_leaves_its_gpu_unused_goes_after_the_window() -> None:
    machine = Machine()
    job = work()
    assert "busy: a GPU is used at 40%" in why(machine.run("11:00", USED, job)) and machine.writes == 0
    assert not of(machine.run("11:10", LOW, job), "destroy")
    assert machine.low == "2026-08-20T11:10:00Z/2026-08-20T11:10:00Z below 5%"
    for moment in ("11:15", "11:20", "11:25", "11:30", "11:35", "11:39"):
        assert not of(machine.run(moment, LOW, job), "destroy"), moment
    assert machine.low == "2026-08-20T11:10:00Z/2026-08-20T11:30:00Z below 5%"
    gone = one(machine.run("11:40", LOW, job), "destroy")
    assert (gone.reason, gone.detail) == ("Underutilized", "its GPUs are unused for 30m")


def test_L36_without_pods_it_goes_as_an_idle_one() -> None:
    machine = Machine()
    for moment in ("11:10", "11:20", "11:30"):
        machine.run(moment)
    assert one(machine.run("11:40"), "destroy").reason == "Empty"


def test_L36_a_quiet_second_run_writes_nothing_and_a_long_low_one_every_ten_minutes() -> None:
    machine = Machine(min_nodes=1)
    for minute in range(60):
        machine.run(f"11:{minute:02}", LOW, work())
    low = [f"11:{minute:02}" for minute in range(0, 60, 10)]
    assert machine.writes == len(low) + 1, "one of them is idle-since"
    before = machine.writes
    assert not of(machine.run("11:59:30", LOW, work()), "annotate", "update") and machine.writes == before


def test_L36_both_signals_have_to_say_idle() -> None:
    machine = Machine("both")
    for moment in ("11:00", "11:10", "11:20", "11:30"):
        assert "busy: pod" in why(machine.run(moment, LOW, work())), "low GPUs alone are not enough"
    for moment in ("11:31", "11:40"):
        assert not of(machine.run(moment), "destroy"), moment
    assert one(machine.run("11:41"), "destroy").reason == "Empty"
    other = Machine("both")
    other.run("11:00", LOW)
    assert "a GPU is used at 40%" in why(other.run("11:30", USED)), "no pods alone are not enough"


def test_L36_pods_are_the_signal_of_a_pool_that_says_nothing() -> None:
    machine = Machine("pods")
    machine.run("11:00", USED)
    assert of(machine.run("11:10", USED), "destroy")


@pytest.mark.parametrize(("since", "now", "goes"), [("11:10", "11:39:59", False), ("11:10", "11:40", True)])
def test_L36_the_window_to_the_second(since: str, now: str, goes: bool) -> None:
    machine = Machine()
    for moment in (since, "11:20", "11:30"):
        machine.run(moment)
    assert bool(of(machine.run(now), "destroy")) is goes


@pytest.mark.parametrize(("share", "used"), [("0.05", True), ("0.0499", False), ("0.051", True), ("0", False)])
def test_L36_the_threshold_is_strict(share: str, used: bool) -> None:
    assert gpu_verdict(None, GpuUtilization(Decimal(share)), (), pool(), NOON).used is used


@pytest.mark.parametrize(
    ("until", "goes_on"),
    [("11:35", True), ("11:34:59", False), ("12:01", True), ("12:01:01", False)],
)
def test_L36_a_hole_between_samples_begins_the_window_anew(until: str, goes_on: bool) -> None:
    """25 minutes: half of the window, and the ten minutes between two notes."""
    noted = f"2026-08-20T11:20:00Z/2026-08-20T{until if until.count(':') == 2 else f'{until}:00'}Z below 5%"
    found = gpu_verdict(noted, LOW, (), pool(), NOON)
    assert found.low is not None and found.low.since == (at("11:20") if goes_on else NOON)


@pytest.mark.parametrize(
    "noted", ["", "yes", "2026-08-20T11:20:00Z", "x/y below 5%", "2026-08-20T11:50:00Z/2026-08-20T11:20:00Z below 5%"]
)
def test_L36_a_note_that_is_none_of_ours_begins_it_anew(noted: str) -> None:
    found = gpu_verdict(noted, LOW, (), pool(), NOON)
    assert found.low is not None and found.low.since == NOON and found.write


def test_L36_samples_below_a_higher_threshold_prove_nothing_of_a_lower_one() -> None:
    noted = "2026-08-20T11:20:00Z/2026-08-20T11:55:00Z below 10%"
    stricter = gpu_verdict(noted, LOW, (), pool(), NOON)
    looser = gpu_verdict(noted, LOW, (), pool(idle_below=Decimal("0.2")), NOON)
    assert stricter.low is not None and stricter.low.since == NOON and not stricter.long_enough
    assert looser.low is not None and looser.low.since == at("11:20") and looser.write and looser.long_enough


# ---- pods on a machine that goes by its GPUs


def test_L36_a_new_pod_begins_the_window_anew_and_one_that_starts_is_work() -> None:
    machine = Machine()
    for moment in ("11:00", "11:10", "11:20"):
        machine.run(moment, LOW, work())
    loads = work("loads", phase="Pending", created=at("11:25"), started=None)
    assert "is starting" in why(machine.run("11:31", LOW, work(), loads))
    ready = work("loads", started=at("11:32"))
    for moment in ("11:40", "11:50", "12:01"):
        assert not of(machine.run(moment, LOW, work(), ready), "destroy"), moment
    assert of(machine.run("12:02", LOW, work(), ready), "destroy")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "is held by"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "is held by"),
        ({"owner_kind": "", "owner_api": ""}, "(unmanaged)"),
        ({"empty_dir": True}, "(local-data)"),
    ],
)
def test_L36_protected_pods_keep_a_machine_that_they_do_not_use(facts: dict[str, t.Any], words: str) -> None:
    machine = Machine()
    for moment in ("11:10", "11:20", "11:30"):
        machine.run(moment, LOW, work(**facts))
    found = machine.run("11:40", LOW, work(**facts))
    assert not of(found, "destroy") and words in why(found)


def test_L36_the_floor_keeps_it_and_idle_machines_go_first() -> None:
    machine = Machine(min_nodes=1)
    for moment in ("11:10", "11:20", "11:30"):
        machine.run(moment, LOW, work())
    assert "its GPUs are unused, kept for minNodes 1" in why(machine.run("11:40", LOW, work()))


@pytest.mark.parametrize(("answer", "goes", "words"), [(True, True, ""), (False, False, "busy"), (None, False, "unknown")])
def test_A26_a_node_with_an_idle_probe_goes_only_while_it_says_idle(answer: bool | None, goes: bool, words: str) -> None:
    machine = Machine("pods", idle_probed=True)
    machine.run("11:00", idle=True)
    found = machine.run("11:10", idle=answer)
    assert bool(of(found, "destroy")) is goes and words in why(found)
    assert bool(machine.node.annotations.get(IDLE_SINCE_ANNOTATION)) is (answer is not False), "unknown changes nothing"


# ---- properties

_SHARE = st.none() | st.decimals(0, 1, places=3)
_SAMPLE = st.builds(GpuUtilization, _SHARE, st.sampled_from(["", "its metrics name 7 of 8 GPUs"]))
_NOTE = st.none() | st.builds(
    lambda since, lasts, below: f"2026-08-20T11:{since:02}:00Z/2026-08-20T11:{min(59, since + lasts):02}:00Z below {below}%",
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(1, 20),
)


@hypothesis.settings(max_examples=60)
@hypothesis.given(noted=_NOTE, sample=_SAMPLE | st.none(), signal=st.sampled_from(["utilization", "both"]))
def test_L36_unknown_is_never_idle(noted: str | None, sample: GpuUtilization | None, signal: str) -> None:
    verdict = gpu_verdict(noted, sample, (), pool(), NOON)
    unknown = sample is None or sample.busiest is None or bool(sample.why)
    assert not (unknown and (verdict.used is False or verdict.long_enough))
    machine = Machine(signal)
    machine.node = node(annotations={LOW_UTILIZATION_ANNOTATION: noted or "", IDLE_SINCE_ANNOTATION: "2026-08-20T10:00:00Z"})
    assert not (unknown and of(machine.run("12:00", sample), "destroy"))


@hypothesis.settings(max_examples=60)
@hypothesis.given(noted=_NOTE, shares=st.tuples(st.decimals(0, 1, places=3), st.decimals(0, 1, places=3)))
def test_L36_more_use_never_makes_it_idle_sooner(noted: str | None, shares: tuple[Decimal, Decimal]) -> None:
    less, more = (gpu_verdict(noted, GpuUtilization(share), (), pool(), NOON) for share in sorted(shares))
    assert less.long_enough or not more.long_enough
    if less.low is not None and more.low is not None:
        assert more.low.since >= less.low.since
    assert less.used is False or more.used is not False


# ---- the metrics, as the sandbox's exporter gives them


def read(use: GpuUse, gpus: int = 8) -> GpuUtilization:
    exporters = DcgmExporters(KubeApi(seed=1))
    _status, text = exporters._answer("n", gpus, use)
    now = exporters._api.now()
    return dcgm_exporter.read(text, {"n", "pod-n"}, 8, now).utilization


def test_L36_the_busiest_of_several_gpus_and_of_mig_instances_counts() -> None:
    assert read(GpuUse((0, 3, 71, 0))) == GpuUtilization(Decimal("0.71"))
    assert read(GpuUse()) == GpuUtilization(Decimal(0))
    assert read(GpuUse((0, 25), mig=True)) == GpuUtilization(Decimal("0.25"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("missing", "GPU 0 has neither DCGM_FI_DEV_GPU_UTIL nor DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        ("garbage", "its metrics name no GPU"),
        ("stale", "is a sample of another time than now"),
        ("nan", "of GPU 0 is NaN"),
        ("one_missing", "its metrics name 7 of 8 GPUs"),
        ("other_node", "its metrics are those of another-node"),
        ("down", "its metrics name no GPU"),
    ],
)
def test_L36_what_is_missing_odd_or_old_is_unknown(fault: str, words: str) -> None:
    found = read(GpuUse((0,) * 8, fault=fault))
    assert words in found.why and gpu_verdict(None, found, (), pool(), NOON).used is None
    assert {"missing", "garbage", "stale", "nan", "one_missing", "other_node", "down", "no_xids"} == set(FAULTS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="a"} -1', "is -1"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="a"} 101', "is 101"),
        ('DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="a"} 1.5', "is 1.5"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="a"} +Inf', "is +Inf"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="a"}', "cannot be read"),
        ('DCGM_FI_DEV_GPU_UTIL{Hostname="n"} 3', "names no GPU"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="a"} 0 99999999999999999999', "another time"),
        ('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="a",GPU_I_ID="7"} 40', "MIG instance 7 of GPU 0 has neither"),
    ],
)
def test_L36_odd_lines_are_unknown(line: str, words: str) -> None:
    assert words in dcgm_exporter.read(f"{line}\n", {"n"}, 1, NOON).utilization.why


def test_L36_a_busy_gpu_is_known_although_another_is_not() -> None:
    found = read(GpuUse((0, 60), fault="nan"))
    assert found.why and gpu_verdict(None, found, (), pool(), NOON).used is True


def test_L36_newer_exporters_write_their_label_in_small_letters_and_one_sample_may_have_its_time() -> None:
    stamp = int((NOON - timedelta(seconds=300)).timestamp() * 1000)
    text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="a",hostname="n",modelName="x {{}} \\" y"}} 7 {stamp}\n'
    assert dcgm_exporter.read(text, {"n"}, 1, NOON).utilization == GpuUtilization(Decimal("0.07"))


@pytest.mark.parametrize("labels", [{"app": "nvidia-dcgm-exporter"}, {"app.kubernetes.io/name": "dcgm-exporter"}])
def test_L36_the_exporter_is_found_by_the_labels_of_both_charts(labels: dict[str, str]) -> None:
    there = pod("exporter", namespace="monitoring", labels=labels, node="n1")
    others = (pod("web", labels={"app": "web"}, node="n1"), dataclasses.replace(there, phase="Pending", node="n2"))
    assert dcgm_exporter.exporters((there, *others)) == {"n1": there}


def test_L36_a_refused_read_names_the_right() -> None:
    path = "/api/v1/namespaces/gpu-operator/pods/exporter-x:9400/proxy/metrics"
    assert rbac.of_call("GET", path) == rbac.Right("get", "pods/proxy", "", "gpu-operator", "exporter-x:9400")
    assert rbac.of_call("GET", "/api/v1/namespaces/a/pods/b/log/c") is None
