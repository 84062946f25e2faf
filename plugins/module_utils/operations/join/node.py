# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows rented machines until they are usable (L-11): nodes here, services in service.py, side by side. Marks each one the moment it is
complete, and ends those that never come."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from ...core.errors import TgpError
from ...diagnosis.evidence.collect import schematic_of, server_version
from ...diagnosis.evidence.node import refused
from ...diagnosis.node import wrong_image, wrong_version
from ...kube.drain.node_drain import STARTED, undoing
from ...kube.nodes import advertise, change
from ...kube.wait import Evidence, Expected, wait_for
from ...model import Claim, InstanceState, Lane, Node, Phase
from ...model.labels import IDLE_SINCE_ANNOTATION, TERMINATE_ANNOTATION
from ...model.resources import NEUTRAL_GPU
from ...observe.context import Context
from ...planner.claims.record import advance, in_force
from ...planner.provisioning.registration import not_initialized, timeout
from ...planner.scheduling import capacity
from ...planner.scheduling.capacity import advertised
from ...providers.registry import CAPABILITIES
from .base import Following, Joined
from .service import serve_all

_CHANCE = 90.0  # seconds from its registration in which a kubelet of an unfit version may become Ready

__all__ = ["Joined", "join_all"]


def join_all(context: Context, claims: t.Sequence[Claim]) -> list[Joined]:
    """Wait for all at once; returns one outcome per claim. Those that are Ready already only lose what let them in."""
    nodes = [claim for claim in claims if not claim.is_service]
    services = [claim for claim in claims if claim.is_service]
    if not (nodes and services):
        return _join_nodes(context, nodes) if nodes else serve_all(context, services)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="serve") as pool:
        serving = pool.submit(serve_all, context, services)
        return _join_nodes(context, nodes) + serving.result()


def _join_nodes(context: Context, claims: t.Sequence[Claim]) -> list[Joined]:
    work = _Join(context, claims)
    joined = [work.forget_secrets(claim) for claim in claims if claim.phase is Phase.READY]
    waiting = [claim for claim in claims if claim.phase is not Phase.READY]
    outcomes = wait_for(
        context.kube,
        [work.expected(claim) for claim in waiting],
        clock=context.clock,
        evidence=work.evidence,
        on_step=work.on_step,
        on_ready=work.on_ready,
    )
    return joined + work.finish(outcomes)


class _Join(Following):
    # ---- what is waited for

    def expected(self, claim: Claim) -> Expected:
        pool, capability = in_force(claim, self.context.specs), CAPABILITIES[claim.cloud]
        started = claim.launch_started or claim.created
        return Expected(
            name=claim.node_name or claim.name,
            claim=claim.name,
            launched=started,
            deadline=started + timedelta(seconds=timeout(claim, pool, capability)),
            missing=lambda node: not_initialized(claim, node, pool, marking=True),
            returns=not capability.rented,
            wrong=self._wrong_for(claim),
            token=claim.token_id if claim.lane is Lane.KUBELET else "",
        )

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

    def evidence(self, name: str) -> Evidence:
        """What cloud and mesh say of a machine that is not a Ready node yet; called every few seconds for each of them."""
        self._hold_lock()
        instance, listed_at, device = self._take_facts(name)
        claim = self.claims[name]
        alive = device is not None and device.online is True
        lost = self._hope.lost(claim, instance, listed_at, alive=alive)
        hopeless = self._ended.get(name, "") or lost
        return Evidence(
            instance="" if instance is None else instance.raw_state or instance.state.value,
            running=instance is not None and instance.state is InstanceState.RUNNING,
            device=device.name or device.hostname if device else "",
            device_online=device.online if device else None,
            uses_mesh=bool(claim.mesh_key_id),
            token_id=claim.token_id,
            hopeless=hopeless,
        )

    # ---- while waiting

    def on_step(self, name: str, step: str, detail: str) -> None:
        if step != "complete":  # on_ready has said so
            self._reach(name, step, detail)

    def on_ready(self, name: str, node: Node) -> None:
        """The node is complete: assert our marks, let pods in, and take back what it does not need any more."""
        with self._lock:
            claim = self.claims[name]
        if claim.lane is Lane.TALOS and claim.token_id and (closed := refused(self.context.kube, node.name)):
            self.context.warn(
                f"{name} is a node, but its Talos API has not come up: {closed}. Most likely it cannot reach trustd; open tcp 50001 to every "
                "control plane address beside 6443 (mesh policy, firewall). A Talos node without it reboots after 70 minutes."
            )
        pool = self.context.specs.pool_of(claim.pool)
        opening = _opening(node)
        advertise(self.context.kube, node.name, NEUTRAL_GPU, advertised(claim, pool), uid=node.uid)  # before pods may come
        change(
            self.context.kube,
            node.name,
            uid=node.uid,
            labels={**capacity.asserted_labels(claim, pool, self.context.cluster_id, node), **opening.get("labels", {})},
            annotations={**capacity.node_annotations(claim, pool), **opening.get("annotations", {})},
            add_taints=capacity.taints(pool),
            remove_taints=(capacity.INITIALIZING.key, *opening.get("remove_taints", ())),
            unschedulable=opening.get("unschedulable"),
            allow=capacity.keys_of(pool),
        )
        now = self.context.clock.now()
        self._take_facts(name)
        self._take_back(claim)
        with self._lock:
            claim = self.claims[name]
            if claim.phase is not Phase.JOINING:
                claim = advance(claim, Phase.JOINING, now, "node")
            ready = advance(claim, Phase.READY, now, "initialized")
            self._write(
                name, ready, node_name=node.name, node_uid=node.uid, registered=claim.registered or node.created, initialized=now,
                token_id="", mesh_key_id="",
            )  # fmt: skip
        self.context.progress.step(
            name, "joined", "node is complete", since=claim.launch_started, price_hour=claim.price, cloud=claim.cloud
        )


def _opening(node: Node) -> dict[str, t.Any]:
    """An own machine's Node comes back as it was left: drained, with the marks that led to its end (L-21). What opens it again."""
    if STARTED not in node.annotations:
        return {}
    opening = undoing(node)
    return {**opening, "annotations": {**opening["annotations"], IDLE_SINCE_ANNOTATION: None, TERMINATE_ANNOTATION: None}}
