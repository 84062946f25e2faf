# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that a pool's machines do not serve although they should (L-17): seen in two runs, remembered for half an hour, so that no machine
after the other is rented for them."""

from __future__ import annotations

import typing as t
from datetime import timedelta

from ...model import Node, Pod, Taint
from ...model.labels import CLOUD_PROVIDER_TAINT_PREFIX, NODE_TAINT_PREFIX, PREFIX
from ...units.values import print_time
from ..claims.spec_hash import generation
from ..plan_builder import Draft
from ..provisioning.registration import allocatable_gpus
from . import capacity, node_affinity
from .binpacking import Bin, Queue, against, is_gpu, lacks, needs, shown
from .existing_nodes import Place

UNSATISFIABLE_FOR: t.Final = 1800  # seconds for which a pool rents nothing for a pod that its machines did not serve
_SEEN, _MARK = "unplaced", "unsatisfiable"
_STATES = (NODE_TAINT_PREFIX, CLOUD_PROVIDER_TAINT_PREFIX, PREFIX)
Bars = dict[str, dict[str, str]]


def remembered(draft: Draft, pods: t.Iterable[Pod]) -> Bars:
    """Pods that earlier runs marked: uid to pool and reason. Marks that are over, and those of pods that wait no more, are dropped."""
    bars: Bars = {}
    keeps = timedelta(seconds=UNSATISFIABLE_FOR)
    by_uid = {pod.uid: pod for pod in pods}
    for key, since in sorted(draft.situation.seen.findings.items()):
        case, _nothing, rest = (*key.split("|", 2), "", "")[:3]
        uid, _bar, pool = rest.partition("|")
        if case == _MARK and uid in by_uid and draft.now < since + keeps:
            draft.findings[key] = since
            bars.setdefault(uid, {})[pool] = _text(by_uid[uid], print_time(since + keeps))
    return bars


def mark(draft: Draft, pod: Pod, pool: str) -> str:
    """Note that a Ready machine of the pool has not served the pod. The reason, once two runs have seen it; empty before."""
    if not draft.twice(f"{_SEEN}||{pod.uid}|{pool}"):
        return ""
    del draft.findings[f"{_SEEN}||{pod.uid}|{pool}"]
    draft.findings[f"{_MARK}||{pod.uid}|{pool}"] = draft.now
    return _text(pod, print_time(draft.now + timedelta(seconds=UNSATISFIABLE_FOR)))


def unserved(draft: Draft, uid: str) -> bool:
    """Whether two runs, at least a minute apart, have found no machine for all that a request asks for."""
    return draft.twice(f"{_SEEN}||{uid}|")


def too_small(draft: Draft, pods: t.Iterable[Pod], places: t.Iterable[Place]) -> Bars:
    """Pods that would fit a pool's machine by its offer, but not by what its Ready Node is or has left beside the pods of DaemonSets:
    another of them would not help. Nor would it where all of the pool's Nodes have a taint that its document, as it was when they were made
    and is now, does not name."""
    resources = draft.situation.settings.gpu_resources
    queue = Queue(pods, resources)
    bars: Bars = {}
    planned: list[tuple[Place, Bin]] = [
        (place, place.planned) for place in places if place.node is not None and place.planned is not None
    ]
    empty: dict[str, Bin] = {}
    classes = draft.situation.specs.classes
    made_now = {
        pool.key: generation(classes[pool.node_class], pool) for pool in draft.situation.pools if pool.node_class in classes
    }
    for number, example in enumerate(queue.examples):
        too_little: dict[str, str] = {}
        tainted: dict[str, list[str]] = {}
        for place, plan in planned:
            node, pool = place.node, place.claim.pool
            if node is None or against(example, plan) or lacks(needs(example, plan), plan.free):
                continue
            if not shown(node.allocatable, resources):
                continue
            if node.name not in empty:
                empty[node.name] = _empty(place, node)
            missing = lacks(needs(example, empty[node.name]), empty[node.name].free)
            if missing and not (is_gpu(missing, resources) and _lost_some(draft, place, node)):
                too_little.setdefault(pool, f"{place.claim.name} is Ready and has not enough {missing} for it")
            if place.claim.generation == made_now.get(pool):
                kept_off = node_affinity.against_taints(example.placement, _lasting(node))
                tainted.setdefault(pool, []).append(f"{place.claim.name} is Ready, and {kept_off}" if kept_off else "")
        reasons = {pool: texts[0] for pool, texts in tainted.items() if all(texts)} | too_little
        for pool, reason in reasons.items():
            for at in queue.waiting[number]:
                pod = queue.pods[at]
                bars.setdefault(pod.uid, {})[pool] = mark(draft, pod, pool) or reason
    return bars


def _lost_some(draft: Draft, place: Place, node: Node) -> bool:
    """Whether the Node had all of its GPUs when it joined and shows fewer now: another machine has them all. Where a pool does not wait for
    all, a new one may show as few."""
    pool = draft.situation.in_force(place.claim)
    complete = place.claim.initialized is not None and (pool is None or pool.gpu_wait == "all")
    return complete and allocatable_gpus(place.claim, node, pool) < place.claim.expected_gpus


def _lasting(node: Node) -> list[Taint]:
    """Its taints, but for those that tell of a state, which passes: Kubernetes' own, and ours."""
    return [taint for taint in node.taints if not taint.key.startswith(_STATES)]


def _empty(place: Place, node: Node) -> Bin:
    """The Node with nothing on it but what every new one would have, too."""
    return capacity.of_node(node, (pod for pod in place.room.pods if pod.comes_with_node))


def keep(draft: Draft) -> None:
    """A run that does not look at waiting pods forgets nothing of them."""
    for key, since in draft.situation.seen.findings.items():
        if key.partition("|")[0] in (_SEEN, _MARK):
            draft.findings.setdefault(key, since)


def _text(pod: Pod, until: str) -> str:
    return f"unsatisfiable until {until}: {pod.waiting_why or pod.waiting}"
