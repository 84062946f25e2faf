# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Takes machines in that a person made by hand (L-48): claim, marks of the Node, name and stamp at the cloud, in this order.

The claim comes first: from then on the machine is ours by its id, and killed anywhere, the next run of any kind goes on from it. A stamp
without a claim would make it an orphan.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core.errors import InvalidInput
from ...core.task import Task
from ...model import Claim, Instance, Node, Observation, Pool
from ...model.names import draw
from ...observe.context import Context, locked_run
from ...observe.gather import gather
from ...planner.claims import moving
from ...planner.claims.moving import Arrival
from ...planner.cluster_state import Situation
from ...planner.provisioning.registration import deadline, drift
from ...providers.registry import CAPABILITIES, ENTRIES, canonical_cloud, cloud_suggestions
from ...units.values import print_time
from ..join.node_sync import Drifted, repair_all
from .stamp import Stamp, stamp_of_claim


class Wanted(t.NamedTuple):
    """A machine that is to be adopted into ``pool`` (a name, or "namespace/name"). ``node``: its Node, empty = found by its name. ``why``: what
    its claim records of where it is from."""

    pool: str
    cloud: str
    id: str
    node: str = ""
    why: str = moving.BY_HAND


@dataclasses.dataclass(frozen=True)
class Step:
    """What is done about one machine. ``claim`` is as it is or will be; ``new``: nothing is recorded of it yet."""

    arrival: Arrival
    claim: Claim
    new: bool
    marks: tuple[str, ...]
    stamp: Stamp | None
    listed_as_released: bool

    @property
    def changes(self) -> bool:
        return bool(self.new or self.marks or self.stamp or self.listed_as_released)

    def lines(self) -> list[str]:
        """What would be different, in words."""
        claim, instance = self.claim, self.arrival.instance
        lines = []
        if self.new:
            lines.append(
                f"claim {claim.name} ({claim.pool}) at {claim.price} $/h from now on, for {claim.cloud} {claim.instance_id}"
            )
        if self.marks and self.arrival.node is not None:
            lines.append(f"Node {self.arrival.node.name}: {', '.join(self.marks)}")
        if self.stamp is not None:
            lines.append(f"{claim.cloud} {instance.id}: {self.stamp.text}")
        if self.listed_as_released:
            lines.append(f"{claim.cloud} {instance.id}: taken off the list of machines that were handed out")
        return lines


def adopt_machine(task: Task) -> dict[str, t.Any]:
    """The result of fleet_adopt for one machine. Without ``apply`` nothing is changed."""
    params = task.params
    missing = [name for name in ("pool", "provider", "id") if not params[name]]
    if missing:
        raise InvalidInput(
            f"{', '.join(task.called(name) for name in missing)} must be given, too, to adopt one machine.",
            remedy="Give the pool, the provider and the id that the provider shows of the machine.",
        )
    if params["generation"]:
        raise InvalidInput(
            f"{task.called('generation')} takes over all machines of a store, and {task.called('id')} means one. Give one of them."
        )
    wanted = Wanted(params["pool"], cloud_of(task, params["provider"]), params["id"].strip(), (params["node"] or "").strip())
    return locked_run(task, lambda context, writes: _adopt(context, wanted, writes=writes), apply=bool(params["apply"]))


def cloud_of(task: Task, name: str) -> str:
    """The provider that a person means."""
    found = canonical_cloud(name)
    if found is None:
        near = cloud_suggestions(name)
        raise InvalidInput(
            f"{task.called('provider')} must be a provider, got {name!r}.",
            remedy=f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(ENTRIES)}.",
        )
    return found


def _adopt(context: Context, wanted: Wanted, *, writes: bool) -> dict[str, t.Any]:
    found = examine_all(context, gather(context, ledger=True), [wanted], writes=writes)
    if found.problems:
        problems = [f"{one.cloud} {one.id}: {problem}." for one, texts in found.problems.items() for problem in texts]
        raise InvalidInput("Nothing was adopted and nothing was changed.", problems=problems)
    return carry_out(context, list(found.steps.values()), apply=bool(context.task.params["apply"]), writes=writes)


