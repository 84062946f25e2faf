# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A-07: when a machine was first at work. It is noted once, and only what kept its node busy and ran is work."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Lane, Phase, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record

from .build import NOON, at, claim, decide, instance, node, of, offer, one, pod, pool, seen, specs

GPU = {"nvidia.com/gpu": 1}


def noted(*pods: Pod, mine: Claim | None = None, gpus: int = 1, **settings: t.Any) -> datetime | None:
    """What a run at noon notes of a machine that is usable since 11:10."""
    mine = mine or claim(work_watched=True)
    found = decide(
        seen(claims=(mine,), nodes=(node(allocatable={"nvidia.com/gpu": gpus}),), pods=pods, instances=(instance(),)),
        specs(pool()),
        **settings,
    )
    after = [action.claim for action in found.actions if action.claim is not None and action.name == mine.name]
    return after[0].worked_since if after else mine.worked_since


@pytest.mark.parametrize(
    ("made", "since"),
    [
        (pod(requests=GPU, started=at("11:30")), "11:30"),
        (pod(requests=GPU), "12:00"),
        (pod(requests=GPU, started=at("11:00")), "11:10"),  # not before the machine was usable
        (pod(requests=GPU, started=at("12:30")), "12:00"),  # its clock is ahead
        (pod(phase="Succeeded", requests=GPU, started=at("11:20"), finished=at("11:40")), "11:20"),
        (pod(phase="Failed", requests=GPU, started=at("11:20"), finished=at("11:40")), "11:20"),
        (pod(phase="Succeeded", requests=GPU, started=at("10:20"), finished=at("11:05")), None),  # of the time before
        (pod(phase="Failed", requests=GPU, started=at("11:20")), None),  # refused by the kubelet: nothing ran
        (pod(phase="Pending", requests=GPU, started=at("11:30")), None),  # its image is not there yet
        (pod(owner_kind="DaemonSet", owner_api="apps/v1", requests=GPU, started=at("11:30")), None),
        (pod(namespace="kube-system", started=at("11:30")), None),
        (pod(requests=GPU, started=at("11:30"), node="", nominated_node="tgp-a1b2c3d4-p-00001"), None),
        (pod(requests=GPU, started=at("11:30"), node="another"), None),
    ],
)
def test_A07_what_counts_as_work_and_since_when(made: Pod, since: str | None) -> None:
    assert noted(made) == (at(since) if since else None)


def test_A07_a_pod_that_runs_before_its_machine_is_usable_is_noted_at_once() -> None:
    """The run that makes the machine usable writes its claim anyhow; the next one has nothing to write."""
    joining = claim(phase=Phase.JOINING, initialized=None, work_watched=True)
    assert noted(pod(requests=GPU, started=at("11:30")), mine=joining, gpus=0) == at("11:30")
    ended = pod(phase="Succeeded", requests=GPU, started=at("11:20"), finished=at("11:40"))
    assert noted(ended, mine=joining, gpus=0) is None, "whether it was usable by then is not known"


def test_A07_the_first_work_is_noted_by_runs_of_every_kind() -> None:
    job = pod(requests=GPU, started=at("11:30"))
    assert {noted(job, mode=mode) for mode in ("provision", "reap", "everything", "autoscale")} == {at("11:30")}


def test_A07_the_earliest_of_several_pods_is_the_first_work() -> None:
    assert noted(pod("b", started=at("11:40")), pod("a", started=at("11:20"))) == at("11:20")


def test_A07_it_is_noted_once() -> None:
    job, mine = pod(requests=GPU, started=at("11:30")), claim(work_watched=True)

    def run(mine: Claim, *pods: Pod) -> list[Claim]:
        found = decide(seen(claims=(mine,), nodes=(node(),), pods=pods, instances=(instance(),)), specs(pool()))
        return [t.cast(Claim, action.claim) for action in of(found, "update")]

    (first,) = run(mine, job)
    assert first.worked_since == at("11:30")
    assert run(first, job) == [] and run(first, dataclasses.replace(job, started=at("11:50"))) == [], "no further write"
    assert [after.worked_since for after in run(first)] == [at("11:30")], "idle now, but the first work stays"


def test_A07_machines_without_pods_and_services_note_nothing() -> None:
    assert noted() is None
    assert noted(pod(requests=GPU), mine=claim(lane=Lane.SERVICE)) is None


def test_A07_a_new_claim_is_watched_and_one_of_an_older_version_is_not() -> None:
    launched = one(decide(seen(offers=(offer(),)), specs(p=1), "provision"), "launch").claim
    assert launched is not None and launched.work_watched and launched.worked_since is None
    record = to_record(claim(work_watched=True, worked_since=NOON))
    assert from_record(record).worked_since == NOON
    for name in ("worked_since", "work_watched"):
        del record[name]
    read = from_record(record)
    assert (read.worked_since, read.work_watched) == (None, False)
