# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must not be tried again for a while after it failed (L-14), as data: key → until, with a memory that makes repeats wait longer.

The stored form is JSON: ``{key: until, ..., "history": {key: {"times": n, "failures": [time, ...], "since": time, "reason": word, "why": text,
"claim": name}}}``. ``since`` is the last failure; ``why`` and ``claim`` are there where the failure had words and a machine.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from datetime import datetime, timedelta

from ...model import NodeClass, Offer
from ...units.values import parse_time, print_time

State = dict[str, t.Any]

HISTORY = "history"
_IMAGE = "image:"
FIRST = {
    "capacity": 600,
    "conflict": 600,
    "unknown": 600,
    "quota": 1800,
    "balance": 3600,
    "join": 3600,
    "acceptance": 3600,
    "spotlost": 3600,
    "unhealthy": 3600,
    "price": 3600,
    "image": 1800,
}
DOUBLING = frozenset({"capacity", "image"})
LONGEST = 3600
LONGEST_OF_HOST = 24 * 3600  # of a host whose GPUs fail acceptance tests again and again
LONGEST_WHY = 300  # characters
FORGOTTEN_AFTER = 3 * 3600
WHOLE_CLOUD = frozenset({"quota", "balance"})
RUN_ONLY = frozenset({"auth"})  # the cloud is skipped for the rest of the run; nothing is stored
MAX_FAILED_JOINS = 3
FAILED_JOINS_WITHIN = 3600
POOL_PAUSE = 3600


def key_of(offer: Offer) -> str:
    """The key of one kind of offer: cloud, type, region, spot or on demand, and the host where the cloud names it."""
    market = "spot" if offer.spot else "on-demand"
    parts = ("offer", offer.cloud, offer.instance_type, offer.cloud_region or offer.region, market, offer.host_id)
    return ":".join(parts).rstrip(":")


def key_of_cloud(cloud: str) -> str:
    """The key that blocks everything of a cloud."""
    return f"cloud:{cloud}"


def key_of_pool(pool: str) -> str:
    """The key that pauses a pool."""
    return f"pool:{pool}"


def key_of_image(node_class: NodeClass, cloud: str) -> str:
    """The key that blocks the machines of lane talos of a class at a cloud, because their image could not be made (L-56). What the image is
    made from is part of it, so a document that was corrected is not blocked by what failed before."""
    made_from = [dict(node_class.settings_of(cloud)), node_class.talos_schematic, node_class.talos_image]
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True, default=str).encode()).hexdigest()
    return f"{_IMAGE}{cloud}:{node_class.name}:{digest[:8]}"


def without_images(node_class: NodeClass, blocks: t.Mapping[str, datetime], now: datetime) -> dict[str, datetime]:
    """The clouds at which such a key blocks machines of the class, with the end of each block."""
    if not any(key.startswith(_IMAGE) for key in blocks):
        return {}
    untils = {choice.cloud: blocks.get(key_of_image(node_class, choice.cloud)) for choice in node_class.clouds}
    return {cloud: until for cloud, until in untils.items() if until is not None and until > now}


def words_of_images(
    node_class: NodeClass, blocks: t.Mapping[str, datetime], words: t.Mapping[str, str], now: datetime
) -> dict[str, str]:
    """Why there is no image, by cloud, as one line for people. ``words``: what a failure was, by the key of its block."""
    lines = {}
    for cloud, until in without_images(node_class, blocks, now).items():
        why = words.get(key_of_image(node_class, cloud), "").removeprefix(f"{cloud}: ") or "the last try failed"
        lines[cloud] = f"{cloud}: its image of Talos is not made before {print_time(until)}: {why}"
    return lines


def keys_for(offer: Offer) -> tuple[str, ...]:
    """Every key that would block this offer."""
    host = (f"host:{offer.cloud}:{offer.host_id}",) if offer.host_id else ()
    return (key_of(offer), key_of_cloud(offer.cloud), *host)


def keys_after(offer: Offer, reason: str) -> tuple[str, ...]:
    """The keys to block when a launch of ``offer`` failed for ``reason`` (an error class of L-14, or join, spotlost, price)."""
    if reason in WHOLE_CLOUD:
        return (key_of_cloud(offer.cloud),)
    if reason in ("join", "spotlost", "acceptance", "unhealthy") and offer.host_id:
        return (key_of(offer), f"host:{offer.cloud}:{offer.host_id}")
    if reason == "unhealthy":
        return ()  # the next machine of the offer is another one: a pool that can use this offer alone would get none
    return (key_of(offer),) if reason in FIRST else ()


