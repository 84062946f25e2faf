# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orphans (L-12): machines, Nodes, mesh devices and keys of ours without a claim.

Case numbers O1 … O15 are those of docs/reference/rules.md.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...model import Action, Device, Instance, InstanceState, MeshKey, Node
from ...model.labels import DRAIN_STARTED_ANNOTATION, INSTANCE_ID_LABEL, PROVIDER_LABEL, PROVISIONED_LABEL
from ...model.names import label_value
from ...model.reasons import ActionKind, Finding, Reason
from ...units.values import print_time
from ..claims.adoption import adopt
from ..cluster_state import Situation
from ..plan_builder import SECOND_RUN_AFTER, Draft
from ..provisioning import service
from . import mass_deletion_guard
from .ownership import Ownership, Proof

ORPHAN_AGE: t.Final = 600  # seconds for which a thing without a claim must exist before it is removed
NODE_NOT_READY: t.Final = 300  # seconds for which a Node must be not Ready before its machine counts as gone


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """A machine of ours without a claim. ``case``: O1 (no Node), O2 (its own Node is Ready, or it answers as a service, or its stamp proves
    it ours and its mesh device is online), O3 (a Node that is not surely its own is Ready), O4 (its Node is not Ready). ``others`` are more
    machines of the same name at the same cloud."""

    case: str
    instance: Instance
    node: Node | None
    others: tuple[Instance, ...] = ()


def machines(situation: Situation) -> list[Orphan]:
    """All of them, in the order of cloud and id. Needs claims and Nodes; without either nothing is an orphan."""
    if situation.seen.claims is None or situation.nodes is None:
        return []
    claimed = {claim.name for claim in situation.claims} | {
        instance_id for claim in situation.claims for instance_id in claim.ids_seen
    }
    claimed |= set(situation.damaged) | {identity for claim in situation.damaged.values() for identity in claim.ids}
    named: dict[str, list[Instance]] = {}
    for instance in situation.listed():
        if instance.name not in claimed and instance.id not in claimed and _is_ours(instance, situation):
            named.setdefault(instance.name, []).append(instance)
    return [_orphan(same, situation) for same in named.values()]


def _orphan(same: list[Instance], situation: Situation) -> Orphan:
    """Machines of one name are one orphan: a name has one claim. The same name at a second cloud waits for its turn."""
    node = _node_of(same[0], situation)
    its_own = node.labels.get(INSTANCE_ID_LABEL) if node is not None else None
    here = [instance for instance in same if instance.cloud == same[0].cloud]
    first, *others = sorted(
        here,
        key=lambda instance: (
            label_value(instance.id) != its_own,
            instance.created is None,
            instance.created or situation.now,
            instance.id,
        ),
    )
    case = "O2" if service.works(first, node, situation) else _case(first, node)
    if case == "O2" and node is not None and DRAIN_STARTED_ANNOTATION in node.annotations and not situation.rented(first.cloud):
        case = "O3"  # an own machine that we terminated: its Node still says whose it was, but another owner has switched it on
    if case in ("O1", "O4") and situation.in_mesh(first.name) and situation.owner(first).proof is Proof.STAMP:
        case = "O2"
    return Orphan(case, first, node, tuple(others))


def _is_ours(instance: Instance, situation: Situation) -> bool:
    if not situation.rented(instance.cloud):
        return instance.name in situation.machines
    return situation.ownership(instance) is Ownership.OURS


def _node_of(instance: Instance, situation: Situation) -> Node | None:
    machine = situation.machines.get(instance.name)
    return situation.nodes_by_name.get((machine.node_name if machine else "") or instance.name)


def _case(instance: Instance, node: Node | None) -> str:
    if node is None:
        return "O1"
    if node.ready:
        return "O2" if node.labels.get(INSTANCE_ID_LABEL) == label_value(instance.id) else "O3"
    return "O4"


def is_used(orphan: Orphan, situation: Situation) -> bool:
    """Whether the machine counts against limits and budgets: rented ones always, own ones while they work as our nodes. An own machine that
    another owner has switched on does not count."""
    return situation.rented(orphan.instance.cloud) or orphan.case == "O2"


