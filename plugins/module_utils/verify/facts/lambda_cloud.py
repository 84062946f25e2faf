# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda Cloud, API 1.10."""

from __future__ import annotations

import re

from ...providers.registry import CAPABILITIES
from .fact import WHEN, Basis, Fact, Group, Question, Replies, Table, Verdict, WatchCalls, not_seen, texts, values, verdict
from .life import GONE, LISTED, MACHINE, life_facts

_OPENAPI = "Lambda's OpenAPI document 1.10.0"
_RECORDED = "answers recorded from the live service, November 2025"
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLOUD = CAPABILITIES["lambda"]
_STATES = tuple(_CLOUD.states)
_SPECS = ("vcpus", "memory_gib", "storage_gib", "gpus")
QUESTIONS = (
    Question("types", "GET", "/api/v1/instance-types"),
    Question("regions", "GET", "/api/v1/regions"),
    Question("images", "GET", "/api/v1/images"),
    Question("keys", "GET", "/api/v1/ssh-keys"),
    Question("list", "GET", "/api/v1/instances"),
    Question("audit", "GET", "/api/v1/audit-events"),
    Question("unknown_id", "GET", f"/api/v1/instances/{'0' * 32}"),
    Question("odd_id", "GET", "/api/v1/instances/no-such-id"),
    Question("bad_key", "GET", "/api/v1/instances", credential=False),
    Question("bad_path", "GET", "/api/v1/no-such-path"),
)
_types = Group(
    "lambda",
    _OPENAPI,
    Basis.RECORDED,
    "Offers of Lambda cannot be read, or have a wrong price, size or place: nothing is launched.",
)
_images = Group("lambda", _RECORDED, Basis.RECORDED, "The image family of a launch does not exist, so launches are refused.")
_keys = Group("lambda", _OPENAPI, consequence="The SSH key of a launch is not found, so launches are refused before they are sent.")
_lists = Group(
    "lambda", _OPENAPI, consequence="Machines are not listed: launches are looked up in vain, and orphans are not found."
)
_errors = Group("lambda", _OPENAPI, consequence="The refusal is taken for something else: retried, or not reported as what it is.")
_machine = Group(
    "lambda",
    _OPENAPI,
    consequence="The machine is not recognised as ours, or its state, price or address is not known.",
    rented=True,
)


def _codes(
    question: str, status: int, code: str, group: Group = _errors, basis: Basis | None = None, why: str = ""
) -> tuple[Fact, ...]:
    call = {
        "unknown_id": "A look at an unknown id",
        "odd_id": "A look at a malformed id",
        "bad_key": "A call with an invalid key",
        "bad_path": "A call to a path that does not exist",
    }[question]
    return (
        group.status(question, call, status, basis=basis, why=why),
        *group.fields(
            question, call, [("error", dict, why, basis), ("error.code", {code}, why, basis), ("error.message", str, why, basis)]
        ),
    )


def _keyed_by_name(replies: Replies) -> Verdict:
    body = replies["types"].json
    types = body.get("data") if isinstance(body, dict) else None
    if not isinstance(types, dict):
        return not_seen("data is not an object")
    pairs = [(key, kind.get("instance_type")) for key, kind in types.items() if isinstance(kind, dict)]
    named = [(key, kind["name"]) for key, kind in pairs if isinstance(kind, dict) and isinstance(kind.get("name"), str)]
    if not named:
        return not_seen("no entry has a name")
    other = [key for key, name in named if key != name]
    return verdict(not other, f"another key in {len(other)} of {len(named)}" if other else f"the same in all {len(named)}")


def _memory_in_text(replies: Replies) -> Verdict:
    bodies = [one for one in values(replies["types"].json, "data.*.instance_type") if isinstance(one, dict)]
    texts = [
        one["gpu_description"]
        for one in bodies
        if isinstance(one.get("gpu_description"), str) and one["gpu_description"] not in ("", "N/A")
    ]
    if not texts:
        return not_seen("no type with GPUs has a description")
    other = [text for text in texts if not re.search(r"\(\d+ GB", text)]
    return verdict(not other, f"without a size in {len(other)} of {len(texts)}" if other else f"a size in all {len(texts)}")


def _no_paging(replies: Replies) -> Verdict:
    body = replies["list"].json
    if not isinstance(body, dict):
        return not_seen("the answer is not an object")
    extra = [key for key in body if re.search("token|cursor|next|page", key)]
    return verdict(not extra, f"it has {', '.join(sorted(extra)[:3])}" if extra else "one array, no token")


def _gone(replies: Replies) -> Verdict:
    reply = replies[GONE]
    if reply.status == 404:
        codes = texts(reply.json, "error.code")
        return verdict(codes == ["global/object-does-not-exist"], f"HTTP 404 {' '.join(codes)}")
    words = texts(reply.json, "data.status")
    return verdict(words in (["terminated"], ["terminating"]), f"HTTP {reply.status} {' '.join(words)}")