@dataclasses.dataclass(frozen=True)
class Examined:
    """What is to be done about each machine, or everything that speaks against adopting it."""

    steps: dict[Wanted, Step] = dataclasses.field(default_factory=dict)
    problems: dict[Wanted, list[str]] = dataclasses.field(default_factory=dict)


def examine_all(context: Context, seen: Observation, wanted: t.Sequence[Wanted], *, writes: bool) -> Examined:
    """Examine all before the first is changed. A generation is drawn when there is none, something is to be done, and ``writes``."""
    generation = next(iter(context.records.generations()), "")
    found = _examine_each(context, seen, wanted, generation)
    if writes and found.steps and not generation:
        found = _examine_each(context, seen, wanted, context.records.draw_generation())
    return found


def _examine_each(context: Context, seen: Observation, wanted: t.Sequence[Wanted], generation: str) -> Examined:
    """The limits count, for each machine, those before it."""
    found = Examined()
    for one in wanted:
        claims = None if seen.claims is None else (*seen.claims, *(step.claim for step in found.steps.values() if step.new))
        situation = Situation(dataclasses.replace(seen, claims=claims), context.specs, context.settings, CAPABILITIES)
        result = _examine(one, situation, generation)
        if isinstance(result, Step):
            found.steps[one] = result
        else:
            found.problems[one] = result
    return found


def carry_out(context: Context, steps: t.Sequence[Step], *, apply: bool, writes: bool) -> dict[str, t.Any]:
    """The result of fleet_adopt for these machines, which are changed if ``writes``."""
    task, changed = context.task, [step for step in steps if step.changes]
    for step in steps:
        _say(context, step, apply=apply, writes=writes)
        if writes and step.changes:
            _do(context, step)
    if changed and not apply:
        task.progress(f"  Nothing is changed. To adopt, run it again with {task.called('apply')}=true.")
    result: dict[str, t.Any] = {
        "changed": bool(changed and apply),
        "machines": [_row(step) for step in steps],
        "adopted": [step.claim.name for step in steps if apply],
    }
    if task.diff_mode:
        before = "".join(f"{step.arrival.instance.cloud} {step.arrival.instance.id}: not as below\n" for step in changed)
        result["diff"] = {"before": before, "after": "".join(f"{line}\n" for step in changed for line in step.lines())}
    return result


def _row(step: Step) -> dict[str, t.Any]:
    claim, node = step.claim, step.arrival.node
    return {
        "name": claim.name,
        "pool": claim.pool,
        "cloud": claim.cloud,
        "id": claim.instance_id,
        "node": node.name if node is not None else "",
        "price_hour": str(claim.price),
        "changes": step.lines(),
    }


# ---- what is to be done


def _examine(wanted: Wanted, situation: Situation, generation: str) -> Step | list[str]:
    pool = _pool(wanted.pool, situation)
    if isinstance(pool, str):
        return [pool]
    if not situation.rented(wanted.cloud):
        return [f"{wanted.cloud}: own machines are not adopted; write the machine into the class"]
    if why := moving.unreadable(wanted.cloud, situation):
        return [f"it is unknown whether it may be adopted: {why}"]
    listed = situation.instances(wanted.cloud)
    instance = listed.by_id.get(wanted.id) if listed is not None else None
    if instance is None:
        delay = CAPABILITIES[wanted.cloud].list_delay
        return [f"{wanted.cloud} lists no machine with this id (a new one may be missing for {delay} s)"]
    node = _node(wanted, instance, situation)
    if isinstance(node, str):
        return [node]
    known = moving.record_of(instance, situation)
    arrival = Arrival(instance, node, pool, ENTRIES[wanted.cloud].regions, wanted.why)
    if known is not None:
        if not moving.is_by_hand(known) or known.pool != pool.key or known.deletion is not None:
            return [f"it is {known.name} of pool {known.pool} already"]
        return _step(arrival, known, situation, new=False)
    if problems := moving.against_adopting(arrival, situation):
        return list(problems)
    lines = situation.seen.ledger.lines if situation.seen.ledger is not None else ()
    taken = situation.taken_names | situation.released_names | {line.name for line in lines}  # a name has one line in the bill
    name = draw(situation.seen.cluster_id, pool.key, f"{instance.cloud}/{instance.id}", taken)
    claim = dataclasses.replace(moving.taken_in(arrival, name, situation), store_generation=generation)
    return _step(arrival, claim, situation, new=True)


