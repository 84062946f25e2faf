# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the cluster that have our finalizers (L-33): documents that a person deletes while they have machines, and claims that are
GPUNodeClaim objects (``claims objects``), of which a person deletes one (``gncl 0``)."""

from __future__ import annotations

import json
import random
import re
import typing as t

from schemas.crds import claim_definition

from . import own
from .sight import CLASS_OF, pool_in

if t.TYPE_CHECKING:
    from sandbox.world import Machine

    from .grounds import Ground
    from .sight import Call, Json, Sight
    from .stage import Stage

CLAIMS = "/apis/tgp.io/v1/namespaces/tgp-system/gpunodeclaims"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOREIGN = "stories.example/cleanup"  # the finalizer of somebody else, on every document of a story
DELETED, CLAIM, DELETED_CLAIM = "deleted object", "claims as objects", "deleted claim object"
_PLURALS = {"gpunodepools": "pool", "gpurequests": "pool", "gpunodeclasses": "class", "gpunodeclaims": "claim"}
_PATH = re.compile(r"^/apis/tgp\.io/v1/(?:namespaces/([^/]+)/)?([a-z]+)/([^/?]+)$")
_FOR_CLAIMS = (
    ('"PUT", "path": "/configmaps/tgp-claim"', '"PATCH", "path": "/gpunodeclaims/"'),
    ("/configmaps", "/(configmaps|gpunodeclaims)"),
)


# ---- what lines do


def keep_claims(stage: Stage, _rest: str = "") -> None:
    """Before the first run: claims are objects from now on."""
    stage.kube("POST", DEFINITIONS, claim_definition())
    stage.sight.objects = True
    stage.options["claim_store"] = "crd"


def delete_claim(stage: Stage, rest: str) -> None:
    """``kubectl delete gncl NAME``: it asks for the end of the machine."""
    names = sorted(set(stage.sight.claims()) - stage.adverse.records)
    if not stage.sight.objects or not names:
        return
    name = names[int(rest) % len(names)]
    stage.sight.asked.add(name)
    stage.sight.deleted_claims.add(name)
    stage.adverse.words[name] = DELETED_CLAIM
    stage.api.request("DELETE", f"{CLAIMS}/{name}")


def remove_claim(stage: Stage, name: str) -> bool:
    """A person deletes the object and patches its finalizers away; whether it was there."""
    there = stage.api.request("DELETE", f"{CLAIMS}/{name}")[0] < 300
    if there:
        stage.api.request("PATCH", f"{CLAIMS}/{name}", {"metadata": {"finalizers": None}}, media="application/merge-patch+json")
    return there


def claims(stage: Stage) -> dict[str, Json]:
    """Records by name, of the cluster of this stage."""
    status, answer = stage.api.request("GET", CLAIMS)
    items = answer["items"] if status == 200 else []
    return {one["metadata"]["name"]: one["record"] for one in items if one["record"].get("name")}


LINES: dict[str, t.Callable[[Stage, str], None]] = {"claims": keep_claims, "gncl": delete_claim}


# ---- chance


def are_drawn(ground: Ground, seed: str) -> bool:
    """Whether claims are objects in a story: in a third of them, where they are not files."""
    return "claim_store" not in ground.options and random.Random(f"claims {seed}").random() < 0.35


def instead(scenes: list[list[str]], ground: Ground, seed: str, *, claims: bool, documents: bool) -> list[list[str]]:
    """Scenes of objects in place of as many others, so that stories stay as long as they are: where ``claims`` or ``documents`` are objects,
    a person deletes one that is in use, and brings the document back or patches its finalizers away."""
    dice = random.Random(f"scenes of objects {seed}")
    kill, pool = dice.choice(("", "", f" kill={dice.randint(5, 40)} after")), dice.choice(ground.pools)
    run, asked = dice.choice(("reap", "autoscale", "loop looks=3")), "" if len(ground.pools) == 1 else f" pool={pool}"
    run = "autoscale" if ground.has_hub() else run  # a class with a hub has no loop
    begin = [f"run provision nodes=1{asked}"]
    after = dice.choice(([], [f"document return {pool}", *begin], [f"document vanish {pool}", "run reap"]))
    what = dice.choice((pool, CLASS_OF[pool]))
    found = [[*begin, f"document delete {what}", f"run reap{kill}", "rest 330", *after]] if documents else []
    found += [["run provision nodes=1", f"gncl {dice.randrange(3)}", f"run {run}{kill}", "rest 330", "run reap"]] if claims else []
    return [*found, *scenes[len(found) :]] if scenes else scenes


def drawn(lines: t.Sequence[str], seed: str, *, claims: bool) -> list[str]:
    """The lines, in which some of the documents that vanish are deleted instead, one in three of those of the first pool with its class."""
    dice, found = random.Random(f"deleted {seed}"), list[str]()
    for line in lines:
        if line.startswith("document vanish ") and dice.random() < 0.6:
            line = line.replace("vanish", "delete")
            line = line.replace("training", "demo") if dice.random() < 0.35 else line
        found.append(rewritten(line) if claims else line)
    return ["claims objects", *found] if claims else found


def rewritten(line: str) -> str:
    """A line of a story whose claims are objects: what goes wrong with records goes wrong with these."""
    for before, after in _FOR_CLAIMS if line.startswith("fault ") else ():
        if before in line:
            return line.replace(before, after)
    return line.replace("/configmaps/tgp-", "/gpunodeclaims/") if line.startswith("refuse ") else line


# ---- the invariants


def held(sight: Sight) -> list[str]:
    """Objects that a person deleted and that have our finalizer."""
    return [
        f"{plural}/{name}"
        for plural in _PLURALS
        for name, one in sight.kinds(plural).items()
        if "deletionTimestamp" in one["metadata"] and _ours(one["metadata"].get("finalizers"))
    ]


def _ours(names: t.Iterable[str] | None) -> set[str]:
    return {name for name in names or () if name.startswith("tgp.io/")}


def _changed(sight: Sight, call: Call) -> tuple[str, str, Json, set[str]] | None:
    """Plural, name and metadata of the object whose finalizers a call changes, and which it is to have; None where it changes none."""
    match = _PATH.match(call.path.partition("?")[0]) if call.service == "kubernetes" and call.method in ("PATCH", "PUT") else None
    if match is None or match[2] not in _PLURALS:
        return None
    found, body = sight.kinds(match[2]).get(match[3]), json.loads(call.body)
    meta = body.get("metadata") or {} if isinstance(body, dict) else {}
    if found is None or "finalizers" not in meta:
        return None
    known = found["metadata"]
    if meta.get("resourceVersion") not in (None, known["resourceVersion"]):
        return None  # the cluster refuses it (409)
    return match[2], match[3], known, set(meta["finalizers"] or ())


def I29_an_object_goes_last(sight: Sight, call: Call) -> str:
    """Our finalizer is taken from an object once a person has deleted it and its machines are gone; of a claim, once its machine is."""
    change = _changed(sight, call)
    if change is None or _ours(change[3]) or not _ours(change[2].get("finalizers")):
        return ""
    plural, name, meta, _names = change
    kind = _PLURALS[plural]
    if kind != "claim" and "deletionTimestamp" not in meta:
        return f"{plural}/{name} loses our finalizer, and nobody deleted it"
    pools = {pool for pool, node_class in CLASS_OF.items() if name in ((pool,) if kind == "pool" else (node_class,))}
    if kind == "class" and (users := sorted(pools & set(sight.kinds("gpunodepools")))):
        return f"{plural}/{name} loses our finalizer, and pool {users[0]} uses it"
    left = [one for one in sight.living() if (one.name == name if kind == "claim" else pool_in(one.name) in pools)]
    left = [one for one in left if _holds(sight, one, kind)]
    return f"{plural}/{name} loses our finalizer, and machine {left[0].id} ({left[0].name}) lives" if left else ""


def _holds(sight: Sight, machine: Machine, kind: str) -> bool:
    """Whether its end is waited for: not where its claim was removed by hand, or a look by id had a wrong answer. A pool does not wait for
    machines that its document keeps (orphanedPolicy)."""
    if machine.name in sight.forgotten or machine.id in sight.misread or "struck" in machine.details:
        return False
    return kind != "pool" or pool_in(machine.name) not in sight.kept


def I30_finalizers_of_others_stay(sight: Sight, call: Call) -> str:
    """No run changes a finalizer that is not ours, and none deletes a document."""
    match = _PATH.match(call.path.partition("?")[0]) if call.service == "kubernetes" and call.method == "DELETE" else None
    if match is not None and _PLURALS.get(match[2], "claim") != "claim":
        return f"a run deletes {match[2]}/{match[3]}"
    change = _changed(sight, call)
    if change is None:
        return ""
    before, after = (set(names) - _ours(names) for names in (change[2].get("finalizers") or (), change[3]))
    return (
        f"{change[0]}/{change[1]} has the finalizers {sorted(before)} of others, and is to have {sorted(after)}"
        if before != after
        else ""
    )


def I31_a_deleted_claim_keeps_its_record(sight: Sight, _call: Call) -> str:
    """A person deletes a claim object; its record is there until its machine is gone."""
    for name in sight.deleted_claims - sight.forgotten - set(sight.kinds("gpunodeclaims")) if sight.deleted_claims else ():
        left = [one for one in sight.living() if one.name == name and not own.is_own(one)]
        if any(_holds(sight, one, "claim") for one in left):
            return f"the record of {name} is gone, and its machine lives"
    return ""
