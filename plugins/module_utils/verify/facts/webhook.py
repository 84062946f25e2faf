# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines behind power webhooks: the contract of a power service, as far as its status endpoints show it. The table depends on the
machines. They and their services are numbered in the order in which they are given: their names and addresses are the user's."""

from __future__ import annotations

import dataclasses
import math
import typing as t
from urllib.parse import urlsplit

from .fact import Basis, Fact, FactOutcome, Group, Question, Replies, Reply, Table, Verdict, not_seen, verdict

SERVICE, BULK = "webhook", "bulk"
SECONDS = "x-tgp-seconds"  # header that own_machines.py adds to an answer: how long it took
_CONTRACT = "the contract of power services, docs/reference/clouds.md"
_ORDER = ("off", "starting", "on", "stopping")  # each may become the next one between two looks
# words of other power services that a report may show; any other word may be a name
_OTHERS = frozenset({
    "active", "booting", "down", "error", "false", "halted", "idle", "inactive", "no", "offline", "ok", "online", "pending", "poweredoff",
    "poweredon", "poweroff", "poweron", "ready", "running", "shutdown", "shutoff", "sleeping", "stopped", "suspended", "terminated", "true",
    "unknown", "up", "yes",
})  # fmt: skip
_look = Group(
    SERVICE, _CONTRACT, Basis.DOCUMENTED, "The state of the machine is unknown: it is neither offered nor switched on or off."
)
_service = Group(SERVICE, _CONTRACT)
_bulk = Group(
    SERVICE, _CONTRACT, Basis.DOCUMENTED, "The states of all machines are unknown: none is offered, switched on or switched off."
)


class PowerService(t.NamedTuple):
    """One host with status endpoints. ``machine``: the number of the machine that is asked about. ``named``: the machine's name is in its
    address, so that another one can be asked about. ``keyed``: the calls carry a credential."""

    machine: int
    named: bool
    keyed: bool


def table(asked: t.Sequence[bool], services: t.Sequence[PowerService], timeout: float, listed: t.Collection[str] = ()) -> Table:
    """``asked``: for each machine whether it has a status endpoint. ``timeout``: of the client, in seconds. ``listed``: names of the machines
    that a bulk status endpoint must list; empty without one."""
    questions: list[Question] = []
    facts: list[Fact] = []
    if listed:
        questions.append(Question(BULK, "GET", "status of all machines"))
        facts += _bulk_facts(listed, timeout)
    numbers = [number for number, has_endpoint in enumerate(asked, 1) if has_endpoint]
    questions += [Question(f"machine_{one}", "GET", f"status of machine {one}") for one in numbers]
    questions += [Question(f"again_{one}", "GET", f"status of machine {one} once more") for one in numbers]
    for number, has_endpoint in enumerate(asked, 1):
        of_machine = list(_machine_facts(number, timeout))
        facts += of_machine if has_endpoint else [_unchecked(one, "it has no status endpoint") for one in of_machine]
    refusals = tuple(range(500, 600))
    for number in range(1, len(services) + 1):
        questions.append(Question(f"unknown_{number}", "GET", f"status of an unknown machine of service {number}", also=refusals))
    for number, service in enumerate(services, 1):  # last: a service may block a client that was refused
        whose = f"status of machine {service.machine}"
        questions.append(Question(f"no_key_{number}", "GET", f"{whose} without the key"))
        questions.append(Question(f"bad_key_{number}", "GET", whose, credential=False))
        unknown, *keys = _service_facts(number)
        facts.append(unknown if service.named else _unchecked(unknown, "the machine's name is not in its address"))
        facts += keys if service.keyed else [_unchecked(one, "no credential is configured") for one in keys]
    return Table(SERVICE, tuple(questions), tuple(facts))


def _unchecked(fact: Fact, why: str) -> Fact:
    return dataclasses.replace(fact, asks=(), check=lambda _replies: Verdict(FactOutcome.NOT_CHECKED, why))


