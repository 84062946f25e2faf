# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Paperspace's machines are switched on, off and away. Every request is only queued: its event tells what became of it."""

from __future__ import annotations

import threading
import typing as t
from datetime import datetime

from .paperspace_account import Event, StaticIP
from .paperspace_course import VERBS, Course
from .paperspace_errors import Refused, refused_with
from .paperspace_offers import find_offer
from .paperspace_types import TYPES
from .world import Machine

STOP_SECONDS = 20.0
NO_CAPACITY = (
    "{type} machines cannot be started at this time: insufficient capacity in {region}, or demand is high. Please try again later."
)


class Power(Course):
    """Acts on machines of one world. All methods take the world's lock themselves and return the event of the request."""

    # ---- on

    def create(self, machine: Machine, start: bool) -> Event:
        """Bring a machine into being; its disk is billed from now on."""
        with self._world.lock:
            self._world.machines[machine.id] = machine
            event = self._event(machine, "create")
            if start:
                return self._begin(machine, event)
            machine.state, machine.details["word"] = "booting", VERBS["create"]
            self._charge(machine, running=False)
        self._later(machine, machine.offer.boot_seconds, lambda: self._off(machine, event))
        return event

    def start(self, machine: Machine) -> Event:
        with self._world.lock:
            word = self.word(machine)
            if word in ("provisioning", "starting", "stopping", "restarting"):
                raise Refused("CONFLICT", f"This machine is currently {word}.")
            event = self._event(machine, "start")
            if word != "off":
                event.end(self._world.clock.now())
                return event
            return self._begin(machine, event)

    def restart(self, machine: Machine) -> Event:
        with self._world.lock:
            word = self.word(machine)
            if word not in ("ready", "serviceready"):
                raise Refused("CONFLICT", f"This machine is currently {word}.")
            event = self._event(machine, "restart")
            machine.state, machine.details["word"] = "booting", VERBS["restart"]
            machine.steps.clear()
        self._world.on_end(machine)
        with self._world.lock:
            return self._begin(machine, event) if event.open else event

    def _begin(self, machine: Machine, event: Event) -> Event:
        """The machine boots, if there is capacity for it; a restarting one has its own. The caller holds the lock."""
        facts, offer = machine.details, machine.offer
        machine.state, facts["word"] = "booting", VERBS[event.name]
        if not machine.placed and offer.stock <= 0:
            self._charge(machine, running=False)
            self._later(machine, self._account.switches.no_capacity_seconds, lambda: self._no_capacity(machine, event))
            return event
        if not machine.placed:
            offer.stock -= 1
            machine.placed = True
        facts["power_ons"] = facts.get("power_ons", 0) + 1
        machine.steps.clear()
        self._address(machine)
        self.hand_out(machine)
        self._charge(machine, running=True)
        self._world.boot(machine)
        self.arm(machine)
        return event

    def arm(self, machine: Machine) -> None:
        """The provider's own brake, if it is set: nobody is ever logged in to these machines. The caller holds the lock."""
        brake = dict(machine.details["auto_shutdown"])
        if brake["enabled"]:
            self._later(machine, brake["timeout"] * 3600.0, lambda: self._stop_idle(machine, brake))

    def _address(self, machine: Machine) -> None:
        """The public address comes at power-on and is another one each time, unless it is static or none."""
        facts = machine.details
        public, private = self._account.next_addresses()
        chosen = {"static": self._static(machine), "none": None}.get(facts["ip_type"], public)
        if "private" not in facts:
            facts["private"] = private
        machine.ip = None
        facts["addresses"] = (chosen, facts["private"])

    def _no_capacity(self, machine: Machine, event: Event) -> None:
        words = NO_CAPACITY.format(type=machine.offer.type, region=machine.offer.region)
        event.end(self._world.clock.now(), "error", words)
        if self._account.switches.no_capacity == "off":
            machine.state = "stopped"

    def hand_out(self, machine: Machine) -> None:
        """What the metadata service would give the machine now: the text of its startup script, or nothing."""
        if machine.state != "booting":
            return
        facts, script = machine.details, self._account.script_of(machine)
        first_of: dict[str, int] = facts.setdefault("scripts_run", {})
        boot = facts.get("power_ons", 0)
        machine.payload = None
        if script is None or not script.enabled:
            return
        again = first_of.setdefault(script.id, boot) != boot
        if not (again and (script.run_once or not self._account.switches.scripts_on_restart)):
            machine.payload = script.text

    # ---- off

    def stop(self, machine: Machine) -> Event:
        with self._world.lock:
            word = self.word(machine)
            if word in ("stopping", "restarting"):
                raise Refused("CONFLICT", f"This machine is currently {word}.")
            event = self._event(machine, "stop")
            if word == "off":
                event.end(self._world.clock.now())
                return event
            machine.state = "stopping"
        self._silence(machine)
        self._later(machine, STOP_SECONDS, lambda: self._off(machine, event))
        return event

    def _stop_idle(self, machine: Machine, brake: dict[str, t.Any]) -> None:
        if machine.state == "active" and machine.details["auto_shutdown"] == brake:  # it was not set anew meanwhile
            threading.Thread(target=self.stop, args=(machine,), name=f"auto-shutdown-{machine.name}", daemon=True).start()

    def _off(self, machine: Machine, event: Event) -> None:
        machine.state = "stopped"
        machine.offer.stock += machine.placed
        machine.placed = False
        if machine.details["ip_type"] == "dynamic":
            machine.ip = None
        self._charge(machine, running=False)
        event.end(self._world.clock.now())

    def delete(self, machine: Machine) -> Event:
        """Computing and disk are billed no more from the moment the request is accepted."""
        switches = self._account.switches
        with self._world.lock:
            word = self.word(machine)
            if machine.state == "terminating":
                return next(one for one in reversed(self._account.events.values()) if one.machine_id == machine.id)
            refusal = switches.delete_while_starting if word in VERBS.values() else 0
            if word not in ("off", "stopping"):
                refusal = refusal or switches.delete_while_on
            if refusal:
                raise refused_with(refusal, f"The machine must be off before it can be deleted; it is {word}.")
            if switches.delete_fails > 0:
                switches.delete_fails -= 1
                return self._failed_delete(machine)
            event = self._event(machine, "deactivate")
            machine.state = "terminating"
            seconds = switches.delete_seconds
            if switches.delete_spread:
                seconds += self._world.random.uniform(0, switches.delete_spread)
        self._world.release(machine)
        self._later(machine, seconds, lambda: self._gone(machine, event))
        return event

    def _failed_delete(self, machine: Machine) -> Event:
        """Accepted, and nothing comes of it."""
        return self.note(machine, "deactivate", "The machine could not be deleted. Please try again later.")

    def taken(self, machine: Machine) -> None:
        """The provider loses the machine: it is gone at once, and what was queued for it fails."""
        with self._world.lock:
            self.settle()
            machine.state = "preempted"
            machine.details["turn"] += 1
            now = self._world.clock.now()
            for event in self._account.events.values():
                if event.machine_id == machine.id and event.open:
                    event.end(now, "error", "The machine was lost.")
            self._leave(machine, now)
        self._world.release(machine)

    def _gone(self, machine: Machine, event: Event) -> None:
        now = self._world.clock.now()
        machine.state = "terminated"
        self._leave(machine, now)
        event.end(now)

    def _leave(self, machine: Machine, now: datetime) -> None:
        """The machine leaves the lists; scripts and addresses stay, assigned to nobody."""
        machine.destroyed = now
        for script in self._account.scripts.values():
            if machine.id in script.machines:
                script.machines.remove(machine.id)
        for ip in self._account.static_ips:
            if ip.machine_id == machine.id:
                ip.machine_id = None

    # ---- what is fixed to a machine; the caller holds the lock

    def rebuild(self, machine: Machine, fields: dict[str, t.Any]) -> None:
        """Another type, a larger disk or another kind of address for a machine that is off."""
        facts = machine.details
        if "machineType" in fields:
            machine.offer = find_offer(self._world, fields["machineType"], machine.offer.region)
            known = TYPES[machine.offer.type]
            facts.update(card=known.card, cpus=known.cpus, ram_gib=known.ram_gib, usage_rate=machine.offer.price_hour)
        facts["disk_gb"] = fields.get("diskSize", facts["disk_gb"])
        if "publicIpType" in fields:
            facts["ip_type"] = fields["publicIpType"]
            if fields["publicIpType"] == "static" and not self._static(machine):
                self._account.claim_ip(self._world, machine.offer.region).machine_id = machine.id
        self._charge(machine, running=False)

    def move_ip(self, held: StaticIP, machine: Machine | None) -> None:
        """A static address goes to ``machine`` or to nobody; whoever had it is without."""
        old = self._world.machines.get(held.machine_id or "")
        if old is not None and old.ip == held.ip:
            old.ip = None
        held.machine_id = machine.id if machine else None
        if machine is not None:
            machine.details["ip_type"], machine.ip = "static", held.ip

    def _static(self, machine: Machine) -> str | None:
        """The static address of a machine."""
        held = (one.ip for one in self._account.static_ips if one.machine_id == machine.id and one.released is None)
        return next(held, None)

    def _silence(self, machine: Machine) -> None:
        self._world.clock.wake()
        self._world.on_end(machine)
