# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to requests for Paperspace's machines: each is queued, and its event tells what became of it."""

from __future__ import annotations

import threading
import typing as t
from datetime import timedelta
from decimal import Decimal

from . import paperspace_forms as forms
from .clock import ClockClosed
from .paperspace_account import Account, Event, machines
from .paperspace_errors import missing
from .paperspace_types import storage_hour
from .world import Machine, World

VERBS = {"create": "provisioning", "start": "starting", "restart": "restarting"}
"""Requests that switch a machine on, and what the API calls it meanwhile."""


class Course:
    """Machines and events of one world. Whoever calls a method holds the world's lock, but for :meth:`word`."""

    def __init__(self, world: World, account: Account) -> None:
        self._world, self._account = world, account

    def word(self, machine: Machine) -> str:
        return forms.state(machine, self._world.clock.now())

    def find(self, identity: str, deleted: bool = False) -> Machine:
        """The machine with this id. ``deleted``: also one that is gone, where the account shows those."""
        for machine in machines(self._world):
            if machine.id == identity:
                return machine
        gone = self._world.machines.get(identity)
        if deleted and self._account.switches.deleted_shown and gone is not None and gone.cloud == "paperspace" and gone.destroyed:
            return gone
        raise missing("Machine")

    def settle(self) -> None:
        """Bring the events of power-ons up to date with what their machines did. The caller holds the lock."""
        now = self._world.clock.now()
        for event in self._account.events.values():
            machine = self._world.machines.get(event.machine_id)
            if not event.open or machine is None:
                continue
            if event.state == "new" and now >= event.created + timedelta(seconds=forms.QUEUE_SECONDS):
                event.state, event.started = "in progress", event.created + timedelta(seconds=forms.QUEUE_SECONDS)
            if event.name in VERBS and event.turn == machine.details["turn"]:
                up = forms.came_up(machine)
                if up is not None or machine.state == "active":
                    event.end(up or now)
                elif machine.state == "unhealthy":
                    event.end(now, "error", "The machine did not come up. Please contact support.")

    def note(self, machine: Machine, name: str, error: str | None = None) -> Event:
        """An event that is over at once. Requests that are open go on."""
        now = self._world.clock.now()
        made = Event(self._account.new_id(self._world, "ev"), machine.id, name, now, machine.details["turn"])
        made.end(now, "error" if error else "done", error)
        self._account.events[made.id] = made
        return made

    def _event(self, machine: Machine, name: str) -> Event:
        """The event of a new request; what the machine has done by now is noted first."""
        self.settle()
        return self._account.event(self._world, machine, name)

    def _charge(self, machine: Machine, *, running: bool) -> None:
        """The bill runs at this rate from now on: the disk always, the machine while it is not off."""
        disk = storage_hour(machine.details["disk_gb"])
        machine.set_rate(self._world.clock.now(), disk + (machine.details["usage_rate"] if running else Decimal(0)))

    def _later(self, machine: Machine, seconds: float, act: t.Callable[[], None]) -> None:
        """Do it after that much of the world's time, unless another request overtook this one."""
        turn, began = machine.details["turn"], self._world.clock.seconds()

        def wait() -> None:
            try:
                if self._world.clock.pause(seconds, lambda: machine.details["turn"] != turn, began):
                    return
            except ClockClosed:
                return
            with self._world.lock:
                if machine.details["turn"] == turn:
                    act()

        threading.Thread(target=wait, name=f"paperspace-{machine.name}-{turn}", daemon=True).start()
