# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From "the machine runs" to "it is usable": registered, initialized, and the one deadline for all of it (L-11); and which of our marks
a node that is in use has lost since."""

from __future__ import annotations

from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import AcceptanceTest, Capability, Claim, Instance, InstanceState, Node, NodeClass, Phase, Pool
from ...model.labels import (
    ACCEPTED_AT_ANNOTATION,
    DRAIN_STARTED_ANNOTATION,
    INITIALIZING_TAINT,
    INSTANCE_ID_LABEL,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PROVISIONED_LABEL,
    READINESS_TAINT_PREFIX,
    UNINITIALIZED_TAINT,
    UNREACHABLE_TAINT,
)
from ...model.names import label_value
from ...model.resources import MIG_PREFIX, NEUTRAL_GPU, NVIDIA_GPU
from ...units.values import parse_time
from ..claims.mesh import mesh_of, uses_tailnet
from ..scheduling import capacity
from ..scheduling.capacity import advertised
from . import limits

_NOT_USABLE = (
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    UNINITIALIZED_TAINT,
)
_CLOCK_TOLERANCE = timedelta(seconds=60)


def is_node_of(claim: Claim, node: Node) -> bool:
    """Whether the Node belongs to the claim: by its name, or by the instance id on it."""
    if node.name == (claim.node_name or claim.name):
        return True
    return bool(claim.instance_id) and node.labels.get(INSTANCE_ID_LABEL) == label_value(claim.instance_id)


def is_stale(claim: Claim, node: Node, capability: Capability | None) -> bool:
    """A Node of our name that is older than the launch: not this machine's. Own machines keep their Node, so theirs never is."""
    if (capability is not None and not capability.rented) or claim.node_uid == node.uid:
        return False
    return claim.launch_started is not None and node.created < claim.launch_started - _CLOCK_TOLERANCE


def not_initialized(claim: Claim, node: Node | None, pool: Pool | None, *, marking: bool = False) -> tuple[str, ...]:
    """What is still missing until the node is usable, in the order of the checks; empty = initialized.

    ``marking`` True leaves out what we do ourselves as the last acts (the acceptance test, our labels, our own start-up taint, opening the
    Node of an own machine that comes back as it was drained): it tells when to do them.
    """
    if node is None:
        return ("no Node",)
    missing = [] if node.ready else [f"Node is not Ready: {node.ready_message}".rstrip(": ")]
    startup = {taint.key for taint in pool.startup_taints} if pool else set()
    for taint in node.taints:
        ours = taint.key == INITIALIZING_TAINT and not marking
        if ours or taint.key in startup or taint.key in _NOT_USABLE or taint.key.startswith(READINESS_TAINT_PREFIX):
            missing.append(f"taint {taint.key}")
    missing.extend(_missing_gpus(claim, node, pool))
    if not marking:
        labels = {PROVISIONED_LABEL: "true", **(dict(pool.labels) if pool else {})}
        missing.extend(f"label {key}" for key, value in labels.items() if node.labels.get(key) != value)
        if (test := required_test(claim, pool, node)) is not None:
            missing.append(f"acceptance test {test.name}")
        if DRAIN_STARTED_ANNOTATION in node.annotations:
            missing.append("it is closed as its last drain left it")
    return tuple(missing)


def _missing_gpus(claim: Claim, node: Node, pool: Pool | None) -> list[str]:
    if pool is not None and pool.mig:
        return _missing_instances(claim, node, pool)
    expected, allocatable = awaited_gpus(claim, pool), allocatable_gpus(claim, node, pool)
    return [] if allocatable >= expected else [f"{allocatable} of {expected} {limits.gpu_resource(claim.offer.model)}"]


def _missing_instances(claim: Claim, node: Node, pool: Pool) -> list[str]:
    """Of each profile where all are awaited, of any else. A pool whose profiles changed after the launch is judged by the sum."""
    planned = capacity.planned_resources(claim.offer, pool)
    if pool.gpu_wait == "all" and sum(planned.values()) == claim.expected_gpus:
        seen = {name: node.allocatable.get(name, 0) for name in planned}
        return [f"{seen[name]} of {number} {name}" for name, number in sorted(planned.items()) if seen[name] < number]
    expected, allocatable = awaited_gpus(claim, pool), _instances(node)
    return [] if allocatable >= expected else [f"{allocatable} of {expected} MIG instances"]


def _instances(node: Node) -> int:
    return sum(amount for name, amount in node.allocatable.items() if name.startswith(MIG_PREFIX))


def awaited_gpus(claim: Claim, pool: Pool | None) -> int:
    """How many GPUs (or parts of them) the pool waits for on the claim's Node (``gpuWait``)."""
    wait = pool.gpu_wait if pool else "all"
    return {"all": claim.expected_gpus, "any": min(1, claim.expected_gpus), "none": 0}[wait]


def allocatable_gpus(claim: Claim, node: Node, pool: Pool | None) -> int:
    """How many GPUs (or slices of them) the claim's Node offers to pods. MIG instances where ``pool`` divides its GPUs, unless the Node has
    none: it joined before the pool did so. Where the pool is unknown, whole GPUs and instances: it may divide them."""
    instances = _instances(node) if pool is None or pool.mig else 0
    if pool is not None and instances:
        return instances
    return node.offered(limits.gpu_resource(claim.offer.model)) + instances


def timeout(claim: Claim, pool: Pool | None, capability: Capability | None) -> int:
    """Seconds from the create call until the machine must be usable: the pool's spec, else what is usual at the cloud; the time of one try of
    the pool's acceptance test (L-35); and that of its images (L-43)."""
    steps = (pool.acceptance, pool.pre_pull) if pool is not None else ()
    more = sum(step.timeout for step in steps if step is not None)
    if pool is not None and pool.registration_timeout is not None:
        return pool.registration_timeout + more
    return (capability.registration_timeout if capability is not None else 1200) + more


