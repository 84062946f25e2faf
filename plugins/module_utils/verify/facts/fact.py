# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about a service on which this collection depends, as data: what is expected, which read-only call shows it, what breaks when it is
false. A check is a function over recorded answers, so nothing here sends anything."""

from __future__ import annotations

import dataclasses
import enum
import re
import typing as t

Shape = t.Any
WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
LIFE = "life"  # the name under which the course of a rented machine is recorded
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9 _./-]{0,59}")
_SHOWN = 4


class FactOutcome(enum.StrEnum):
    MATCHES = "matches"
    DIFFERS = "differs"
    NOT_SEEN = "not seen"  # the call was answered, and nothing in the answer shows it
    NO_ANSWER = "no answer"  # the call that shows it failed
    NOT_CHECKED = "not checked"  # it shows on a rented machine only, or in a list that is empty in this account


class Basis(enum.StrEnum):
    """How sure the fact is."""

    DOCUMENTED = "documented"  # by the vendor
    RECORDED = "recorded"  # an answer of the live service, or what a current client reads
    UNVERIFIED = "unverified"


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """One recorded answer. ``json`` is None when it is not JSON; ``media`` is the content type; ``headers`` have lower-case names."""

    status: int
    json: t.Any = None
    media: str = "application/json"
    headers: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    text: str = ""


Replies = t.Mapping[str, Reply]  # by the name of the question; a question without an answer is not in it


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """``seen`` is for the report: types, counts, statuses and words of a closed list, never a value that belongs to the account."""

    outcome: FactOutcome
    seen: str


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One read-only call. ``path`` may depend on earlier answers; "" then means that there is nothing to ask about. ``credential``: False
    sends the call with a key that cannot exist. ``also``: statuses from 500 on that are an answer. ``pace``: the bucket of the client's
    rate limiter."""

    name: str
    method: str
    path: str | t.Callable[[Replies], str]
    params: t.Mapping[str, t.Any] | t.Callable[[Replies], t.Mapping[str, t.Any]] = dataclasses.field(default_factory=dict)
    json: t.Any = None
    credential: bool = True
    also: tuple[int, ...] = ()
    pace: str = ""

    def described(self) -> str:
        """The call in words, for a dry run."""
        path = self.path if isinstance(self.path, str) else "(a path from an earlier answer)"
        return f"{self.method} {path}{'' if self.credential else ' with an invalid key'}"


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """``asks``: the questions whose answers show it. ``consequence``: what this collection does wrong when it is false. ``lane``: it shows on
    a rented machine of that lane only."""

    id: str
    statement: str
    expected: str
    asks: tuple[str, ...]
    check: t.Callable[[Replies], Verdict]
    source: str
    basis: Basis
    consequence: str
    rented: bool = False
    lane: str = ""

    def needs_another(self, lane: str) -> bool:
        """Whether only a machine shows it that was not rented. ``lane``: of the one that was, "" = none."""
        return (self.rented and not lane) or self.lane not in ("", lane)

    def verdict(self, replies: Replies, *, lane: str) -> Verdict:
        if self.needs_another(lane):
            return Verdict(FactOutcome.NOT_CHECKED, f"needs a rented machine{f' of lane {self.lane}' if self.lane else ''}")
        lacking = [name for name in self.asks if name not in replies]
        if lacking:
            return Verdict(FactOutcome.NO_ANSWER, f"no answer to {', '.join(lacking)}")
        return self.check(replies)


def _one_page(_body: t.Any) -> dict[str, t.Any]:
    """A list without pages."""
    return {}


def _id(entry: t.Mapping[str, t.Any]) -> str:
    return str(entry.get("id"))


@dataclasses.dataclass(frozen=True, slots=True)
class WatchCalls:
    """The read-only calls that show a rented machine. ``entries`` is the place of the list's entries, ``machine`` the path of one by its
    id, and ``entry`` its place in that answer. ``aspects``: the places in an entry of which a look records whether they are null, absent or
    filled; ``word`` is the place of the state. ``more``: what a page's answer asks for the next one, empty = it was the last.
    ``identity``: the id by which the client knows an entry; its parts, between slashes, fill the braces of ``machine``."""

    list_path: str
    entries: str
    machine: str
    entry: str
    word: str
    aspects: tuple[str, ...] = ()
    list_params: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    list_pace: str = ""
    machine_pace: str = ""
    more: t.Callable[[t.Any], dict[str, t.Any]] = _one_page
    identity: t.Callable[[t.Mapping[str, t.Any]], str] = _id


