# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hands a machine out (L-48): remembered by its id first, so that no run ends it from then on; its marks, its line in the bill, its claim.

If it is killed, the same call continues. The machine keeps running, and its owner pays.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...core.errors import InvalidInput
from ...core.task import Task
from ...kube.nodes import advertise, change
from ...model import Claim, Deletion, HandedOut, Instance, InstanceState, Node
from ...model.labels import PLUGIN_CONFIG_LABEL, POWER_LIMIT_LABEL
from ...model.reasons import Finding
from ...model.resources import NEUTRAL_GPU
from ...observe.context import Context, locked_run
from ...observe.gather import gather
from ...planner.claims import moving
from ...planner.cluster_state import Situation
from ...planner.cost.cost import ledger_line, per_day, tariff
from ...providers.registry import CAPABILITIES
from ...units.values import print_money
from ..launch.payload import take_back_all
from .stamp import former_stamp

_STAY = (PLUGIN_CONFIG_LABEL, POWER_LIMIT_LABEL)  # settings of the GPUs, for whoever uses them


def release_machine(task: Task) -> dict[str, t.Any]:
    """The result of fleet_release for one machine."""
    return locked_run(task, lambda context, writes: _release(context, writes=writes), documents_required=False)


def _release(context: Context, *, writes: bool) -> dict[str, t.Any]:
    task, name = context.task, context.task.params["machine"]
    seen = gather(context, tokens=True)
    situation = Situation(seen, context.specs, context.settings, CAPABILITIES)
    claim = next((one for one in situation.claims if one.name == name), None)
    if claim is None:
        return _without_claim(task, name, situation)
    if problems := moving.against_releasing(claim, situation):
        raise InvalidInput(
            f"{name} cannot be handed out; nothing was changed.", problems=[f"{name}: {problem}." for problem in problems]
        )
    listed = situation.instances(claim.cloud)
    if listed is None:
        raise InvalidInput(f"{name} cannot be handed out: the machines of {claim.cloud} could not be listed.")
    work = _Release(context, situation, claim, listed.by_id[claim.instance_id])
    lines = work.lines()
    for line in lines:
        task.progress(f"  {name}: {line if writes else f'would be: {line}'}")
    if writes:
        work.run()
    context.warn(_costs(claim, situation))
    result: dict[str, t.Any] = {"changed": True, "objects": [], "machines": [name]}
    if task.diff_mode:
        result["diff"] = {
            "before": f"{name}: {claim.cloud} {claim.instance_id}, {claim.pool}\n",
            "after": "".join(f"{line}\n" for line in lines),
        }
    return result


def _without_claim(task: Task, name: str, situation: Situation) -> dict[str, t.Any]:
    if name in situation.damaged:
        raise InvalidInput(
            f"{name}: its claim cannot be read, so it is not handed out.", problems=[situation.damaged[name].problem]
        )
    if situation.seen.claims is None or name not in situation.released_names:
        raise InvalidInput(
            f"{task.called('machine')} must be the name of a machine of this cluster, got {name!r}.",
            remedy="status.yml lists them.",
        )
    task.progress(f"  {name} was handed out already.")
    return {"changed": False, "objects": [], "machines": [], **({"diff": {"before": "", "after": ""}} if task.diff_mode else {})}


def _costs(claim: Claim, situation: Situation) -> str:
    pool = situation.in_force(claim)
    again = ""
    if pool is not None and (pool.min_nodes or pool.replicas):
        again = f" {claim.pool} asks for {situation.floor_words(pool)}: without this machine the next run may rent another."
    return (
        f"{claim.name} ({claim.cloud} {claim.instance_id}) runs on and costs {print_money(claim.price)} $/h, "
        f"{print_money(per_day(claim.price))} $ a day. No run of this cluster ends it any more: its owner has to, at {claim.cloud}.{again}"
    )


class _Release:
    """The steps for one machine, each of which finds out by itself whether it was done."""

    def __init__(self, context: Context, situation: Situation, claim: Claim, instance: Instance) -> None:
        self._context, self._claim, self._instance = context, claim, instance
        self._kept = moving.kept(situation.seen.released, situation)
        self._entry = next((one for one in self._kept if (one.cloud, one.id) == (claim.cloud, claim.instance_id)), None)
        node = situation.node(claim)
        self._node: Node | None = node if node is not None and node.uid == claim.node_uid else None
        self._marks = moving.own_marks(self._node, _STAY) if self._node is not None else ({}, {}, ())
        self._stamp = former_stamp(claim, instance)

    def lines(self) -> list[str]:
        """What is different afterwards, in words."""
        claim, node = self._claim, self._node
        lines = [] if self._entry else [f"{claim.cloud} {claim.instance_id} is on the list of machines that were handed out"]
        labels, annotations, taints = self._marks
        if node is not None and (labels or annotations or taints):
            keys = ", ".join((*labels, *(key for key in annotations if key not in labels), *(f"taint {key}" for key in taints)))
            lines.append(f"Node {node.name} stays without {keys}")
        if self._stamp is not None:
            lines.append(f"{claim.cloud} {claim.instance_id}: {self._stamp.text}")
        elif self._instance.marks:
            lines.append(f"{claim.cloud} cannot change its stamp; it stays, and no longer means anything")
        return [*lines, "its line in the bill is closed, and its claim is removed"]

    def run(self) -> None:
        context, claim = self._context, self._claim
        context.lock.confirm()
        entry = self._entry
        if entry is None:
            entry = HandedOut(claim.cloud, claim.instance_id, claim.name, context.clocks.billed_now().replace(microsecond=0))
            context.records.write_released((*self._kept, entry))
        self._unmark()
        if self._stamp is not None:
            context.lock.confirm()
            self._stamp.write(context.clients.cloud(claim.cloud), claim.instance_id)
        context.lock.confirm()
        take_back_all(context, claim)
        self._close(entry)

    def _unmark(self) -> None:
        labels, annotations, taints = self._marks
        if self._node is None:
            return
        self._context.lock.confirm()
        offering = advertise(self._context.kube, self._node, NEUTRAL_GPU, 0)
        change(
            self._context.kube,
            self._node.name,
            uid=self._node.uid,
            labels=labels,
            annotations=annotations,
            remove_taints=taints,
            base=offering,
        )

    def _close(self, entry: HandedOut) -> None:
        context, facts = self._context, CAPABILITIES[self._claim.cloud]
        running = entry.time if self._instance.state is InstanceState.RUNNING else None
        ended = dataclasses.replace(self._claim, deletion=Deletion(Finding.RELEASED, entry.time, seen_running=running))
        line = ledger_line(ended, end=entry.time, alive=entry.time, **tariff(facts))
        context.lock.confirm()
        context.store.ledger(line)
        context.store.remove(self._claim)
        context.records.forget(self._claim)
        context.progress.step(self._claim.name, "released", f"cost ${line['cost']}", since=self._claim.launch_started)
