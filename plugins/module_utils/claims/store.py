# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where claims, findings and the ledger are kept (L-2): one interface, two stores with one contract.

``cluster`` keeps ConfigMaps in tgp-system, ``directory`` files in a folder of the machine that runs the playbooks.
"""

from __future__ import annotations

import json
import os
import re
import typing as t

from ..cluster.identity import cluster_id
from ..cluster.kube import Kube
from ..errors import BadShape, InvalidInput, TgpError
from ..fleet.claim_record import from_record, to_record
from ..fleet.model import Claim
from ..places import state_folder
from ..task import Task

#: options of everything that reads or writes claims; environment fallbacks are read by :func:`open_store`
CLAIMS_SPEC: dict[str, t.Any] = {
    "claim_store": {"type": "str", "choices": ["cluster", "directory"], "default": "cluster"},
    "ledger": {"type": "str", "choices": ["cluster", "file", "both"]},
    "state_dir": {"type": "path"},
    "cluster_id": {"type": "str"},
}

_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$")


LEDGERS = ("cluster", "file", "both")
_SET_LEDGER = "TGP_LEDGER"
Records = tuple["list[dict[str, t.Any]]", "list[str]"]


class ClaimStore(t.Protocol):
    """The records of one cluster. Every verb raises BadShape for a record that cannot be understood, never skips it; only lines of the
    ledger are told apart."""

    def claims(self) -> list[Claim]:
        """All claims, sorted by name, each with its ``version``."""
        ...

    def claim(self, name: str) -> Claim | None:
        """One claim, None when there is none."""
        ...

    def write(self, claim: Claim) -> Claim:
        """Create (``version`` empty) or replace the very version that was read; returns it with its new version.

        Conflict when it exists already, was changed by somebody else, or was removed.
        """
        ...

    def remove(self, claim: Claim) -> None:
        """Remove it; gone already is fine. Conflict when somebody else changed it since it was read."""
        ...

    def read_state(self, name: str) -> dict[str, t.Any]:
        """A small named record beside the claims (findings, blocklist); {} when it was never written."""
        ...

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        """Replace it as a whole; the run lock keeps others from doing so at the same time."""
        ...

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        """Append a closing line once. Its ``key``, else its ``name`` (the claim's), identifies it; False when it is there already.
        One that is there but torn is written anew."""
        ...

    def ledger_lines(self) -> list[dict[str, t.Any]]:
        """All lines, in no promised order. BadShape when one of them is torn."""
        ...

    def ledger_records(self) -> Records:
        """All lines that can be read, in no promised order, and the places of those that cannot."""
        ...


def state_dir(task: Task) -> str:
    """The folder for files of this user (places.py)."""
    return state_folder(task.params)


def open_store(task: Task, kube: Kube | None) -> ClaimStore:
    """The store of the options ``claim_store``, ``ledger``, ``state_dir`` and ``cluster_id``. A directory store lies in
    ``<state_dir>/<cluster id>``, so that several clusters can share one ``state_dir``."""
    from .books import BookedStore
    from .configmap import ConfigMapStore
    from .directory import DirectoryStore

    def in_folder() -> ClaimStore:
        return DirectoryStore(os.path.join(state_dir(task), cluster_id(kube, task.params.get("cluster_id"))))

    def in_cluster(option: str) -> ClaimStore:
        if kube is None:
            raise InvalidInput(f"{option} needs a cluster.", remedy="Give a kubeconfig, or choose the folder instead.")
        return ConfigMapStore(kube)

    here = task.params.get("claim_store") == "directory"
    base = in_folder() if here else in_cluster("claim_store cluster")
    where = task.params.get("ledger") or os.environ.get(_SET_LEDGER) or ("file" if here else "cluster")
    if where not in LEDGERS:
        raise InvalidInput(f"There is no ledger {where!r}.", remedy=f"Set ledger ({_SET_LEDGER}) to {', '.join(LEDGERS)}.")
    if where == ("file" if here else "cluster"):
        return base
    in_books = [base if not here else in_cluster(f"ledger {where}")] if where != "file" else []
    return BookedStore(base, [*in_books, *([base if here else in_folder()] if where != "cluster" else [])])


# ---- what both stores share


def sorted_out(texts: t.Iterable[tuple[str, t.Any]]) -> Records:
    """Ledger lines given as place and text, and the places of those that are torn."""
    lines, torn = [], []
    for where, text in texts:
        try:
            lines.append(decode(text, where))
        except BadShape:
            torn.append(where)
    return lines, torn


def whole(records: Records) -> list[dict[str, t.Any]]:
    """The lines, if none is torn."""
    lines, torn = records
    if torn:
        raise odd(torn[0], "it is not a JSON object")
    return lines


def is_torn(text: str) -> bool:
    """Whether a ledger line is cut off or otherwise not what was written."""
    return bool(sorted_out([("", text)])[1])


def checked_name(name: str) -> str:
    """``name`` if it can be part of an object's or a file's name."""
    if not _NAME.match(name):
        raise InvalidInput(f"{name!r} cannot be the name of a record: only a-z, 0-9, '-' and '.' are allowed.")
    return name


def ledger_key(line: t.Mapping[str, t.Any]) -> str:
    """What makes a ledger line unique."""
    return checked_name(str(line.get("key") or line.get("name") or ""))


def encode(record: t.Mapping[str, t.Any]) -> str:
    """JSON text, the same for the same record."""
    return json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def decode(text: t.Any, where: str) -> dict[str, t.Any]:
    """A JSON object; BadShape naming the place."""
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise odd(where, "it is not a JSON object")
    return record


def encode_claim(claim: Claim) -> str:
    return encode(to_record(claim))


def decode_claim(text: t.Any, where: str, name: str) -> Claim:
    """The claim in ``text``; BadShape naming the place when it is torn, odd, or another's."""
    record = decode(text, where)
    try:
        claim = from_record(record)
    except (TgpError, ValueError, TypeError, KeyError) as error:
        raise odd(where, str(error).rstrip(".")) from error
    if claim.name != name:
        raise odd(where, f"it is the claim of {claim.name}")
    return claim


def odd(where: str, why: str) -> BadShape:
    """The error for a record that cannot be understood: without it nobody knows what was rented, so nothing may be decided."""
    return BadShape(
        f"The record {where} is not understood: {why}.",
        remedy="Repair it, or remove it once you made sure in the cloud's console that its machine is gone.",
        service="claims",
        record=where,
    )
