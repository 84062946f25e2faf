# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects with our finalizers in stories (L-33): documents that a person deletes, and claims that are objects. Each invariant fails on a
product that is broken on purpose."""

from __future__ import annotations

import json
import types
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner import finalizers
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import document_gone
from ansible_collections.tgp.gpu.plugins.module_utils.store import node_claim

from . import bites, objects
from .adverse import INGREDIENTS
from .grounds import ALL
from .sight import Call, Run
from .stage import Stage
from .story import Story, Violated
from .test_bites import OURS, World, machine

DELETED = ("documents cluster", "run provision nodes=1", "document delete training", "run reap")
CLAIMS = ("claims objects", "run provision nodes=1", "gncl 0", "run reap")
_RELEASES, _MANIFEST, _SWAP = finalizers.releases, node_claim.manifest, node_claim.NodeClaimStore._swap


def _of_nobody(given: t.Iterable[t.Any]) -> list[finalizers.FinalizerChange]:
    return [finalizers.FinalizerChange(change.one, ()) for change in _RELEASES(given)]


def _unheld(claim: t.Any) -> dict[str, t.Any]:
    body = _MANIFEST(claim)
    return {**body, "metadata": {**body["metadata"], "finalizers": []}}


def _let_go(self: t.Any, claim: t.Any) -> t.Any:
    """A claim whose machine is to end has no finalizer any more."""
    found = _SWAP(self, claim)
    if claim.deletion is not None:
        self._kube.patch(f"{node_claim.PATH}/{claim.name}", {"metadata": {"finalizers": []}})
    return found


def _never_removed(specs: t.Any, claims: t.Any, damaged: t.Any = ()) -> list[finalizers.FinalizerChange]:
    return [change for change in _CHANGES(specs, claims, damaged) if not change.one.deleted]


_CHANGES = finalizers.changes
_STAYS = 'fault {"service": "lambda", "method": "POST", "path": "terminate", "kind": "status", "status": 500, "times": 9}'
#: what is broken, the first words of what catches it, the ground, and the story. Nothing else ends a container that serves.
WRONG: dict[str, tuple[list[bites.Patch], str, str, tuple[str, ...]]] = {
    "nothing holds an object": (
        [(finalizers, "waits_for", lambda one, *_given: () if one.deleted else ("x",))],
        "I-29: gpunodepools/training loses our finalizer, and machine", "lambda", (*DELETED[:3], _STAYS, "run reap"),
    ),
    "every finalizer is removed": (
        [(finalizers, "releases", _of_nobody)], "I-30: gpunodepools/training has the finalizers", "lambda", DELETED,
    ),
    "no finalizer is removed": ([(finalizers, "changes", _never_removed)], "I-29: deleted, and still held", "lambda", DELETED),
    "a deleted object ends nothing": (
        [(document_gone, "reconcile", lambda _draft: None)], "I-21: their documents are gone, and they live", "runpod", DELETED,
    ),
    "a claim has no finalizer": (
        [(node_claim, "manifest", _unheld)], "I-31: the record of .* is gone, and its machine lives", "lambda", CLAIMS,
    ),
    "a claim is let go of first": (
        [(node_claim.NodeClaimStore, "_swap", _let_go)], "I-29: gpunodeclaims/.* loses our finalizer, and machine", "lambda", CLAIMS,
    ),
    "a deleted claim ends nothing": (
        [(node_claim.NodeClaimStore, "_is_being_removed", lambda _self: True)],
        "I-31: their claims were deleted, and they live", "runpod", CLAIMS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_I29_to_I31_each_catch_a_broken_product(wrong: str) -> None:
    patches, said, ground, lines = WRONG[wrong]
    with bites.broken(patches), pytest.raises(Violated, match=f"^{said}"):
        Story(ground, "objects", lines).play()


def test_the_same_stories_are_fine_and_count() -> None:
    """In one: a class and its pool are deleted, wanted again, and come when the old ones have gone; a claim that is an object is deleted, one
    is damaged, and of one a person patches the finalizers away."""
    stages: list[Stage] = []
    lines = (
        "limits 3 10.00 8", "claims objects", "documents cluster",
        "run provision nodes=3", "gncl 0", "run reap kill=30 after", "run reap", "record damaged 0", "forget 0",
        "document delete demo", "run reap", "document return training", "rest 660", "run reap", "run reap", "run provision nodes=1",
    )  # fmt: skip
    changed = Story("paperspace", "objects", lines).play(sabotage=stages.append).changed
    for what in (objects.DELETED, objects.CLAIM, objects.DELETED_CLAIM, "damaged record"):
        assert changed[what] >= 1, what
    ended = {line["reason"] for line in stages[0].ledger()}
    assert {"Manual", "DocumentGone"} <= ended, "the claim's end was asked for, and the pool's"


def test_stories_draw_objects_in_place_of_other_scenes() -> None:
    assert {objects.DELETED, objects.CLAIM, objects.DELETED_CLAIM} <= set(INGREDIENTS)
    stories = [Story.draw(ground, f"1/{number}") for ground in sorted(ALL) for number in range(6)]
    with_claims = [one for one in stories if "claims objects" in one.lines]
    assert len(stories) / 5 < len(with_claims) < len(stories) / 2 and not any(one.ground == "directory" for one in with_claims)
    lines = [line for one in stories for line in one.lines]
    assert {"document delete training", "document delete demo", "document vanish training"} <= set(lines)
    assert not [line for one in with_claims for line in one.lines if "/configmaps/tgp-" in line], "faults meet the records in use"


# ---- each check by itself


def _call(names: list[str], plural: str = "gpunodepools", method: str = "PATCH", version: str = "7") -> Call:
    space = "" if plural == "gpunodeclasses" else "namespaces/default/"
    body = json.dumps({"metadata": {"resourceVersion": version, "finalizers": names}})
    return Call(Run("r", "reap"), "kubernetes", method, f"/apis/tgp.io/v1/{space}{plural}/training", body, writes=True)


def _world(*machines: t.Any, deleted: bool = True, **kinds: t.Any) -> t.Any:
    meta = {"resourceVersion": "7", "finalizers": ["other.example/x", "tgp.io/gpunodepool-finalizer"]}
    known = {"training": {"metadata": {**meta, **({"deletionTimestamp": "2026-01-01T12:00:00Z"} if deleted else {})}}}
    world = World(*machines)
    facts = {"kinds": lambda plural: kinds.get(plural, known), "misread": set(), "kept": {}, "deleted_claims": set()}
    return types.SimpleNamespace(**{name: getattr(world, name) for name in ("living", "claims", "forgotten")}, **facts)


def test_I29_bites_while_a_machine_lives_and_before_anybody_deleted_the_object() -> None:
    mine, check, without = machine(OURS.replace("-p-", "-training-")), objects.I29_an_object_goes_last, ["other.example/x"]
    assert "lives" in check(_world(mine), _call(without)) and not check(_world(), _call(without))
    assert "nobody deleted it" in check(_world(deleted=False), _call(without))
    assert not check(_world(mine), _call(["other.example/x", "tgp.io/gpunodepool-finalizer"]))
    assert not check(_world(mine), _call(without, version="6")), "the cluster refuses it"
    kept = _world(mine)
    kept.kept = {"training": None}
    assert not check(kept, _call(without)), "orphanedPolicy: Keep"
    assert not check(_world(mine), _call(["x"], "gpunodepools", "GET"))


def test_I30_bites_when_a_finalizer_of_others_goes_or_comes() -> None:
    check = objects.I30_finalizers_of_others_stay
    assert not check(_world(), _call(["other.example/x"])) and check(_world(), _call([]))
    assert check(_world(), _call(["other.example/x", "other.example/y"]))
    assert check(_world(), _call([], method="DELETE")) and not check(_world(), _call([], "gpunodeclaims", "DELETE"))


def test_I31_bites_when_a_record_goes_before_its_machine() -> None:
    check, world = objects.I31_a_deleted_claim_keeps_its_record, _world(machine())
    assert not check(world, _call([]))
    world.deleted_claims = {OURS}
    assert check(world, _call([]))
    world.forgotten = {OURS}
    assert not check(world, _call([])), "a person patched its finalizers away"
