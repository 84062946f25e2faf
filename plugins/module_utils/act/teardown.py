# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives machines back in the order that leaks nothing (L-10), many side by side, each step recorded before the next.

drain → Terminating → volumes detached → destroy every id ever handed out → confirmed gone → mesh device and key → Node (or Service) → token →
ledger line → claim removed. Nothing is given up: what does not end in this run is continued by the next one.
"""

from __future__ import annotations

import dataclasses
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal

from ..clouds.registry import CAPABILITIES
from ..cluster import tokens
from ..cluster.drain import Drained, drain
from ..cluster.nodes import delete_node, get_node
from ..cluster.volumes import attached_volumes
from ..errors import ApiError, Conflict, Forbidden, LockLost, NotFound, RateLimited, TgpError, Unauthorized
from ..fleet.cost import ledger_line
from ..fleet.drain import backoff_after_block, is_voluntary
from ..fleet.model import Claim, Node, Phase
from ..fleet.phases import advance
from ..fleet.service import is_service
from ..mesh.find import find_device
from ..observe.context import Context
from .duplicates import without_booked
from .publish import withdraw
from .serve_idle import not_idle_any_more

_WORKERS = 32
_VOLUMES = 120.0
_CONFIRM = 120.0
_POLL = 5.0
_ALARM = 900.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How one claim ended in this step: ``result`` is gone, kept (a voluntary drain was held up) or pending (next run goes on)."""

    claim: Claim
    result: str
    message: str = ""
    drained: Drained | None = None


def teardown_all(context: Context, claims: t.Sequence[Claim]) -> list[Ended]:
    """Take every claim down side by side; one that fails never stops the others. LockLost ends the whole step."""
    if not claims:
        return []
    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(claims)), thread_name_prefix="teardown") as pool:
        return list(pool.map(lambda claim: _guarded(context, claim), claims))


def _guarded(context: Context, claim: Claim) -> Ended:
    work = _Teardown(context, claim)
    try:
        return work.run()
    except LockLost:
        raise
    except TgpError as error:
        return work.pending(str(error))


