# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which notices are sent, and when again: each thing once, once more after a day while it lasts, and anew when it comes back. People also
learn when it is resolved."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ..model import Claim, DamagedClaim, Instance, NodeClass, Notice, Pool
from ..model.defaults import REAPING, Settings
from ..model.names import pool_of, pool_part
from .claims.adoption import adopt
from .claims.record import counts, may_have_instance
from .cluster_state import Situation
from .garbage_collection.mass_deletion_guard import MASS_GUARD
from .garbage_collection.ownership import Ownership
from .garbage_collection.termination_steps import ALARM_AFTER, alarm
from .offers import launch_backoff
from .plan_builder import Draft

AGAIN_AFTER = timedelta(hours=24)
ONCE = frozenset({"budget_soft"})  # its key names the period: reported once in each (L-16)
_BUDGETS = ("budget_soft", "budget_hard")


def watch(draft: Draft, settings: Settings) -> None:
    """Add notices for what every plan can see: a destroy without end (L-10), paused pools (L-11), a guard that held (L-12); and note of
    which kinds this plan would know if there were any."""
    _pending(draft)
    _paused(draft)
    draft.judged |= {"failed_joins", "records", "provider_unreadable"}
    if draft.situation.seen.clock_offset is not None:
        draft.judged |= {"clock"}
    if not draft.situation.unlisted:
        draft.judged |= {"destroy_pending"}
    if settings.mode in REAPING and not draft.situation.unlisted and draft.situation.nodes is not None:
        draft.judged |= {"orphan_found", MASS_GUARD, "gpus_missing", "node_condition", *_BUDGETS}


def _pending(draft: Draft) -> None:
    for settled in draft.settled.values():
        claim = settled.stored
        if claim.deletion is None or not alarm(claim, draft.now) or _is_gone(draft, claim):
            continue
        why = f" The last answer: {claim.deletion.last_error}" if claim.deletion.last_error else ""
        blind = draft.situation.instances(claim.cloud) is None
        so = f"and may still exist (the machines of {claim.cloud} could not be listed): then it" if blind else "still exists, and"
        text = (
            f"{claim.name} ({claim.cloud} {', '.join(claim.ids_seen)}) was asked to go more than {ALARM_AFTER // 60} minutes ago, "
            f"{so} is billed ${claim.price}/h.{why}"
        )
        draft.notice(
            "destroy_pending", claim.name, text, cloud=claim.cloud, ids=", ".join(claim.ids_seen), price_hour=str(claim.price)
        )


def _is_gone(draft: Draft, claim: Claim) -> bool:
    """True when the cloud's list is usable and shows none of its machines."""
    listed = draft.situation.instances(claim.cloud)
    return listed is not None and not any(instance.id in claim.ids_seen or instance.name == claim.name for instance in listed.all)


def _paused(draft: Draft) -> None:
    for pool in draft.situation.pools:
        until = draft.situation.seen.blocks.get(launch_backoff.key_of_pool(pool.key))
        if until is not None and until > draft.now:
            text = (
                f"{pool.key}: {launch_backoff.MAX_FAILED_JOINS} machines within an hour never became nodes; nothing is launched there until "
                f"{until:%H:%M} UTC."
            )
            draft.notice("failed_joins", pool.key, text, until=f"{until:%Y-%m-%dT%H:%M:%SZ}")


def due(notices: t.Iterable[Notice], sent_at: t.Mapping[str, datetime], now: datetime) -> list[Notice]:
    """Those of which people do not know yet, or not any more. ``sent_at``: key → when each was sent."""
    return [
        notice
        for notice in notices
        if notice.key not in sent_at or (notice.kind not in ONCE and now - sent_at[notice.key] >= AGAIN_AFTER)
    ]


