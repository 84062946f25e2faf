# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-24: invariants over random worlds. A model of the world applies plans, so that several runs can follow each other."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from datetime import timedelta
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudView,
    Device,
    Instance,
    InstanceState,
    Node,
    Observation,
    Offer,
    Phase,
    Plan,
    Specs,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import counts
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import Ownership, ownership_of
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import CLUSTER, NOON, claim, decide, deletions, device, instance, node, node_class, of, offer, pod, pool, seen, specs

NAMES = [f"tgp-a1b2c3d4-{'pq'[place // 3]}-0000{place}" for place in range(6)]
STRANGERS = ["tgp-ffffffff-p-00099", "workstation"]
_maybe = st.booleans()
_ages = st.integers(0, 120).map(lambda minutes: NOON - timedelta(minutes=minutes))


@st.composite
def claims(draw: t.Any) -> tuple[Claim, ...]:
    made = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        phase = draw(st.sampled_from(Phase))
        facts: dict[str, t.Any] = {"pool": f"default/{name[13]}", "offer": offer(draw(st.sampled_from(["0.25", "0.42", "1.10"])))}
        if phase is not Phase.PENDING:
            facts["launch_started"] = draw(_ages)
        if draw(_maybe):
            facts["gone_since"] = draw(_ages)
        made.append(claim(name, phase, **facts))
    return tuple(made)


@st.composite
def instances(draw: t.Any) -> tuple[Instance, ...]:
    names = draw(st.lists(st.sampled_from(NAMES + STRANGERS), max_size=6))
    idents = [f"i-{name[-5:]}" if place == names.index(name) else f"x-{place}" for place, name in enumerate(names)]
    states = st.sampled_from([*InstanceState, "lost"])
    found = []
    for name, ident in zip(names, idents, strict=True):
        state = draw(states)
        facts = {"id": ident, "created": draw(_ages), "interrupted": state == "lost"}
        found.append(instance(name, InstanceState.STOPPED if state == "lost" else InstanceState(state), **facts))
    return tuple(found)


@st.composite
def nodes(draw: t.Any) -> tuple[Node, ...]:
    names = draw(st.lists(st.sampled_from(NAMES + STRANGERS), unique=True))
    notes = st.sampled_from([{}, {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}, {"tgp.io/terminate": "now"}])
    ready = st.sampled_from([True, False, None])
    return tuple(node(name, draw(ready), ready_since=draw(st.none() | _ages), annotations=draw(notes)) for name in names)


@st.composite
def devices(draw: t.Any) -> tuple[Device, ...]:
    names = draw(st.lists(st.sampled_from(NAMES + STRANGERS), unique=True))
    return tuple(device(name, draw(st.sampled_from([True, False, None])), last_seen=draw(st.none() | _ages)) for name in names)


_offers = st.lists(
    st.builds(
        offer,
        st.sampled_from(["0.25", "0.42", "1.10", None]),
        id=st.sampled_from(["a", "b", "c"]),
        gpu_count=st.sampled_from([1, 2, 8]),
        available=st.sampled_from([None, 0, 1, 3]),
    ),
    unique_by=lambda one: one.id,
).map(tuple)
_pods = st.lists(st.builds(pod, st.sampled_from("abc"), node=st.sampled_from(NAMES)), max_size=3).map(tuple)


@st.composite
def worlds(draw: t.Any) -> Observation:
    view = CloudView(draw(instances()), draw(_offers))
    base = seen(claims=draw(claims()), clouds={"lambda": view}, nodes=draw(nodes()), devices=draw(devices()), pods=draw(_pods))
    earlier = decide(dataclasses.replace(base, now=NOON - timedelta(minutes=2)))
    return dataclasses.replace(base, findings=earlier.findings) if draw(_maybe) else base


@st.composite
def wanted(draw: t.Any) -> Specs:
    made = node_class(
        max_nodes=draw(st.integers(0, 6)),
        max_hourly_cost=Decimal(draw(st.sampled_from(["0.42", "1.00", "3.30"]))),
        resources={"nvidia.com/gpu": draw(st.integers(0, 16))},
    )
    pools = (pool("p", max_nodes=draw(st.none() | st.integers(0, 3))), pool("q", min_nodes=draw(st.integers(0, 2)), weight=5))
    return specs(*pools, classes=(made,), p=draw(st.integers(0, 5)))