def adopt_running(draft: Draft, orphans: list[Orphan]) -> None:
    """O2: a machine that is alive, as our node, as a service, or in the mesh, gets its claim back."""
    for orphan in orphans:
        if orphan.case == "O2":
            claim = adopt(orphan.instance, orphan.node, draft.situation)
            draft.others.append(
                Action(
                    ActionKind.UPDATE,
                    claim.name,
                    Finding.ADOPTED,
                    f"{claim.cloud} {claim.instance_id} had no claim",
                    pool=claim.pool,
                    claim=claim,
                )
            )


def destroy_named(draft: Draft, orphans: list[Orphan]) -> None:
    """Machines without a claim that a person asked to destroy by name or id."""
    wanted = draft.situation.settings.destroy
    for orphan in orphans:
        if {orphan.instance.name, orphan.instance.id} & set(wanted.names):
            _destroy(draft, orphan, Reason.MANUAL, "asked for; it had no claim")
        elif wanted.all:
            draft.report(orphan.instance.name, orphan.case, "has no claim; reap.yml removes it after two sightings")
            if draft.situation.rented(orphan.instance.cloud):
                instance = orphan.instance
                draft.failures.append(
                    f"{instance.name}: {instance.cloud} {instance.id} still exists: it has no claim. "
                    f"reap.yml terminates it once two runs saw it; to terminate it now, name it: destroy.yml -e tgp_machine={instance.name}"
                )


def remove_machines(draft: Draft, orphans: list[Orphan]) -> None:
    """O1 and O4: destroyed once old enough and seen in two runs; each kind under the mass guard. O3: reported, and so is a machine that is
    alive where no stamp can say which record store made it."""
    situation, settings = draft.situation, draft.situation.settings
    total = sum(1 for instance in situation.listed() if _is_ours(instance, situation))
    due: dict[str, list[Orphan]] = {"O1": [], "O4": []}
    for orphan in orphans:
        instance = orphan.instance
        rented = situation.rented(instance.cloud)
        if orphan.case != "O2" and not rented:
            draft.report(instance.name, orphan.case, f"{_power_words(instance.state)}; it is not changed")
            continue
        if orphan.case == "O3":
            text = f"{instance.cloud} {instance.id} has no claim, and the Node of its name is not surely its own"
            draft.report(instance.name, "O3", text)
            _tell(draft, orphan, f"{instance.name}: {text}; it is kept until you decide what it is.")
        if orphan.case not in due:
            continue
        if rented and situation.in_mesh(instance.name):
            _stays(draft, orphan, f"{instance.cloud} {instance.id} has no claim, and its mesh device is online")
            continue
        if rented and (blind := _blind(orphan, situation)):
            _stays(draft, orphan, f"{instance.cloud} {instance.id} has no claim and no Node, and {blind}")
            continue
        first = draft.sighted(f"{orphan.case}|{instance.cloud}|{instance.id}")
        if _ripe(first, draft):
            consequence = "it is terminated" if settings.orphan_policy == "destroy" else "it is kept, as orphan_policy says"
            _tell(
                draft,
                orphan,
                f"{instance.name}: {instance.cloud} {instance.id} is ours and has no claim, so nobody knew of it; {consequence}.",
            )
        if settings.orphan_policy == "destroy" and _is_due(orphan, first, draft):
            due[orphan.case].append(orphan)
        else:
            draft.report(instance.name, orphan.case, f"{instance.cloud} {instance.id} has no claim")
    for case, group in due.items():
        if mass_deletion_guard.holds(draft, f"machines without a claim ({case})", len(group), total):
            continue
        for orphan in group:
            _destroy(draft, orphan, Reason.ORPHAN, f"{case}: {orphan.instance.cloud} {orphan.instance.id} has no claim")


def _power_words(state: InstanceState) -> str:
    """Of an own machine without a claim that is not off: who switched it is not known from a list, and its state may not be either."""
    if state is InstanceState.UNKNOWN:
        return "may be switched on: its state is unknown"
    moving = {InstanceState.PENDING: "is being switched on", InstanceState.TERMINATING: "is being switched off"}
    return f"{moving.get(state, 'is switched on')}, but not by us"