def deadline(claim: Claim, pool: Pool | None, capability: Capability | None) -> datetime | None:
    """When the claim counts as failed unless it is initialized by then; None before a create call."""
    if claim.launch_started is None:
        return None
    return (claim.adopted or claim.launch_started) + timedelta(seconds=timeout(claim, pool, capability))


def overdue(claim: Claim, pool: Pool | None, capability: Capability | None, now: datetime, node: Node | None = None) -> bool:
    """True at the deadline and after it, for a claim that is not initialized. Facts beat the clock: a Node that lacks nothing but our
    own marks (the run that should have set them was killed) is in time.
    """
    moment = deadline(claim, pool, capability)
    late = claim.initialized is None and moment is not None and now >= moment
    return late and bool(not_initialized(claim, node, pool, marking=True))


def forsaken(claim: Claim, pool: Pool | None, capability: Capability | None, now: datetime, times: int = 2) -> bool:
    """True when a claim's time has passed so many times and no run has made it usable, however complete its Node is. The one that should
    have was killed, none has come since, and a closed Node is never idle: it would be billed for ever.
    """
    moment = deadline(claim, pool, capability)
    if claim.initialized is not None or moment is None:
        return False
    return now >= moment + timedelta(seconds=(times - 1) * timeout(claim, pool, capability))


def failure_class(claim: Claim, instance: Instance | None, node: Node | None, node_class: NodeClass | None) -> str:
    """How far a machine came that never joined: no_instance, instance_not_running, overlay_offline, node_not_registered,
    node_not_ready, gpu_missing.
    """
    if instance is None and not claim.instance_id:
        return "no_instance"
    if node is None:
        if instance is None:
            return "no_instance"
        if instance.state is not InstanceState.RUNNING:
            return "instance_not_running"
        unknown = node_class is None and not mesh_of(claim)
        uses_mesh = unknown or uses_tailnet(claim, node_class)  # whether a tunnel is up is known to its hub alone
        return "overlay_offline" if uses_mesh and claim.mesh_seen is None else "node_not_registered"
    return "gpu_missing" if node.ready else "node_not_ready"


# ---- the test that it has to pass before pods come (L-35)


def asked_test(pool: Pool | None, model: str) -> AcceptanceTest | None:
    """The test of a machine with GPUs of this model. vectorAdd is a program of CUDA, so it says nothing of others' GPUs."""
    test = pool.acceptance if pool is not None else None
    return test if test is not None and (test.image or limits.gpu_resource(model) == NVIDIA_GPU) else None


def required_test(claim: Claim, pool: Pool | None, node: Node) -> AcceptanceTest | None:
    """The test that the node has still to pass; None = it has none, or has passed it, as claim or Node say. A node that is in use is not
    tested: neither when its pool begins to ask for it, nor when its record was lost."""
    if was_in_use(claim, node) or claim.initialized is not None or accepted(claim, node) is not None:
        return None
    return asked_test(pool, claim.offer.model)


def was_in_use(claim: Claim, node: Node) -> bool:
    """Whether the node was in use when it was adopted: it is not held back any more, so its pods run."""
    return claim.adopted is not None and all(taint.key != INITIALIZING_TAINT for taint in node.taints)


def accepted(claim: Claim, node: Node) -> datetime | None:
    """When the node of this launch passed its test. A run that was killed may have written it to the Node alone; an own machine's Node
    may say it of an earlier launch."""
    if claim.accepted is not None:
        return claim.accepted
    try:
        moment = parse_time(node.annotations.get(ACCEPTED_AT_ANNOTATION, ""))
    except InvalidInput:
        return None
    return moment if moment >= claim.launched else None


# ---- marks that a node in use has lost, or never got (L-19), the neutral name of its GPUs among them (L-17)


def drift(claim: Claim, node: Node, pool: Pool, cluster_id: str) -> tuple[str, ...]:
    """The labels, annotations, taints and neutral GPUs that differ from what claim and pool say, in words; empty = all is as it should be.

    A node that is not (or no longer) the very one of a claim in use has no marks of ours to lose.
    """
    if claim.phase is not Phase.READY or claim.deletion is not None or node.uid != claim.node_uid:
        return ()
    differences = [
        f"label {key}"
        for key, value in capacity.asserted_labels(claim, pool, cluster_id, node).items()
        if node.labels.get(key) != value
    ]
    differences += [
        f"annotation {key}" for key, value in capacity.node_annotations(claim, pool).items() if node.annotations.get(key) != value
    ]
    have = {(taint.key, taint.effect): taint.value for taint in node.taints}
    differences += [f"taint {taint}" for taint in capacity.taints(pool) if have.get((taint.key, taint.effect)) != taint.value]
    if _lacks_neutral_gpus(claim, node, pool):
        differences.append(f"{NEUTRAL_GPU} {node.allocatable.get(NEUTRAL_GPU, 0)} instead of {advertised(claim, pool)}")
    if startup_taint_is_left(claim, node, pool):
        differences.append(f"taint {capacity.INITIALIZING} that should be gone")
    return tuple(differences)


def _lacks_neutral_gpus(claim: Claim, node: Node, pool: Pool) -> bool:
    """True when the node does not offer its GPUs under the neutral name, too, or another number of them."""
    return node.allocatable.get(NEUTRAL_GPU, 0) != advertised(claim, pool)


def startup_taint_is_left(claim: Claim, node: Node, pool: Pool) -> bool:
    """True when our own startup taint is on a node that lacks nothing else."""
    present = any(taint.key == capacity.INITIALIZING.key for taint in node.taints)
    return present and not not_initialized(claim, node, pool, marking=True)
