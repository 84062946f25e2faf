# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai, API v0 and v1."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

from ...providers.registry import CAPABILITIES
from .fact import Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, life_facts
from .vast_vm import BOOT_SCRIPT
from .vast_vm import FACTS as VM_FACTS

_DOCS = "Vast.ai's API reference of August 2026 and its official clients"
_OBSERVED = "observed against the live service and reported by others"
_NUMBER = float
_CLOUD = CAPABILITIES["vast"]
_STATES = tuple(_CLOUD.states)
_DISK = 64
_MOST = 64
_SEARCH: dict[str, t.Any] = {
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "external": {"eq": False},
    "verified": {"eq": True},
    "type": "on-demand",
    "allocated_storage": _DISK,
    "order": [["dph_total", "asc"]],
    "limit": 64,
}
_BUNDLES = "/api/v0/bundles/"
_EVER = '{"day": {"gte": 0, "lte": 4102444800}, "type": {"in": ["instance"]}}'  # until the year 2100
QUESTIONS = (
    Question("search", "POST", _BUNDLES, json=_SEARCH, pace="search"),
    Question("single", "POST", _BUNDLES, json={**_SEARCH, "num_gpus": {"eq": 1}}, pace="search"),
    Question("bids", "POST", _BUNDLES, json={**_SEARCH, "type": "bid"}, pace="search"),
    Question("list", "GET", "/api/v1/instances/", {"limit": 25}, pace="list"),
    Question("old_list", "GET", "/api/v0/instances/", pace="list"),
    Question("user", "GET", "/api/v0/users/current/"),
    Question("keys", "GET", "/api/v0/ssh/"),
    Question("charges", "GET", "/api/v0/charges/", {"select_filters": _EVER, "limit": 500, "format": "table"}),
    Question("unknown_id", "GET", "/api/v0/instances/1/", pace="get"),
    Question("bad_key", "GET", "/api/v1/instances/", credential=False, pace="list"),
)
_offers = Group(
    "vast", _DOCS, Basis.DOCUMENTED, "Offers of Vast.ai cannot be read, or have a wrong price, size or place: nothing is launched."
)
_quality = Group("vast", _DOCS, consequence="Hosts are rented that are too slow, unreliable or have the wrong driver.")
_lists = Group(
    "vast",
    _OBSERVED,
    Basis.RECORDED,
    "Half a list is taken for the whole one: machines are launched twice, or orphans are not found.",
)
_bills = Group("vast", _OBSERVED, Basis.RECORDED, "The report cannot compare the ledger with the bill.", may_be_empty=True)
_account = Group("vast", _DOCS, consequence="That the account has no money or no SSH key is noticed only when a launch fails.")
_errors = Group(
    "vast",
    _OBSERVED,
    Basis.RECORDED,
    "The refusal is taken for something else: a bad key for a machine that is gone, or the reverse.",
)
_machine = Group(
    "vast", _DOCS, consequence="The machine is not recognised as ours, or its state, price or address is not known.", rented=True
)


def _rows(replies: Replies, question: str = "search") -> list[dict[str, t.Any]]:
    return [one for one in values(replies[question].json, "offers.*") if isinstance(one, dict)]


def _number(value: t.Any) -> Decimal | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Decimal(str(value)) if usable else None


def _ordered(replies: Replies) -> Verdict:
    prices = [price for row in _rows(replies) if (price := _number(row.get("dph_total"))) is not None]
    if len(prices) < 2:
        return not_seen("fewer than two prices")
    rising = all(low <= high for low, high in zip(prices, prices[1:], strict=False))
    return verdict(rising, f"{len(prices)} prices {'rise' if rising else 'do not rise'}")


def _capped(replies: Replies) -> Verdict:
    found = values(replies["search"].json, "offers")
    if not found or not isinstance(found[0], list):
        return not_seen("offers is not a list")
    return verdict(len(found[0]) <= _MOST, f"{len(found[0])} offers")


def _priced(replies: Replies) -> Verdict:
    """dph_total = dph_base + disk; with a premium of reliability it may be more."""
    checked = wrong = 0
    for row in _rows(replies):
        total, base, storage = (_number(row.get(key)) for key in ("dph_total", "dph_base", "storage_cost"))
        if total is None or base is None or storage is None or row.get("sla_r_claim"):
            continue
        checked += 1
        wrong += abs(total - base - storage * _DISK / 720) > Decimal("0.001")
    return (
        not_seen("no row has all prices")
        if not checked
        else verdict(not wrong, f"another total in {wrong} of {checked}" if wrong else f"so in all {checked}")
    )


