# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a machine is terminated, as the next step from what is known (L-10). Unknown is never taken for gone."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime

from ...model import Claim, InstanceState, Node, Phase, Pod
from ...model.defaults import Settings
from ..claim_sync import Settled
from ..cluster_state import Situation
from ..disruption import emptiness
from ..disruption.drain_rules import MODES, Mode, busy, is_voluntary
from ..provisioning import service

VOLUME_WAIT = 120
ALARM_AFTER = 900
NO_DRAIN = frozenset(reason for reason, mode in MODES.items() if mode is Mode.NONE)


class Step(str, enum.Enum):
    """What to do next with a claim that is being terminated."""

    DRAIN = "drain"
    TERMINATE = "enter phase Terminating"
    WAIT_VOLUMES = "wait for volumes"
    DESTROY = "destroy the instance"
    CONFIRM = "confirm that the instance is gone"
    DELETE_DEVICE = "delete the mesh device"
    DELETE_KEY = "delete the unused mesh key"
    DELETE_NODE = "delete the Node"
    DISCARD_EXTRAS = "remove what stays beside the machine"
    REMOVE_CLAIM = "write the ledger line and remove the claim"
    WAIT = "wait for the next run"


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a claim's things. None = could not be read.

    ``instance``: "present", "terminating" or "absent" (of all ids ever handed out). ``volumes``: VolumeAttachments left on the node,
    waited for since ``volumes_since``. ``node_ready`` is asked only while ``node`` exists. ``keeps_node``: own machines keep theirs.
    ``extras``: whether the cloud keeps something beside machines under this name.
    """

    now: datetime
    drained: bool = False
    volumes: int | None = 0
    volumes_since: datetime | None = None
    instance: str | None = None
    node: bool | None = None
    node_ready: bool | None = None
    device: bool | None = None
    key: bool | None = None
    keeps_node: bool = False
    extras: bool | None = False


def needs_drain(claim: Claim, facts: Facts) -> bool:
    """True while pods have to leave first: the reason asks for it and the node may still be there. A reason that was decided after the
    drain of another one (see :func:`refilled`) drains again."""
    reason = claim.deletion.reason if claim.deletion else ""
    over = claim.phase is Phase.TERMINATING and not (claim.deletion and claim.deletion.requested > claim.phase_since)
    return not over and reason not in NO_DRAIN and not facts.drained and facts.node is not False


def refilled(settled: Settled, situation: Situation) -> str:
    """Which work came onto a machine after it was drained for a reason that can wait, and before it was deleted: a run that was killed in
    between leaves time for that. Empty = none, or the machine is gone already. The phase never goes back (L-2): the machine stays closed,
    and goes when the work has ended, or for a stronger reason."""
    claim, instance = settled.claim, settled.recovery.instance
    listed = situation.instances(claim.cloud) is not None
    if not waits(claim) or (listed and (instance is None or instance.state is not InstanceState.RUNNING)):
        return ""
    pool = situation.in_force(claim)
    if claim.is_service:
        probe = service.probe_of(claim, situation)
        return emptiness.service_idle(claim, probe, pool, situation.now).why if pool is not None and probe.idle is False else ""
    pods = situation.pods(settled.node) if settled.node is not None else None
    return came_back(claim, settled.node, pods, pool.idle_mode if pool else "workload", situation.settings, situation.now)


def came_back(
    claim: Claim, node: Node | None, pods: t.Sequence[Pod] | None, idle_mode: str, settings: Settings, now: datetime
) -> str:
    """The same from the Ready ``node`` and its ``pods`` (None = could not be read, which does not prove that none came)."""
    if not waits(claim) or node is None or not node.ready:
        return ""
    if pods is None:
        return "whether a pod came after the drain is unknown: the pods could not be read"
    here = busy([pod for pod in pods if pod.node == node.name], idle_mode, settings, now)
    return f"pod {here[0].namespace}/{here[0].name} came after the drain" if here else ""


def waits(claim: Claim) -> bool:
    """Whether the claim is past its drain for a reason that can wait."""
    return claim.phase is Phase.TERMINATING and claim.deletion is not None and is_voluntary(claim.deletion.reason)


def next_step(claim: Claim, facts: Facts) -> Step:
    """The one step that comes next. Doing it twice does no harm; a lost answer is met by doing it again."""
    if needs_drain(claim, facts):
        return Step.WAIT if facts.node is None else Step.DRAIN
    if claim.phase is not Phase.TERMINATING:
        return Step.TERMINATE
    if facts.volumes and not _waited(facts) and facts.instance == "present":
        return Step.WAIT_VOLUMES
    started = claim.deletion is not None and claim.deletion.started is not None
    if facts.instance == "present" or (facts.instance is None and not started):
        return Step.DESTROY
    removal = _removal(facts)
    if facts.instance == "absent":
        return removal or _beside(facts) or Step.REMOVE_CLAIM
    if facts.instance == "terminating" and facts.node_ready is not True and facts.node is not None:
        return removal if removal not in (None, Step.WAIT) else Step.CONFIRM
    return Step.CONFIRM


def _removal(facts: Facts) -> Step | None:
    if facts.device:
        return Step.DELETE_DEVICE
    if facts.key:
        return Step.DELETE_KEY
    if facts.node and not facts.keeps_node:
        return Step.DELETE_NODE
    unknown = (facts.device, facts.key, facts.node)
    return Step.WAIT if None in unknown else None


def _beside(facts: Facts) -> Step | None:
    if facts.extras:
        return Step.DISCARD_EXTRAS
    return Step.WAIT if facts.extras is None else None


def _waited(facts: Facts) -> bool:
    return facts.volumes_since is not None and (facts.now - facts.volumes_since).total_seconds() >= VOLUME_WAIT


def alarm(claim: Claim, now: datetime) -> bool:
    """True when a destroy has been pending for more than 15 minutes."""
    started = claim.deletion.started if claim.deletion else None
    return started is not None and (now - started).total_seconds() > ALARM_AFTER