def _machine_facts(number: int, timeout: float) -> t.Iterator[Fact]:
    name, call = f"machine_{number}", f"GET status of machine {number}"

    def check_status(replies: Replies) -> Verdict:
        status = replies[name].status
        return not_seen(f"HTTP {status}") if 300 <= status < 400 else verdict(200 <= status < 300, f"HTTP {status}")

    def check_redirect(replies: Replies) -> Verdict:
        reply = replies[name]
        if not 300 <= reply.status < 400:
            return verdict(True, f"HTTP {reply.status}")
        scheme = urlsplit(reply.headers.get("location", "")).scheme
        return verdict(False, f"HTTP {reply.status} to {f'an {scheme} address' if scheme in ('http', 'https') else 'a path'}")

    def answered(check: t.Callable[[Replies], Verdict]) -> t.Callable[[Replies], Verdict]:
        """``check`` of an answer 2xx; what another one shows is said by its status."""

        def check_answer(replies: Replies) -> Verdict:
            status = replies[name].status
            return check(replies) if 200 <= status < 300 else not_seen(f"HTTP {status}")

        return check_answer

    def check_body(replies: Replies) -> Verdict:
        body = replies[name].json
        return verdict(isinstance(body, dict), "a JSON object" if isinstance(body, dict) else "not a JSON object")

    def check_word(replies: Replies) -> Verdict:
        word = _text(replies[name])
        if word is None:
            return not_seen("there is no text")
        return verdict(word in _ORDER, f"the word {word!r}" if word in _OTHERS or word in _ORDER else "another word")

    def check_again(replies: Replies) -> Verdict:
        first, second = _text(replies[name]), _text(replies[f"again_{number}"])
        if first not in _ORDER:
            return not_seen("the first answer has no state")
        if second not in _ORDER:
            return verdict(False, f"HTTP {replies[f'again_{number}'].status} without a state, after {first}")
        steps = (_ORDER.index(second) - _ORDER.index(first)) % len(_ORDER)
        return verdict(steps <= 1, f"{second} after {first}")

    def check_seconds(replies: Replies) -> Verdict:
        seconds = float(replies[name].headers[SECONDS])
        return verdict(seconds <= timeout, f"within {max(1, math.ceil(seconds * 10)) / 10:g} s")

    yield _look.fact(f"{name}.http", f"{call} is answered 2xx", "HTTP 2xx", (name,), check_status)
    yield _look.fact(
        f"{name}.redirect",
        f"{call} is not redirected",
        "no redirect",
        (name,),
        check_redirect,
        why="Redirects are not followed: the state is unknown, and calls that switch the machine fail.",
    )
    yield _look.fact(f"{name}.body", f"{call}: the answer is a JSON object", "a JSON object", (name,), answered(check_body))
    for fact in _look.fields(name, call, [("state", str)]):
        yield dataclasses.replace(fact, check=answered(fact.check))
    yield _look.fact(
        f"{name}.word",
        f"{call}: state is one of four words, in upper or lower case",
        f"one of {', '.join(_ORDER)}",
        (name,),
        answered(check_word),
    )
    yield _look.fact(
        f"{name}.again",
        f"{call}: a second answer has the same state, or the one that follows it",
        "the same state",
        (name, f"again_{number}"),
        answered(check_again),
        why="A machine that is on is taken for one that is off, or the reverse: it is switched on twice, or never switched off.",
    )
    yield _look.fact(
        f"{name}.seconds",
        f"{call} is answered within {timeout:g} s",
        f"within {timeout:g} s",
        (name,),
        check_seconds,
        why="A silence of that length ends a call: the state is unknown, and so is the outcome of a call that switches the machine.",
    )