def _stays(draft: Draft, orphan: Orphan, why: str) -> None:
    """A machine that another owner may use is billed until a person terminates it: each run says so and fails."""
    name = orphan.instance.name
    draft.report(name, orphan.case, why)
    remedy = f"to terminate it, run destroy.yml -e tgp_machine={name}"
    text = f"{name}: {why}, so it may be at work for another cluster. It is billed and stays; {remedy}"
    draft.problems.append(text)
    _tell(draft, orphan, text)


def _blind(orphan: Orphan, situation: Situation) -> str:
    """Why nothing can say whether a machine without Node is alive (L-12a); empty where its mesh lists devices, or it answers as a service.
    Which mesh that is says its class. Where that is gone with its document, only a device of the machine's name does."""
    if orphan.node is not None:
        return ""
    claim = adopt(orphan.instance, None, situation)
    pool, node_class = situation.pool(claim), situation.specs.classes.get(claim.node_class)
    if pool is not None and pool.service is not None:
        return ""
    if node_class is None:
        known = any(device.hostname == orphan.instance.name for device in situation.devices or ())
        return "" if known else "no class says which mesh tells whether it is alive"
    if node_class.mesh.backend != "tailscale":
        return {"wireguard": "a WireGuard hub does not tell whether it is alive"}.get(
            node_class.mesh.backend, "it is in no mesh that tells whether it is alive"
        )
    return "the mesh, which tells whether it is alive, could not be read" if situation.devices is None else ""


def _tell(draft: Draft, orphan: Orphan, text: str) -> None:
    instance = orphan.instance
    price = {} if instance.price_hour is None else {"price_hour": str(instance.price_hour)}
    draft.notice(
        "orphan_found", f"{instance.cloud} {instance.id}", text, cloud=instance.cloud, id=instance.id, name=instance.name, **price
    )


def _is_due(orphan: Orphan, first: datetime, draft: Draft) -> bool:
    """Old enough, seen in two runs, and with a Node that has not been Ready for long, if it has one."""
    youngest = max(instance.created or first for instance in (orphan.instance, *orphan.others))
    return _old(youngest, draft) and _ripe(first, draft) and (orphan.node is None or _not_ready_long(orphan.node, draft))


def _destroy(draft: Draft, orphan: Orphan, reason: str, detail: str) -> None:
    """The machine gets a claim first, so that its end is recorded, repeated and billed like any other."""
    claim = adopt(orphan.instance, orphan.node, draft.situation)
    claim = dataclasses.replace(claim, ids_seen=(*claim.ids_seen, *(other.id for other in orphan.others)))
    draft.destroy(claim, reason, detail, force=draft.situation.settings.destroy.force)
    if (decided := draft.decisions.pop(claim.name, None)) is not None:
        draft.others.append(decided)


def _old(since: datetime, draft: Draft) -> bool:
    return (draft.now - since).total_seconds() > ORPHAN_AGE


def _ripe(first: datetime, draft: Draft) -> bool:
    return (draft.now - first).total_seconds() >= SECOND_RUN_AFTER


def _not_ready_long(node: Node, draft: Draft) -> bool:
    if node.ready or node.ready_since is None:
        return False
    return (draft.now - node.ready_since).total_seconds() >= NODE_NOT_READY


def duplicates(draft: Draft) -> None:
    """O11: of several machines under one claim's name all but one are destroyed; their ids are in the claim already, but those of other
    clouds."""
    for settled in draft.settled.values():
        goes = (
            settled.claim.name in draft.decisions and draft.decisions[settled.claim.name].kind == ActionKind.DESTROY
        )  # with all its ids
        for extra in (*(() if goes else settled.recovery.duplicates), *draft.situation.elsewhere(settled.claim)):
            if extra.state is InstanceState.TERMINATING:
                continue
            detail = f"{extra.cloud} {extra.id} has the same name as {settled.claim.instance_id}"
            price = -(extra.price_hour if extra.price_hour is not None else settled.claim.price)
            action = Action(
                ActionKind.DELETE_INSTANCE, settled.claim.name, Reason.DUPLICATE, detail, pool=settled.claim.pool, target=extra.id
            )
            draft.others.append(dataclasses.replace(action, value=extra.cloud, price_hour=price))


