# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim as JSON-safe data and back. Strict both ways: a field that is missing, unknown or of another type is an error."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import types
import typing as t
from datetime import datetime, time
from decimal import Decimal, InvalidOperation

from ...core.errors import InvalidInput, TgpError
from ...model import Attempt, Claim, Deletion, Limits, NodeClass, Offer, Phase, Pool, Specs, UnhealthyCondition
from ...units.values import parse_time, print_time

_T = t.TypeVar("_T")
VERSION = 1
_NOT_STORED = frozenset({"version"})  # the store's own resourceVersion
_ADDED: dict[type, frozenset[str]] = {
    Attempt: frozenset({"instance_id"}),
    Deletion: frozenset({"cause"}),
    Claim: frozenset(
        {
            "billed_since",
            "running_since",
            "interrupted_at",
            "price_bound",
            "underused_since",
            "peer",
            "store_generation",
            "source",
            "source_uid",
            "limits",
            "document_gone_since",
            "worked_since",
            "work_watched",
            "replaces",
            "accepted",
            "gpu_losses",
            "work",
            "owner",
            "launched_for",
        }
    ),
    Limits: frozenset(
        {
            "acceptance",
            "idle_signal",
            "idle_below",
            "idle_window",
            "idle_probed",
            "unhealthy_conditions",
            "dra_driver",
            "pre_pull",
            "mig",
        }
    ),
    Offer: frozenset({"min_bid", "price_estimated", "traffic_price_gb_down", "traffic_price_gb_up", "traits"}),
    UnhealthyCondition: frozenset({"xids"}),
}


def to_record(claim: Claim) -> dict[str, t.Any]:
    """The claim as JSON-safe data: times RFC 3339, money as text, with ``record_version``."""
    return {"record_version": VERSION, **_encode(claim, _NOT_STORED)}


def from_record(record: t.Mapping[str, t.Any]) -> Claim:
    """The claim of a record made by :func:`to_record`. Raises InvalidInput naming the field."""
    if not isinstance(record, t.Mapping):
        raise InvalidInput("A claim record must be a JSON object.")
    content = dict(record)
    version = content.pop("record_version", None)
    if version != VERSION:
        raise InvalidInput(
            f"A claim record has version {version!r}; this version of the collection reads {VERSION}.",
            remedy="Use the version of the collection that wrote it.",
        )
    return t.cast(Claim, _decode(Claim, content, str(content.get("name") or "claim"), _NOT_STORED))


def encode(value: t.Any) -> t.Any:
    """Anything made of our frozen dataclasses as JSON-safe data, in the same form as a claim's record."""
    return _encode(value, frozenset())


def decode(kind: type[_T], content: t.Any, path: str) -> _T:
    """An object of ``kind`` from what :func:`encode` gave, as strictly as a claim. Raises InvalidInput naming the field below ``path``."""
    return t.cast("_T", _decode(kind, content, path))


def _encode(value: t.Any, leave_out: frozenset[str]) -> t.Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return print_time(value)
    if isinstance(value, time):
        return value.isoformat()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, t.Mapping):
        return {str(key): _encode(item, frozenset()) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _encode(getattr(value, name), frozenset()) for name in names if name not in leave_out}
    return [_encode(item, frozenset()) for item in value]


@functools.cache
def _types(kind: type) -> dict[str, t.Any]:
    return t.get_type_hints(kind)


_Reader = t.Callable[[t.Any], t.Any]


class _Odd(Exception):
    """What is wrong with a value, and where below the one that is read."""

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.remedy = what, where, remedy


def _decode(kind: type, content: t.Any, path: str, leave_out: frozenset[str] = frozenset()) -> t.Any:
    try:
        return _object(kind, leave_out)(content)
    except _Odd as odd:
        raise InvalidInput(f"{path}{odd.where}: {odd.what}", remedy=odd.remedy) from odd


# Readers are made once for each type: a run reads thousands of values of the same few types.