def _filtered(replies: Replies) -> Verdict:
    counts = [row["num_gpus"] for row in _rows(replies, "single") if isinstance(row.get("num_gpus"), int)]
    return (
        not_seen("no offers with one GPU")
        if not counts
        else verdict(set(counts) == {1}, f"{len(counts)} offers, largest {max(counts)} GPUs")
    )


def _marked_bids(replies: Replies) -> Verdict:
    kinds = [row["is_bid"] for row in _rows(replies, "bids") if isinstance(row.get("is_bid"), bool)]
    return not_seen("no bids are offered") if not kinds else verdict(all(kinds), f"true in {sum(kinds)} of {len(kinds)}")


def _retired(replies: Replies) -> Verdict:
    reply = replies["old_list"]
    codes = texts(reply.json, "error")
    return verdict(reply.status == 410 and codes == ["deprecated_endpoint"], f"HTTP {reply.status} {' '.join(codes)[:40]}".strip())


def _gone_answer(status: int, json: t.Any) -> tuple[bool, str]:
    """How a missing machine is answered: null, or an error code under 404 or 200."""
    codes = texts(json, "error")
    null = status == 200 and values(json, "instances") == [None]
    good = null or (status in (200, 404) and codes in (["no_such_instance"], ["not_found"]))
    return good, f"HTTP {status} {'instances null' if null else ' '.join(codes)[:40]}".strip()


def _unknown(replies: Replies) -> Verdict:
    return verdict(*_gone_answer(replies["unknown_id"].status, replies["unknown_id"].json))


def _gone(replies: Replies) -> Verdict:
    return verdict(*_gone_answer(replies[GONE].status, replies[GONE].json))


def _bad_key(replies: Replies) -> Verdict:
    reply = replies["bad_key"]
    codes = texts(reply.json, "error")
    return verdict(reply.status in (401, 404) and codes == ["auth_error"], f"HTTP {reply.status} {' '.join(codes)[:40]}".strip())


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    rows: list[tuple[t.Any, ...]] = [
        ("id", int),
        ("label", (str, None)),
        ("actual_status", ({*_STATES}, None)),
        ("intended_status", ({*_STATES}, None)),
        ("cur_state", ({*_STATES}, None)),
        ("next_state", ({*_STATES}, None)),
        ("status_msg", (str, None)),
        ("extra_env", (list, None), "Machines of ours are not recognised: they are launched twice and never garbage-collected."),
        ("num_gpus", (int, None)),
        ("gpu_name", (str, None)),
        ("dph_base", (_NUMBER, None), "The price that is really paid is not known, so limits cannot be kept."),
        ("dph_total", (_NUMBER, None), "The price that is really paid is not known, so limits cannot be kept."),
        ("is_bid", (bool, None)),
        ("start_date", (_NUMBER, None)),
        ("disk_space", (_NUMBER, None)),
        ("public_ipaddr", (str, None)),
        ("ports", (dict, None)),
    ]
    return tuple(_machine.fields(question, call, [(f"{root}.{name}", *rest) for name, *rest in rows]))


