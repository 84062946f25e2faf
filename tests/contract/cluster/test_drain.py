# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining against the emulator: the worked numbers of L-9, budgets, deadlines, replaced pods, killed runs, check mode."""

from __future__ import annotations

import email.utils
import threading
import time
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import ShiftedClock, compare, from_text, to_text
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain import node_drain
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.drain import Drained, DrainOptions, Target, drain
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.eviction import Answer
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import get_node
from ansible_collections.tgp.gpu.plugins.module_utils.model import Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import rules_of

from .conftest import Cluster

TOO_MANY = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "TooManyRequests",
    "code": 429,
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {
        "causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods and has 1 currently"}]
    },
}


@pytest.fixture
def speed() -> float:
    return 40.0


def empty(
    cluster: Cluster,
    kube: Kube,
    reason: str = "Drifted",
    *,
    name: str = "n",
    progress: t.Callable[[str], t.Any] = lambda text: None,
    **options: t.Any,
) -> Drained:
    node = get_node(kube, name)
    assert node is not None
    settings = DrainOptions(**{"timeout": 60, **options})
    target = Target(name, node.uid, reason)
    return drain(kube, [target], settings, clock=cluster.clock, progress=lambda _node, text: progress(text))[0]


def budget(cluster: Cluster, name: str = "web", *, minimum: int = 1, app: str = "web") -> None:
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": app}}}
    cluster.must("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec})


def evictions(cluster: Cluster, pod: str = "") -> list[float]:
    """Clock seconds of all eviction calls."""
    return [when.timestamp() for when, _service, call in cluster.world.writes if call.endswith(f"{pod}/eviction")]


def as_before(cluster: Cluster, name: str = "n") -> bool:
    """No trace of a drain is left on the node."""
    node = cluster.read(f"/api/v1/nodes/{name}")
    assert node is not None
    marks = [
        key for kind in ("labels", "annotations") for key in node["metadata"].get(kind, {}) if "drain" in key or "exclude" in key
    ]
    return not marks and not node["spec"].get("unschedulable") and not node["spec"].get("taints")


def test_a_node_is_emptied_and_marked(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    cluster.pod("dns", "n", namespace="kube-system", priorityClassName="system-cluster-critical")
    cluster.pod("plugin", "n", owner="DaemonSet")
    cluster.pod("done", "n", phase="Succeeded")
    cluster.pod("skipped", "n", labels={"cluster.x-k8s.io/drain": "skip"})
    cluster.pod("elsewhere", "other")
    lines: list[str] = []
    done = empty(cluster, kube, progress=lines.append)
    assert done.drained and done.outcome == "drained" and done.changed and not done.busy
    assert done.evicted == ("default/web", "kube-system/dns"), "critical pods go after all others"
    assert dict(done.skipped) == {"default/plugin": "daemonset", "default/done": "finished", "default/skipped": "drain=skip"}
    assert cluster.pods("n") == ["done", "plugin", "skipped"] and cluster.pods("other") == ["elsewhere"]
    node = get_node(kube, "n")
    assert node is not None and node.unschedulable
    assert "tgp.io/disrupted=Drifted:NoSchedule" in [str(one) for one in node.taints]
    assert node.labels["node.kubernetes.io/exclude-from-external-load-balancers"] == "" and node.annotations["tgp.io/drain-started"]
    assert lines[0].startswith("cordoned, 2 pods to go") and lines[-1].startswith("drained after")


def test_L09_a_replaced_node_is_left_alone(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    writes = len(cluster.writes())
    [replaced] = drain(kube, [Target("n", "another-uid", "Expired")], clock=cluster.clock)
    [gone] = drain(kube, [Target("none", "x", "Expired")], clock=cluster.clock)
    assert (replaced.drained, replaced.outcome, gone.drained, gone.outcome) == (True, "replaced", True, "gone")
    assert len(cluster.writes()) == writes
    with pytest.raises(InvalidInput, match="not a reason"):
        drain(kube, [Target("n", "x", "Boredom")], clock=cluster.clock)


@pytest.mark.parametrize("option", [{"parallel": 0}, {"timeout": -1}])
def test_a_drain_that_could_evict_nothing_is_refused(cluster: Cluster, kube: Kube, option: dict[str, int]) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    with pytest.raises(InvalidInput, match="cannot evict anything"):
        empty(cluster, kube, **option)
    assert as_before(cluster)


def test_L09_refused_three_times_then_evicted(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    cluster.faults.add({"kind": "status", "status": 429, "method": "POST", "path": "eviction", "times": 3, "body": TOO_MANY})
    assert empty(cluster, kube).evicted == ("default/web",)
    calls = evictions(cluster)
    assert [round((when - calls[0]) / 5) for when in calls] == [0, 1, 2, 3]


def test_L09_retry_after_is_kept(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    rule = {"kind": "status", "status": 429, "method": "POST", "path": "eviction", "times": 3, "body": TOO_MANY}
    cluster.faults.add({**rule, "headers": {"Retry-After": "12"}})
    assert empty(cluster, kube).drained
    calls = evictions(cluster)
    assert [round((when - calls[0]) / 12) for when in calls] == [0, 1, 2, 3]


def test_L09_a_budget_holds_a_voluntary_drain_to_its_deadline(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster)
    done = empty(cluster, kube, "Drifted", timeout=20)
    assert (
        (done.drained, done.outcome) == (False, "blocked") and done.blocked[0].pod == "default/web" and done.blocked[0].by == "web"
    )
    assert as_before(cluster) and cluster.pods("n") == ["web"] and 20 <= done.duration < 40
    assert 4 <= len(evictions(cluster)) <= 5


def test_L09_a_cordon_of_somebody_else_stays(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n", unschedulable=True)
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster)
    assert not empty(cluster, kube, "Drifted", timeout=10).drained
    node = get_node(kube, "n")
    assert node is not None and node.unschedulable and not [key for key in node.annotations if "drain" in key]


def test_L09_a_cordon_that_somebody_took_off_meanwhile_does_not_come_back(cluster: Cluster, kube: Kube) -> None:
    """What an earlier drain noted of a cordon says nothing about today's: the node would be paid for and get no pods, for good."""
    cluster.node("n", unschedulable=True)
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster)
    assert not empty(cluster, kube, "Manual", timeout=10).drained
    cluster.must("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": None}})
    assert not empty(cluster, kube, "Drifted", timeout=10).drained
    assert as_before(cluster)


def test_L09_a_forceful_drain_deletes_at_the_deadline_minus_grace(cluster: Cluster, kube: Kube) -> None:
    """Expired: 30 tries, five seconds apart, then deleted directly when its own grace of 30 s just fits before the deadline."""
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"}, grace=30)
    cluster.pod("bare", "n", owner="")
    budget(cluster)
    done = empty(cluster, kube, "Expired", timeout=180)
    assert done.drained and done.forced == ("default/web",) and "default/bare" in done.evicted
    calls = evictions(cluster, "web")
    assert 10 <= len(calls) <= 30  # a machine under load answers late, and pauses count from the answer
    assert done.deadline is not None
    (deleted,) = [when for when, _service, call in cluster.world.writes if call.startswith("DELETE") and call.endswith("/pods/web")]
    assert 15 <= (done.deadline - deleted).total_seconds() <= 31


def test_L09_a_long_grace_is_cut_to_what_is_left(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"}, grace=900)
    budget(cluster)
    done = empty(cluster, kube, "Expired", timeout=60)
    assert done.drained and done.forced == ("default/web",) and done.outcome == "forced"
    pod = cluster.read("/api/v1/namespaces/default/pods/web")
    assert pod is not None and 50 <= pod["metadata"]["deletionGracePeriodSeconds"] <= 60


def test_L09_rule_blocked_pods_stop_a_voluntary_drain_before_it_begins(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("job", "n", owner="Job", volumes=[{"name": "x", "emptyDir": {}}])
    cluster.pod("bare", "n", owner="")
    cluster.pod("held", "n", annotations={"karpenter.sh/do-not-disrupt": "true"})
    writes = len(cluster.writes())
    done = empty(cluster, kube, "Drifted")
    assert (done.drained, done.outcome, done.changed) == (False, "blocked", False)
    assert sorted((one.pod, one.by) for one in done.blocked) == [
        ("default/bare", "unmanaged"),
        ("default/held", "hold: karpenter.sh/do-not-disrupt"),
    ]
    assert len(cluster.writes()) == writes and as_before(cluster)


def test_L07_a_held_pod_of_an_expired_node_is_evicted_when_the_holds_end(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("held", "n", annotations={"tgp.io/do-not-disrupt": "true"})
    cluster.pod("job", "n", owner="Job")
    end = cluster.clock.now() + timedelta(seconds=60)
    done = empty(cluster, kube, "Expired", timeout=600, rules=rules_of("Expired", end))
    assert done.drained and done.forced == () and set(done.evicted) == {"default/held", "default/job"}
    (job,), (held,) = evictions(cluster, "job"), evictions(cluster, "held")
    assert job < end.timestamp() <= held < end.timestamp() + 60


def test_L07_wait_completed_is_waited_for_and_never_evicted(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("batch", "n", owner="Job", annotations={"cluster.x-k8s.io/drain": "wait-completed"})
    kept = empty(cluster, kube, "Drifted", timeout=30)
    assert (kept.drained, [(one.pod, one.by) for one in kept.blocked]) == (False, [("default/batch", "wait-completed")])
    assert evictions(cluster) == [] and as_before(cluster)
    forced = empty(cluster, kube, "Expired", timeout=60)
    assert forced.drained and forced.forced == ("default/batch",) and evictions(cluster) == []


def test_L07_local_data_stops_what_need_not_be_before_it_begins(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("job", "n", owner="Job", volumes=[{"name": "x", "emptyDir": {}}])
    kept = empty(cluster, kube, "Underutilized", rules=rules_of("Underutilized"))
    assert [(one.pod, one.by) for one in kept.blocked] == [("default/job", "local-data")] and as_before(cluster)
    assert empty(cluster, kube, "Drifted", rules=rules_of("Drifted")).drained


def test_L09_a_drain_that_was_killed_keeps_its_deadline(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster)
    started = cluster.clock.now() - timedelta(seconds=50)
    patch = {"metadata": {"annotations": {"tgp.io/drain-started": to_text(started)}}, "spec": {"unschedulable": True}}
    cluster.must("PATCH", "/api/v1/nodes/n", patch)
    done = empty(cluster, kube, "Drifted", timeout=60)
    assert done.deadline == from_text(to_text(started)) + timedelta(seconds=60) and done.duration < 20
    assert not done.drained and as_before(cluster)


@pytest.mark.parametrize("ahead", [7200.0, -7200.0])
def test_L27_a_host_whose_clock_is_wrong_drains_by_the_api_servers(cluster: Cluster, kube: Kube, ahead: float) -> None:
    """Another host began ten seconds ago; of its minute fifty are left, whatever this host's clock says."""
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"}, grace=1)
    budget(cluster)
    began, node = cluster.clock.now(), get_node(kube, "n")
    patch = {"metadata": {"annotations": {"tgp.io/drain-started": to_text(began - timedelta(seconds=10))}}}
    cluster.must("PATCH", "/api/v1/nodes/n", patch)
    host = ShiftedClock(cluster.clock, ahead)
    compare(host, "kubernetes", {"date": email.utils.format_datetime(began)}, host.now(), host.now())
    assert node is not None
    [done] = drain(kube, [Target("n", node.uid, "Manual")], DrainOptions(timeout=60, force=True), clock=host)
    assert done.drained and done.forced == ("default/web",)
    assert timedelta(seconds=45) < cluster.clock.now() - began < timedelta(seconds=120)


def test_L09_empty_but_not_empty_any_more(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("dns", "n", namespace="kube-system")
    cluster.pod("work", "n", gpus=1)
    done = empty(cluster, kube, "Empty")
    assert done.busy and not done.drained and "default/work" in done.message and as_before(cluster)
    cluster.must("DELETE", "/api/v1/namespaces/default/pods/work")
    assert empty(cluster, kube, "Empty").evicted == ("kube-system/dns",)


def test_L09_manual_fails_with_its_blockers_unless_forced(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"}, grace=1)
    cluster.pod("bare", "n", owner="")
    budget(cluster)
    done = empty(cluster, kube, "Manual", timeout=10)
    assert not done.drained and [one.pod for one in done.blocked] == ["default/web"] and done.evicted == ("default/bare",)
    node = get_node(kube, "n")
    assert node is not None and node.unschedulable and "tgp.io/drain-started" not in node.annotations
    forced = empty(cluster, kube, "Manual", timeout=10, force=True)
    assert forced.drained and forced.forced == ("default/web",)


def test_L09_a_hold_that_ends_is_waited_for_by_hand_made_drains(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("held", "n", annotations={"tgp.io/do-not-disrupt": "20s"})
    done = empty(cluster, kube, "Manual", timeout=60)
    assert done.drained and done.evicted == ("default/held",) and 15 <= done.duration <= 40


def test_L09_spot_lost_evicts_once_and_does_not_wait(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"})
    cluster.pod("job", "n", owner="Job", grace=600)
    budget(cluster)
    done = empty(cluster, kube, "SpotLost")
    assert done.drained and done.evicted == ("default/job",) and len(evictions(cluster)) == 2
    node = get_node(kube, "n")
    assert node is not None and "tgp.io/disrupted=SpotLost:NoExecute" in [str(one) for one in node.taints]


def test_L09_pods_of_a_machine_that_is_gone_are_deleted(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", grace=600, labels={"app": "web"})
    budget(cluster)
    refused = empty(cluster, kube, "Orphan")
    assert not refused.drained and refused.outcome == "ready" and cluster.pods("n") == ["web"]
    cluster.report("n", ready=False)
    done = empty(cluster, kube, "Orphan")
    assert done.drained and done.forced == ("default/web",) and cluster.pods("n") == []
    assert empty(cluster, kube, "FailedJoin").outcome == "not needed"


def test_L09_a_pod_of_the_same_name_elsewhere_counts_as_gone(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("db-0", "n", owner="StatefulSet")
    replaced = threading.Event()

    def replace() -> None:
        cluster.must("DELETE", "/api/v1/namespaces/default/pods/db-0")
        cluster.pod("db-0", "other", owner="StatefulSet")
        replaced.set()

    cluster.faults.add({"kind": "status", "status": 500, "method": "POST", "path": "eviction"})
    threading.Timer(0.05, replace).start()
    done = empty(cluster, kube)
    assert replaced.wait(60) and done.drained and cluster.pods("other") == ["db-0"] and done.evicted == ()


@pytest.mark.parametrize("kind", ["lost_before", "lost_after"])
def test_L09_a_lost_answer_is_asked_again(cluster: Cluster, kube: Kube, kind: str) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    cluster.faults.add({"kind": kind, "method": "POST", "path": "eviction", "times": 2})
    done = empty(cluster, kube)
    assert done.drained and cluster.pods("n") == [] and done.duration < 20


def test_L09_several_budgets_are_named_as_such(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster, "one")
    budget(cluster, "two")
    done = empty(cluster, kube, timeout=12)
    assert [(one.pod, one.by) for one in done.blocked] == [("default/web", "multiple-pdb")]


def test_L09_a_missing_right_stops_and_restores(cluster: Cluster) -> None:
    cluster.node("n")
    cluster.pod("web", "n")
    rules = [("*", "", "nodes"), ("list", "", "pods"), ("watch", "", "pods")]
    cluster.api.add_token("a-fake-token-without-evictions", "weak", rules=rules)
    done = empty(cluster, cluster.client("a-fake-token-without-evictions"))
    assert (done.drained, done.outcome) == (False, "forbidden") and "create pods/eviction" in done.message
    assert as_before(cluster) and cluster.pods("n") == ["web"]


def test_L09_check_mode_changes_nothing(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("free", "n")
    cluster.pod("web", "n", labels={"app": "web"})
    budget(cluster)
    writes = len(cluster.writes())
    done = empty(cluster, kube, check=True)
    assert done.evicted == ("default/free",) and [(one.pod, one.by) for one in done.blocked] == [("default/web", "web")]
    assert len(cluster.writes()) == writes and as_before(cluster) and cluster.pods("n") == ["free", "web"]


def test_a_pod_that_ends_slowly_is_waited_for(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    cluster.pod("slow", "n", grace=30)

    def finish() -> None:
        while (pod := cluster.read("/api/v1/namespaces/default/pods/slow")) is None or "deletionTimestamp" not in pod["metadata"]:
            time.sleep(0.02)
        cluster.clock.sleep(8)
        cluster.must("DELETE", "/api/v1/namespaces/default/pods/slow", {"gracePeriodSeconds": 0})

    threading.Thread(target=finish, daemon=True).start()
    done = empty(cluster, kube)
    assert done.drained and 8 <= done.duration < 25 and len(evictions(cluster)) == 1


def test_many_nodes_share_one_watch_and_one_fault_stays_alone(cluster: Cluster, kube: Kube) -> None:
    targets = []
    for number in range(20):
        uid = cluster.node(f"n{number}")["metadata"]["uid"]
        targets.append(Target(f"n{number}", uid, "Drifted"))
        for pod in range(3):
            cluster.pod(f"p{number}-{pod}", f"n{number}", owner="" if (number, pod) == (7, 0) else "ReplicaSet")
    done = drain(kube, targets, DrainOptions(timeout=600), clock=cluster.clock)
    assert [one.node for one in done] == [target.name for target in targets]
    assert [one.node for one in done if not one.drained] == ["n7"] and done[7].blocked[0].by == "unmanaged"
    assert sum(len(one.evicted) for one in done) == 57 and len(evictions(cluster)) == 57
    with pytest.raises(InvalidInput, match="twice"):
        drain(kube, [targets[0], targets[0]], clock=cluster.clock)


@pytest.mark.parametrize("answers", [True, False])
def test_an_eviction_that_is_answered_after_its_pod_has_gone_is_told(
    cluster: Cluster, kube: Kube, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Without an answer the drain ends at its deadline all the same."""
    cluster.node("n")
    cluster.pod("p", "n")
    known = node_drain.evict
    ended = threading.Event()

    def late(kube: Kube, pod: Pod) -> Answer:
        answer = known(kube, pod)
        while cluster.read("/api/v1/namespaces/default/pods/p") is not None:
            time.sleep(0.02)
        ended.wait(0.5 if answers else 10)
        return answer

    monkeypatch.setattr(node_drain, "evict", late)
    done = empty(cluster, kube, progress=lambda text: ended.set() if text.startswith("drained") else None)
    assert done.drained and done.evicted == (("default/p",) if answers else ()) and len(evictions(cluster)) == 1


class TestRealTime:
    @pytest.fixture
    def speed(self) -> float:
        return 4.0

    @pytest.mark.parametrize("how", ["a replacement is healthy", "the budget is deleted"])
    def test_P6_a_budget_that_opens_is_noticed_within_two_seconds(self, cluster: Cluster, kube: Kube, how: str) -> None:
        cluster.node("n")
        cluster.pod("web", "n", labels={"app": "web"})
        budget(cluster)
        opened: list[float] = []

        def open_it() -> None:
            cluster.clock.sleep(8)
            if how == "the budget is deleted":
                cluster.must("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
            else:
                cluster.pod("web-2", "other", labels={"app": "web"})
            opened.append(cluster.clock.now().timestamp())

        threading.Thread(target=open_it, daemon=True).start()
        assert empty(cluster, kube, timeout=60).drained
        calls = evictions(cluster)
        assert calls[-1] - opened[0] < 1, "by its opening, not by the next try in turn, which comes at 10 s"


def test_L09_a_pod_whose_name_another_has_by_now_counts_as_gone(cluster: Cluster, kube: Kube) -> None:
    """A StatefulSet makes the pod anew elsewhere, between our look and our deletion; the machine is gone, and so is what ran on it."""
    cluster.node("n", ready=False)
    cluster.pod("db-0", "n")
    cluster.pod("web", "n")
    replaced = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": "uid"}
    cluster.faults.add({"kind": "status", "status": 409, "method": "DELETE", "path": "pods/db-0", "times": 1, "body": replaced})
    done = empty(cluster, kube, "InstanceGone")
    assert (done.drained, done.outcome, done.forced) == (True, "lost", ("default/web",))


def test_L09_a_drain_ends_although_its_pods_cannot_be_listed(cluster: Cluster, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list before the cordon worked, all later ones fail: the deadline holds all the same, and the node is usable again."""
    monkeypatch.setattr("ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.node_drain._FIRST_LIST", 0.5)
    of_others = threading.enumerate()
    cluster.node("n")
    cluster.pod("web", "n")
    cluster.faults.add({"kind": "status", "status": 503, "method": "GET", "path": "/pods", "after_calls": 1, "times": None})
    done = empty(cluster, kube, "Drifted", timeout=10)
    assert (
        (done.drained, done.outcome) == (False, "error")
        and "pods of n could not be listed" in done.message
        and "503" in done.message
    )
    assert as_before(cluster) and cluster.pods("n") == ["web"] and not evictions(cluster)
    cluster.faults.clear()
    for thread in threading.enumerate():
        if thread.name.startswith("follow ") and thread not in of_others:
            thread.join(60)


def test_a_node_that_is_still_being_cordoned_when_the_drain_breaks_off_is_opened_again(cluster: Cluster) -> None:
    """Without the right to watch pods the drain of the first node fails all; the second one's cordon is on its way."""
    rules = [(verb, "", "pods") for verb in ("get", "list")] + [(verb, "", "nodes") for verb in ("get", "list", "patch")]
    cluster.api.add_token("a-fake-token-of-a-person-0001", "person", rules=rules)
    kube = cluster.client("a-fake-token-of-a-person-0001")
    targets = []
    for name in ("n", "m"):
        uid = cluster.node(name)["metadata"]["uid"]
        cluster.pod(f"web-{name}", name)
        targets.append(Target(name, uid, "Drifted"))
    cluster.faults.add({"kind": "delay", "method": "PATCH", "path": "nodes/m", "seconds": 30, "times": 1})
    done = drain(kube, targets, DrainOptions(timeout=60), clock=cluster.clock)
    assert [one.outcome for one in done] == ["forbidden", "forbidden"] and "watch pods" in done[1].message
    assert as_before(cluster, "n") and as_before(cluster, "m")