@functools.cache
def _object(kind: type, leave_out: frozenset[str] = frozenset()) -> _Reader:
    readers = {name: _reader(hint) for name, hint in _types(kind).items() if name not in leave_out}
    later = _ADDED.get(kind, frozenset())  # a claim written before them is read with their defaults

    def read(content: t.Any) -> t.Any:
        if not isinstance(content, t.Mapping):
            raise _Odd(f"an object was expected, not {content!r}.")
        for name in content:
            if name not in readers:
                raise _Odd("unknown field.", f".{name}")
        for name in readers:
            if name not in content and name not in later:
                raise _Odd("the field is missing.", f".{name}")
        return kind(**{name: _below(f".{name}", readers[name], value) for name, value in content.items()})

    return read


def _below(step: str, read: _Reader, value: t.Any) -> t.Any:
    try:
        return read(value)
    except _Odd as odd:
        raise _Odd(odd.what, step + odd.where, odd.remedy) from odd


@functools.cache
def _reader(hint: t.Any) -> _Reader:
    origin = t.get_origin(hint)
    if origin in (t.Union, types.UnionType):
        (inner, *_more) = [_reader(item) for item in t.get_args(hint) if item is not type(None)]
        return lambda value: None if value is None else inner(value)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return _texts
    if origin is frozenset:
        (inner_hint,) = t.get_args(hint)
        items = _items((inner_hint, ...))
        return lambda value: frozenset(items(value))
    if origin is tuple:
        return _items(t.get_args(hint))
    if dataclasses.is_dataclass(hint):
        return lambda value: _object(t.cast(type, hint))(value)  # made when it is needed: a type may contain itself
    return _scalar(hint)