def _entry(question: str, root: str, call: str) -> tuple[Fact, ...]:
    """The fields of a machine that the client reads."""
    return tuple(
        _machine.fields(
            question,
            call,
            [
                (f"{root}.id", _ID),
                (f"{root}.status", set(_STATES)),
                (f"{root}.name?", str),
                (f"{root}.ip?", re.compile(r"\d{1,3}(\.\d{1,3}){3}")),
                (f"{root}.private_ip?", re.compile(r"\d{1,3}(\.\d{1,3}){3}")),
                (f"{root}.region", dict),
                (f"{root}.region.name", str),
                (f"{root}.instance_type", dict),
                (f"{root}.instance_type.name", str),
                (f"{root}.instance_type.price_cents_per_hour", int),
                (f"{root}.instance_type.specs", dict),
                (f"{root}.instance_type.specs.gpus", int),
                (f"{root}.tags", list, "Machines of ours are not recognised: they are launched twice and never garbage-collected."),
                (f"{root}.tags.*", dict),
                (f"{root}.tags.*.key", re.compile(r"[a-z][a-z0-9-:]+")),
                (f"{root}.tags.*.value", str),
            ],
        )
    )


FACTS: tuple[Fact, ...] = (
    _types.status("types", "GET /instance-types", 200),
    *_types.fields(
        "types",
        "GET /instance-types",
        [
            ("data", dict),
            ("data.*", dict),
            ("data.*.instance_type", dict),
            ("data.*.instance_type.name", str),
            ("data.*.instance_type.description", str),
            ("data.*.instance_type.gpu_description", str, "The model and memory of the GPUs are not known."),
            ("data.*.instance_type.price_cents_per_hour", int, "Prices are wrong or unknown: limits cannot be kept."),
            ("data.*.instance_type.specs", dict),
            *((f"data.*.instance_type.specs.{name}", int) for name in _SPECS),
            ("data.*.regions_with_capacity_available", list, "Types that are sold out are launched, or those on sale are not."),
            ("data.*.regions_with_capacity_available.*", dict),
            ("data.*.regions_with_capacity_available.*.name", str),
        ],
    ),
    _types.fact("types.keys", "Types are keyed by their own name", "the key is instance_type.name", ("types",), _keyed_by_name),
    _types.fact(
        "types.memory",
        "The memory of a GPU is in gpu_description only",
        "a text like A10 (24 GB PCIe)",
        ("types",),
        _memory_in_text,
        why="GPUs are offered without memory, so pools that ask for memory find none.",
    ),
    _types.status("regions", "GET /regions", 200),
    *_types.fields(
        "regions", "GET /regions", [("data", list), ("data.*", dict), ("data.*.name", str), ("data.*.description", str)]
    ),
    _images.status("images", "GET /images", 200),
    *_images.fields(
        "images",
        "GET /images",
        [
            ("data", list),
            ("data.*", dict),
            ("data.*.id", _ID),
            ("data.*.family", str),
            ("data.*.architecture", {"x86_64", "arm64"}),
            ("data.*.region", dict),
            ("data.*.region.name", str),
            ("data.*.created_time", WHEN),
        ],
    ),
    _keys.status("keys", "GET /ssh-keys", 200),
    *_keys.fields(
        "keys",
        "GET /ssh-keys",
        [("data", list), ("data.*", dict), ("data.*.id", str), ("data.*.name", str), ("data.*.public_key", str)],
    ),
    _lists.status("list", "GET /instances", 200),
    *_lists.fields("list", "GET /instances", [("data", list)]),
    _lists.fact("list.paging", "GET /instances returns all machines at once", "no page token", ("list",), _no_paging),
    _lists.status("audit", "GET /audit-events", 200, why="Machines without a tag of ours cannot be dated."),
    *_lists.fields("audit", "GET /audit-events", [("data", list, "Machines without a tag of ours cannot be dated.")]),
    *_codes(
        "unknown_id",
        404,
        "global/object-does-not-exist",
        why="A machine that is gone is taken for one that exists, and its claim never ends.",
    ),
    *_codes("odd_id", 400, "global/invalid-parameters", basis=Basis.RECORDED),
    *_codes("bad_key", 401, "global/invalid-api-key", why="A bad key is retried instead of being reported."),
    *_codes("bad_path", 404, "global/not-found", why="A wrong address is taken for a machine that is gone."),
    *_entry(LISTED, "data.*", "GET /instances"),
    *_entry(MACHINE, "data", "GET /instances/{id}"),
    *life_facts(
        _machine,
        _CLOUD,
        gone=_gone,
        gone_expected="HTTP 404 global/object-does-not-exist, or status terminated",
    ),
)
TABLE = Table(
    "lambda",
    QUESTIONS,
    FACTS,
    WatchCalls("/api/v1/instances", "data.*", "/api/v1/instances/{}", "data", "status", ("ip", "private_ip", "name", "tags")),
)
