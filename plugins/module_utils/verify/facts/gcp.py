# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Compute Engine, API v1. Its prices are in no answer, so none is checked."""

from __future__ import annotations

import re
import typing as t

from ...providers.gcp.leftovers import DISK_FILTER
from ...providers.gcp.machine_types import FILTER
from ...providers.registry import CAPABILITIES
from .fact import WHEN, Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, life_facts

_REFERENCE = "Google's reference of the Compute API v1, 2026"
_CLIENTS = "what current public clients of the Compute API send and read, 2026"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+")
_CLOUD = CAPABILITIES["gcp"]
_NOBODY = "/zones/us-central1-a/instances/tgp-verify-nobody"
_ALL = {"maxResults": 500}
QUESTIONS = (
    Question("zones", "GET", "/zones", _ALL),
    Question("regions", "GET", "/regions", _ALL),
    Question("types", "GET", "/aggregated/machineTypes", {**_ALL, "filter": FILTER}),
    Question("accelerators", "GET", "/aggregated/acceleratorTypes", _ALL),
    Question("disks", "GET", "/aggregated/disks", {**_ALL, "filter": DISK_FILTER}),
    Question("addresses", "GET", "/aggregated/addresses", _ALL),
    Question("list", "GET", "/aggregated/instances", _ALL),
    Question("unknown_id", "GET", _NOBODY),
    Question("bad_key", "GET", "/zones", credential=False),
)
_places = Group("gcp", _REFERENCE, consequence="Zones that a class names are refused, or those that are down are launched in.")
_quotas = Group("gcp", _CLIENTS, Basis.RECORDED, "Machines are offered that a quota forbids, or none is although it is allowed.")
_types = Group(
    "gcp", _CLIENTS, Basis.RECORDED, "Offers of Google cannot be read, or have a wrong model, size or place: nothing is launched."
)
_lists = Group("gcp", _REFERENCE, consequence="Machines are not listed: launches are looked up in vain, and orphans are not found.")
_left = Group(
    "gcp", _REFERENCE, consequence="Disks and addresses that stayed when a machine went are not found, and are billed on."
)
_errors = Group("gcp", _CLIENTS, Basis.RECORDED, "The refusal is taken for something else: retried, or not reported as what it is.")
_machine = Group(
    "gcp", _CLIENTS, Basis.RECORDED, "The machine is not recognised as ours, or its state or address is not known.", rented=True
)


def _filtered(replies: Replies) -> Verdict:
    """The filter is understood: without it there are some hundred machine types in each zone."""
    names = texts(replies["types"].json, "items.*.machineTypes.*.name")
    if not names:
        return not_seen("no zone has one of them")
    wanted = re.compile(FILTER.partition('"')[2].rstrip('"'))
    other = [name for name in names if not wanted.fullmatch(name)]
    return verdict(not other, f"another name in {len(other)} of {len(names)}" if other else f"in all {len(names)}")


def _gone(replies: Replies) -> Verdict:
    reply = replies[GONE]
    reasons = texts(reply.json, "error.errors.*.reason")
    good = reply.status == 404 and reasons == ["notFound"]
    return verdict(good, f"HTTP {reply.status}{' notFound' if good else ''}")


def _kind(group: Group, question: str, call: str, kind: str) -> tuple[Fact, ...]:
    why = "An empty list cannot be distinguished from an answer of another form, so everything stops."
    return (group.status(question, call, 200), *group.fields(question, call, [("kind", frozenset({kind}), why)]))


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    """The fields of a machine that the client reads."""
    begin = f"{root}." if root else ""
    return tuple(
        _machine.fields(
            question,
            call,
            [
                (f"{begin}name", _NAME, "Machines are not found by their name: an unknown launch is repeated."),
                (f"{begin}status", str),
                (f"{begin}zone", str),
                (f"{begin}machineType", str),
                (f"{begin}creationTimestamp", WHEN, "Its hours are counted from a wrong time."),
                (f"{begin}labels", dict, "Machines of ours are not recognised: they are never garbage-collected."),
                (f"{begin}metadata", dict),
                (f"{begin}metadata.fingerprint", str, "User data is not removed after the join, and can be read on."),
                (f"{begin}disks", list),
                (f"{begin}disks.*.diskSizeGb", _NUMBER, "The price of its disk is not known."),
                (f"{begin}disks.*.autoDelete", bool, "A disk stays, and is billed, when its machine is gone."),
                (f"{begin}scheduling", dict),
                (f"{begin}scheduling.provisioningModel", str, "Spot machines have the price of machines on demand."),
                (f"{begin}networkInterfaces", list),
                (f"{begin}networkInterfaces.*.networkIP", str),
            ],
        )
    )