def _items(hints: tuple[t.Any, ...]) -> _Reader:
    every = _reader(hints[0]) if len(hints) == 2 and hints[1] is Ellipsis else None
    readers = () if every is not None else tuple(_reader(hint) for hint in hints)

    def read(value: t.Any) -> tuple[t.Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _Odd(f"a list was expected, not {value!r}.")
        if every is not None:
            return tuple(_below(f"[{index}]", every, item) for index, item in enumerate(value))
        if len(value) != len(readers):
            raise _Odd(f"{len(readers)} items were expected, not {len(value)}.")
        return tuple(_below(f"[{index}]", one, item) for index, (one, item) in enumerate(zip(readers, value, strict=True)))

    return read


def _texts(value: t.Any) -> dict[str, str]:
    if not isinstance(value, t.Mapping) or not all(isinstance(entry, str) for entry in value.values()):
        raise _Odd(f"an object of texts was expected, not {value!r}.")
    return dict(value)


def _scalar(hint: t.Any) -> _Reader:
    own = {datetime: _time, time: _time_of_day, Decimal: _decimal}.get(hint)
    if own is not None:
        return own

    def word(value: t.Any) -> t.Any:
        try:
            return hint(value)
        except ValueError as error:
            raise _Odd(f"{value!r} is not one of {', '.join(item.value for item in hint)}.") from error

    def exact(value: t.Any) -> t.Any:
        if type(value) is not hint:
            raise _Odd(f"{getattr(hint, '__name__', hint)} was expected, not {value!r}.")
        return value

    return word if isinstance(hint, type) and issubclass(hint, enum.Enum) else exact


def _time(value: t.Any) -> datetime:
    try:
        return parse_time(value)
    except InvalidInput as error:
        raise _Odd(error.message, remedy=error.remedy) from error


def _time_of_day(value: t.Any) -> time:
    try:
        return time.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _Odd(f"{value!r} is not a time of day.") from error


def _decimal(value: t.Any) -> Decimal:
    if not isinstance(value, str):
        raise _Odd(f"an amount as text was expected, not {value!r}.")
    try:
        amount = Decimal(value)
    except InvalidOperation as error:
        raise _Odd(f"{value!r} is not an amount.") from error
    if not amount.is_finite():
        raise _Odd(f"{value!r} is not an amount.")
    return amount


# ---- what a claim remembers of its documents (L-25), so that its machine is judged although they are absent or faulty

_OF_POOL = tuple(field.name for field in dataclasses.fields(Limits) if field.name not in ("credentials", "mesh_tags"))


def follow(claim: Claim, pool: Pool, node_class: NodeClass | None) -> Claim:
    """The claim with what its documents say now. A class that is absent or faulty leaves what is known of it."""
    before = claim.limits
    credentials, tags = (before.credentials, before.mesh_tags) if before is not None else (None, ())
    if node_class is not None:
        choice = next((entry for entry in node_class.clouds if entry.cloud == claim.cloud), None)
        credentials, tags = choice.credentials if choice is not None else None, node_class.mesh.tags
    limits = Limits(**{name: getattr(pool, name) for name in _OF_POOL}, credentials=credentials, mesh_tags=tags)
    recorded = (claim.source, claim.source_uid, claim.limits, claim.document_gone_since)
    if recorded == (pool.source, pool.source_uid, limits, None):
        return claim
    return dataclasses.replace(claim, source=pool.source, source_uid=pool.source_uid, limits=limits, document_gone_since=None)


def remembered(claim: Claim) -> Pool | None:
    """Its pool as far as the claim tells; None for a claim of version 0.1."""
    if claim.limits is None:
        return None
    namespace, _slash, name = claim.pool.rpartition("/")
    return Pool(namespace, name, claim.node_class, **{field: getattr(claim.limits, field) for field in _OF_POOL})


def in_force(claim: Claim, specs: Specs) -> Pool | None:
    """What holds for the claim's machine (L-25): its document, else what the claim remembers of it; None = neither."""
    return specs.pool_of(claim.pool) or remembered(claim)


def mesh_tags(claim: Claim, specs: Specs) -> tuple[str, ...]:
    """The tags of its mesh device: those of its class, else those that the claim remembers."""
    node_class = specs.classes.get(claim.node_class)
    if node_class is not None:
        return node_class.mesh.tags
    return claim.limits.mesh_tags if claim.limits is not None else ()


def class_of(claim: Claim, specs: Specs) -> NodeClass:
    """Its class; InvalidInput when no document describes it any more."""
    try:
        return specs.classes[claim.node_class]
    except KeyError as error:
        raise InvalidInput(
            f"{claim.name}: its class {claim.node_class} is not among the documents any more.",
            remedy="Restore the class document, or let reap.yml take the machine down.",
        ) from error


# ---- the seven phases of a claim and the only way from one to another (L-2)

ORDER = tuple(Phase)
BEFORE_READY = (Phase.PENDING, Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)
LIVE = (*BEFORE_READY, Phase.READY)
HISTORY_LENGTH = 40
LONGEST_WORDS = 500  # characters of one reason: 25 refusals and the history together must fit into a record


class IllegalTransition(TgpError):
    """A claim was to go where it must never go. It stays as it is; this is a defect, not a situation."""

    kind = "illegal_transition"


def legal(old: Phase, new: Phase) -> bool:
    """Forward along the table, anything to Terminating, what is not Ready yet to Failed, Failed to Terminating."""
    if new is Phase.TERMINATING:
        return old is not Phase.TERMINATING
    if new is Phase.FAILED:
        return old in BEFORE_READY
    return old in LIVE and ORDER.index(new) > ORDER.index(old)


def advance(claim: Claim, phase: Phase, now: datetime, why: str) -> Claim:
    """``claim`` in ``phase``, with a line of history. The same phase again changes nothing. Raises IllegalTransition."""
    if claim.phase is phase:
        return claim
    if not legal(claim.phase, phase):
        raise IllegalTransition(
            f"Claim {claim.name} cannot go from {claim.phase.value} to {phase.value}.",
            remedy="The claim was left as it is; please report this as a defect.",
            claim=claim.name,
        )
    line = (now, phase.value, why[:LONGEST_WORDS])
    return dataclasses.replace(claim, phase=phase, phase_since=now, history=(*claim.history, line)[-HISTORY_LENGTH:])


def may_have_instance(claim: Claim) -> bool:
    """True while a machine of this claim may exist and be billed: an id is known, or a create call may have gone out."""
    return bool(claim.instance_id or claim.ids_seen or claim.launch_started is not None)


def counts(claim: Claim) -> bool:
    """True when the claim counts against limits (L-16): every phase, but a Failed one only with a possible machine."""
    return claim.phase is not Phase.FAILED or may_have_instance(claim)