def after_failure(state: t.Mapping[str, t.Any], key: str, reason: str, now: datetime, *, why: str = "", claim: str = "") -> State:
    """The block list after one more failure under ``key``. A reason that blocks nothing leaves it as it is, and so does a ``claim`` whose
    failure is noted already: the run that noted it may have been killed before it wrote the claim."""
    if reason not in FIRST:
        return dict(state)
    if reason in WHOLE_CLOUD and key.startswith("offer:"):
        key = key_of_cloud(key.split(":")[1])
    kept = expire(state, now)
    memory = dict(kept.get(HISTORY, {}))
    before = memory.get(key, {})
    if claim and before.get("claim") == claim and before.get("reason") == reason:
        return kept
    times = int(before.get("times", 0)) + 1
    seconds = FIRST[reason]
    if reason in DOUBLING:
        seconds = min(seconds * 2 ** (times - 1), LONGEST)
    elif reason == "acceptance" and key.startswith("host:"):
        seconds = min(seconds * 2 ** (times - 1), LONGEST_OF_HOST)
    told = {"times": times, "since": print_time(now), "reason": reason, "why": why[:LONGEST_WHY], "claim": claim}
    memory[key] = {**{name: value for name, value in before.items() if name == "failures"}, **{k: v for k, v in told.items() if v}}
    until = max(now + timedelta(seconds=seconds), _until(kept, key) or now)
    return {**kept, key: print_time(until), HISTORY: memory}


def after_failed_join(state: t.Mapping[str, t.Any], pool: str, now: datetime) -> State:
    """Count a machine of ``pool`` that never joined (L-11); the third within an hour pauses the pool for an hour."""
    kept = expire(state, now)
    key = key_of_pool(pool)
    memory = dict(kept.get(HISTORY, {}))
    recent = [
        text for text in memory.get(key, {}).get("failures", []) if parse_time(text) > now - timedelta(seconds=FAILED_JOINS_WITHIN)
    ]
    failures = [*recent, print_time(now)]
    memory[key] = {"times": 0, "failures": failures}
    paused = {key: print_time(now + timedelta(seconds=POOL_PAUSE))} if len(failures) >= MAX_FAILED_JOINS else {}
    return {**kept, **paused, HISTORY: memory}


def after_success(state: t.Mapping[str, t.Any], key: str) -> State:
    """The block list after a launch under ``key`` went well: its memory is wiped."""
    memory = {entry: value for entry, value in state.get(HISTORY, {}).items() if entry != key}
    return {**{entry: value for entry, value in state.items() if entry not in (key, HISTORY)}, HISTORY: memory}


def expire(state: t.Mapping[str, t.Any], now: datetime) -> State:
    """Without entries that are over; how often a key failed is forgotten three hours after its last block ended."""
    memory = state.get(HISTORY, {})
    long_ago = now - timedelta(seconds=FORGOTTEN_AFTER)
    kept: State = {}
    remembered: dict[str, t.Any] = {}
    for key in {*state, *memory} - {HISTORY}:
        until = _until(state, key)
        failures = memory.get(key, {}).get("failures", [])
        alive = (until is not None and until > long_ago) or any(parse_time(text) > long_ago for text in failures)
        if until is not None and until > long_ago:
            kept[key] = state[key]
        if alive and key in memory:
            remembered[key] = memory[key]
    return {**{key: kept[key] for key in sorted(kept)}, HISTORY: {key: remembered[key] for key in sorted(remembered)}}


def active(state: t.Mapping[str, t.Any], now: datetime) -> dict[str, datetime]:
    """What is blocked at ``now``, for an Observation: key → until."""
    untils = {key: _until(state, key) for key in state if key != HISTORY}
    return {key: until for key, until in untils.items() if until is not None and until > now}


def observed(state: t.Mapping[str, t.Any], now: datetime) -> dict[str, t.Any]:
    """The fields of an Observation: what is blocked at ``now``, and the words of the failures that have some."""
    blocks, memory = active(state, now), state.get(HISTORY, {})
    return {"blocks": blocks, "block_words": {key: memory[key]["why"] for key in blocks if memory.get(key, {}).get("why")}}


def reasons(state: t.Mapping[str, t.Any], now: datetime) -> list[dict[str, str]]:
    """What is blocked at ``now``, for people: key, until, and as far as known since, reason, why and claim. The longest first."""
    memory = state.get(HISTORY, {})
    rows = [
        {"key": key, "until": print_time(until)}
        | {name: memory[key][name] for name in ("since", "reason", "why", "claim") if name in memory.get(key, {})}
        for key, until in active(state, now).items()
    ]
    return sorted(rows, key=lambda row: (row["until"], row["key"]), reverse=True)


def line(row: t.Mapping[str, str]) -> str:
    """One of :func:`reasons`, as status prints it."""
    why = f" ({row['reason']}{': ' + row['why'] if row.get('why') else ''})" if row.get("reason") else ""
    since = f", since {row['since']}" if row.get("since") else ""
    return f"  backed off until {row['until']}{since}: {row['key']}{why}"


def blocked(offer: Offer, blocks: t.Mapping[str, datetime], now: datetime) -> datetime | None:
    """Until when the offer is blocked, None if it is not."""
    untils = [until for key in keys_for(offer) if (until := blocks.get(key)) is not None and until > now]
    return max(untils) if untils else None


def _until(state: t.Mapping[str, t.Any], key: str) -> datetime | None:
    value = state.get(key)
    return parse_time(value) if isinstance(value, str) else None