_modes = st.sampled_from(["provision", "reap", "destroy", "status"])
_random = st.randoms(use_true_random=False)


def shuffled(world: Observation, order: random.Random) -> Observation:
    def mix(things: t.Any) -> t.Any:
        return None if things is None else tuple(order.sample(list(things), len(things)))

    clouds = {name: CloudView(mix(view.instances), mix(view.offers), view.problem) for name, view in world.clouds.items()}
    lists = {name: mix(getattr(world, name)) for name in ("claims", "nodes", "pods", "devices")}
    return dataclasses.replace(world, clouds=clouds, **lists)


@settings(deadline=None)
@given(worlds(), wanted(), _modes, _random)
def test_I8_the_order_of_the_input_does_not_matter(world: Observation, asked: Specs, mode: str, order: random.Random) -> None:
    mixed = dataclasses.replace(asked, pools=tuple(order.sample(asked.pools, 2)))
    assert decide(shuffled(world, order), mixed, mode) == decide(world, asked, mode)


@settings(deadline=None)
@given(worlds(), wanted())
def test_I1_a_plan_never_goes_beyond_the_limits(world: Observation, asked: Specs) -> None:
    found = decide(world, asked, "provision")
    touched = {action.name: action.claim for action in of(found, "resume") if action.claim}
    settled = {action.name: action.claim for action in of(found, "resume", "update") if action.claim}
    waiting = {action.name for action in of(found, "report") if "no offer to go on with" in action.detail}  # these rented nothing
    before = [settled.get(one.name, one) for one in world.claims or () if one.name not in waiting]
    news = [action.claim for action in of(found, "launch") if action.claim]
    new_money = news + [one for one in touched.values() if one.launch_started is None]
    if not new_money:
        return
    billed = [one for one in before if counts(one)] + news
    made = asked.classes["c"]
    assert made.max_nodes is not None and len(billed) <= made.max_nodes
    assert made.max_hourly_cost is not None and sum(one.price for one in billed) <= made.max_hourly_cost
    assert sum(one.offer.gpu_count for one in billed) <= made.resources["nvidia.com/gpu"]
    for each in asked.pools:
        inside = [one for one in news if one.pool == each.key]
        assert not inside or each.max_nodes is None or sum(1 for one in billed if one.pool == each.key) <= each.max_nodes


@settings(deadline=None)
@given(worlds(), wanted())
def test_I1_stock_is_never_promised_twice(world: Observation, asked: Specs) -> None:
    taken = [action.claim.offer for action in of(decide(world, asked, "provision"), "launch", "resume") if action.claim]
    for one in world.clouds["lambda"].offers or ():
        fresh = [made for made in taken if made == one]
        assert one.available is None or len([made for made in fresh]) <= one.available + sum(1 for _ in world.claims or ())


UNREADABLE = ("instances", "nodes", "claims", "devices", "pods")


def blinded(world: Observation, what: str) -> Observation:
    if what == "instances":
        view = world.clouds["lambda"]
        return dataclasses.replace(world, clouds={"lambda": CloudView(None, view.offers, "lambda: 503")})
    return dataclasses.replace(world, **{what: None})


@settings(deadline=None)
@given(worlds(), wanted(), st.sampled_from(UNREADABLE))
def test_I3_unknown_never_deletes(world: Observation, asked: Specs, what: str) -> None:
    found = decide(blinded(world, what), asked)
    reasons = {(action.kind, action.reason) for action in deletions(found)}
    decided_before = {"LaunchFailed", "Empty", "Manual", "Expired"}
    if what in ("nodes", "claims"):
        assert not reasons
    elif what == "instances":
        assert {kind for kind, _reason in reasons} <= {"destroy"}
        assert {reason for _kind, reason in reasons} <= decided_before
    elif what == "devices":
        assert "delete_device" not in {kind for kind, _reason in reasons}
    elif what == "pods":
        assert ("destroy", "Empty") not in reasons


@settings(deadline=None)
@given(worlds(), wanted(), _modes)
def test_I3_only_ours_is_ever_deleted(world: Observation, asked: Specs, mode: str) -> None:
    found = decide(world, asked, mode)
    assert all(ownership_of(action.name, CLUSTER) is Ownership.OURS for action in deletions(found))