@dataclasses.dataclass(frozen=True, slots=True)
class BootScript:
    """What a rented machine of ``lane`` runs when it boots, and says in its log. ``markers`` takes that out of a log, by name; the one that
    comes last is ``last``. They are recorded as the answer to ``name``. ``request`` is the call by which the log is asked for, with the
    place of the machine's id in its path; its first answer is recorded, too. ``unable``: why the account cannot have such a machine, "" if
    nothing is known against it."""

    name: str
    lane: str
    script: str
    environment: t.Mapping[str, str]
    request: Question
    markers: t.Callable[[str], dict[str, str]]
    last: str
    unable: t.Callable[[Replies], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """All of one service. ``questions`` are asked in this order. ``watch``: how a rented machine is looked at; None where nothing is rented."""

    service: str
    questions: tuple[Question, ...]
    facts: tuple[Fact, ...]
    watch: WatchCalls | None = None
    boot_script: BootScript | None = None

    def asked(self, *, rented: bool) -> tuple[Question, ...]:
        """The questions that some fact needs."""
        needed = {name for fact in self.facts if rented or not fact.rented for name in fact.asks}
        return tuple(question for question in self.questions if question.name in needed)


# ---- fields: a place is a path of names; "*" stands for every entry of a list or an object


class Missing:
    """The object lacks the field."""


class WrongParent:
    """What should hold the field is not of the kind that could."""


def values(body: t.Any, place: str) -> list[t.Any]:
    """Everything at ``place``; Missing for a field that an object lacks, WrongParent where no object or list is to hold it."""
    found = [body]
    for name in place.split(".") if place else ():
        found = [inner for one in found for inner in _inside(one, name)]
    return found


def _inside(value: t.Any, name: str) -> list[t.Any]:
    if value is Missing or value is WrongParent:
        return [WrongParent]
    if name == "*":
        if isinstance(value, dict):
            return list(value.values())
        return value if isinstance(value, list) else [WrongParent]
    return [value.get(name, Missing)] if isinstance(value, dict) else [WrongParent]


def texts(body: t.Any, place: str) -> list[str]:
    """Every text at ``place``."""
    return [value for value in values(body, place) if isinstance(value, str)]


def fits(shape: Shape, value: t.Any) -> bool:
    """``shape`` is a type (``float``: any number, ``object``: anything), None, a set of words, a pattern of the whole text, or a tuple of
    alternatives."""
    if isinstance(shape, tuple):
        return any(fits(one, value) for one in shape)
    if shape is object:
        return True
    if shape is None:
        return value is None
    if isinstance(shape, (set, frozenset)):
        return isinstance(value, str) and value in shape
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(value, bool):
        return shape is bool
    return isinstance(value, (int, float) if shape is float else shape)


_NAMES: dict[t.Any, str] = {
    None: "null", str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object",
    object: "anything",
}  # fmt: skip


def words_of(shape: Shape) -> str:
    """A shape for people."""
    if isinstance(shape, tuple):
        return " or ".join(words_of(one) for one in shape)
    if isinstance(shape, (set, frozenset)):
        return f"one of {', '.join(sorted(shape))}"
    if isinstance(shape, re.Pattern):
        return "a time in ISO 8601" if shape is WHEN else f"text like {shape.pattern}"
    return _NAMES[shape]


def _kind(value: t.Any, shape: Shape) -> str:
    """What a value is, without the value itself. Only a word where words are expected is shown."""
    if value is Missing:
        return "absent"
    closed = any(isinstance(one, (set, frozenset)) for one in (shape if isinstance(shape, tuple) else (shape,)))
    if closed and isinstance(value, str) and _WORD.fullmatch(value):
        return f"the word {value!r}"
    if value is None:
        return "null"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list", dict: "an object"}[
        type(value)
    ]


