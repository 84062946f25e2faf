# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One power-on of a machine: its time, its story, its console, and what cuts it short.

The story (``steps``) is the sandbox's own knowledge, which GET /world shows. The console has what the machine's system and payload print, and
nothing else.
"""

from __future__ import annotations

import math
import typing as t

from . import payload
from .behaviour import ENDINGS
from .payload import Mesh, Refused
from .tailnet import HEADSCALE
from .world import Machine

if t.TYPE_CHECKING:
    from .machine import Machines

_DEAD = frozenset({"terminating", "terminated", "preempted", "stopped", "stopping", "off"})


_KNOWN_LOGIN = ("https://controlplane.tailscale.com", "https://login.tailscale.com")
MESH_TIMEOUT = 'control: LoginHot -> fetch control key: Get "https://controlplane.tailscale.com/key?v=130": i/o timeout'


class Over(Exception):
    """The machine is gone; its story ends here."""


class Life:
    """What every step of a story needs: how long it takes for this machine, a note of it, and lines for the console."""

    def __init__(self, machines: Machines, machine: Machine) -> None:
        self._all, self._machine, self._world = machines, machine, machines.world
        self._boots = machine.boots
        self._parts = machines.behaviours.of(machine)
        self._factor = self._parts["slow"].factor if "slow" in self._parts else 1.0
        self._system = machine.details.get("system") or (payload.TALOS if machine.cloud == "webhook" else payload.UBUNTU)
        started = self._due = machine.began or self._world.clock.seconds()
        endings = [(started + part.seconds, kind) for kind, part in self._parts.items() if kind in ENDINGS]
        self._doom, self._ending = min(endings, default=(math.inf, ""))

    def _seconds(self, step: str) -> float:
        own = self._machine.offer.details.get("timings") or {}
        return float(own.get(step, self._all.timings.get(step, 0.0)))

    def _lives(self) -> bool:
        machine = self._machine
        struck = machine.details.get("struck") == self._boots
        return machine.boots == self._boots and machine.state not in _DEAD and not struck

    def _pause(self, seconds: float, *, stretched: bool = True) -> None:
        """Let time pass; :class:`Over` when the machine ends meanwhile.

        Steps follow each other by plan: what a thread of this process comes late, it does not hand on to the next step.
        """
        clock = self._world.clock
        self._due += seconds * (self._factor if stretched else 1.0)
        until = min(self._due, self._doom)
        if clock.pause(max(0.0, until - clock.seconds()), lambda: not self._lives()):
            raise Over
        if self._doom <= self._due:
            self._all.strike(self._machine, self._ending)
            raise Over

    def _note(self, step: str, text: str, *, failed: bool = False) -> None:
        """A step of the story, which the machine itself does not tell."""
        with self._world.lock:
            machine = self._machine
            if machine.boots != self._boots:
                raise Over
            machine.steps.append((self._world.clock.now(), step, f"failed: {text}" if failed else text))

    def _print(self, *lines: str) -> None:
        """Lines on the console."""
        with self._world.lock:
            if self._machine.boots != self._boots:
                raise Over
            self._machine.console += lines

    def _join(self, mesh: Mesh) -> t.Any:
        """Log in to the tailnet; the device. Raises Refused or JoinRefused."""
        server = mesh.login_server.rstrip("/")
        if server and server not in self._all.login_servers and server not in _KNOWN_LOGIN:
            raise Refused("mesh", f"tailscale up: fetch control key: Get {server}/key?v=130: connect: connection refused")
        if self._all.tailnet.profile == HEADSCALE and server not in self._all.login_servers:
            raise Refused("mesh", "tailscale up: invalid key: invalid API token")  # the public service knows no such key
        if not mesh.key:
            raise Refused("mesh", "tailscale up: not logged in: To authenticate, visit https://login.tailscale.com/a/1")
        return self._all.tailnet.join(
            mesh.key,
            mesh.hostname or self._machine.hostname,
            advertise_tags=mesh.advertise_tags,
            advertise_routes=mesh.advertise_routes,
            accept_routes=mesh.accept_routes,
        )