def remove_nodes(draft: Draft) -> None:
    """O7: Nodes of ours without claim and machine go once they are not Ready for long enough. O8: a Ready one is reported."""
    situation = draft.situation
    claimed = {settled.claim.node_name or name for name, settled in draft.settled.items()} | set(draft.settled)
    claimed |= set(situation.damaged) | situation.released_names
    ours = [node for node in situation.nodes or () if situation.is_ours(node.name) is Ownership.OURS]
    due: list[Node] = []
    for node in ours:
        if node.name in claimed or node.labels.get(PROVISIONED_LABEL) != "true":
            continue
        cloud = node.labels.get(PROVIDER_LABEL, "")
        if _is_unasked(cloud, situation):
            _tell_unasked(draft, node, cloud)
        if not _machine_is_gone(node, cloud, situation):
            continue
        if node.ready:
            draft.report(node.name, "O8", "a Ready Node without claim and machine", target=node.name)
        elif _not_ready_long(node, draft) and draft.twice(f"O7|{cloud}|{node.uid}"):
            due.append(node)
        else:
            draft.sighted(f"O7|{cloud}|{node.uid}")
    if mass_deletion_guard.holds(draft, "Nodes without a machine (O7)", len(due), len(ours)):
        return
    for node in due:
        draft.others.append(
            Action(ActionKind.DELETE_NODE, node.name, Reason.ORPHAN, "O7: no claim, no machine", target=node.name, uid=node.uid)
        )


def _is_unasked(cloud: str, situation: Situation) -> bool:
    """Whether it is a cloud whose machines are billed, and that this run does not ask: no document and no claim names it any more, or nothing
    gives its credential."""
    return cloud in situation.capabilities and situation.rented(cloud) and cloud not in situation.seen.clouds


def _tell_unasked(draft: Draft, node: Node, cloud: str) -> None:
    """O15: no list of this run can show the Node's machine. Each run says so and fails until a person has looked."""
    machine = node.labels.get(INSTANCE_ID_LABEL, "")
    where = f"{cloud} {machine}".rstrip()
    draft.report(node.name, "O15", f"its Node has no claim, and {cloud} is not asked", target=node.name)
    text = (
        f"{node.name}: its Node has no claim, and its machine {f'{machine} ' if machine else ''}at {cloud} may exist and be billed: {cloud} "
        f"is not asked, because no document names it or it has no credential. Let one run of reap.yml read a GPUNodeClass that names {cloud}, "
        "or terminate the machine there by hand and delete the Node."
    )
    draft.problems.append(text)
    draft.notice("orphan_found", where, text, cloud=cloud, id=machine, name=node.name)


def _machine_is_gone(node: Node, cloud: str, situation: Situation) -> bool:
    """True only when every list that could show the machine is usable and none does. A machine of the Node's name is not its own if it
    carries the stamp of another cluster and the Node says another id."""
    its_own = node.labels.get(INSTANCE_ID_LABEL)
    needed = [cloud] if cloud else sorted(situation.seen.clouds)
    if not needed:
        return False
    for name in needed:
        listed = situation.instances(name)
        if listed is None or any(label_value(instance.id) == its_own for instance in listed.all):
            return False
        if not all(its_own and situation.owner(instance).cluster for instance in listed.by_name.get(node.name, ())):
            return False
    return True


def remove_devices(draft: Draft) -> None:
    """O9: mesh devices of ours, by name and tag, that are offline for long. O10: one that is online is reported."""
    situation = draft.situation
    if situation.devices is None or situation.nodes is None or situation.unlisted:
        return
    tags = {tag for node_class in situation.specs.classes.values() for tag in node_class.mesh.tags}
    busy = set(draft.settled) | set(situation.damaged) | set(situation.nodes_by_name) | situation.names_in_use
    ids = {settled.claim.mesh_device_id for settled in draft.settled.values()}
    ours = [
        device for device in situation.devices if situation.is_ours(device.hostname) is Ownership.OURS and tags & set(device.tags)
    ]
    due: list[Device] = []
    for device in ours:
        if device.hostname in busy or device.id in ids:
            continue
        if device.online:
            draft.report(device.hostname, "O10", "is online in the mesh, but no claim, machine or Node is known", target=device.id)
            continue
        first = draft.sighted(f"O9||{device.id}")
        silent = device.online is False and device.last_seen is not None and _old(device.last_seen, draft)
        if silent and _ripe(first, draft):
            due.append(device)
    if mass_deletion_guard.holds(draft, "mesh devices without a machine (O9)", len(due), len(ours)):
        return
    for device in due:
        draft.others.append(
            Action(ActionKind.DELETE_DEVICE, device.hostname, Reason.ORPHAN, "O9: no claim, machine or Node", target=device.id)
        )


