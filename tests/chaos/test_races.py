# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs at once, on one host (its lock file) and on two (the Lease alone): never a machine too many, and the loser ends politely."""

from __future__ import annotations

import collections
import contextlib
import os
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest

from .grounds import LAMBDA
from .loom import Loom
from .sight import Limits
from .stage import Order, Stage
from .weaving import woven

RACES = int(os.environ.get("TGP_CHAOS_RACES", "10"))  # for each of the two tests


@contextlib.contextmanager
def staged(folder: Path, seed: t.Any, nodes: int = 3) -> t.Iterator[Stage]:
    loom = Loom(seed)
    with woven(loom):
        stage = Stage(folder, loom, LAMBDA, Limits(nodes, Decimal("10.00"), 8))
        for offer in stage.world.offers:
            offer.stock = 9
        try:
            yield stage
        finally:
            stage.close()
            loom.close()


@pytest.mark.parametrize("hosts", ["aa", "ab"], ids=["one-host", "two-hosts"])
def test_L08_two_runs_at_once_never_rent_too_much(hosts: str, tmp_path: Path) -> None:
    """Two machines live, three are allowed, both runs want a third. The second one waits for the first (L-30); a reap skips."""
    ends: collections.Counter[str] = collections.Counter()
    with staged(tmp_path, f"race {hosts}") as stage:
        for _race in range(RACES):
            if len(stage.sight.living()) != 2:
                stage.perform(Order("destroy"))
                stage.perform(Order("provision", nodes=2))
            assert len(stage.sight.living()) == 2
            mode = stage.loom.dice.choice(("provision", "provision", "provision", "reap", "destroy"))
            both = stage.perform(Order("provision", nodes=3, host=hosts[0]), Order(mode, nodes=3, host=hosts[1]))
            assert stage.broken == []
            assert all(one.end == "ok" for one in both), [(one.end, one.error) for one in both]
            outcomes = [one.said["plan"]["outcome"] for one in both]
            assert len(stage.sight.living()) <= 3 and len(stage.claims()) <= 3
            assert outcomes.count("lock_busy") < 2, "one of them has to win"
            for one in both:
                if one.said["plan"]["outcome"] == "lock_busy":
                    assert mode == "reap"
                    assert "launch" not in one.said and "teardown" not in one.said and "is active" in one.said["plan"]["msg"]
            ends[" and ".join(sorted(outcomes))] += 1
            assert not stage.sight.holder()
    print(f"{RACES} races, {'one host' if hosts == 'aa' else 'two hosts'}: {dict(sorted(ends.items()))}, machines too many 0")
    assert sum(ends.values()) - ends["lock_busy and ok"] > RACES // 4, "the second run waits for the first"


@pytest.mark.parametrize("cut", range(15, 75, 6))
def test_L08_a_stolen_lock_ends_the_run_before_its_next_call_that_costs(cut: int, tmp_path: Path) -> None:
    """Somebody writes another holder into the Lease in the middle of a run; the next call that costs meets that, and nothing is rented."""
    with staged(tmp_path, f"theft {cut}") as stage:
        stolen: list[int] = []

        def watch(calls: int) -> None:
            holder = stage.sight.holder()
            if not stolen and calls >= cut and holder.endswith("/run-1"):
                lease = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{stage.sight.cluster_id}"
                now = (stage.clock.now()).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                stage.kube("PATCH", lease, {"spec": {"holderIdentity": "thief/1/other", "renewTime": now}})
                stage.advance(5)  # for that long calls that cost share a renewal
                stolen.append(len(stage.world.writes))

        stage.on_call = watch
        (one,) = stage.perform(Order("provision", nodes=2))
        assert stolen
        after = [what for _when, service, what in stage.world.writes[stolen[0] :] if service == "lambda"]
        assert one.end == "lock_lost" or (one.end == "ok" and len(stage.world.writes) == stolen[0]), (one.end, one.error)
        assert after == [] and stage.sight.made() == [], "nothing that costs is called any more"
        assert stage.sight.holder() == "thief/1/other", "the lock of the thief is left alone"
        assert stage.broken == []