def remembered(
    notices: t.Iterable[Notice],
    sent_at: t.Mapping[str, datetime],
    arrived: t.Collection[str],
    judged: t.Collection[str],
    now: datetime,
) -> dict[str, datetime]:
    """The notices that are sent after this run. What a plan that could see it does not see is over, and forgotten; what nobody
    looked for is kept for a day."""
    lasting = {notice.key for notice in notices}
    kept = {
        key: when for key, when in sent_at.items()
        if key in lasting or (key.partition("|")[0] not in judged and now - when < AGAIN_AFTER)
    }  # fmt: skip
    return {key: when for key, when in sorted({**kept, **dict.fromkeys(arrived, now)}.items())}


# ---- messages to people (by apprise): that there is something, that it is resolved, and a summary of each day. What they know is in the same
# record, under keys of its own

PEOPLE = "@"  # how their keys begin
SUMMARY = "summary"
URGENT = frozenset({"orphan_found", "destroy_pending", "lock_lost", *_BUDGETS})  # these are sent at any hour


class Announcement(t.NamedTuple):
    """One message. ``state``: began, resolved or summary."""

    key: str
    state: str
    subject: str
    text: str


def known_to_people(memory: t.Mapping[str, datetime]) -> tuple[dict[str, datetime], dict[str, datetime]]:
    """What the record says of receivers of notices, and of people."""
    theirs = {key.removeprefix(PEOPLE): when for key, when in memory.items() if key.startswith(PEOPLE)}
    return {key: when for key, when in memory.items() if not key.startswith(PEOPLE)}, theirs


def begun(
    notices: t.Iterable[Notice], known: t.Mapping[str, datetime], now: datetime, *, quiet: bool, reminded: bool
) -> list[Announcement]:
    """Notices of which people do not know yet; those that last also after each day where they are ``reminded``. In ``quiet`` hours only
    urgent ones: the others wait."""
    sent_at = known if reminded else dict.fromkeys(known, now)
    return [
        Announcement(notice.key, "began", notice.subject, notice.text)
        for notice in due(notices, sent_at, now)
        if not quiet or notice.kind in URGENT
    ]


def resolved(
    notices: t.Iterable[Notice], known: t.Mapping[str, datetime], judged: t.Collection[str], *, quiet: bool
) -> list[Announcement]:
    """Notices that people know of and that a plan that could see them does not see any more. None in ``quiet`` hours."""
    lasting = {notice.key for notice in notices}
    ended = [key for key in known if key not in lasting and key.partition("|")[0] in judged and not quiet]
    return [
        Announcement(
            key,
            "resolved",
            key.partition("|")[2],
            f"It is resolved. It was first reported at {known[key]:%Y-%m-%d %H:%M} UTC.",
        )
        for key in sorted(ended)
    ]


def summary(
    claims: t.Iterable[Claim], notices: t.Iterable[Notice], known: t.Mapping[str, datetime], last: datetime
) -> list[Announcement]:
    """Of the day, once after the moment ``last``: what is rented, what it costs, and which notices last."""
    if SUMMARY in known and known[SUMMARY] >= last:
        return []
    pools: dict[str, list[Claim]] = {}
    for claim in sorted(claims, key=lambda one: one.name):
        if counts(claim) and may_have_instance(claim) and claim.gone_since is None:
            pools.setdefault(claim.pool, []).append(claim)
    rented = [
        f"{name}: {len(mine)} machine{'s' * (len(mine) > 1)}, ${sum(claim.price for claim in mine)}/h, "
        f"{sum(claim.idle_since is not None for claim in mine)} idle."
        for name, mine in sorted(pools.items())
    ]
    lasting = [f"{notice.kind}: {notice.text}" for notice in notices]
    total = sum((claim.price for mine in pools.values() for claim in mine), Decimal(0))
    number = sum(map(len, pools.values()))
    lines = [*(rented or ["No machine."]), *(lasting or ["Nothing is wrong."])]
    return [Announcement(SUMMARY, SUMMARY, f"{number} machine{'s' * (number != 1)}, ${total}/h", "\n".join(lines))]