FACTS: tuple[Fact, ...] = (
    *_kind(_places, "zones", "GET /zones", "compute#zoneList"),
    *_places.fields("zones", "GET /zones", [("items", list), ("items.*", dict), ("items.*.name", _NAME), ("items.*.status", str)]),
    *_kind(_quotas, "regions", "GET /regions", "compute#regionList"),
    *_quotas.fields(
        "regions",
        "GET /regions",
        [
            ("items", list),
            ("items.*", dict),
            ("items.*.name", _NAME),
            ("items.*.quotas", list),
            ("items.*.quotas.*.metric", str),
            ("items.*.quotas.*.limit", float),
            ("items.*.quotas.*.usage", float),
        ],
    ),
    *_kind(_types, "types", "GET /aggregated/machineTypes", "compute#machineTypeAggregatedList"),
    *_types.fields(
        "types",
        "GET /aggregated/machineTypes",
        [
            ("items", dict),
            ("items.*", dict),
            ("items.*.machineTypes?", list),
            ("items.*.machineTypes.*.name", str),
            ("items.*.machineTypes.*.guestCpus", int),
            ("items.*.machineTypes.*.memoryMb", int),
            ("items.*.machineTypes.*.accelerators?", list),
            ("items.*.machineTypes.*.accelerators.*.guestAcceleratorType", str),
            ("items.*.machineTypes.*.accelerators.*.guestAcceleratorCount", int, "A fraction of a GPU is taken for a whole one."),
        ],
    ),
    _types.fact(
        "types.filter",
        "A filter of machine types by a regular expression is understood",
        "no other name",
        ("types",),
        _filtered,
        basis=Basis.UNVERIFIED,
        why="Every search reads all machine types of all zones, which takes a hundred calls.",
    ),
    *_kind(_types, "accelerators", "GET /aggregated/acceleratorTypes", "compute#acceleratorTypeAggregatedList"),
    *_types.fields(
        "accelerators",
        "GET /aggregated/acceleratorTypes",
        [("items", dict), ("items.*.acceleratorTypes?", list), ("items.*.acceleratorTypes.*.name", str)],
    ),
    *_kind(_left, "disks", "GET /aggregated/disks", "compute#diskAggregatedList"),
    *_left.fields("disks", "GET /aggregated/disks", [("items", dict)]),
    *_kind(_left, "addresses", "GET /aggregated/addresses", "compute#addressAggregatedList"),
    *_left.fields("addresses", "GET /aggregated/addresses", [("items", dict)]),
    *_kind(_lists, "list", "GET /aggregated/instances", "compute#instanceAggregatedList"),
    *_lists.fields("list", "GET /aggregated/instances", [("items", dict)]),
    _errors.status("unknown_id", "A look at an unknown name", 404, why="A machine that is gone is taken for one that exists."),
    *_errors.fields(
        "unknown_id",
        "A look at an unknown name",
        [
            ("error", dict),
            ("error.errors", list),
            ("error.errors.*.reason", frozenset({"notFound"}), "A machine that is gone is taken for one that exists."),
            ("error.message", re.compile(rf".*{_NOBODY}'.*"), "A machine that is gone is taken for one that exists."),
        ],
    ),
    _errors.status("bad_key", "A call with an invalid token", 401, why="A bad key is retried instead of being reported."),
    *_errors.fields("bad_key", "A call with an invalid token", [("error", dict), ("error.message", str)]),
    *_entry(LISTED, "items.*.instances.*", "GET /aggregated/instances"),
    *_entry(MACHINE, "", "GET of an instance"),
    *life_facts(_machine, _CLOUD, gone=_gone, gone_expected="HTTP 404 notFound"),
)


def _next_page(body: object) -> dict[str, object]:
    tokens = [one for one in values(body, "nextPageToken") if isinstance(one, str) and one]
    return {"pageToken": tokens[0]} if tokens else {}


def _identity(entry: t.Mapping[str, t.Any]) -> str:
    """The id by which our client knows it."""
    return f"{str(entry.get('zone')).rpartition('/')[2]}/{entry.get('name')}"


TABLE = Table(
    "gcp",
    QUESTIONS,
    FACTS,
    WatchCalls(
        "/aggregated/instances",
        "items.*.instances.*",
        "/zones/{}/instances/{}",
        "",
        "status",
        ("networkInterfaces", "labels", "metadata", "disks", "lastStartTimestamp"),
        _ALL,
        more=_next_page,
        identity=_identity,
    ),
)