def remove_keys(draft: Draft) -> None:
    """O13: unused enrolment keys of ours whose claim is gone, old enough that no launch is about to use them."""
    situation = draft.situation
    held = {settled.claim.mesh_key_id for settled in draft.settled.values()}
    for key in sorted(situation.seen.keys or (), key=lambda mesh_key: mesh_key.id):
        name = _machine_of(key, situation)
        if not name or key.invalid or key.id in held:
            continue
        if any(instance.name.startswith(name) for instance in situation.listed()):
            continue  # of a machine that another record store made
        if key.created is not None and not _old(key.created, draft):
            continue  # another record store of this cluster id may be about to use it
        if any(claim_name.startswith(name) or name.startswith(claim_name) for claim_name in (*draft.settled, *situation.damaged)):
            continue  # descriptions may be cut
        draft.others.append(Action(ActionKind.DELETE_KEY, name, Reason.ORPHAN, "O13: its claim is gone", target=key.id))


def _machine_of(key: MeshKey, situation: Situation) -> str:
    """The machine name in a key's description, empty when the key is not ours."""
    return next((word for word in key.description.split() if situation.is_ours(word) is Ownership.OURS), "")


def report_cut_off_releases(draft: Draft) -> None:
    """Machines that are on the list of those that were handed out, and still have a claim: they are none of ours, and count as none."""
    situation = draft.situation
    for claim in situation.claims:
        if (claim.cloud, claim.instance_id) in situation.store.released and (problem := situation.foreign(claim)):
            draft.problems.append(problem)


def report_foreign(draft: Draft) -> None:
    """O14: machines with names of ours that are another cluster's, or without our stamp, or of another store; others only when asked."""
    situation = draft.situation
    others: dict[str, list[str]] = {}
    for claim in situation.claims:
        if problem := situation.foreign(claim):
            draft.problems.append(problem)
    for instance in situation.listed():
        if not situation.rented(instance.cloud):
            continue
        owner = situation.owner(instance)
        if owner.ownership is Ownership.FOREIGN:
            draft.report(instance.name, "O14", f"{instance.cloud} {instance.id} {owner.why}; it is never changed")
            if owner.generation:
                others.setdefault(owner.generation, []).append(f"{instance.name} ({instance.cloud} {instance.id})")
        elif owner.ownership is Ownership.UNRELATED and situation.settings.report_foreign:
            text = f"{instance.cloud} {instance.id} is not managed by this cluster; it is not changed"
            draft.report(instance.name or instance.id, Finding.FOREIGN, text)
    for generation in sorted(others):
        draft.warnings.append(
            f"Machines of this cluster id carry the stamp of another record store (generation {generation}): "
            f"{', '.join(sorted(others[generation]))}. They are never changed. If that store is lost, adopt.yml takes them over; if it "
            "is in use, two clusters have the same id: set cluster_id in one of them."
        )


def carry_over(draft: Draft) -> None:
    """O15: a finding stays while the list that could refute it is not usable. A machine at a cloud that is not asked is named each time."""
    situation = draft.situation
    for key, first in situation.seen.findings.items():
        case, cloud, *rest = (*key.split("|"), "")
        blind = situation.nodes is None or cloud in situation.unlisted or (case == "O9" and situation.devices is None)
        unasked = cloud in situation.capabilities and cloud not in situation.seen.clouds
        if blind or unasked or (not cloud and situation.unlisted):
            draft.findings.setdefault(key, first)
        if case in ("O1", "O4") and _is_unasked(cloud, situation):
            draft.warnings.append(
                f"{cloud} {''.join(rest)}: seen without a claim at {print_time(first)}, and {cloud} is not asked any more, because no document "
                f"names it or it has no credential. It may exist and be billed: let one run of reap.yml read a GPUNodeClass that names {cloud}."
            )
