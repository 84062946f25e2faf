# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows rented machines until they are nodes that pods can use (L-11), and marks each one the moment it is complete."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...core.errors import TgpError
from ...diagnosis.evidence.collect import schematic_of, server_version
from ...diagnosis.evidence.node import refused
from ...diagnosis.node import wrong_image, wrong_version
from ...kube.drain.node_drain import STARTED, undoing
from ...kube.nodes import advertise, change
from ...kube.resource_claims import device_slices
from ...kube.wait import Evidence, Expected, NodeOutcome, NodeWait
from ...model import Claim, InstanceState, Lane, Node, Phase, Pool
from ...model.devices import DynamicResources, ResourceSlice
from ...model.labels import (
    ACCEPTED_AT_ANNOTATION,
    IDLE_SINCE_ANNOTATION,
    LOW_UTILIZATION_ANNOTATION,
    STOPPED_SINCE_ANNOTATION,
    TERMINATE_ANNOTATION,
)
from ...model.resources import NEUTRAL_GPU
from ...observe.clients import Feed
from ...planner.claims.record import advance, in_force
from ...planner.provisioning.acceptance import LATE
from ...planner.provisioning.registration import not_initialized, timeout
from ...planner.scheduling import capacity
from ...planner.scheduling.capacity import advertised
from ...planner.scheduling.devices import with_devices
from ...providers.registry import CAPABILITIES
from ...units.values import print_time
from .acceptance import AcceptanceTests
from .pre_pull import PrePulls
from .tracker import JoinTracker

_CHANCE = 90.0  # seconds from its registration in which a kubelet of an unfit version may become Ready


