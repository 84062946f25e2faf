# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines live in, and one power-on of a machine: its time, its story, its console, and what cuts it short.

The story (``steps``) is the sandbox's own knowledge, which GET /world shows. The console has what the machine's system and payload print, and
nothing else.
"""

from __future__ import annotations

import abc
import math
import threading
import typing as t

from . import payload
from .behaviour import ENDINGS, Behaviour, Behaviours
from .clock import ClockClosed
from .cluster import Cluster
from .hub import Hub
from .kubelets import Kubelets
from .payload import Intent, Mesh, Refused
from .tailnet import HEADSCALE, Tailnet
from .world import Machine, World

_DEAD = frozenset({"terminating", "terminated", "preempted", "stopped", "stopping", "off"})


_PREEMPTED_SECONDS = 120.0  # how long a machine that was taken back is still listed
Installed = t.Callable[[Machine], Intent]
_KNOWN_LOGIN = ("https://controlplane.tailscale.com", "https://login.tailscale.com")
MESH_TIMEOUT = 'control: LoginHot -> fetch control key: Get "https://controlplane.tailscale.com/key?v=130": i/o timeout'


class Over(Exception):
    """The machine is gone; its story ends here."""


class Surroundings(abc.ABC):
    """What all machines of the world live in, and how they end before their time.

    ``timings`` are seconds per step (packages, mesh, csr, ready, gpu), an offer's own come first. ``installed`` makes the intent of an own
    machine that was set up before this world began. ``schematics`` maps an Image Factory id to its extensions, None = unknown id.
    ``trustd`` is (token, CA) of the cluster's Talos side. ``login_servers`` are URLs that lead to the world's tailnet,
    ``hub`` is its WireGuard hub.
    """

    def __init__(
        self,
        world: World,
        tailnet: Tailnet,
        cluster: Cluster | None = None,
        kubelets: Kubelets | None = None,
        *,
        timings: t.Mapping[str, float],
        behaviours: t.Iterable[Behaviour] = (),
        installed: Installed | None = None,
        schematics: t.Callable[[str], t.Sequence[str] | None] | None = None,
        trustd: tuple[str, str] | None = None,
        hub: Hub | None = None,
    ) -> None:
        self.world, self.tailnet, self.cluster, self.kubelets = world, tailnet, cluster, kubelets
        self.timings = dict(timings)
        self.behaviours = Behaviours(behaviours)
        self.installed, self.schematics, self.trustd = installed, schematics, trustd
        self.hub = hub or Hub()
        self.login_servers: set[str] = set()
        world.on_boot, world.on_end = self.boot, self.silence

    @abc.abstractmethod
    def boot(self, machine: Machine) -> None:
        """The whole life of one power-on; runs in the machine's own thread."""

    def silence(self, machine: Machine) -> None:
        """Kubelet and mesh client answer no more."""
        node, device = machine.details.get("node"), machine.details.get("device")
        if node and self.kubelets is not None:
            self.kubelets.silence(node)
        if device:
            self.tailnet.set_online(device, False)

    def strike(self, machine: Machine, kind: str) -> None:
        """One of the endings of behaviour.py befalls a machine now."""
        with self.world.lock:
            machine.details["struck"] = machine.boots
            own = machine.cloud == "webhook"
            now = self.world.clock.now()
            machine.steps.append((now, kind, {"dies": "power lost", "crash": "kernel panic", "vanish": "taken back"}[kind]))
            if own and kind != "crash":
                machine.state, machine.ended = "off", now
            elif kind == "dies":
                machine.state = "unhealthy"
            elif kind == "vanish" and machine.cloud not in self.world.on_taken:
                machine.state = "preempted"
        if kind == "vanish" and machine.cloud in self.world.on_taken:
            self.world.on_taken[machine.cloud](machine)
        elif kind == "vanish" and not own:
            self.world.release(machine)
            moment = self.world.clock.seconds()
            threading.Thread(target=self._leave_list, args=(machine, moment), name=f"preempted-{machine.name}", daemon=True).start()
        else:
            self.world.clock.wake()
            self.silence(machine)

    def shut_down(self, machine: Machine) -> None:
        """Its own system powers it off. ``on_shutdown`` says what its cloud makes of that; without a word it is shown as before and billed."""
        act = self.world.on_shutdown.get(machine.cloud)
        if machine.cloud == "webhook":
            self.world.power_off(machine)
        elif act is not None:
            act(machine)
        else:
            with self.world.lock:
                machine.details["struck"] = machine.boots
            self.silence(machine)

    def _leave_list(self, machine: Machine, moment: float) -> None:
        try:
            self.world.clock.sleep(_PREEMPTED_SECONDS, moment)
        except ClockClosed:
            return
        with self.world.lock:
            machine.destroyed = self.world.clock.now()


class Life:
    """What every step of a story needs: how long it takes for this machine, a note of it, and lines for the console."""

    def __init__(self, machines: Surroundings, machine: Machine) -> None:
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
