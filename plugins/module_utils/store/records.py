# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where claims, findings and the ledger are kept (L-2): the interface of a store, and what both of them share: how a record is written
and read, and how a claim is replaced."""

from __future__ import annotations

import abc
import dataclasses
import json
import re
import typing as t

from ..core.errors import BadShape, Conflict, InvalidInput, NotFound, TgpError, without_details
from ..model import Claim, DamagedClaim
from ..planner.claims.diff import rebased
from ..planner.claims.record import from_record, to_record

_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,198}[a-z0-9])?$")


ClaimRecords = tuple["list[Claim]", "list[DamagedClaim]"]
_TRIES = 4  # of a write that meets changes of others


class Torn(t.NamedTuple):
    """A ledger line that cannot be read: where it is, and the key it was written under, empty for what never was a line."""

    place: str
    key: str = ""


Records = tuple["list[dict[str, t.Any]]", "list[Torn]"]


@dataclasses.dataclass(frozen=True)
class LedgerPart:
    """A piece of the ledger that is removed as a whole: a ConfigMap or a file. ``version`` is what was read; ``book`` counts the places of a
    ledger that is kept in several; ``torn`` are lines that cannot be read."""

    place: str
    version: str
    lines: tuple[dict[str, t.Any], ...]
    torn: tuple[Torn, ...] = ()
    book: int = 0


class ClaimStore(t.Protocol):
    """The records of one cluster. A claim or a ledger line that cannot be understood is reported apart and hides no other one; a verb that
    asks for a single record raises BadShape for it."""

    def claims(self) -> list[Claim]:
        """All claims that can be read, sorted by name, each with its ``version``."""
        ...

    def claim_records(self) -> ClaimRecords:
        """The same, and those that exist and cannot be read."""
        ...

    def claim(self, name: str) -> Claim | None:
        """One claim, None when there is none. BadShape when it is damaged."""
        ...

    def claim_uid(self, name: str) -> str:
        """The uid of a claim that is an object of its own, as it was last read or written; empty where claims are none."""
        ...

    def write(self, claim: Claim) -> Claim:
        """Create (``version`` empty) or replace the version that was read; returns it with its new version.

        What another writer changed meanwhile is read and kept, if it does not contradict (planner/claims/diff.py). Conflict when it does, when
        the claim exists already, or was removed.
        """
        ...

    def remove(self, claim: Claim) -> None:
        """Remove it; gone already is fine. Conflict when another writer changed what it says since it was read."""
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
        """All lines that can be read, in no promised order, and those that cannot."""
        ...

    def ledger_parts(self) -> list[LedgerPart]:
        """What :meth:`remove_part` can remove: never the part that takes the next line."""
        ...

    def remove_part(self, part: LedgerPart) -> None:
        """Remove exactly what was read; gone already is fine. Conflict when another writer changed it."""
        ...


class Careful(abc.ABC):
    """How all stores replace a claim: only the version that was read, and on top of changes of others that do not contradict (L-22).

    ``kind`` is the store's word in the option ``claim_store``. A store whose claims are being moved, or were moved, is marked, and says so to
    everybody but the ``mover``: half of the claims would pass for all of them.
    """

    kind = ""
    marker = "tgp-claims-moving"

    def __init__(self, *, mover: bool = False) -> None:
        self._known: dict[str, Claim] = {}  # as last read or written, by name
        self.mover = mover
        self.move: t.Mapping[str, t.Any] | None = None  # the mark, as last met

    def _marked(self, move: t.Mapping[str, t.Any]) -> None:
        """A mark was found."""
        self.move = move
        if self.mover:
            return
        source, target = move.get("from"), move.get("to")
        if move.get("done"):
            raise InvalidInput(
                f"claim_store is {self.kind}, and the claims were moved from there to {target}.",
                remedy=f"Set claim_store to {target} (tgp_options), here and wherever playbooks of this cluster run.",
            )
        raise InvalidInput(
            f"The claims are being moved from the store {source} to {target}, or a move was cut off. Nothing was changed.",
            remedy=f"If no move is running, finish it: run move_claims.yml again with tgp_to_store={target}.",
        )

    @abc.abstractmethod
    def claim(self, name: str) -> Claim | None:
        """One claim as it is now."""

    @abc.abstractmethod
    def _swap(self, claim: Claim) -> Claim:
        """Create or replace exactly the version that ``claim`` carries. Conflict otherwise."""

    @abc.abstractmethod
    def _drop(self, claim: Claim) -> None:
        """Remove exactly the version that ``claim`` carries. Conflict otherwise."""

    def claim_uid(self, _name: str) -> str:
        return ""

    def note(self, claim: Claim) -> Claim:
        """Remember what a version says."""
        self._known[claim.name] = claim
        return claim

    def write(self, claim: Claim) -> Claim:
        claim = _storable(claim)
        base = self._known.get(claim.name)
        for _attempt in range(_TRIES):
            try:
                return self.note(self._swap(claim))
            except Conflict as conflict:
                theirs = self._fresh(claim, base, conflict)
                merged = rebased(t.cast(Claim, base), claim, theirs)
                if merged is None:
                    raise
                base, claim = theirs, merged
        return self.note(self._swap(claim))

    def remove(self, claim: Claim) -> None:
        base = self._known.get(claim.name)
        for _attempt in range(_TRIES):
            try:
                return self._drop(claim)
            except Conflict as conflict:
                theirs = self._fresh(claim, base, conflict)
                if theirs != dataclasses.replace(t.cast(Claim, base), version=theirs.version):
                    raise
                claim = base = theirs
        return self._drop(claim)

    def _fresh(self, claim: Claim, base: Claim | None, conflict: Conflict) -> Claim:
        """The claim as it is now; the conflict itself where a retry proves nothing: for a new claim, and for one that is gone."""
        if not claim.version or base is None or base.version != claim.version:
            raise conflict
        try:
            theirs = self.claim(claim.name)
        except NotFound:
            theirs = None
        if theirs is None:
            raise conflict
        return theirs


# ---- records as text


def sorted_out(texts: t.Iterable[tuple[str, str, t.Any]]) -> Records:
    """Ledger lines given as place, key and text, and those that are torn."""
    lines, torn = [], []
    for where, key, text in texts:
        try:
            lines.append(decode(text, where))
        except BadShape:
            torn.append(Torn(where, key))
    return lines, torn


def whole(records: Records) -> list[dict[str, t.Any]]:
    """The lines, if none is torn."""
    lines, torn = records
    if torn:
        raise odd(torn[0].place, "it is not a JSON object")
    return lines


def is_torn(text: str) -> bool:
    """Whether a ledger line is cut off or otherwise not what was written."""
    return bool(sorted_out([("", "", text)])[1])


def checked_name(name: str) -> str:
    """``name`` if it can be part of an object's or a file's name."""
    if not _NAME.match(name):
        raise InvalidInput(f"{name!r} cannot be the name of a record: only a-z, 0-9, '-' and '.' are allowed.")
    return name


def ledger_key(line: t.Mapping[str, t.Any]) -> str:
    """What makes a ledger line unique."""
    return checked_name(str(line.get("key") or line.get("name") or ""))


def encode(record: t.Mapping[str, t.Any]) -> str:
    """JSON text, the same for the same record. Words of other services are left out (core/errors.py)."""
    return json.dumps(without_details(record), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def decode(text: t.Any, where: str) -> dict[str, t.Any]:
    """A JSON object; BadShape naming the place."""
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise odd(where, "it is not a JSON object")
    return record


def _storable(claim: Claim) -> Claim:
    """The claim as a later read shows it, so that a comparison with what others wrote is one of equals."""
    record = to_record(claim)
    kept = without_details(record)
    return claim if kept == record else dataclasses.replace(from_record(kept), version=claim.version)


def encode_claim(claim: Claim) -> str:
    return encode(to_record(claim))


def decode_claim(text: t.Any, where: str, name: str) -> Claim:
    """The claim in ``text``; BadShape naming the place when it is torn, odd, or another's."""
    return read_record(decode(text, where), where, name)