class NodeJoins:
    """The machines of one step that become nodes."""

    def __init__(self, tracker: JoinTracker) -> None:
        self.context, self._tracker = tracker.context, tracker
        self._tests, self._pulls = AcceptanceTests(tracker.context), PrePulls(tracker.context)
        self._until: dict[str, datetime] = {}  # by claim, when the node is taken without the images of prePull
        self._slices: Feed[ResourceSlice] = Feed(lambda: device_slices(self.context.kube).slices, self.context.clock)
        self._wait = NodeWait(
            self.context.kube,
            clock=self.context.clock,
            evidence=self._evidence,
            on_step=self._on_step,
            on_ready=self._on_ready,
            on_end=self._on_end,
        )

    def expect(self, claims: t.Iterable[Claim]) -> None:
        """These may be added later, when they are rented."""
        self._wait.expect(name for claim in claims for name in (claim.name, claim.node_name) if name)

    def add(self, claim: Claim) -> None:
        self._wait.add(self._expected(claim))

    def close(self) -> None:
        self._wait.close()

    def reopen(self) -> None:
        self._wait.close(False)

    def run(self) -> None:
        """Returns when all have ended and nothing more is added."""
        try:
            self._wait.run()
        finally:
            self._tests.close()
            self._pulls.close()

    # ---- what is waited for

    def _expected(self, claim: Claim) -> Expected:
        pool, capability = in_force(claim, self.context.specs), CAPABILITIES[claim.cloud]
        started = claim.launched
        deadline = started + timedelta(seconds=timeout(claim, pool, capability))
        if pool is not None and pool.acceptance is not None:  # a node that came in time, in a run that was killed: it has one try
            deadline = max(deadline, self.context.clock.now() + timedelta(seconds=pool.acceptance.timeout + LATE))
        if pool is not None and pool.pre_pull is not None:  # a complete node is taken at its time, so there is time left to take it
            self._until[claim.name], deadline = deadline, deadline + timedelta(seconds=LATE)
        return Expected(
            name=claim.node_name or claim.name,
            claim=claim.name,
            launched=started,
            deadline=deadline,
            missing=lambda node: self._missing(claim, node, pool),
            again=pool is not None and bool(pool.dra_driver),
            returns=not capability.rented,
            wrong=self._wrong_for(claim),
            token=claim.token_id if claim.lane is Lane.KUBELET else "",
        )

    def _missing(self, claim: Claim, node: Node, pool: Pool | None) -> tuple[str, ...]:
        """What the node still lacks. GPUs of a DRA driver stand in its ResourceSlices: one list of them serves all machines."""
        missing = not_initialized(claim, node, pool, marking=True)
        if not missing or pool is None or not pool.dra_driver or not node.ready:
            return missing
        slices = self._slices.listing()
        if slices is None:
            return (*missing, f"the ResourceSlices could not be read: {self._slices.problem}")
        (node,) = with_devices([node], (), DynamicResources(slices=slices.items)).nodes
        return not_initialized(claim, node, pool, marking=True)

    def _wrong_for(self, claim: Claim) -> t.Callable[[Node], str]:
        """Why a Node of the claim will never do. A kubelet that is too new has a while to show that it works all the same."""
        version = self.context.once("server version if reported", self._version)
        schematic = schematic_of(self.context, claim) if claim.token_id else ""

        def wrong(node: Node) -> str:
            works = node.ready or (self.context.clock.now() - node.created).total_seconds() < _CHANCE
            return wrong_image(dict(node.annotations), schematic) or ("" if works else wrong_version(node.kubelet_version, version))

        return wrong

    def _version(self) -> str:
        """The API server's; empty when it cannot be asked: then nothing is said against any kubelet."""
        try:
            return server_version(self.context)
        except TgpError:
            return ""

    def _evidence(self, name: str) -> Evidence:
        """What cloud and mesh say of a machine that is not a Ready node yet; called every few seconds for each of them."""
        self._tracker.hold_lock()
        instance, listed_at, device = self._tracker.take_facts(name)
        claim = self._tracker.claims[name]
        alive = device is not None and device.online is True
        lost = self._tracker.hope.lost(claim, instance, listed_at, alive=alive)
        hopeless = self._tracker.price_jumps.get(name, "") or lost
        return Evidence(
            instance="" if instance is None else instance.state_word,
            running=instance is not None and instance.state is InstanceState.RUNNING,
            device=device.name or device.hostname if device else "",
            device_online=device.online if device else None,
            uses_mesh=bool(claim.mesh_key_id),
            token_id=claim.token_id,
            hopeless=hopeless,
        )

    # ---- while waiting

    def _on_step(self, name: str, step: str, detail: str) -> None:
        if step != "complete":  # _on_ready has said so
            self._tracker.reach(name, step, detail)

    def _on_end(self, ended: t.Mapping[str, NodeOutcome]) -> None:
        self._tracker.rejected |= self._tests.rejected
        self._tracker.untested |= self._tests.untested
        self._tracker.end(ended)

    def _on_ready(self, name: str, node: Node) -> None:
        """The node is complete: test it and let it pull images where its pool asks for that, assert our marks, let pods in, and take back what
        it does not need any more. The Node says with the same write that it has passed, so that no later run tests one that pods are on."""
        claim = self._tracker.claims[name]
        described = in_force(claim, self.context.specs)
        accepted = self._tests.passed(claim, node, described)
        self._pulls.await_images(claim, node, described, self._until.get(name, self.context.clock.now()))
        pool = self.context.specs.pool_of(claim.pool)
        opening = _opening(node)
        offering = advertise(self.context.kube, node, NEUTRAL_GPU, advertised(claim, pool))  # before pods may come
        change(
            self.context.kube,
            node.name,
            uid=node.uid,
            labels={**capacity.asserted_labels(claim, pool, self.context.cluster_id, node), **opening.get("labels", {})},
            annotations={
                **capacity.node_annotations(claim, pool),
                **opening.get("annotations", {}),
                **({ACCEPTED_AT_ANNOTATION: print_time(accepted)} if accepted is not None else {}),
            },
            add_taints=capacity.taints(pool),
            remove_taints=(capacity.INITIALIZING.key, *opening.get("remove_taints", ())),
            unschedulable=opening.get("unschedulable"),
            allow=capacity.keys_of(pool),
            base=offering,
        )
        now = self.context.clock.now()
        self._check_talos(claim, node)
        self._tracker.take_facts(name)
        self._tracker.take_back(claim)

        def complete(claim: Claim) -> Claim:
            joining = claim if claim.phase is Phase.JOINING else advance(claim, Phase.JOINING, now, "node")
            return dataclasses.replace(
                advance(joining, Phase.READY, now, "initialized"), node_name=node.name, node_uid=node.uid,
                registered=claim.registered or node.created, initialized=now, accepted=accepted, token_id="", mesh_key_id="",
            )  # fmt: skip

        claim = self._tracker.write(name, complete)
        self._tests.remove(claim)
        self._pulls.remove(claim)
        self.context.progress.step(
            name, "joined", "node is complete", since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud
        )

    def _check_talos(self, claim: Claim, node: Node) -> None:
        """A warning of a Talos node that nobody can talk to. Pods may come by then: they do not need its API."""
        if claim.lane is Lane.TALOS and claim.token_id and (closed := refused(self.context.kube, node.name)):
            self.context.warn(
                f"{claim.name} is a node, but its Talos API has not come up: {closed}. Most likely it cannot reach trustd; open tcp 50001 to "
                "every control plane address beside 6443 (mesh policy, firewall). A Talos node without it reboots after 70 minutes."
            )


def _opening(node: Node) -> dict[str, t.Any]:
    """An own machine's Node comes back as it was left: drained, with the marks that led to its end (L-21). What opens it again."""
    stopped = dict.fromkeys(key for key in (STOPPED_SINCE_ANNOTATION,) if key in node.annotations)
    if STARTED not in node.annotations:
        return {"annotations": stopped}
    opening = undoing(node)
    forgotten = dict.fromkeys((IDLE_SINCE_ANNOTATION, LOW_UTILIZATION_ANNOTATION, TERMINATE_ANNOTATION))
    return {**opening, "annotations": {**opening["annotations"], **forgotten, **stopped}}