def people_know(
    notices: t.Iterable[Notice],
    known: t.Mapping[str, datetime],
    arrived: t.Iterable[Announcement],
    judged: t.Collection[str],
    now: datetime,
) -> dict[str, datetime]:
    """What people know after this run. What is resolved and did not arrive is sent by a later run; what nobody looked for is forgotten after
    a day, as above."""
    lasting, words = {notice.key for notice in notices}, list(arrived)
    ended = {word.key for word in words if word.state == "resolved"}
    kept = {
        key: when for key, when in known.items()
        if key not in ended and (key in lasting or key == SUMMARY or key.partition("|")[0] in judged or now - when < AGAIN_AFTER)
    }  # fmt: skip
    return {**kept, **{word.key: now for word in words if word.state != "resolved"}}


# ---- claims that exist and cannot be read: each concerns the machine of its own name and the limits, nothing else (L-2, L-16, L-22).
# What has such a name is not an orphan, is never adopted and never ended, and its name is not used again. It counts against limits: by what
# the cloud's list says of its machine, and while no list says that, nothing is launched of its class


def tell(draft: Draft) -> None:
    """Each is a failure of the run, and a notice."""
    for damaged in draft.situation.damaged.values():
        text = (
            f"{damaged.name}: its claim ({damaged.where}) cannot be read: {damaged.problem}. "
            "Nothing is done with its machine, Node and mesh device. "
            "Repair the claim, or delete it once its machine is gone from the provider's console."
        )
        draft.failures.append(text)
        draft.notice("records", damaged.name, text, where=damaged.where)


def pool(damaged: DamagedClaim, situation: Situation) -> Pool | None:
    """The pool of the claim's machine: as found beside the claim, else the only one that its name fits."""
    if damaged.pool in situation.pool_by_key:
        return situation.pool_by_key[damaged.pool]
    named = [candidate for candidate in situation.pools if pool_part(candidate.name) == pool_of(damaged.name)]
    return named[0] if len(named) == 1 and not damaged.pool else None


def stand_ins(situation: Situation) -> list[Claim]:
    """What counts against limits and budgets for those whose machine a cloud lists with its price and size."""
    claims = []
    for damaged in situation.damaged.values():
        for instance in _machines(damaged, situation):
            claim, its_pool = adopt(instance, situation.nodes_by_name.get(damaged.name), situation), pool(damaged, situation)
            node_class = its_pool.node_class if its_pool else damaged.node_class or claim.node_class
            claims.append(dataclasses.replace(claim, pool=its_pool.key if its_pool else claim.pool, node_class=node_class))
    return claims


def pauses(node_class: NodeClass, situation: Situation) -> str:
    """Why nothing may be launched of the class: a machine of it, of unknown price and size, may exist, or its address in the tunnel is
    unknown. Empty when there is no such claim."""
    for damaged in situation.damaged.values():
        if node_class.mesh.hub_place is not None:
            return f"claim {damaged.name} cannot be read, and with it the address of its machine in the tunnel"
        if _machines(damaged, situation) or damaged.name in situation.machines:
            continue  # own machines are known from their documents; one that is off costs nothing
        its_pool = pool(damaged, situation)
        its_class = its_pool.node_class if its_pool else damaged.node_class
        if its_class in ("", node_class.name):
            return f"claim {damaged.name} cannot be read, and no provider lists its machine"
    return ""


def _machines(damaged: DamagedClaim, situation: Situation) -> list[Instance]:
    """Listed machines of the claim of which price and number of GPUs are known."""
    return [
        instance
        for instance in situation.listed()
        if (
            instance.id in damaged.ids or (instance.name == damaged.name and situation.ownership(instance) is not Ownership.FOREIGN)
        )
        and (not situation.rented(instance.cloud) or (instance.price_hour is not None and instance.gpu_count is not None))
    ]