_OFFER: list[tuple[t.Any, ...]] = [
    ("offers", list),
    ("offers.*", dict),
    ("offers.*.id", int),
    ("offers.*.machine_id", int),
    ("offers.*.gpu_name", str),
    ("offers.*.num_gpus", int),
    ("offers.*.gpu_ram", _NUMBER, "The memory of the GPUs is not known, so pools that ask for memory find none."),
    ("offers.*.cpu_ram", _NUMBER),
    ("offers.*.cpu_cores", (_NUMBER, None)),
    ("offers.*.cpu_cores_effective", (_NUMBER, None)),
    ("offers.*.disk_space", _NUMBER),
    ("offers.*.storage_cost", _NUMBER, "Prices are wrong or unknown: limits cannot be kept."),
    ("offers.*.dph_base", _NUMBER, "Prices are wrong or unknown: limits cannot be kept."),
    ("offers.*.dph_total", _NUMBER, "Prices are wrong or unknown: limits cannot be kept."),
    ("offers.*.min_bid", (_NUMBER, None)),
    ("offers.*.is_bid", bool),
    ("offers.*.rentable", bool),
    ("offers.*.rented?", (bool, None)),
    ("offers.*.external?", (bool, None)),
    ("offers.*.geolocation", (re.compile(r".*, [A-Z]{2}"), None), "The region of an offer is not known."),
    ("offers.*.vms_enabled", bool, "Offers that cannot become nodes are launched as nodes."),
]
_HOST: list[tuple[t.Any, ...]] = [
    ("offers.*.inet_down", _NUMBER),
    ("offers.*.inet_up", _NUMBER),
    ("offers.*.inet_down_cost", _NUMBER),
    ("offers.*.inet_up_cost", _NUMBER),
    ("offers.*.reliability2", _NUMBER),
    ("offers.*.verification", {"verified", "unverified", "deverified"}),
    ("offers.*.hosting_type?", (int, None)),
    ("offers.*.cuda_max_good", _NUMBER),
    ("offers.*.direct_port_count", int),
    ("offers.*.static_ip", bool),
    ("offers.*.duration", (_NUMBER, None)),
]
FACTS: tuple[Fact, ...] = (
    _offers.status("search", "POST /bundles/", 200),
    *_offers.fields("search", "POST /bundles/", _OFFER),
    *_quality.fields("search", "POST /bundles/", _HOST),
    _offers.fact("search.order", "A search is ordered by dph_total", "prices rise", ("search",), _ordered, basis=Basis.RECORDED),
    _offers.fact(
        "search.cap", f"An answer holds at most {_MOST} offers", f"at most {_MOST}", ("search",), _capped, basis=Basis.RECORDED
    ),
    _offers.fact(
        "search.price",
        "dph_total is dph_base and the disk that was asked for, by a month of 720 hours",
        "within 0.001 $/h",
        ("search",),
        _priced,
        basis=Basis.RECORDED,
        why="The price of the disk is wrong, so limits are kept for another price.",
    ),
    _offers.fact("single.filter", "The filter num_gpus leaves out other counts", "1 GPU in all", ("single",), _filtered),
    _offers.fact("bids.kind", "A search for bids marks its rows by is_bid", "true in all", ("bids",), _marked_bids),
    _lists.status("list", "GET /api/v1/instances/", 200),
    *_lists.fields(
        "list",
        "GET /api/v1/instances/",
        [("instances", list), ("next_token", (str, int, None)), ("total_instances", int), ("instances_found", int)],
    ),
    _lists.fact(
        "old_list.retired",
        "GET /api/v0/instances/ is gone",
        "HTTP 410 deprecated_endpoint",
        ("old_list",),
        _retired,
        why="Nothing: the list of v1 is used.",
    ),
    _account.status("user", "GET /api/v0/users/current/", 200),
    *_account.fields(
        "user",
        "GET /api/v0/users/current/",
        [("credit", _NUMBER), ("balance", _NUMBER), ("can_pay?", bool), ("ssh_key?", (str, None))],
    ),
    _account.status("keys", "GET /api/v0/ssh/", 200),
    _errors.fact(
        "unknown_id.gone",
        "A look at an unknown id says that there is none",
        "instances null, or no_such_instance or not_found under 404 or 200",
        ("unknown_id",),
        _unknown,
        basis=Basis.UNVERIFIED,
    ),
    _errors.fact(
        "bad_key.code", "A call with an invalid key is answered auth_error under 401 or 404", "auth_error", ("bad_key",), _bad_key
    ),
    *_errors.fields("bad_key", "A call with an invalid key", [("success", bool), ("msg", str)]),
    *_entry(LISTED, "instances.*", "GET /api/v1/instances/"),
    *_entry(MACHINE, "instances", "GET /api/v0/instances/{id}/"),
    *life_facts(
        _machine,
        _CLOUD,
        gone=_gone,
        gone_expected="instances null, or no_such_instance or not_found under 404 or 200",
    ),
    _bills.status("charges", "GET /charges", 200),
    *_bills.fields(
        "charges",
        "GET /charges",
        [
            ("results", list),
            ("total", int, "A part of the bill is taken for all of it."),
            ("results.*", dict),
            ("results.*.source", re.compile(r"instance-\d+"), "The charges of an instance are not found."),
            ("results.*.amount", float),
            ("results.*.items", list),
            ("results.*.items.*.type", str, "Traffic counts as the price of the machine."),
            ("results.*.items.*.amount", float),
        ],
    ),
    *VM_FACTS,
)


def _more(body: t.Any) -> dict[str, t.Any]:
    token = body.get("next_token") if isinstance(body, dict) else None
    return {"after_token": token} if isinstance(token, (str, int)) and token else {}


TABLE = Table(
    "vast",
    QUESTIONS,
    FACTS,
    WatchCalls(
        "/api/v1/instances/",
        "instances.*",
        "/api/v0/instances/{}/",
        "instances",
        "actual_status",
        ("ports", "public_ipaddr", "status_msg"),
        {"limit": 25},
        "list",
        "get",
        _more,
    ),
    BOOT_SCRIPT,
)
