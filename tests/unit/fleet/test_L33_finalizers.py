# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-33: which finalizer is set, which is removed, and what a deleted object waits for."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import DamagedClaim, Deletion, Phase, Source, Specs, StatusObject
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims import record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.finalizers import changes, waiting, waits_for
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, claim, pool, specs

OURS = "tgp.io/gpunodepool-finalizer"
POOL = StatusObject("GPUNodePool", "default/p", "/p", "GPUNodePool default/p of the cluster", "u1", 3, "7")
CLASS = StatusObject("GPUNodeClass", "c", "/c", "GPUNodeClass /c of the cluster", "u2", 1, "8")
DELETED = dataclasses.replace(POOL, deleted=True, finalizers=(OURS, "other.example/x"))
MACHINE = claim("tgp-a1b2c3d4-p-00001", Phase.READY)


def of(*objects: StatusObject, **facts: t.Any) -> Specs:
    return dataclasses.replace(specs(pool(**facts)), objects=objects)


def made(documents: Specs, *claims: t.Any, damaged: t.Any = ()) -> list[tuple[str, tuple[str, ...]]]:
    return [(change.one.path, change.finalizers) for change in changes(documents, claims, damaged)]


def test_an_object_without_machines_is_not_held() -> None:
    assert made(of(POOL)) == []


def test_the_first_machine_holds_its_pool_and_once() -> None:
    assert made(of(POOL), MACHINE) == [("/p", (OURS,))]
    assert made(of(dataclasses.replace(POOL, finalizers=(OURS,))), MACHINE) == []


def test_those_of_others_are_kept() -> None:
    assert made(of(DELETED)) == [("/p", ("other.example/x",))]
    assert made(of(dataclasses.replace(POOL, finalizers=("other.example/x",))), MACHINE) == [("/p", ("other.example/x", OURS))]


def test_a_deleted_object_waits_for_its_machines() -> None:
    going = dataclasses.replace(MACHINE, phase=Phase.TERMINATING, deletion=Deletion("DocumentGone", NOON))
    assert made(of(DELETED), MACHINE) == made(of(DELETED), going) == []
    assert waits_for(DELETED, of(DELETED), [going]) == ("tgp-a1b2c3d4-p-00001 (Terminating)",)


def test_a_deleted_object_takes_no_new_finalizer() -> None:
    """The API server refuses one."""
    assert made(of(dataclasses.replace(POOL, deleted=True, finalizers=("other.example/x",))), MACHINE) == []


def test_an_idle_object_keeps_it_until_it_is_deleted() -> None:
    assert made(of(dataclasses.replace(POOL, finalizers=(OURS,)))) == []


def test_machines_that_are_kept_do_not_hold_it() -> None:
    documents = of(DELETED, orphaned_policy="Keep")
    kept = record.follow(MACHINE, documents.pools[0], None)
    assert made(documents, kept) == [("/p", ("other.example/x",))]
    ending = dataclasses.replace(kept, deletion=Deletion("Expired", NOON))
    assert made(documents, ending) == [], "it is being terminated: its document says how"


def test_a_pool_with_faults_holds_a_deleted_class_and_no_other() -> None:
    """Nobody can read which class it uses; a class that stands gets no finalizer for it."""
    mine = "tgp.io/gpunodeclass-finalizer"
    faulty = dataclasses.replace(specs(), pools=(), objects=(CLASS,), paused={"default/q": "GPUNodePool default/q: minNodes: -1"})
    assert made(faulty) == []
    going = dataclasses.replace(faulty, objects=(dataclasses.replace(CLASS, deleted=True, finalizers=(mine,)),))
    assert made(going) == []
    assert waits_for(going.objects[0], going, []) == ("default/q, whose document has faults and may use it",)
    assert made(dataclasses.replace(going, paused={})) == [("/c", ())]


@pytest.mark.parametrize("named", ["default/p", ""])
def test_a_damaged_claim_holds_what_it_may_belong_to(named: str) -> None:
    broken = DamagedClaim("tgp-a1b2c3d4-p-00002", "ConfigMap tgp-system/tgp-claim-x", "torn", pool=named)
    assert made(of(DELETED), damaged=[broken]) == []
    assert made(of(DELETED), damaged=[dataclasses.replace(broken, pool="default/other")]) != []


def test_a_class_stays_until_its_pools_are_gone() -> None:
    gone = dataclasses.replace(CLASS, deleted=True, finalizers=("tgp.io/gpunodeclass-finalizer",))
    node_class = specs(pool()).pools[0].node_class
    gone = dataclasses.replace(gone, key=node_class)
    assert waits_for(gone, of(gone), []) == ("default/p that uses it",) and made(of(gone)) == []
    empty = dataclasses.replace(of(gone), pools=())
    assert made(empty) == [("/c", ())]
    unread = dataclasses.replace(empty, sources={"cluster:gpunodepools": Source(problem="The list failed.")})
    assert made(unread) == [], "which pools there are is unknown"
    assert made(empty, dataclasses.replace(MACHINE, node_class=node_class)) == []


def test_what_it_waits_for_is_a_sentence() -> None:
    assert waiting(()) == "The object is being deleted. Nothing of it is left; the next run removes its finalizer."
    assert waiting([str(number) for number in range(7)]).endswith("the end of 0, 1, 2, 3, 4 and 2 more.")


_CLAIMS = st.lists(
    st.builds(
        lambda number, phase, here: dataclasses.replace(
            claim(f"tgp-a1b2c3d4-p-{number:05d}", phase), pool="default/p" if here else "default/q"
        ),
        st.integers(0, 99),
        st.sampled_from([Phase.PENDING, Phase.BOOTING, Phase.READY, Phase.TERMINATING, Phase.FAILED]),
        st.booleans(),
    ),
    max_size=4,
)


@given(claims=_CLAIMS, deleted=st.booleans(), held=st.booleans())
def test_nothing_is_released_that_has_a_machine_and_nothing_is_written_twice(claims: t.Any, deleted: bool, held: bool) -> None:
    one = dataclasses.replace(POOL, deleted=deleted, finalizers=(OURS,) if held else ())
    found = changes(of(one), claims)
    mine = [each for each in claims if each.pool == "default/p"]
    assert all(deleted and not mine for change in found if OURS not in change.finalizers)
    for change in found:
        then = dataclasses.replace(one, finalizers=change.finalizers)
        assert changes(of(then), claims) == []
