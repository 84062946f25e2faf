# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace, API v1. No recording of a live answer is public, so nearly all of it is unverified."""

from __future__ import annotations

import typing as t

from ...providers.registry import CAPABILITIES
from .fact import WHEN, Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, aspects, life_facts

_SPEC = "the service's OpenAPI document of August 2025 and the official CLI of February 2026"
_CLIENT = "what a public client depends on"
_CLOUD = CAPABILITIES["paperspace"]
_STATES = tuple(_CLOUD.states)
_NUMBER = (int, float)


def _next_page(replies: Replies) -> dict[str, t.Any]:
    body = replies["page"].json if "page" in replies else None
    cursor = body.get("nextPage") if isinstance(body, dict) else None
    return {"limit": 1, "after": cursor} if isinstance(cursor, str) else {"limit": 1}


QUESTIONS = (
    Question("session", "GET", "/v1/auth/session"),
    Question("templates", "GET", "/v1/os-templates", {"limit": 50}),
    Question("page", "GET", "/v1/os-templates", {"limit": 1}),
    Question("page_2", "GET", "/v1/os-templates", _next_page),
    Question("largest", "GET", "/v1/machines", {"limit": 120}),
    Question("too_large", "GET", "/v1/machines", {"limit": 121}),
    Question("list", "GET", "/v1/machines", {"limit": 50}),
    Question("named", "GET", "/v1/machines", {"name": "tgp-no-such-machine"}),
    Question("scripts", "GET", "/v1/startup-scripts", {"limit": 50}),
    Question("networks", "GET", "/v1/private-networks", {"limit": 50}),
    Question("addresses", "GET", "/v1/public-ips", {"limit": 50}),
    Question("availability", "GET", "/v1/machine-availability", {"machineType": "A4000", "region": "ny2"}),
    Question("unknown_id", "GET", "/v1/machines/psnosuchmachine"),
    Question("bad_key", "GET", "/v1/machines", credential=False),
    Question("bad_session", "GET", "/v1/auth/session", credential=False),
)
_account = Group(
    "paperspace",
    _SPEC,
    Basis.UNVERIFIED,
    "A bad key, or an account that may not create machines, is noticed only when a launch fails.",
)
_offers = Group(
    "paperspace", _SPEC, Basis.UNVERIFIED, "Machine types are not found: Paperspace offers nothing, or nothing that boots."
)
_lists = Group(
    "paperspace",
    _SPEC,
    Basis.UNVERIFIED,
    "Half a list is taken for the whole one: machines are launched twice, or orphans are not found.",
)
_beside = Group(
    "paperspace",
    _SPEC,
    Basis.UNVERIFIED,
    "Startup scripts, networks and addresses of machines that are gone are not found, and are billed on.",
)
_errors = Group(
    "paperspace",
    _SPEC,
    Basis.UNVERIFIED,
    "The refusal is taken for something else: retried, or not reported as what it is.",
)
_machine = Group(
    "paperspace",
    _SPEC,
    Basis.UNVERIFIED,
    "The state, price or address of a machine is not known, so it is kept or ended wrongly.",
    rented=True,
)


def _second_page(replies: Replies) -> Verdict:
    first, second = (texts(replies[name].json, "items.*.id") for name in ("page", "page_2"))
    if not values(replies["page"].json, "nextPage") or not isinstance(values(replies["page"].json, "nextPage")[0], str):
        return not_seen("the first page has no nextPage")
    if not first or not second:
        return not_seen("a page has no entries")
    return verdict(first != second, "another entry" if first != second else "the same entry again")


def _page_size(replies: Replies) -> Verdict:
    found = values(replies["page"].json, "items")
    if not found or not isinstance(found[0], list):
        return not_seen("items is not a list")
    return verdict(len(found[0]) == 1, f"{len(found[0])} entries")


def _nothing_named(replies: Replies) -> Verdict:
    found = values(replies["named"].json, "items")
    if not found or not isinstance(found[0], list):
        return not_seen("items is not a list")
    return verdict(not found[0], f"{len(found[0])} machines")


def _refused_or_null(replies: Replies) -> Verdict:
    reply = replies["bad_session"]
    null = reply.status == 200 and reply.json is None and reply.text.strip() == "null"
    return verdict(null or reply.status == 401, "HTTP 200 with null" if null else f"HTTP {reply.status}")


def _available(replies: Replies) -> Verdict:
    reply = replies["availability"]
    if reply.status == 404:
        return verdict(True, "HTTP 404: the call is gone, availability is unknown")
    found = values(reply.json, "available")
    good = reply.status == 200 and bool(found) and isinstance(found[0], bool)
    return verdict(good, "true or false" if good else f"HTTP {reply.status} in another form")


def _gone(replies: Replies) -> Verdict:
    reply = replies[GONE]
    if reply.status == 404:
        codes = texts(reply.json, "code")
        return verdict(codes == ["NOT_FOUND"], f"HTTP 404 {' '.join(codes)}")
    deleted = any(isinstance(one, str) for one in values(reply.json, "dtDeleted"))
    return verdict(deleted, f"HTTP {reply.status} {'with' if deleted else 'without'} dtDeleted")