@settings(deadline=None)
@given(worlds(), wanted())
def test_I4_a_ready_node_protects_a_machine_the_cloud_does_not_list(world: Observation, asked: Specs) -> None:
    view = world.clouds["lambda"]
    empty = dataclasses.replace(world, clouds={"lambda": CloudView((), view.offers)})
    ready = {one.name for one in world.nodes or () if one.ready}
    for action in deletions(decide(empty, asked)):
        lost = action.reason in ("InstanceGone", "Orphan") or action.kind == "delete_node"
        assert not (lost and action.name in ready)


@settings(deadline=None)
@given(worlds(), wanted())
def test_I7_no_name_is_used_twice(world: Observation, asked: Specs) -> None:
    names = [action.name for action in of(decide(world, asked, "provision"), "launch")]
    known = {one.name for one in world.claims or ()} | {one.name for one in world.nodes or ()}
    known |= {one.hostname for one in world.devices or ()} | {one.name for one in world.clouds["lambda"].instances or ()}
    assert len(set(names)) == len(names) and not set(names) & known


@settings(deadline=None)
@given(worlds(), wanted())
def test_I14_status_writes_nothing(world: Observation, asked: Specs) -> None:
    assert {action.kind for action in decide(world, asked, "status").actions} <= {"report"}


def test_one_claim_is_written_by_at_most_one_action() -> None:
    @settings(deadline=None)
    @given(worlds(), wanted(), _modes)
    def check(world: Observation, asked: Specs, mode: str) -> None:
        names = [action.name for action in decide(world, asked, mode).actions if action.claim is not None]
        assert len(set(names)) == len(names)

    check()


# ---- plans applied to a model of the world


def applied(world: Observation, found: Plan) -> Observation:
    """The world after a plan was carried out without any failure."""
    claims = {one.name: one for one in world.claims or ()}
    view = world.clouds["lambda"]
    machines = {one.id: one for one in view.instances or ()}
    nodes = {one.name: one for one in world.nodes or ()}
    devices = {one.id: one for one in world.devices or ()}
    for action in found.actions:
        if action.kind in ("launch", "resume") and action.claim:
            _joined(action.claim, claims, machines, nodes, world)
        elif action.kind == "update" and action.claim:
            claims[action.name] = action.claim
        elif action.kind == "destroy" and action.claim:
            for ident in action.claim.ids_seen:
                machines.pop(ident, None)
            claims.pop(action.name, None)
            nodes.pop(action.name, None)
            devices = {key: one for key, one in devices.items() if one.hostname != action.name}
        elif action.kind == "annotate" and action.target in nodes:
            old = nodes[action.target]
            notes = {key: value for key, value in old.annotations.items() if key != "tgp.io/idle-since"}
            nodes[action.target] = dataclasses.replace(
                old, annotations={**notes, **({"tgp.io/idle-since": action.value} if action.value else {})}
            )
        elif action.kind == "delete_instance":
            machines.pop(action.target, None)
        elif action.kind == "delete_node":
            nodes.pop(action.target, None)
        elif action.kind == "delete_device":
            devices.pop(action.target, None)
    return dataclasses.replace(
        world,
        claims=tuple(claims.values()),
        clouds={"lambda": CloudView(tuple(machines.values()), view.offers)},
        nodes=tuple(nodes.values()),
        devices=tuple(devices.values()),
        pods=tuple(one for one in world.pods or () if one.node in nodes),
        findings=found.findings,
    )


def _joined(
    made: Claim, claims: dict[str, Claim], machines: dict[str, Instance], nodes: dict[str, Node], world: Observation
) -> None:
    ident = made.instance_id or f"new-{made.name}"
    price = made.offer.price_hour
    machines[ident] = instance(made.name, id=ident, created=world.now, price_hour=price)
    nodes[made.name] = node(made.name, created=world.now, ready_since=world.now, allocatable={"nvidia.com/gpu": made.expected_gpus})
    claims[made.name] = dataclasses.replace(
        made,
        phase=Phase.READY,
        launch_started=made.launch_started or world.now,
        instance_id=ident,
        ids_seen=(*[one for one in made.ids_seen if one != ident], ident),
        price_paid=price,
        node_uid=nodes[made.name].uid,
        registered=made.registered or world.now,
        initialized=made.initialized or world.now,
    )


