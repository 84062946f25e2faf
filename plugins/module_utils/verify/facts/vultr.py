# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vultr, API v2."""

from __future__ import annotations

import re

from ...providers.registry import CAPABILITIES
from ...providers.vultr.launch import DEFAULT_OS
from ...providers.vultr.plans import WHOLE, refusal
from .fact import WHEN, Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, life_facts

_OPENAPI = "Vultr's OpenAPI document 2.0, 2026"
_CLIENTS = "what Vultr's Go client and other current clients read, 2026"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REGION = re.compile(r"[a-z]{3}")
_CLOUD = CAPABILITIES["vultr"]
QUESTIONS = (
    Question("account", "GET", "/v2/account"),
    Question("plans", "GET", "/v2/plans", {"per_page": 500, "type": "all"}),
    Question("regions", "GET", "/v2/regions", {"per_page": 500}),
    Question("stock", "GET", lambda replies: _first_stock(replies)),
    Question("systems", "GET", "/v2/os", {"per_page": 500}),
    Question("groups", "GET", "/v2/firewalls", {"per_page": 500}),
    Question("snapshots", "GET", "/v2/snapshots", {"per_page": 500}),
    Question("list", "GET", "/v2/instances", {"per_page": 500}),
    Question("charges", "GET", "/v2/billing/pending-charges"),
    Question("invoices", "GET", "/v2/billing/invoices", {"per_page": 500}),
    Question("unknown_id", "GET", "/v2/instances/00000000-0000-4000-8000-000000000000"),
    Question("bad_key", "GET", "/v2/instances", credential=False),
)
_account = Group("vultr", _OPENAPI, consequence="A key that is good is refused, or one without rights is accepted.")
_plans = Group(
    "vultr", _CLIENTS, Basis.RECORDED, "Offers of Vultr cannot be read, or have a wrong price, size or place: nothing is launched."
)
_stock = Group("vultr", _OPENAPI, consequence="Plans that are sold out are launched, or those on sale are not.")
_systems = Group("vultr", _OPENAPI, consequence="The operating system of a launch is not found, so launches are refused.")
_lists = Group("vultr", _OPENAPI, consequence="Machines are not listed: launches are looked up in vain, and orphans are not found.")
_groups = Group("vultr", _OPENAPI, consequence="A firewall group is made for each launch, and none is removed.")
_images = Group("vultr", _CLIENTS, Basis.RECORDED, "A snapshot with Talos is taken for complete before it is.")
_bills = Group("vultr", _CLIENTS, Basis.RECORDED, "The report cannot compare the ledger with the bill.", may_be_empty=True)
_errors = Group(
    "vultr", _CLIENTS, Basis.RECORDED, "The refusal is taken for something else: retried, or not reported as what it is."
)
_machine = Group(
    "vultr",
    _CLIENTS,
    Basis.RECORDED,
    "The machine is not recognised as ours, or its state or address is not known.",
    rented=True,
)


def _first_stock(replies: Replies) -> str:
    regions = texts(replies["regions"].json, "regions.*.id") if "regions" in replies else []
    found = next((one for one in regions if _REGION.fullmatch(one)), "")
    return f"/v2/regions/{found}/availability" if found else ""


def _no_talos(replies: Replies) -> Verdict:
    names = texts(replies["systems"].json, "os.*.name")
    if not names:
        return not_seen("no system has a name")
    found = [name for name in names if "talos" in name.lower()]
    return verdict(not found, "one name has the word Talos" if found else "no name has the word Talos")


def _default_system(replies: Replies) -> Verdict:
    names = texts(replies["systems"].json, "os.*.name")
    if not names:
        return not_seen("no system has a name")
    return verdict(DEFAULT_OS in names, "it is there" if DEFAULT_OS in names else "it is not there")


def _whole(replies: Replies) -> Verdict:
    """The plans that we rent are what we take them for."""
    plans = [one for one in values(replies["plans"].json, "plans.*") if isinstance(one, dict) and one.get("id") in WHOLE]
    if not plans:
        return not_seen("none of them is in the list")
    wrong = [one for one in plans if "fraction" in refusal(one)]
    return verdict(not wrong, f"another one in {len(wrong)} of {len(plans)}" if wrong else f"the same in all {len(plans)}")


def _last_cursor(replies: Replies) -> Verdict:
    body = replies["regions"].json
    links = values(body, "meta.links.next")
    return verdict(links == [""], "empty" if links == [""] else "something else")


def _gone(replies: Replies) -> Verdict:
    reply = replies[GONE]
    words = " ".join(texts(reply.json, "error"))
    good = reply.status == 404 and re.search("(?i)not found", words) is not None
    return verdict(good, f"HTTP {reply.status}{' not found' if good else ''}")


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    """The fields of a machine that the client reads."""
    return tuple(
        _machine.fields(
            question,
            call,
            [
                (f"{root}.id", _ID),
                (f"{root}.label", str, "Machines are not found by their name: an unknown launch is repeated."),
                (f"{root}.status", str),
                (f"{root}.power_status", str),
                (f"{root}.server_status", str),
                (f"{root}.main_ip", str),
                (f"{root}.region", _REGION),
                (f"{root}.plan", str),
                (f"{root}.date_created", WHEN, "Its hours are counted from a wrong time."),
                (f"{root}.tags", list, "Machines of ours are not recognised: they are never garbage-collected."),
                (f"{root}.tags.*", str),
                (f"{root}.firewall_group_id", str, "A firewall group is removed while a machine has it."),
            ],
        )
    )