def _address_when_ready(replies: Replies) -> Verdict:
    seen = [*aspects(replies, "ready", "publicIp"), *aspects(replies, "serviceready", "publicIp")]
    return not_seen("it was never ready") if not seen else verdict("filled" in seen, ", ".join(seen))


def _page_of(group: Group, question: str, call: str, *rows: tuple[t.Any, ...]) -> tuple[Fact, ...]:
    return (
        group.status(question, call, 200),
        *group.fields(question, call, [("items", list), ("hasMore", bool), ("nextPage?", (str, None)), *rows]),
    )


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    place = f"{root}." if root else ""
    names: list[tuple[t.Any, ...]] = [
        ("id", str),
        ("name", str),
        ("state", set(_STATES)),
        ("machineType", str),
        ("region", str),
        ("privateIp", (str, None)),
        ("publicIp", (str, None)),
        ("usageRate", _NUMBER, "The price that is really paid is not known, so limits cannot be kept."),
        ("storageRate", _NUMBER, "The price that is really paid is not known, so limits cannot be kept."),
        ("storageTotal", int),
        ("dtCreated", WHEN),
        ("dtDeleted", (WHEN, None)),
    ]
    return tuple(_machine.fields(question, call, [(f"{place}{name}", *rest) for name, *rest in names]))


FACTS: tuple[Fact, ...] = (
    _account.status("session", "GET /auth/session", 200),
    *_account.fields(
        "session",
        "GET /auth/session",
        [("team", dict), ("team.namespace", str, "A good key is called invalid."), ("team.maxMachines", int), ("user", dict)],
    ),
    _account.fact(
        "bad_session.null",
        "GET /auth/session with an invalid key is answered 401, or 200 with null",
        "HTTP 401, or 200 with null",
        ("bad_session",),
        _refused_or_null,
    ),
    *_page_of(
        _offers,
        "templates",
        "GET /os-templates",
        ("items.*", dict),
        ("items.*.id", str),
        ("items.*.name", str),
        ("items.*.agentType", str),
        ("items.*.operatingSystemLabel", str),
        ("items.*.defaultSizeGb?", (int, float, None)),
        ("items.*.availableMachineTypes?", (list, None)),
        ("items.*.availableMachineTypes.*", dict),
        ("items.*.availableMachineTypes.*.machineTypeLabel", str),
        ("items.*.availableMachineTypes.*.isAvailable", bool),
    ),
    _offers.fact(
        "availability",
        "GET /machine-availability tells true or false, or is gone (404)",
        "true or false, or HTTP 404",
        ("availability",),
        _available,
    ),
    _lists.fact("page.limit", "A list keeps to limit", "1 entry for limit=1", ("page",), _page_size),
    *_lists.fields("page", "GET /os-templates?limit=1", [("hasMore", bool), ("nextPage", str)]),
    _lists.fact("page.after", "nextPage as after shows other entries", "another entry", ("page", "page_2"), _second_page),
    _lists.status("largest", "GET /machines?limit=120", 200, basis=Basis.DOCUMENTED),
    _lists.status("too_large", "GET /machines?limit=121", 400, basis=Basis.DOCUMENTED),
    *_page_of(_lists, "list", "GET /machines"),
    _lists.status("named", "GET /machines?name=", 200),
    _lists.fact(
        "named.filter",
        "The filter name leaves out machines of other names",
        "0 machines for a name that nobody has",
        ("named",),
        _nothing_named,
    ),
    *_page_of(_beside, "scripts", "GET /startup-scripts"),
    *_page_of(_beside, "networks", "GET /private-networks"),
    *_page_of(_beside, "addresses", "GET /public-ips"),
    _errors.status("unknown_id", "A look at an unknown id", 404, why="A machine that is gone is taken for one that exists."),
    *_errors.fields(
        "unknown_id",
        "A look at an unknown id",
        [("code", {"NOT_FOUND"}, "A machine that is gone is taken for one that exists."), ("message", str)],
    ),
    _errors.status("bad_key", "A call with an invalid key", 401),
    *_errors.fields("bad_key", "A call with an invalid key", [("code", {"UNAUTHORIZED"}), ("message", str)]),
    *_entry(LISTED, "items.*", "GET /machines"),
    *_entry(MACHINE, "", "GET /machines/{id}"),
    *life_facts(_machine, _CLOUD, gone=_gone, gone_expected="HTTP 404 NOT_FOUND, or dtDeleted is set"),
    _machine.fact(
        "life.address", "A machine that is ready has a public address", "publicIp is filled", ("life",), _address_when_ready
    ),
)


def _more(body: t.Any) -> dict[str, t.Any]:
    cursor = body.get("nextPage") if isinstance(body, dict) and body.get("hasMore") is True else None
    return {"after": cursor} if isinstance(cursor, str) else {}


TABLE = Table(
    "paperspace",
    QUESTIONS,
    FACTS,
    WatchCalls(
        "/v1/machines", "items.*", "/v1/machines/{}", "", "state", ("publicIp", "privateIp", "usageRate"), {"limit": 50}, more=_more
    ),
)