def check_field(
    question: str, place: str, shape: Shape, *, optional: bool = False, may_be_empty: bool = False
) -> t.Callable[[Replies], Verdict]:
    """Whether every value at ``place`` is of the shape. ``optional``: it may be absent. ``may_be_empty``: many accounts have no entries."""

    def check(replies: Replies) -> Verdict:
        reply = replies[question]
        found = values(reply.json, place)
        usable = [value for value in found if value is not WrongParent]
        if not found and may_be_empty:
            return Verdict(FactOutcome.NOT_CHECKED, "the account has none")
        if not usable:
            empty = "the list has no entries" if not found else "what should hold it is something else"
            return Verdict(FactOutcome.NOT_SEEN, f"HTTP {reply.status}: {empty}")
        wrong = [value for value in usable if not (optional and value is Missing) and not fits(shape, value)]
        if wrong:
            kinds = list(dict.fromkeys(_kind(value, shape) for value in wrong))[:_SHOWN]
            return Verdict(FactOutcome.DIFFERS, f"{', '.join(kinds)} in {len(wrong)} of {len(usable)}")
        absent = sum(value is Missing for value in usable)
        text = (
            f"{words_of(shape)} in {len(usable) - absent} of {len(usable)}" if absent else f"{words_of(shape)} in all {len(usable)}"
        )
        return Verdict(FactOutcome.MATCHES, text)

    return check


class Row(t.NamedTuple):
    """A field of an answer. ``why``: what breaks, when it is not what the other fields of the group break."""

    place: str
    shape: Shape
    why: str = ""
    basis: Basis | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """Facts that share the service, the source and the consequence. ``may_be_empty``: fields of a list that is empty in many accounts."""

    service: str
    source: str
    basis: Basis = Basis.DOCUMENTED
    consequence: str = ""
    rented: bool = False
    may_be_empty: bool = False
    lane: str = ""

    def fields(self, question: str, call: str, rows: t.Iterable[Row | tuple[t.Any, ...]]) -> t.Iterator[Fact]:
        """One fact for each field; a place that ends with "?" may be absent."""
        for given in rows:
            row = Row(*given)
            place = row.place.removesuffix("?")
            optional = place != row.place
            yield self.fact(
                f"{question}.{place}".rstrip("."),
                f"{call}: {place or 'the answer'} is {words_of(row.shape)}{' or absent' if optional else ''}",
                f"{words_of(row.shape)}{' or absent' if optional else ''}",
                (question,),
                check_field(question, place, row.shape, optional=optional, may_be_empty=self.may_be_empty),
                basis=row.basis,
                why=row.why,
            )

    def status(self, question: str, call: str, *statuses: int, why: str = "", basis: Basis | None = None) -> Fact:
        """The call is answered with one of these."""

        def check(replies: Replies) -> Verdict:
            status = replies[question].status
            return verdict(status in statuses, f"HTTP {status}")

        text = " or ".join(map(str, statuses))
        return self.fact(f"{question}.http", f"{call} is answered {text}", f"HTTP {text}", (question,), check, basis=basis, why=why)

    def fact(
        self,
        name: str,
        statement: str,
        expected: str,
        asks: tuple[str, ...],
        check: t.Callable[[Replies], Verdict],
        *,
        basis: Basis | None = None,
        why: str = "",
    ) -> Fact:
        return Fact(
            id=f"{self.service}.{name}",
            statement=statement,
            expected=expected,
            asks=asks,
            check=check,
            source=self.source,
            basis=basis or self.basis,
            consequence=why or self.consequence,
            rented=self.rented,
            lane=self.lane,
        )


# ---- verdicts of checks that look at more than one field


def verdict(good: bool, seen: str) -> Verdict:
    return Verdict(FactOutcome.MATCHES if good else FactOutcome.DIFFERS, seen)


def not_seen(why: str) -> Verdict:
    return Verdict(FactOutcome.NOT_SEEN, why)


def life_of(replies: Replies) -> dict[str, t.Any]:
    """The course of the rented machine (rented.py writes it)."""
    body = replies[LIFE].json
    return body if isinstance(body, dict) else {}
