# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_move_claims: all claims of a cluster go from one store to another, under the run lock.

Both stores are marked first, so that no other run takes half of the claims for all of them. The source is what counts until the target was read
back with every claim; only then are the source's removed. Killed anywhere, the same call goes on.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.errors import ApiError, InvalidInput
from ..core.task import Task
from ..kube.client import Kube
from ..model import Claim
from ..observe.context import Context, locked_run
from ..store.open_store import Store, claim_store, ledger_place
from ..store.run_lock import Keeper
from ..units.values import print_time

_IN_CLUSTER = {"cluster": "crd", "crd": "cluster"}


def move_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_move_claims. A run in progress ends first."""
    target = task.params["to_store"]
    source = task.params["from_store"] or _IN_CLUSTER.get(target)
    if source is None:
        raise InvalidInput(
            "Where the claims are is not known.",
            remedy=f"Give {task.called('from_store')}: cluster (ConfigMaps) or crd (GPUNodeClaim objects).",
        )
    if source == target:
        raise InvalidInput(f"The claims would be moved from {source} to {target}.", remedy="Give two different stores.")
    return locked_run(task, lambda context, writes: _move(context, source, target, writes=writes), documents_required=False)


def _move(context: Context, source: str, target: str, *, writes: bool) -> dict[str, t.Any]:
    move = _Move(context.task, context.kube, source, target)
    if not writes:
        return move.run(writes=False)
    with Keeper(context.lock, context.clock):  # reading every claim back may take longer than the lock lasts
        return move.run(writes=True)


class _Move:
    def __init__(self, task: Task, kube: Kube, source: str, target: str) -> None:
        self._task = task
        self._names = (source, target)
        self._source: Store = claim_store(task, kube, source, mover=True)
        self._target: Store = claim_store(task, kube, target, mover=True)

    def run(self, *, writes: bool) -> dict[str, t.Any]:
        source, target = self._names
        there, arrived = self._read(self._source), self._read(self._target)
        under_way = self._under_way()
        if there and arrived and not under_way:
            raise InvalidInput(
                f"Both stores have claims: {source} {len(there)}, {target} {len(arrived)}. Which count is not known, so nothing was changed.",
                remedy="Machines that both stores name are rented once. Remove the claims of the store that no run uses, and call again.",
            )
        if not (there or under_way):
            self._task.progress(f"  {source} has no claims; nothing is moved.")
            return self._result(changed=False, claims=())
        if writes:
            self._move(there, arrived)
        words = "moved" if writes else "would be moved"
        self._task.progress(f"  {len(there)} claims {words} from {source} to {target}. Set claim_store to {target} (tgp_options).")
        return self._result(changed=True, claims=there)

    def _result(self, *, changed: bool, claims: t.Iterable[str]) -> dict[str, t.Any]:
        return {"changed": changed, "claims": sorted(claims), "from_store": self._names[0], "to_store": self._names[1]}

    def _read(self, store: Store) -> dict[str, Claim]:
        try:
            claims, damaged = store.claim_records()
        except InvalidInput:
            if store is self._target:
                raise  # its kind is not installed
            return {}
        if damaged:
            raise InvalidInput(
                "A claim cannot be read, so nothing was moved.",
                problems=[f"{record.where}: {record.problem}" for record in damaged],
                remedy="Repair it, or remove it once you made sure in the cloud's console that its machine is gone.",
            )
        return {claim.name: claim for claim in claims}

    def _under_way(self) -> bool:
        """Whether this very move was begun. InvalidInput while another one is."""
        found = False
        for store in (self._source, self._target):
            move = store.move
            if move is None or (move.get("done") and store is self._target):
                continue  # a mark of an earlier move away from the target ends with this one
            if (move.get("from"), move.get("to")) != self._names:
                words = "were" if move.get("done") else "are being"
                raise InvalidInput(
                    f"The claims {words} moved from {move.get('from')} to {move.get('to')}. Nothing was changed.",
                    remedy=f"Call it with {self._task.called('to_store')} {move.get('to')} to finish that, or with that store as "
                    f"{self._task.called('from_store')} to move them on.",
                )
            found = found or not move.get("done")
        return found

    def _move(self, there: dict[str, Claim], arrived: dict[str, Claim]) -> None:
        source, target = self._names
        mark = {"from": source, "to": target, "since": print_time(self._task.clock.now())}
        beside = "directory" in self._names  # else both stores have one mark
        for store in (self._target, self._source) if beside else (self._target,):
            store.write_move(mark)
        for name, claim in there.items():
            other = arrived.get(name)
            if not _same(other, claim):
                self._target.write(dataclasses.replace(claim, version=other.version if other else ""))
        if beside:
            self._move_beside()
        read_back = self._read(self._target)
        missing = [name for name, claim in there.items() if not _same(read_back.get(name), claim)]
        if missing:
            raise ApiError(
                f"{target} does not show every claim after the move: {', '.join(missing)}. Nothing was removed from {source}.",
                remedy="Call it again.",
                service="claims",
            )
        for claim in there.values():
            self._source.remove(claim)
        if beside:  # a folder is seen by one host alone, so what the others see keeps the mark
            self._source.write_move({**mark, "done": True})
        self._target.write_move(None)

    def _move_beside(self) -> None:
        """Findings, pauses, the generation … and, where it is kept with the claims, the ledger. Those of the two stores in the cluster are the
        same ones."""
        for name in self._source.state_names():
            self._target.write_state(name, self._source.read_state(name))
        if ledger_place(self._task, self._names[0]) != ledger_place(self._task, self._names[1]):
            lines, torn = self._source.ledger_records()
            for line in lines:
                self._target.ledger(line)
            for record in torn:
                self._task.warn(f"{record.place} is torn and stays in {self._names[0]}.")


def _same(one: Claim | None, other: Claim) -> bool:
    return one is not None and dataclasses.replace(one, version="") == dataclasses.replace(other, version="")