class _Teardown:
    """The teardown of one claim. ``claim`` is always the record as last written."""

    def __init__(self, context: Context, claim: Claim) -> None:
        self.context = context
        self.claim = claim
        self.drained: Drained | None = None
        self._accepted: datetime | None = None
        if claim.deletion is None:
            raise TgpError(f"{claim.name}: asked to take down a machine that nobody decided to give back.")
        self.deletion = claim.deletion

    def run(self) -> Ended:
        node = self._node()
        if self.claim.phase is not Phase.TERMINATING:
            if node is not None and not self._drain(node):
                return self._keep()
            if is_service(self.claim) and (why := not_idle_any_more(self.context, self.claim)):
                return self._keep_service(why)
            self._terminating()
        if node is not None:
            self._wait_for_volumes(node)
        gone = self._destroy()
        if not gone:
            return self.pending("the cloud does not yet say that the machine is gone")
        self._leave_mesh()
        if is_service(self.claim):
            withdraw(self.context, self.claim)
        else:
            self._delete_node(node)
        tokens.delete(self.context.kube, self.claim.token_id) if self.claim.token_id else None
        return self._close()

    # ---- drain

    def _node(self) -> Node | None:
        if is_service(self.claim):
            return None
        node = get_node(self.context.kube, self.claim.node_name or self.claim.name)
        if node is None or (self.claim.node_uid and node.uid != self.claim.node_uid):
            return None
        return node

    def _drain(self, node: Node) -> bool:
        """True when the machine may go now."""
        pool = self.context.pool_of(self.claim)
        self.context.progress.step(self.claim.name, "draining", f"reason {self.deletion.reason}", **self._money())
        self.drained = drain(
            self.context.kube,
            node.name,
            node.uid,
            self.deletion.reason,
            timeout=self.context.drain_timeout(pool),
            clock=self.context.clock,
            force=self.deletion.force,
            gpu_resources=self.context.settings.gpu_resources,
            idle_mode=pool.idle_mode if pool else "workload",
            ignore_namespaces=self.context.settings.ignore_namespaces,
            progress=lambda text: self.context.progress.step(self.claim.name, "draining", text, **self._money()),
        )
        return self.drained.drained

    def _keep(self) -> Ended:
        """A voluntary drain was held up: the node is usable again, the claim goes on as it was, with a pause before the next try."""
        blockers = ", ".join(f"{one.pod} ({one.by})" for one in self.drained.blocked) if self.drained else ""
        message = f"kept: {blockers or (self.drained.message if self.drained else '')}"
        if not is_voluntary(self.deletion.reason) and not self.deletion.force:
            return self.pending(message)
        now = self.context.clock.now()
        pause, times = backoff_after_block(self.claim.blocked_times)
        became_busy = self.drained is not None and self.drained.busy
        self._write(
            deletion=None,
            idle_since=None if became_busy else self.claim.idle_since,
            blocked_until=None if became_busy else now + pause,
            blocked_times=0 if became_busy else times,
        )
        self.context.progress.step(self.claim.name, "kept", message, **self._money())
        return Ended(self.claim, "kept", message, self.drained)

    def _keep_service(self, why: str) -> Ended:
        """It was to go for being idle, and is not (or nobody can tell) any more: the claim goes on, and its idle time begins anew."""
        self._write(deletion=None, idle_since=None)
        self.context.progress.step(self.claim.name, "kept", why, **self._money())
        return Ended(self.claim, "kept", f"kept: {why}")

    def _terminating(self) -> None:
        now = self.context.clock.now()
        self._write(advance(self.claim, Phase.TERMINATING, now, self.deletion.reason))

    def _wait_for_volumes(self, node: Node) -> None:
        deadline = self.context.clock.now().timestamp() + _VOLUMES
        while attached := attached_volumes(self.context.kube, node.name):
            if self.context.clock.now().timestamp() >= deadline:
                self.context.warn(f"{node.name}: volumes still attached after {_VOLUMES:.0f} s: {', '.join(attached)}")
                return
            self.context.clock.sleep(_POLL)

    # ---- destroy

    def _destroy(self) -> bool:
        ids = self.claim.ids_seen
        if not ids:
            return self._nothing_rented()
        cloud = self.context.cloud(self.claim.cloud)
        deadline = self.context.clock.now().timestamp() + _CONFIRM
        asked: set[str] = set()
        while True:
            left = []
            for instance_id in ids:
                if instance_id not in asked:
                    self._ask(instance_id)
                    asked.add(instance_id)
                if not self._is_gone(cloud, instance_id):
                    left.append(instance_id)
            if not left:
                if self.claim.gone_since is None:
                    self._write(gone_since=self._end_of_bill())
                return True
            if self.context.clock.now().timestamp() >= deadline:
                return False
            self.context.clock.sleep(_POLL)

    def _nothing_rented(self) -> bool:
        """A claim without an id: only a usable list without our name proves that there is nothing to destroy."""
        if self.claim.launch_started is None:
            return True
        cloud = self.context.cloud(self.claim.cloud)
        found = tuple(one.id for one in cloud.instances() if one.name == self.claim.name and not one.gone)
        if found:
            self._write(instance_id=found[0], ids_seen=found)
            return self._destroy()
        unsure = self.claim.unknown_since or self.claim.launch_started
        return (self.context.clock.now() - unsure).total_seconds() >= self.context.settings.unknown_window

    def _ask(self, instance_id: str) -> None:
        """One destroy call; a second one only after the cloud asked for patience."""
        context, now = self.context, self.context.clock.now()
        deletion = dataclasses.replace(self.deletion, started=self.deletion.started or now, attempts=self.deletion.attempts + 1)
        self._write(deletion=deletion)
        self.deletion = deletion
        context.lock.renew_if_due()
        context.progress.step(self.claim.name, "destroying", f"{self.claim.cloud} id {instance_id}", **self._money())
        pause = 1.0
        while True:
            try:
                context.cloud(self.claim.cloud).terminate(instance_id)
                self._accepted = context.clock.now()
                return
            except RateLimited as error:
                wait = error.retry_after or pause
                pause = min(pause * 2, 30.0)
                if (context.clock.now() - now).total_seconds() + wait > _CONFIRM:
                    raise
                context.clock.sleep(wait)
            except (Unauthorized, Forbidden) as error:
                context.give_up(self.claim.cloud, error)
                context.warn(f"ALARM: {self.claim.cloud} does not let us destroy {self.claim.name} ({instance_id}): {error}")
                raise
            except Conflict:
                return  # locked over there: the confirmation loop and the next run ask again
            except ApiError as error:
                self._note(str(error))
                raise

    def _end_of_bill(self) -> datetime:
        """The last time it was possibly alive (L-10); where the cloud's bill ends with the accepted call, that moment."""
        if self._accepted is not None and not CAPABILITIES[self.claim.cloud].billed_until_gone:
            return self._accepted
        return self.context.clock.now()

    def _is_gone(self, cloud: t.Any, instance_id: str) -> bool:
        listed = self.context.instances(self.claim.cloud)
        if listed is None or any(one.id == instance_id and not one.gone for one in listed):
            return False
        one = cloud.instance(instance_id)
        return one is None or one.gone

    # ---- leftovers

    def _leave_mesh(self) -> None:
        mesh = self.context.mesh()
        if mesh is None:
            return
        device_id = self.claim.mesh_device_id
        if not device_id:
            found = find_device(
                mesh.devices(), hostname=self.claim.name, tags=self.context.mesh_tags(self.claim), created_after=self.claim.created
            )
            device_id = found.device.id if found.device else ""
        if device_id:
            mesh.delete_device(device_id)
        if self.claim.mesh_key_id:
            mesh.delete_key(self.claim.mesh_key_id)

    def _delete_node(self, node: Node | None) -> None:
        current = node or self._node()
        if current is None or not self.context.deletes_nodes(self.claim):
            return
        try:
            delete_node(self.context.kube, current.name, uid=current.uid)
        except (NotFound, Conflict):
            pass  # gone, or another machine has taken the name

    def _close(self) -> Ended:
        now = self.context.clock.now()
        end = self.claim.gone_since or now
        ids = without_booked(self.context, self.claim)
        billed = dataclasses.replace(self.claim, ids_seen=ids, launch_started=self.claim.launch_started if ids else None)
        line = ledger_line(billed, end=end, granularity=self.context.granularity(self.claim.cloud))
        if not CAPABILITIES[self.claim.cloud].rented:  # an own machine comes again under its name: one line for each time it was on
            line["key"] = f"{self.claim.name}.{self.claim.created:%Y%m%d%H%M%S}"
        self.context.store.ledger(line)
        self.context.store.remove(self.claim)
        self.context.forget(self.claim)
        self.context.progress.step(
            self.claim.name, "gone", f"{self.deletion.reason}, cost ${Decimal(line['cost']):.4f}", since=self.claim.launch_started
        )
        return Ended(self.claim, "gone", self.deletion.reason, self.drained)

    # ---- the record

    def pending(self, why: str) -> Ended:
        """Not finished in this run. An alarm is raised once a destroy has been asked for longer than 15 minutes."""
        try:
            self._note(why)
        except ApiError as error:  # the record stays as it was; that alone must not hide what became of the others
            why = f"{why} (not noted: {error})"
        started: datetime | None = self.deletion.started
        if started is not None and (self.context.clock.now() - started).total_seconds() > _ALARM:
            self.context.warn(f"ALARM: {self.claim.name} ({self.claim.cloud} {self.claim.ids_seen}) still exists: {why}")
        self.context.progress.step(self.claim.name, "pending", why, **self._money())
        return Ended(self.claim, "pending", why, self.drained)

    def _note(self, why: str) -> None:
        if self.claim.deletion is not None:
            self.deletion = dataclasses.replace(self.claim.deletion, last_error=why[:500])
            self._write(deletion=self.deletion)

    def _write(self, base: Claim | None = None, **changes: t.Any) -> None:
        self.claim = self.context.store.write(dataclasses.replace(base or self.claim, **changes))
        self.context.remember(self.claim)

    def _money(self) -> dict[str, t.Any]:
        return {"since": self.claim.launch_started, "price_hour": self.claim.price}