FACTS: tuple[Fact, ...] = (
    _account.status("account", "GET /account", 200),
    *_account.fields("account", "GET /account", [("account", dict), ("account.acls", list), ("account.acls.*", str)]),
    _plans.status("plans", "GET /plans", 200),
    *_plans.fields(
        "plans",
        "GET /plans",
        [
            ("plans", list),
            ("plans.*", dict),
            ("plans.*.id", str),
            ("plans.*.type", str, "A fraction of a GPU is taken for a whole one."),
            ("plans.*.hourly_cost", float, "Prices are wrong or unknown: limits cannot be kept."),
            ("plans.*.location_cost?", (dict, list), "Prices of single regions are not seen."),
            ("plans.*.vcpu_count", int),
            ("plans.*.ram", float),
            ("plans.*.disk", float),
        ],
    ),
    _plans.fact(
        "plans.whole",
        "The plans that are rented have whole GPUs",
        "the type and memory that belong to them",
        ("plans",),
        _whole,
        why="A fraction of a GPU is rented, and no driver of a node can use it.",
    ),
    _stock.status("regions", "GET /regions", 200),
    *_stock.fields("regions", "GET /regions", [("regions", list), ("regions.*", dict), ("regions.*.id", _REGION)]),
    _bills.status("charges", "GET /billing/pending-charges", 200),
    *_bills.fields(
        "charges",
        "GET /billing/pending-charges",
        [
            ("pending_charges", list),
            ("pending_charges.*", dict),
            ("pending_charges.*.description", str, "The charges of a machine are not found."),
            ("pending_charges.*.total", float),
        ],
    ),
    _bills.status("invoices", "GET /billing/invoices", 200),
    *_bills.fields(
        "invoices",
        "GET /billing/invoices",
        [("billing_invoices", list), ("billing_invoices.*.id", int), ("billing_invoices.*.date", WHEN)],
    ),
    _lists.fact("regions.cursor", "The last page of a list has an empty cursor", "empty", ("regions",), _last_cursor),
    _stock.status("stock", "GET /regions/{id}/availability", 200),
    *_stock.fields("stock", "GET /regions/{id}/availability", [("available_plans", list), ("available_plans.*", str)]),
    _systems.status("systems", "GET /os", 200),
    *_systems.fields("systems", "GET /os", [("os", list), ("os.*", dict), ("os.*.id", int), ("os.*.name", str)]),
    _systems.fact("systems.default", f"GET /os has {DEFAULT_OS}", "it is there", ("systems",), _default_system),
    _systems.fact(
        "systems.talos",
        "Vultr has no image of Talos of its own",
        "no name has the word Talos",
        ("systems",),
        _no_talos,
        basis=Basis.UNVERIFIED,
        why="Nothing breaks: lane talos could do without a snapshot.",
    ),
    _groups.status("groups", "GET /firewalls", 200),
    *_groups.fields(
        "groups",
        "GET /firewalls",
        [("firewall_groups", list)],
    ),
    _images.status("snapshots", "GET /snapshots", 200),
    *_images.fields(
        "snapshots",
        "GET /snapshots",
        [("snapshots", list)],
    ),
    _lists.status("list", "GET /instances", 200),
    *_lists.fields("list", "GET /instances", [("instances", list), ("meta", dict), ("meta.links", dict), ("meta.links.next", str)]),
    _errors.status("unknown_id", "A look at an unknown id", 404, why="A machine that is gone is taken for one that exists."),
    *_errors.fields(
        "unknown_id",
        "A look at an unknown id",
        [
            (
                "error",
                re.compile(r"(?i).*not found.*"),
                "A machine that is gone is taken for one that exists, and its claim never ends.",
            )
        ],
    ),
    _errors.status("bad_key", "A call with an invalid key", 401, why="A bad key is retried instead of being reported."),
    *_errors.fields("bad_key", "A call with an invalid key", [("error", str), ("status", int)]),
    *_entry(LISTED, "instances.*", "GET /instances"),
    *_entry(MACHINE, "instance", "GET /instances/{id}"),
    *life_facts(_machine, _CLOUD, gone=_gone, gone_expected="HTTP 404 not found"),
)


def _next_page(body: object) -> dict[str, object]:
    cursors = [one for one in values(body, "meta.links.next") if isinstance(one, str) and one]
    return {"cursor": cursors[0]} if cursors else {}


TABLE = Table(
    "vultr",
    QUESTIONS,
    FACTS,
    WatchCalls(
        "/v2/instances",
        "instances.*",
        "/v2/instances/{}",
        "instance",
        "status",
        ("main_ip", "power_status", "server_status", "label", "tags", "default_password"),
        {"per_page": 500},
        more=_next_page,
    ),
)