def _pool(name: str, situation: Situation) -> Pool | str:
    pools = [pool for pool in situation.specs.pools if not pool.request and name in (pool.key, pool.name)]
    if len(pools) == 1:
        return pools[0]
    if pools:
        return f"{len(pools)} pools are called {name}; write namespace/name"
    there = ", ".join(sorted(pool.key for pool in situation.specs.pools)) or "none"
    return f"there is no pool {name} among the documents (there are: {there})"


def _node(wanted: Wanted, instance: Instance, situation: Situation) -> Node | None | str:
    if wanted.node:
        return situation.nodes_by_name.get(wanted.node) or f"there is no Node {wanted.node}"
    known = moving.record_of(instance, situation)
    return situation.node(known) if known is not None else situation.nodes_by_name.get(instance.name)


def _step(arrival: Arrival, claim: Claim, situation: Situation, *, new: bool) -> Step:
    marks = () if arrival.node is None else drift(claim, arrival.node, arrival.pool, situation.seen.cluster_id)
    released = (claim.cloud, claim.instance_id) in situation.store.released
    stamp = stamp_of_claim(claim, arrival.instance, situation.seen.cluster_id)
    return Step(arrival, claim, new, marks, stamp, released)


# ---- doing it


def _do(context: Context, step: Step) -> None:
    claim, instance = step.claim, step.arrival.instance
    if step.new:
        context.lock.confirm()
        claim = context.store.write(claim)
        context.records.remember(claim)
        context.progress.step(
            claim.name, "adopted", f"{claim.cloud} {claim.instance_id}, {claim.pool}", price_hour=claim.price, cloud=claim.cloud
        )
    if step.marks and step.arrival.node is not None:
        context.lock.confirm()
        (repaired,) = repair_all(context, [Drifted(claim, step.arrival.node, step.arrival.pool, step.marks)])
        if repaired.problem:
            raise InvalidInput(f"{claim.name} is recorded, and {repaired.message}", remedy="Run it again: it goes on from here.")
    if step.stamp is not None:
        context.lock.confirm()
        step.stamp.write(context.clients.cloud(claim.cloud), instance.id)
    if step.listed_as_released:
        context.lock.confirm()
        left = [one for one in context.records.released() if (one.cloud, one.id) != (claim.cloud, claim.instance_id)]
        context.records.write_released(left)


def _say(context: Context, step: Step, *, apply: bool, writes: bool) -> None:
    say, claim, arrival = context.task.progress, step.claim, step.arrival
    if not step.changes:
        say(f"  {claim.name}: {claim.cloud} {claim.instance_id} is adopted already.")
        return
    say(f"  {claim.name}: {moving.described(claim.offer)} {'is' if writes else 'would be'} adopted into {claim.pool}")
    for line in step.lines():
        say(f"    {line}")
    if not step.new:
        return
    if arrival.node is None:
        ends = deadline(claim, arrival.pool, CAPABILITIES[claim.cloud])
        until = print_time(ends) if ends else "soon"
        context.warn(
            f"{claim.name} has no Node. Let it join as Node {claim.name} until {until}; later it is terminated as a failed join."
        )
    elif not (proof := moving.proof_of(arrival)):
        context.warn(
            f"Nothing but you says that Node {arrival.node.name} runs on {claim.cloud} {claim.instance_id}: neither its name nor its addresses "
            "are those of the machine."
        )
    else:
        say(f"    Node {arrival.node.name} runs on it: {proof}")
    say(f"    The rules of {claim.pool} hold for it from now on: when it is idle or expires, it is terminated.")
