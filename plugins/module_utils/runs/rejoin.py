# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_rejoin: what a rented machine that has not become a node is configured once more, by another way than at its boot."""

from __future__ import annotations

import dataclasses
import os
import typing as t
from datetime import timedelta

from ..bootstrap.payload import payload
from ..core.clock import to_text
from ..core.errors import Forbidden, InvalidInput, TimedOut
from ..core.task import Task
from ..kube import csr
from ..model import Claim, Lane, Phase
from ..observe.context import Context, open_context
from ..operations.launch.payload import enrol, node_spec
from ..operations.launch.wireguard_peers import hubs_of
from ..planner.claims.record import class_of, in_force
from ..planner.provisioning.registration import deadline
from ..providers.registry import CAPABILITIES
from ..store.run_lock import held

_PAUSE = 1.0  # seconds between two looks for its request
_ON_THEIR_WAY = (Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING)


def rejoin(task: Task) -> dict[str, t.Any]:
    """Make new enrolment secrets for one machine and write its user data to ``dest``, for its owner's eyes alone; takes the run lock
    for as long. With ``state`` approved: approve it, once it asks, without the lock.
    InvalidInput when the machine is not one that waits to join by lane kubelet."""
    context = open_context(task, strict=True, hubs=True)
    try:
        claim = _claim(context, task.params["name"])
        if task.params["state"] == "approved":
            return {**_result(context, claim), "changed": _approved(context, claim)}
        if task.check_mode:
            return _result(context, claim)
        with held(task, context.kube, context.run_id, context.cluster_id) as context.lock:
            claim = _written(context, _claim(context, claim.name), task.params["dest"])
        return _result(context, claim)
    finally:
        context.close()


def _claim(context: Context, name: str) -> Claim:
    claim = next((recorded for recorded in context.store.claims() if recorded.name == name), None)
    if claim is None:
        raise InvalidInput(f"There is no machine {name} of this cluster.", remedy="status.yml lists them.")
    if claim.lane is not Lane.KUBELET:
        raise InvalidInput(
            f"{name} joins by lane {claim.lane.value}; only machines of lane kubelet can be configured again over SSH."
        )
    if claim.deletion is not None:
        raise InvalidInput(f"{name} is being terminated ({claim.deletion.reason}).", remedy="Run provision.yml for a new machine.")
    if claim.phase is Phase.READY:
        raise InvalidInput(f"{name} is a node already.")
    if claim.phase not in _ON_THEIR_WAY or not claim.instance_id:
        raise InvalidInput(f"{name} is {claim.phase.value} and has no machine yet that could be configured.")
    return claim


def _approved(context: Context, claim: Claim) -> bool:
    """Wait until the machine asks for its certificate, and approve it; False when the run that follows it has done so, or in a dry run.
    Forbidden when its token asked for anything else, which is denied; TimedOut when nothing came."""
    if not claim.token_id:
        raise InvalidInput(f"{claim.name} has no bootstrap token.", remedy="Run the playbook join_kubelet.yml, which makes one.")
    node, seconds = claim.node_name or claim.name, context.task.params["timeout"]
    end = context.clock.now() + timedelta(seconds=seconds)
    while True:
        for request in csr.requests(context.kube, token_id=claim.token_id):
            if request.state == "pending" and context.task.check_mode:
                return False
            state = csr.answer(context.kube, request, token_id=claim.token_id, node=node) or request.state
            if state in ("approved", "issued"):
                return state != request.state
            if state in ("denied", "failed"):
                faults = csr.wrong(request, token_id=claim.token_id, node=node)
                why = "; ".join(faults) or request.message
                raise Forbidden(
                    f"{claim.name} gets no certificate: its request {request.name} is {state}: {why}.", service="kubernetes"
                )
        if context.task.check_mode:
            return False
        if context.clock.now() >= end:
            raise TimedOut(f"{claim.name} did not ask for its certificate within {seconds} s.")
        context.clock.sleep(_PAUSE)


def _written(context: Context, claim: Claim, dest: str) -> Claim:
    node_class, pool = class_of(claim, context.specs), context.specs.pool_of(claim.pool)

    def note(**changes: t.Any) -> None:
        nonlocal claim
        claim = context.store.write(dataclasses.replace(claim, **changes))
        context.records.remember(claim)

    enrolment = enrol(context, claim, node_class, note)
    spec = node_spec(context, claim, claim.offer, pool, node_class, enrolment, Lane.KUBELET)
    made = payload(spec, context.template_of(node_class))
    for warning in made.warnings:
        context.warn(f"{claim.name}: {warning}")
    try:
        descriptor = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(made.text)
    except OSError as error:
        raise InvalidInput(f"{dest} cannot be written: {error.strerror}.") from None
    return claim


def _result(context: Context, claim: Claim) -> dict[str, t.Any]:
    instance = next((machine for machine in context.clients.instances(claim.cloud) or () if machine.id == claim.instance_id), None)
    facts = CAPABILITIES.get(claim.cloud)
    end = deadline(claim, in_force(claim, context.specs), facts)
    return {
        "changed": True,
        "name": claim.name,
        "cloud": claim.cloud,
        "address": (instance.ip if instance else "") or claim.ip,
        "login": facts.login if facts else "",
        "deadline": to_text(end) if end else "",
        "hubs": hubs_of(context),
    }