def read_record(record: t.Any, where: str, name: str) -> Claim:
    """The claim of a record; BadShape naming the place when it is odd, or another's."""
    try:
        claim = from_record(record)
    except (TgpError, ValueError, TypeError, KeyError) as error:
        raise odd(where, str(error).rstrip(".")) from error
    if claim.name != name:
        raise odd(where, f"it is the claim of {claim.name}")
    return claim


def damaged(text: t.Any, where: str, name: str, problem: BadShape, **beside: str) -> DamagedClaim:
    """What is known of a claim that cannot be read. ``beside``: facts that are kept outside of its text."""
    try:
        record = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        record = None
    facts: dict[str, t.Any] = {key: value for key, value in beside.items() if value}
    if isinstance(record, dict):  # of another version, or with an odd field: these have the same meaning in every version
        facts = {key: record[key] for key in ("pool", "node_class", "cloud") if isinstance(record.get(key), str)} | facts
        ids = [record.get("instance_id"), *(record["ids_seen"] if isinstance(record.get("ids_seen"), list) else ())]
        facts["ids"] = tuple(dict.fromkeys(identity for identity in ids if isinstance(identity, str) and identity))
    why = problem.message.partition(" is not understood: ")[2].rstrip(".") or problem.message.rstrip(".")
    return DamagedClaim(name, where, why, **facts)


def removed_by_another(where: str) -> Conflict:
    """The error of a write to a record that is there no more."""
    return Conflict(f"{where} was removed by another writer.", service="claims", status=409)


def changed_by_another(where: str) -> Conflict:
    """The error of a write on top of a version that is not the last."""
    return Conflict(f"{where} was changed by another writer.", service="claims", status=409)


def odd(where: str, why: str) -> BadShape:
    """The error for a record that cannot be understood: what it stands for is unknown, so nothing is decided about that."""
    return BadShape(
        f"The record {where} is not understood: {why}.",
        remedy="Repair it, or remove it once you made sure in the cloud's console that its machine is gone.",
        service="claims",
        record=where,
    )
