# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pauses in stories (L-31): a person writes the record beside the claims between two runs, and what no run may do while it is there."""

from __future__ import annotations

import json
import re
import typing as t

from .sight import CLASS_OF, pool_in

if t.TYPE_CHECKING:
    from .sight import Call, Sight
    from .stage import Stage

WORD = "paused pool"
_RECORD = "/api/v1/namespaces/tgp-system/configmaps"
_NAME = "tgp-state-pauses"
_OF_OURS = re.compile(r"tgp-[0-9a-f]{8}-[a-z0-9-]+-[0-9a-z]{5}\b")


def _write(stage: Stage, entries: t.Mapping[str, t.Any]) -> None:
    text = json.dumps(entries)
    if stage.sight.files is not None:
        folder = stage.sight.files.root / "state"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pauses.json").write_text(text, encoding="utf-8")
        return
    stage.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    body = {"metadata": {"name": _NAME, "labels": {"tgp.io/state": "true"}}, "data": {"state.json": text}}
    if stage.api.request("POST", _RECORD, body)[0] == 409:
        stage.kube("PATCH", f"{_RECORD}/{_NAME}", {"data": {"state.json": text}})


def begin(stage: Stage, rest: str) -> None:
    """``pause training``, ``pause demo``, ``pause all``: a pool, a class or everything."""
    key = {"all": "all", "demo": "class/demo"}.get(rest, f"pool/default/{rest}")
    pools = [pool for pool, node_class in CLASS_OF.items() if rest in ("all", pool, node_class)]
    stage.sight.paused.update(pools)
    stage.pauses[key] = {"why": "a story", "since": f"{stage.clock.now():%Y-%m-%dT%H:%M:%SZ}"}
    stage.sight.over |= {name for name, claim in stage.sight.claims().items() if _is_over(claim)}
    stage.adverse.words["is paused since "] = stage.adverse.words["are paused since "] = WORD
    _write(stage, stage.pauses)


def end(stage: Stage, _rest: str = "") -> None:
    """``resume``: every pause ends."""
    if not stage.pauses:
        return
    stage.pauses.clear()
    stage.sight.paused.clear()
    stage.sight.over.clear()
    _write(stage, {})


LINES: dict[str, t.Callable[[Stage, str], None]] = {"pause": begin, "resume": end}


def _is_over(claim: t.Mapping[str, t.Any]) -> bool:
    """Whether it was past its drain, or ordered by name."""
    return claim["phase"] == "Terminating" or (claim.get("deletion") or {}).get("reason") == "Manual"


def I28_a_paused_pool_stays_as_it_is(sight: Sight, call: Call) -> str:
    """Nothing of it is created, decided to end, drained or deleted, but by order of a person and but for what was past its drain."""
    if not sight.paused or call.run.mode == "destroy":
        return ""
    if call.creates():
        made = [name for name in _OF_OURS.findall(f"{call.path} {call.body}") if pool_in(name) in sight.paused]
        return f"{made[0]} is made although its pool is paused" if made else ""
    claims = sight.claims()
    if claim := call.claim():
        before = claims.get(claim["name"])
        pool = claim["pool"].rpartition("/")[2]
        new = claim.get("deletion") and not (before or {}).get("deletion")
        ends = new or (claim["phase"] == "Terminating" and (before or claim)["phase"] != "Terminating")
        ordered = sight.over | sight.deleted_claims  # a claim that a person deletes is an order by name, too
        bad = pool in sight.paused and ends and claim["name"] not in ordered and not _is_over(before or {"phase": ""})
        return f"{claim['name']} is given up although its pool is paused" if bad else ""
    names = [one.name for one in sight.aimed_at(call)] if call.destroys() else []
    if device_id := call.device():
        device = sight.device(device_id)
        names += [device.hostname] if device is not None else []
    if call.service == "kubernetes":
        names += [call.deleted("/api/v1/nodes/")]
        namespace, pod = call.pod_that_goes()
        found = sight.pod(namespace, pod) if pod else None
        names += [found["spec"].get("nodeName", "")] if found is not None else []
    for name in filter(None, names):
        claim = claims.get(name) or {"phase": ""}
        if sight.ours(name) and pool_in(name) in sight.paused and name not in sight.over and not _is_over(claim):
            return f"{name} is drained or deleted although its pool is paused"
    return ""
