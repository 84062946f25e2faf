# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold once nothing fails any more (L-24): everything is given back and booked, what is asked for comes, and who finds nothing
to do does nothing."""

from __future__ import annotations

import collections
import re
import typing as t
from datetime import timedelta
from decimal import Decimal

from sandbox.world import Machine

from . import images, migrating, moving, objects, own, strangers, switches
from .purse import Purse, minute_more, spent
from .sight import Sight, pool_in
from .stage import Order, Outcome, Stage

PAUSE = 660.0  # seconds: longer than a create call may stay unexplained (L-2), and than a list may lack a machine
_MOST_RUNS = 14  # reaps until everything has to be gone
_BLOCKS_END = 4000.0  # seconds until every block and every pause of a pool is over


class Unsettled(AssertionError):
    """An invariant that is judged at rest does not hold."""


def need(problem: str) -> None:
    if problem:
        raise Unsettled(problem)


# ---- the invariants


def I02_every_id_is_on_record(sight: Sight) -> str:
    """Two runs after the last fault each living machine is in a claim or in the ledger; one whose claim was removed by hand is an orphan."""
    claimed = {one for claim in sight.claims().values() for one in claim["ids_seen"]} | set(sight.claims())
    booked = {one for line in sight.ledger() for one in line["ids"]} | sight.forgotten
    lost = [one for one in sight.living() if not {one.id, one.name} & (claimed | booked)]
    return f"I-2: on no record: {', '.join(f'{one.name} ({one.id})' for one in lost)}" if lost else ""


def I02_each_id_has_one_line(sight: Sight) -> str:
    """Own machines, whose ids come again and again, have a line for each time (I-13)."""
    ids = [one for line in sight.ledger() for one in line["ids"] if one not in own.NAMES and not sight.moved.is_moved(one)]
    counts = collections.Counter(ids)
    made = {one.id for one in sight.made() if not own.is_own(one) and not sight.moved.is_moved(one.id)}
    may_lack = sight.by_hand | {one.id for one in sight.made() if one.name in sight.forgotten}
    wrong = [one for one in made | set(counts) if counts[one] != 1 and (counts[one] or one not in may_lack) or one not in made]
    return f"I-2: not exactly once in the ledger: {', '.join(f'{one} ({counts[one]}×)' for one in sorted(wrong))}" if wrong else ""


def I03_strangers_are_left_alone(missing: t.Sequence[str]) -> str:
    return f"I-3: not ours and gone: {', '.join(missing)}" if missing else ""


def I10_nothing_is_left(left: t.Mapping[str, int], holder: str) -> str:
    if left:
        return f"I-10: left: {', '.join(f'{number} {what}' for what, number in left.items())}"
    return f"I-10: the lock is still held by {holder}" if holder else ""


def I11_what_is_wanted_is_there(wanted: int, ready: int) -> str:
    return f"I-11: {ready} of {wanted} machines that limits allow are Ready" if ready < wanted else ""


def I09_nothing_to_do_is_done(writes: t.Sequence[str]) -> str:
    return f"I-9: nothing had changed, and this was written: {', '.join(writes[:5])}" if writes else ""


def I08_the_plan_is_fulfilled(outcomes: t.Sequence[Outcome]) -> str:
    plans = [one.said.get("plan") or {} for one in outcomes]
    again = [str(row) for plan in plans for row in [*plan.get("launch", []), *plan.get("destroy", []), *plan.get("orphans", [])]]
    return f"I-8: after the plan was carried out it wants again: {', '.join(again)}" if again else ""


def _is_unseen(sight: Sight, machine: Machine) -> bool:
    """Where GPUs are billed apart from the disk (Vast.ai): since when they ran is told by nothing once the machine is dead or its container
    has ended, and noted by nothing while its claim cannot be written, or is removed by hand."""
    dead = "struck" in machine.details or machine.details.get("phase") == "exited"
    return machine.cloud == "vast" and (dead or machine.name in sight.forgotten | sight.unwritable)


_MICRO = Decimal("0.000001")  # dollars an hour, to which prices are read


def bounds_of(line: t.Mapping[str, t.Any]) -> tuple[Decimal, Decimal]:
    """Between which amounts the bill for a line lies by its own words; a minute for each machine above it where it has none. Of machines
    whose price changes the world bills parts of a second, and a ledger whole ones."""
    if line.get("cost_least") is None:
        unit, cost = Decimal(line["price_hour"]) / 60 * max(1, len(line["ids"])), Decimal(line["cost"])
        return Decimal(0), cost + unit
    dust = _MICRO * (Decimal(line["seconds"]) / 3600 + 1)
    part = Decimal(line["price_hour"]) / 3600 if line["granularity"] == 1 else Decimal(0)
    return Decimal(line["cost_least"]) - dust - part, Decimal(line["cost_most"]) + dust


def I13_the_bill_is_theirs(sight: Sight, *, strict: bool) -> tuple[str, Decimal, Decimal]:
    """What the world billed for a line of the ledger lies between the bounds that the line names. Besides, the line is above the bill by a
    started minute for each machine at most, but for time in which nobody could know that the machine was gone (``strict`` False). A minute
    more may begin a unit that is billed whole: a ledger counts from the create call until the machine is seen to be gone. The problem,
    their bill, ours."""
    now, machines, problem = sight.now, sight.by_id(), ""
    theirs, ours = Decimal(0), Decimal(0)
    for line in [one for one in sight.ledger() if not set(one["ids"]) & {*own.NAMES, *sight.moved.times}]:
        real = sum((machines[one].cost(now) for one in line["ids"] if one in machines), Decimal(0))
        unit = Decimal(line["price_hour"]) / 60 * max(1, len(line["ids"]))
        over = Decimal(line["cost"]) - real
        more = max(unit, sum((minute_more(machines[one], now) for one in line["ids"] if one in machines), Decimal(0)))
        unseen = any(one in machines and _is_unseen(sight, machines[one]) for one in line["ids"])
        least, most = bounds_of(line)
        apart = not least <= Decimal(line["cost"]) <= most
        if ((apart or not least <= real <= most) and not unseen) or (strict and over > more):
            told = f"${line['cost']} (${least} to ${most})"
            problem = problem or f"I-13: {line['name']} ({line['reason']}) is booked at {told}, billed were ${real}"
        theirs, ours = theirs + real, ours + Decimal(line["cost"])
    return problem, theirs, ours


def I16_a_used_up_budget_ends(action: str, before: int, living: int, *, services: bool) -> str:
    """Of machines that minNodes would keep, after runs of ``reap``: nodes without work are idle, services whose use nobody measures never."""
    stays = action == "stop_launch" or (action == "drain_idle" and services)
    return (
        "" if living == (before if stays else 0) else f"I-16: the budget is used up, {action}: {living} of {before} machines live"
    )


def I21_a_machine_without_document_ends(sight: Sight, living: t.Sequence[str]) -> str:
    """After a source was read often enough without a pool's document, the pool's machines are gone."""
    left = [name for name in living if pool_in(name) in sight.vanished and name not in sight.forgotten]
    return f"I-21: their documents are gone, and they live: {', '.join(left)}" if left else ""


def I29_a_deleted_object_goes(held: t.Sequence[str]) -> str:
    """Once its machines had time to end."""
    return f"I-29: deleted, and still held by our finalizer: {', '.join(held)}" if held else ""


def I31_a_deleted_claim_ends_its_machine(sight: Sight, living: t.Sequence[str]) -> str:
    left = sorted((sight.deleted_claims - sight.forgotten) & set(living))
    return f"I-31: their claims were deleted, and they live: {', '.join(left)}" if left else ""


def I22_a_plan_that_was_applied_is_done(outcomes: t.Sequence[Outcome], made: int) -> str:
    """Nothing changed outside: no next plan wants anything, and no machine comes that nobody asked for."""
    specs = [
        f"{one.order.playbook} {what} {name}"
        for one in outcomes
        for what in ("launch", "destroy")
        for name in (one.said.get("plan") or {}).get(what, [])
    ]
    if made:
        return f"I-22: {made} machines were launched again in a world that had not changed"
    return f"I-22: after the plan was applied the next ones want: {', '.join(specs)}" if specs else ""


def I24_all_bills_agree(sight: Sight, extras: Decimal, *, strict: bool) -> str:
    """Everything the world billed for what we made, disks, premiums and what lies in accounts included, is what the ledger says in all;
    traffic is compared as an item of its own."""
    now, booked = sight.now, {one for line in sight.ledger() for one in line["ids"]}
    mine = [one for one in sight.made() if one.id in booked and not own.is_own(one) and not sight.moved.is_moved(one.id)]
    theirs = sum((one.cost(now) for one in mine), extras)
    others = {*own.NAMES, *sight.moved.times}  # judged by I-13 and I-39
    lines = [line for line in sight.ledger() if not set(line["ids"]) & others]
    ours = sum((Decimal(line["cost"]) for line in lines), Decimal(0))
    least, most = (sum((bounds_of(line)[side] for line in lines), Decimal(0)) for side in (0, 1))
    more = sum((max(one.price_hour / 60, minute_more(one, now)) for one in mine), Decimal(0))
    unseen = sum((one.cost(now) for one in mine if _is_unseen(sight, one)), Decimal(0))
    apart = not least <= ours <= most or not least - unseen <= theirs <= most + unseen
    if apart or (strict and ours > theirs + more):
        return f"I-24: the ledger says ${ours:.4f} in all (${least:.4f} to ${most:.4f}), billed were ${theirs:.4f}"
    traffic, told = I24_traffic(sight)
    return f"I-24: by the ledger's prices per GB traffic costs ${told:.4f}, billed were ${traffic:.4f}" if traffic != told else ""


def I24_traffic(sight: Sight) -> tuple[Decimal, Decimal]:
    """An item of its own: no cloud lists how many GB there were, so the ledger has the prices per GB of a machine's offer and no amount. What
    the world billed for traffic, and what its GB cost at those prices. Lines of machines whose offer is not known name none."""
    machines, theirs, ours = sight.by_id(), Decimal(0), Decimal(0)
    for line in sight.ledger():
        down, up = line.get("traffic_price_gb_down"), line.get("traffic_price_gb_up")
        if down is None or up is None:
            continue
        for one in [machines[number] for number in line["ids"] if number in machines]:
            theirs += one.traffic_cost()
            ours += one.down_gb * Decimal(down) + one.up_gb * Decimal(up)
    return theirs, ours


# ---- coming to rest


def settle(stage: Stage, *, blind: bool, unclean: bool) -> tuple[Decimal, Decimal]:
    """From wherever the story left the world to its end; their bill and ours."""
    sight, services = stage.sight, bool(stage.ground.pool)
    if (sight.vanished or sight.deleted_claims) and switches.on("I-21"):
        _forsaken(stage)
    stage.restore_documents()
    if sight.mesh and switches.on("I-37"):
        _migrated(stage)
    moving.finish(stage)
    _empty(stage, "destroy" if services else "reap")
    stage.rest(_BLOCKS_END)
    _next_day(stage)
    wanted = _affordable(stage)
    _comes(stage, wanted)
    stage.rest(60)
    _still(stage, Order("provision", nodes=wanted))
    _forget(stage)
    _still(stage, Order("reap"))
    if switches.on("I-22"):
        _applied(stage, wanted)
    if sight.purse is not None:
        _overspend(stage, sight.purse, wanted)
    _empty(stage, "destroy")
    need(I02_each_id_has_one_line(sight))
    need(I10_nothing_is_left({kind: number for kind, number in images.left(stage).items() if number}, ""))
    _forget(stage)
    _still(stage, Order("reap"))
    problem, theirs, ours = I13_the_bill_is_theirs(sight, strict=not blind and not unclean)
    total = I24_all_bills_agree(sight, stage.extras(), strict=not blind and not unclean) if switches.on("I-24") else ""
    own_problem, own_theirs, own_ours = own.I13_each_machine_is_booked(sight, strict=not blind and not unclean)
    theirs, ours = theirs + own_theirs, ours + own_ours
    need("\n".join(filter(None, (problem, total, own_problem))))
    need(moving.I39_its_bill_is_that_of_its_time(sight) if switches.on("I-39") else "")
    need(I03_strangers_are_left_alone(strangers.missing(stage, stage.strangers)))
    return theirs, ours


def _migrated(stage: Stage) -> None:
    """I-37: runs of ``migrate``, one a minute, until each machine of the pool has moved or stays for a reason."""
    sight = stage.sight
    stage.training["minNodes"] = 1  # so that one is there at the end, and idle ones do not hide it
    problem = ""
    for _turn in range(migrating.PASSES):
        (outcome,) = stage.perform(Order("migrate", wait=True))
        found = (outcome.said.get("plan") or {}).get("migration") or {}
        claims = sight.claims()
        ready = {name for name, claim in claims.items() if claim["phase"] == "Ready" and not claim.get("deletion")}
        machines = [
            (one.name, migrating.entered(one))
            for one in sight.living()
            if one.name in ready and pool_in(one.name) == migrating.POOL and not sight.moved.is_moved(one.id)
        ]
        problem = migrating.I37_a_migration_ends(found.get("machines", []), machines, sight.mesh)
        if found and not found["under_way"] and not sight.holder() and not problem:
            break  # a record that this run has mended is seen by the next one
        stage.rest(60)
    need(problem)
    stage.training.pop("minNodes")
    migrating.tidy(stage)


def _forsaken(stage: Stage) -> None:
    """Runs of ``reap`` every five minutes, until every machine without a document has had its ten minutes and its drain, and every deleted
    object has gone. Where its document said Keep, one that nothing limits stays: containers that serve, whose use nobody measures."""
    sight = stage.sight
    for _turn in range(9):
        asked = sight.deleted_claims - sight.forgotten
        if not any(pool_in(one.name) in sight.vanished or one.name in asked for one in sight.living()) and not objects.held(sight):
            return
        stage.perform(Order("reap"))
        stage.rest(300)
    need(I31_a_deleted_claim_ends_its_machine(sight, [one.name for one in sight.living()]))
    if stage.ground.pool and sight.kept:
        return
    need(I21_a_machine_without_document_ends(sight, [one.name for one in sight.living()]))
    need(I29_a_deleted_object_goes(objects.held(sight)))


def _applied(stage: Stage, wanted: int) -> None:
    """I-22: with ``wanted`` machines that a number asked for a moment ago, then on and on without anybody asking."""
    stage.perform(Order("plan", nodes=wanted))
    stage.perform(Order("apply"))
    modes = ("everything", "provision", "autoscale", "reap")
    outcomes = [one for mode in modes for one in stage.perform(Order(mode, nodes=wanted, check=True))]
    need(I22_a_plan_that_was_applied_is_done(outcomes, 0))
    if stage.ground.pool:
        return  # services go by their own probes only
    for _round in range(2):
        before = len(stage.sight.made())
        for order in (Order("plan", nodes=0), Order("apply"), Order("reap")):
            stage.perform(order)
        stage.rest(1200)
    need(I22_a_plan_that_was_applied_is_done((), len(stage.sight.made()) - before))


def _affordable(stage: Stage) -> int:
    """How many machines limits and budget surely allow: as if each were the dearest."""
    limits, purse = stage.sight.limits, stage.sight.purse
    offers = stage.world.offers or [one.offer for one in stage.world.machines.values() if own.is_own(one)]
    dearest = max(one.price_hour for one in offers) * Decimal("1.3")
    budget = int(purse.amount / dearest) if purse is not None else limits.nodes
    return min(
        2, limits.nodes, max(1, int(limits.cost_hour / dearest)), limits.gpus // max(one.gpu_count for one in offers), budget
    )


def _comes(stage: Stage, wanted: int) -> None:
    for _turn in range(2):
        outcomes = stage.perform(Order("provision", nodes=wanted))
    ready = sum(claim["phase"] == "Ready" for claim in stage.sight.claims().values())
    need(
        I11_what_is_wanted_is_there(wanted, ready)
        + (f": {outcomes[0].end} {outcomes[0].error} {outcomes[0].said}" if ready < wanted else "")
    )


def _next_day(stage: Stage) -> None:
    """Where nothing lives, time may leap to the moment in which a budget begins anew."""
    if stage.sight.purse is not None:
        stage.advance((stage.sight.purse.until(stage.sight.now) - stage.sight.now).total_seconds() + 1)


def _overspend(stage: Stage, purse: Purse, wanted: int) -> None:
    """As many machines as limits and budget allow (I-1, I-15) run until the budget is used up. Then its action has to be done, no other
    machine comes, and what is wanted comes again on the next day. Where the day is too short they are only given back."""
    sight = stage.sight
    stage.perform(Order("provision", nodes=sight.limits.nodes))
    before, rate = len(sight.living()), sum((one.rate() for one in sight.living()), Decimal(0))
    hours = float((purse.amount - spent(sight, purse.since(sight.now))) / rate) if rate else 24.0
    unit = max((one.offer.unit_seconds for one in sight.living()), default=0)
    hours += unit // 3600  # of an hour that has begun all is spent already
    if sight.now + timedelta(hours=hours + 1) > purse.until(sight.now):
        return
    stage.training["minNodes"] = before
    stage.rest(hours * 3600 + 120)
    stage.perform(Order("provision", nodes=before + 1))
    for _turn in range(2):
        stage.perform(Order("reap"))
        stage.rest(30)
    need(I16_a_used_up_budget_ends(purse.action, before, len(sight.living()), services=bool(stage.ground.pool)))
    stage.training.pop("minNodes")
    _empty(stage, "destroy")
    stage.perform(Order("provision", nodes=1))
    need("" if not sight.living() else "I-15: a machine came on a budget that is used up")
    _next_day(stage)
    _comes(stage, wanted)


def _empty(stage: Stage, playbook: str) -> None:
    """Runs, some minutes apart, until nothing is left (I-10). What is only reported, a person ends by hand: a machine without a claim whose
    Node works and does not say whose it is (O3), or that has no Node and may be alive in the mesh (O1); one that was adopted when its document
    was gone already, or at a provider where it got no stamp (O14, L-48)."""
    for turn in range(_MOST_RUNS):
        (outcome,) = stage.perform(Order(playbook if stage.sight.claims() else "reap"))
        if outcome.end == "locked" or (outcome.said.get("plan") or {}).get("outcome") == "lock_busy":
            need("" if turn < 3 else f"I-10: the lock is never free: {stage.sight.holder()}")
        if turn == 3:
            need(I02_every_id_is_on_record(stage.sight))
        if not I10_nothing_is_left(stage.left(), stage.sight.holder()):
            return
        problems = (outcome.said.get("plan") or {}).get("problems", [])
        if any("is the only node of" in one or "are not well; none is removed" in one for one in problems):
            stage.perform(
                Order("destroy")
            )  # all nodes of a pool are dead, and nothing else tells it: this waits for a person (L-12a)
        for row in (outcome.said.get("plan") or {}).get("plan", []):
            left_alone = row["reason"] == "O3" or (row["reason"] == "O1" and re.search("tell|online", row["detail"]))
            left_alone = left_alone or (row["reason"] == "O14" and row["name"] in stage.sight.moved.into.values())
            left_alone = left_alone or "no document describes its pool" in row["detail"]
            if left_alone and row["name"] in stage.sight.forgotten:
                stage.end_by_hand(row["name"])
        stage.rest(PAUSE)
    claims = {name: (one["phase"], one.get("deletion")) for name, one in stage.sight.claims().items()}
    need(f"{I10_nothing_is_left(stage.left(), stage.sight.holder())} after {_MOST_RUNS} runs of {playbook}: {claims} {outcome}")


def _forget(stage: Stage) -> None:
    """Runs until one removes nothing: what was removed, such as a test pod that nobody waits for (O17), is forgotten by the next one."""
    for _turn in range(3):
        (outcome,) = stage.perform(Order("reap"))
        if not outcome.run.acted and not (outcome.said.get("plan") or {}).get("orphans"):
            return


def _still(stage: Stage, order: Order) -> None:
    """I-8 and I-9: the same run once more changes nothing."""
    before = len(stage.writes())
    outcomes = stage.perform(order)
    need(I08_the_plan_is_fulfilled(outcomes))
    need(I09_nothing_to_do_is_done(stage.writes()[before:]))
