# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All machines of the world: what they live in, how they begin, and how they end before their time."""

from __future__ import annotations

import threading
import typing as t

from .behaviour import Behaviour, Behaviours
from .clock import ClockClosed
from .cluster import Cluster
from .container import CONTAINER, Container
from .hub import Hub
from .kubelets import Kubelets
from .life import Over
from .payload import Intent
from .story import Story
from .tailnet import Tailnet
from .world import Machine, World

_PREEMPTED_SECONDS = 120.0  # how long a machine that was taken back is still listed
Installed = t.Callable[[Machine], Intent]


class Machines:
    """Gives every machine of the world its life.

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

    def boot(self, machine: Machine) -> None:
        """The whole life of one power-on; runs in the machine's own thread."""
        try:
            (Container if machine.details.get("system") == CONTAINER else Story)(self, machine).tell()
        except (Over, ClockClosed):
            return

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

    def _leave_list(self, machine: Machine, moment: float) -> None:
        try:
            self.world.clock.sleep(_PREEMPTED_SECONDS, moment)
        except ClockClosed:
            return
        with self.world.lock:
            machine.destroyed = self.world.clock.now()