def changes(found: Plan) -> list[str]:
    return [f"{action.kind} {action.name} {action.reason}" for action in found.actions if action.kind != "report"]


_plain_offers = st.sampled_from([(offer("0.42", id="a"),), (offer("0.25", id="a", available=2), offer("0.42", id="b"))])


@settings(deadline=None)
@given(_plain_offers, wanted())
def test_I8_after_an_applied_provision_nothing_is_left_to_do(offers: tuple[Offer, ...], asked: Specs) -> None:
    world = seen(offers=offers)
    first = decide(world, asked, "provision")
    after = applied(world, first)
    limited = tuple(dataclasses.replace(one, available=0) if one.available == 2 and of(first, "launch") else one for one in offers)
    after = dataclasses.replace(after, clouds={"lambda": CloudView(after.clouds["lambda"].instances, limited)})
    if first.shortfall and first.shortfall[0].reason == "max_launch_per_run":
        return
    reached = not first.shortfall
    again = decide(after, asked, "provision")
    assert changes(again) == [] if reached else not any(text.startswith("destroy") for text in changes(again))


@settings(deadline=None, max_examples=60)
@given(worlds(), wanted())
def test_I8_after_an_applied_reap_nothing_is_left_to_do(world: Observation, asked: Specs) -> None:
    """The same moment again: facts recorded, deletions done, no change outside."""
    first = applied(world, decide(world, asked))
    second = decide(first, asked)
    after = applied(first, second)  # what the first run removed may have been the guard's or a growing pool's reason to wait
    third = applied(after, decide(after, asked))
    assert changes(decide(third, asked)) == []


@settings(deadline=None, max_examples=40)
@given(worlds(), wanted())
def test_I10_without_demand_everything_ends(world: Observation, asked: Specs) -> None:
    """No pods, no specs, no faults, time passes: nothing of ours is left, and nothing of others is touched."""
    machines = tuple(
        dataclasses.replace(one, state=InstanceState.RUNNING)
        if one.state is InstanceState.UNKNOWN
        else one  # an odd word is a fault
        for one in world.clouds["lambda"].instances or ()
    )
    world = dataclasses.replace(world, clouds={"lambda": dataclasses.replace(world.clouds["lambda"], instances=machines)})
    calm = dataclasses.replace(asked, nodes={}, pools=tuple(dataclasses.replace(one, min_nodes=0) for one in asked.pools))
    backed = {one.name: one.id for one in world.clouds["lambda"].instances or () if not one.gone}
    marked = tuple(
        dataclasses.replace(one, labels={**one.labels, "tgp.io/instance-id": backed.get(one.name, "")}) for one in world.nodes or ()
    )
    current = dataclasses.replace(world, pods=(), nodes=marked)
    running = set(backed)
    for turn in range(24):
        moment = NOON + timedelta(minutes=6 * turn)
        silent = {one.name for one in current.nodes or () if one.name not in running}
        current = dataclasses.replace(
            current,
            now=moment,
            nodes=tuple(
                dataclasses.replace(
                    one, ready=False, ready_since=one.ready_since if one.ready is False and one.ready_since else moment
                )
                if one.name in silent
                else dataclasses.replace(one, ready=True)
                for one in current.nodes or ()
            ),
            devices=tuple(
                dataclasses.replace(one, online=False, last_seen=one.last_seen or moment) for one in current.devices or ()
            ),
        )
        current = applied(current, decide(current, calm, allow_mass_delete=True))
        running = {one.name for one in current.clouds["lambda"].instances or () if not one.gone}
    assert not current.claims
    left = [one.name for one in current.clouds["lambda"].instances or () if not one.gone] + [
        one.name for one in current.nodes or ()
    ]
    assert {ownership_of(name, CLUSTER) for name in left} <= {Ownership.FOREIGN, Ownership.UNRELATED}
    assert {ownership_of(one.hostname, CLUSTER) for one in current.devices or ()} <= {Ownership.FOREIGN, Ownership.UNRELATED}
    kept = {one.id for one in world.clouds["lambda"].instances or () if ownership_of(one.name, CLUSTER) is not Ownership.OURS}
    assert kept <= {one.id for one in current.clouds["lambda"].instances or ()}
