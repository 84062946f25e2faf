# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which store the options name: ``cluster`` keeps ConfigMaps in tgp-system, ``crd`` GPUNodeClaim objects there, ``directory`` files in a
folder of the machine that runs the playbooks; the ledger may be elsewhere than the claims, or in both."""

from __future__ import annotations

import dataclasses
import os
import typing as t

from ..core.errors import InvalidInput
from ..core.files import state_folder
from ..core.task import Task
from ..kube.client import Kube, cluster_id
from ..model import Claim
from .configmap import ConfigMapStore
from .directory import DirectoryStore
from .node_claim import NodeClaimStore
from .records import ClaimRecords, ClaimStore, LedgerPart, Records, Torn, whole

STORES = ("cluster", "crd", "directory")

#: options of everything that reads or writes claims; environment fallbacks are read by :func:`open_store`
CLAIMS_SPEC: dict[str, t.Any] = {
    "claim_store": {"type": "str", "choices": list(STORES), "default": "cluster"},
    "ledger": {"type": "str", "choices": ["cluster", "file", "both"]},
    "state_dir": {"type": "path"},
    "cluster_id": {"type": "str"},
}

LEDGERS = ("cluster", "file", "both")
_SET_LEDGER = "TGP_LEDGER"


def open_store(task: Task, kube: Kube | None) -> ClaimStore:
    """The store of the options ``claim_store``, ``ledger``, ``state_dir`` and ``cluster_id``. A directory store lies in
    ``<state_dir>/<cluster id>``, so that several clusters can share one ``state_dir``."""

    chosen = task.params.get("claim_store") or "cluster"
    here = chosen == "directory"
    base = claim_store(task, kube, chosen)
    where = ledger_place(task, chosen)
    if where not in LEDGERS:
        raise InvalidInput(f"There is no ledger {where!r}.", remedy=f"Set ledger ({_SET_LEDGER}) to {', '.join(LEDGERS)}.")
    if where == ("file" if here else "cluster"):
        return base
    in_books = [base if not here else claim_store(task, kube, "cluster", f"ledger {where}")] if where != "file" else []
    return BookedStore(base, [*in_books, *([base if here else claim_store(task, kube, "directory")] if where != "cluster" else [])])


def ledger_place(task: Task, chosen: str) -> str:
    """Where the ledger is kept: cluster, file or both."""
    return task.params.get("ledger") or os.environ.get(_SET_LEDGER) or ("file" if chosen == "directory" else "cluster")


Store = ConfigMapStore | DirectoryStore


def claim_store(task: Task, kube: Kube | None, chosen: str, option: str = "", *, mover: bool = False) -> Store:
    """One store by its word in the option ``claim_store``. ``mover``: see store.Careful."""
    if chosen == "directory":
        folder = os.path.join(state_folder(task.params), cluster_id(kube, task.params.get("cluster_id")))
        return DirectoryStore(folder, mover=mover)
    if kube is None:
        raise InvalidInput(
            f"{option or f'claim_store {chosen}'} needs a cluster.", remedy="Give a kubeconfig, or choose the folder instead."
        )
    return NodeClaimStore(kube, mover=mover, warn=task.warn) if chosen == "crd" else ConfigMapStore(kube, mover=mover)


class BookedStore:
    """See store.ClaimStore. Claims and state are those of ``base``; a closing line is written to every one of ``books``, and counts as
    written only then. A claim stays until that has happened, so that a place which fails gets its line from a later run."""

    def __init__(self, base: ClaimStore, books: t.Sequence[ClaimStore]) -> None:
        self._base = base
        self._books = tuple(books)

    def claims(self) -> list[Claim]:
        return self._base.claims()

    def claim_records(self) -> ClaimRecords:
        return self._base.claim_records()

    def claim(self, name: str) -> Claim | None:
        return self._base.claim(name)

    def claim_uid(self, name: str) -> str:
        return self._base.claim_uid(name)

    def write(self, claim: Claim) -> Claim:
        return self._base.write(claim)

    def remove(self, claim: Claim) -> None:
        self._base.remove(claim)

    def read_state(self, name: str) -> dict[str, t.Any]:
        return self._base.read_state(name)

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        self._base.write_state(name, state)

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        return any([book.ledger(line) for book in self._books])

    def ledger_lines(self) -> list[dict[str, t.Any]]:
        return whole(self.ledger_records())

    def ledger_records(self) -> Records:
        """Every line once; the first place that has it counts. A line that is torn in one place and whole in another is whole."""
        lines: dict[str, dict[str, t.Any]] = {}
        torn: list[Torn] = []
        for book in self._books:
            entries, odd = book.ledger_records()
            torn += odd
            for line in entries:
                lines.setdefault(str(line.get("key") or line.get("name") or ""), line)
        return list(lines.values()), [record for record in torn if not record.key or record.key not in lines]

    def ledger_parts(self) -> list[LedgerPart]:
        return [dataclasses.replace(part, book=number) for number, book in enumerate(self._books) for part in book.ledger_parts()]

    def remove_part(self, part: LedgerPart) -> None:
        self._books[part.book].remove_part(part)
