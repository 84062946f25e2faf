# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small worlds for rule tests: every builder gives something ordinary, tests say only what matters to them."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Action,
    Capability,
    Claim,
    CloudChoice,
    CloudView,
    Device,
    Instance,
    InstanceState,
    Lane,
    MeshChoice,
    Node,
    NodeClass,
    Observation,
    Offer,
    OffersNotRead,
    Phase,
    Plan,
    Pod,
    Pool,
    Specs,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import follow
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan

CLUSTER = "a1b2c3d4"
DAY = datetime(2026, 8, 20, tzinfo=timezone.utc)
CAPABILITIES = {
    "lambda": Capability("lambda", (Lane.KUBELET,), registration_timeout=1800, tags=True, created_time=True),
    "vast": Capability(
        "vast", (Lane.KUBELET, Lane.SERVICE), registration_timeout=1200, spot=True, created_time=True, bills_boot=False
    ),
    "runpod": Capability(
        "runpod",
        (Lane.SERVICE,),
        registration_timeout=1200,
        stamped=True,
        lane_reason="pods are unprivileged containers and cannot be Kubernetes nodes",
    ),
    "webhook": Capability("webhook", (Lane.TALOS, Lane.KUBELET), registration_timeout=900, rented=False),
}


def at(text: str) -> datetime:
    """A moment of the test day: "12:05" or "12:05:30"."""
    hours, minutes, *seconds = (int(part) for part in text.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds[0] if seconds else 0)


NOON = at("12:00")


def offer(price: str | None = "0.42", **facts: t.Any) -> Offer:
    cloud = facts.pop("cloud", "lambda")
    ident = facts.pop("id", f"g-{price}")
    usual: dict[str, t.Any] = {
        "instance_type": "gpu_1x",
        "model": "A10",
        "gpu_count": 1,
        "region": "us-west",
        "cloud_region": "us-west-1",
    }
    return Offer(cloud, ident, price_hour=None if price is None else Decimal(price), **{**usual, **facts})


def claim(name: str = "tgp-a1b2c3d4-p-00001", phase: Phase = Phase.READY, **facts: t.Any) -> Claim:
    """A machine launched at 11:00 and usable since 11:10, unless said otherwise; earlier phases know less."""
    rented = facts.pop("offer", None) or offer()
    place = list(Phase).index(phase)
    known: dict[str, t.Any] = {}
    if place >= 1:
        known["launch_started"] = at("11:00")
    if 2 <= place <= 5:
        known.update(instance_id=f"i-{name[-5:]}", ids_seen=(f"i-{name[-5:]}",))
    if 4 <= place <= 5:
        known.update(registered=at("11:08"), initialized=at("11:10"), node_uid=f"uid-{name}")
    ending = facts.get("deletion") if phase is Phase.TERMINATING else None  # decided first, drained, then in this phase
    fixed: dict[str, t.Any] = {
        "pool": "default/p",
        "node_class": "c",
        "cloud": rented.cloud,
        "lane": Lane.KUBELET,
        "phase_since": ending.requested if ending is not None else at("11:00"),
        "created": at("11:00"),
        "reserved_price": rented.price_hour,
        "expected_gpus": rented.gpu_count,
        "node_name": name,
    }
    return Claim(name=name, phase=phase, offer=rented, **{**fixed, **known, **facts})


def instance(name: str = "tgp-a1b2c3d4-p-00001", state: InstanceState = InstanceState.RUNNING, **facts: t.Any) -> Instance:
    usual: dict[str, t.Any] = {"cloud": "lambda", "id": f"i-{name[-5:]}", "created": at("11:00:05"), "model": "A10", "gpu_count": 1}
    if facts.get("cloud") == "runpod":
        usual["marks"] = {"node": name, "cluster": CLUSTER}  # its stamp
    return Instance(name=name, state=state, **{**usual, "price_hour": Decimal("0.42"), **facts})