def _bulk_facts(names: t.Collection[str], timeout: float) -> t.Iterator[Fact]:
    """The bulk status endpoint. Names are compared and not shown."""
    call = "GET status of all machines"

    def entries(replies: Replies) -> list[t.Any] | None:
        body = replies[BULK].json
        found = body.get("machines") if isinstance(body, dict) else None
        return found if isinstance(found, list) else None

    def of_list(check: t.Callable[[list[t.Any]], Verdict]) -> t.Callable[[Replies], Verdict]:
        def check_entries(replies: Replies) -> Verdict:
            found = entries(replies)
            return not_seen(f"HTTP {replies[BULK].status} without a list") if found is None else check(found)

        return check_entries

    def named(found: list[t.Any]) -> list[str]:
        return [entry["name"] for entry in found if isinstance(entry, dict) and isinstance(entry.get("name"), str)]

    def check_names(found: list[t.Any]) -> Verdict:
        return verdict(len(named(found)) == len(found), f"in {len(named(found))} of {len(found)} entries")

    def check_once(found: list[t.Any]) -> Verdict:
        twice = len(named(found)) - len(set(named(found)))
        return verdict(not twice, f"{twice} more than once" if twice else "each once")

    def check_listed(found: list[t.Any]) -> Verdict:
        there = len(set(names) & set(named(found)))
        return verdict(there == len(names), f"{there} of {len(names)}")

    def check_words(found: list[t.Any]) -> Verdict:
        states = [_state(entry) for entry in found if isinstance(entry, dict) and entry.get("name") in names]
        good = sum(state in _ORDER for state in states)
        return verdict(good == len(states), f"in {good} of {len(states)} entries") if states else not_seen("no machine is listed")

    def check_seconds(replies: Replies) -> Verdict:
        seconds = float(replies[BULK].headers[SECONDS])
        return verdict(seconds <= timeout, f"within {max(1, math.ceil(seconds * 10)) / 10:g} s")

    yield _bulk.fact(
        f"{BULK}.http",
        f"{call} is answered 2xx",
        "HTTP 2xx",
        (BULK,),
        lambda replies: verdict(200 <= replies[BULK].status < 300, f"HTTP {replies[BULK].status}"),
    )
    yield _bulk.fact(
        f"{BULK}.machines",
        f"{call}: the answer is an object with a list, machines",
        "a list",
        (BULK,),
        lambda replies: verdict(entries(replies) is not None, "a list" if entries(replies) is not None else "no list"),
    )
    yield _bulk.fact(f"{BULK}.names", f"{call}: each entry has a name", "in all entries", (BULK,), of_list(check_names))
    yield _bulk.fact(f"{BULK}.once", f"{call}: no name is there twice", "each once", (BULK,), of_list(check_once))
    yield _bulk.fact(
        f"{BULK}.listed",
        f"{call}: every machine is listed",
        f"{len(names)} of {len(names)}",
        (BULK,),
        of_list(check_listed),
        why="The state of a machine that is missing is unknown: it is neither offered nor switched on or off.",
    )
    yield _bulk.fact(
        f"{BULK}.words",
        f"{call}: the states are of four words, in upper or lower case",
        f"one of {', '.join(_ORDER)}",
        (BULK,),
        of_list(check_words),
        why="The state of such a machine is unknown: it is neither offered nor switched on or off.",
    )
    yield _bulk.fact(f"{BULK}.seconds", f"{call} is answered within {timeout:g} s", f"within {timeout:g} s", (BULK,), check_seconds)


def _service_facts(number: int) -> t.Iterator[Fact]:
    def check_unknown(replies: Replies) -> Verdict:
        reply = replies[f"unknown_{number}"]
        has_state = 200 <= reply.status < 300 and _text(reply) in _ORDER
        return verdict(not has_state, f"HTTP {reply.status}{' with a state' if has_state else ' without a state'}")

    yield _service.fact(
        f"unknown_{number}",
        f"GET status of an unknown machine of service {number} has no state",
        "an error, or no state",
        (f"unknown_{number}",),
        check_unknown,
        why="A mistyped address is taken for a machine that is off: it is launched in vain, again and again.",
    )
    for question, words in ((f"no_key_{number}", "without the key"), (f"bad_key_{number}", "with an invalid key")):
        yield _service.status(
            question,
            f"A call of service {number} {words}",
            401,
            403,
            why="A missing or wrong key does not show before a machine is to be switched on, or is not reported as what it is.",
        )


def _text(reply: Reply) -> str | None:
    return _state(reply.json)


def _state(body: t.Any) -> str | None:
    """The state in lower case, as the client reads it."""
    state = body.get("state") if isinstance(body, dict) else None
    return state.lower() if isinstance(state, str) else None