def node(name: str = "tgp-a1b2c3d4-p-00001", ready: bool | None = True, **facts: t.Any) -> Node:
    labels = {"tgp.io/provisioned": "true", "tgp.io/nodepool": "p", "tgp.io/nodeclass": "c", "tgp.io/provider": "lambda"}
    labels.update(facts.pop("labels", {}))
    usual: dict[str, t.Any] = {
        "uid": f"uid-{name}",
        "created": at("11:08"),
        "ready_since": at("11:10"),
        "allocatable": {"nvidia.com/gpu": 1},
    }
    return Node(name=name, ready=ready, labels=labels, **{**usual, **facts})


def pod(name: str = "job", phase: str = "Running", **facts: t.Any) -> Pod:
    usual: dict[str, t.Any] = {"namespace": "default", "uid": f"uid-{name}", "node": "tgp-a1b2c3d4-p-00001", "owner_kind": "Job"}
    return Pod(name=name, phase=phase, **{**usual, "owner_api": "batch/v1", **facts})


def device(name: str = "tgp-a1b2c3d4-p-00001", online: bool | None = False, **facts: t.Any) -> Device:
    usual: dict[str, t.Any] = {"id": f"d-{name[-5:]}", "tags": ("tag:gpu",), "created": at("11:05"), "last_seen": at("11:30")}
    return Device(hostname=name, name=f"{name}.example.ts.net", online=online, **{**usual, **facts})


def pool(name: str = "p", **facts: t.Any) -> Pool:
    return Pool(facts.pop("namespace", "default"), name, facts.pop("node_class", "c"), **facts)


def node_class(name: str = "c", clouds: t.Sequence[t.Any] = ("lambda",), **facts: t.Any) -> NodeClass:
    choices = tuple(one if isinstance(one, CloudChoice) else CloudChoice(one) for one in clouds)
    return NodeClass(name, choices, mesh=facts.pop("mesh", MeshChoice(tags=("tag:gpu",))), **facts)


def specs(*pools: Pool, classes: t.Sequence[NodeClass] = (), **nodes: int) -> Specs:
    """``nodes``: machines wanted per pool name of namespace default."""
    known = classes or (node_class(),)
    return Specs({one.name: one for one in known}, pools or (pool(),), {f"default/{name}": count for name, count in nodes.items()})


def seen(now: datetime = NOON, **facts: t.Any) -> Observation:
    """``instances`` and ``offers`` are those of lambda unless ``clouds`` is given; every list is empty unless said."""
    view = CloudView(facts.pop("instances", ()), facts.pop("offers", ()))
    clouds = facts.pop("clouds", {"lambda": view})
    usual: dict[str, t.Any] = {"devices": (), "keys": (), "nodes": (), "pods": (), "claims": ()}
    return Observation(now, CLUSTER, clouds, **{**usual, **facts})


def decide(observation: Observation, wanted: Specs | None = None, mode: str = "reap", **settings: t.Any) -> Plan:
    """The plan. Claims have followed their documents up to now, as those of an earlier run have. A plan that needs no offers is the same
    without a look at them."""
    wanted = wanted or specs()
    claims = None if observation.claims is None else tuple(followed(one, wanted) for one in observation.claims)
    observation = dataclasses.replace(observation, claims=claims)
    found = plan(observation, wanted, Settings(mode=mode, **settings), CAPABILITIES, "run-1")
    blind = dataclasses.replace(observation, offers_read=False)
    with contextlib.suppress(OffersNotRead):
        assert plan(blind, wanted, Settings(mode=mode, **settings), CAPABILITIES, "run-1") == found
    return found


def followed(claim: Claim, wanted: Specs) -> Claim:
    """A claim without limits with those of its valid document."""
    document = next((one for one in wanted.described if one.key == claim.pool), None)
    if document is None or claim.limits is not None:
        return claim
    return follow(claim, document, wanted.classes.get(claim.node_class))


def of(found: Plan, *kinds: str) -> list[Action]:
    return [action for action in found.actions if action.kind in kinds]


def deletions(found: Plan) -> list[Action]:
    return of(found, "destroy", "delete_instance", "delete_node", "delete_device", "delete_key", "delete_token")


def one(found: Plan, kind: str) -> Action:
    actions = of(found, kind)
    assert len(actions) == 1, found.actions
    return actions[0]
