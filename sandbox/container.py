# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a container: its image is pulled, it starts, its mesh client logs in, its command runs, and perhaps ends.

``machine.details`` holds what it was given (image, command, environment, ports, mounts) and what others may look at:

``phase``          allocating, pulling, starting, running, restarting, exited, failed
``started``        world seconds at which its processes last began; None while none run
``serving_since``  world seconds since when the user's command answers; None while it does not
``unhealthy_until`` world seconds until which its health path answers 503 (behaviour ``unhealthy_path``)
``restarts``       how often its command ended and was started again
``exit_code``      of the command that ended last
``log``            (moment, "system" or "container", line)

A container whose command ends is started again for ever, and billed for it. ``when_done`` says otherwise: "exit" (it stays exited), "stay"
(the cloud's own processes keep it running, and what the command left in the background). Its disk is wiped with each start: a mesh client
logs in anew unless it keeps its state below one of ``mounts``.
"""

from __future__ import annotations

import math
import typing as t

from .container_command import KERNEL, Plan, plan
from .container_script import OUTPUT
from .life import MESH_TIMEOUT, Life, Over
from .payload import Refused
from .tailnet import JoinRefused

CONTAINER = "container"
_ALLOCATION, _PULL, _START = 0.1, 0.8, 0.1  # shares of the boot
_AGAIN = 10.0
_LONGEST = 60.0
_TRIES_EVERY = 30.0
_DENIED = "repository does not exist or may require 'docker login'"
_LINES = 1000
_FOR_EVER = 10 * 365 * 86400.0
_TOLD = 3  # restarts that are told step by step
NO_TUN = (
    "is CONFIG_TUN enabled in your kernel? `modprobe tun` failed with: modprobe: FATAL: Module tun not found",
    'tstun.New("tailscale0"): open /dev/net/tun: Operation not permitted',
)
NO_DAEMON = "failed to connect to local tailscaled; it doesn't appear to be running"


class Container(Life):
    """One start of a container, with the restarts that follow from its command."""

    def tell(self) -> None:
        """From the order to a command that answers, or to where it stops."""
        machine = self._machine
        with self._world.lock:
            machine.console.clear()
            machine.steps.clear()
            first = "pulling" if machine.details.get("allocated") else "allocating"
            machine.details.update(phase=first, started=None, serving_since=None, restarts=0, exit_code=None)
            machine.details.setdefault("log", [])
        self._note("boot", f"{machine.offer.type}, {machine.offer.gpu_count} GPUs")
        if self._start():
            self._loop()
        if self._doom < math.inf:
            self._pause(max(0.0, self._doom - self._due), stretched=False)

    # ---- steps

    def _start(self) -> bool:
        """Allocation, image, start; False when it comes up broken."""
        machine, details, boot = self._machine, self._machine.details, self._machine.offer.boot_seconds
        image = str(details.get("image") or "")
        here = details.get("pulled") == image
        if not details.get("allocated"):  # later starts are on the same host
            self._pause(boot * _ALLOCATION)
        self._phase("pulling", allocated=True)
        if "never_boots" in self._parts:
            self._say("system", f"pulling {image}: waiting")
            self._pause(_FOR_EVER, stretched=False)
        if "pull_fails" in self._parts:
            self._fail_to_pull(image)
        if not here:
            self._say("system", f"pulling {image}")
            self._pause(boot * _PULL)
            details["pulled"] = image
            self._note("pull", image)
        self._phase("starting")
        self._say("system", f"create container {image}")
        self._pause(boot * _START)
        broken = "boot_error" in self._parts
        with self._world.lock:
            if not self._lives():
                raise Over
            machine.state = "unhealthy" if broken else "active"
            addresses = details.get("addresses")
            if addresses and machine.ip is None:
                machine.ip, machine.private_ip = addresses
        self._phase("failed" if broken else "running")
        if broken:
            self._say("system", "failed to create the container")
        self._note("up", "failed to create the container" if broken else "the container is up", failed=broken)
        return not broken

    def _fail_to_pull(self, image: str) -> None:
        """The registry refuses the image, again and again; the platform tries for ever."""
        name = image.partition(":")[0]
        while True:
            self._say("system", f"pulling {image}")
            self._say("system", f"error pulling image: Error response from daemon: pull access denied for {name}, {_DENIED}")
            self._pause(max(_TRIES_EVERY, 0.1 * self._world.clock.speed), stretched=False)
            self._due = self._world.clock.seconds()

    def _loop(self) -> None:
        details, pause = self._machine.details, _AGAIN
        while (code := self._run()) is not None:
            when_done = details.get("when_done", "restart")
            if when_done == "stay":
                self._phase("running", exit_code=code, serving_since=None)
                self._note("exit", f"exit code {code}; the container stays")
                return
            self._phase("exited" if when_done == "exit" else "restarting", exit_code=code, started=None, serving_since=None)
            self._silent_client()
            self._say("system", f"container exited with code {code}")
            if when_done == "exit":
                self._note("exit", f"exit code {code}")
                return
            self._tell("restart", f"exit code {code}")
            details["restarts"] += 1
            self._pause(max(pause, 0.1 * self._world.clock.speed), stretched=False)
            pause = min(pause * 1.5, _LONGEST)
            self._due = self._world.clock.seconds()

    def _run(self) -> int | None:
        """Its processes, once; the exit code, or None when they stay."""
        machine, details = self._machine, self._machine.details
        environment = {str(key): str(value) for key, value in (details.get("environment") or {}).items()}
        found = plan(
            str(details.get("image") or ""), str(details.get("command") or ""), environment, machine.hostname or machine.id
        )
        self._phase("running", started=self._world.clock.seconds())
        self._say("system", "start container")
        if found.fault:
            self._say("container", found.fault)
            self._tell("command", found.fault, failed=True)
            return found.code
        self._hear(found.first)
        if (found.client or found.mesh_fault) and not self._mesh(found) and found.strict:
            return 1
        self._hear(found.later)
        if found.lasts == 0.0:
            self._tell("command", f"{_program(found)} ended at once")
            return found.code
        self._pause(self._seconds("ready"))
        with self._world.lock:
            if not self._lives():
                raise Over
            details["serving_since"] = now = self._world.clock.seconds()
            sick = self._parts.get("unhealthy_path")
            details["unhealthy_until"] = 0.0 if sick is None else math.inf if not sick.seconds else now + sick.seconds
        self._say("container", f"running: {_program(found)}")
        self._tell("command", _program(found))
        if found.lasts == math.inf:
            self._tell("done", "")
            return None
        self._pause(found.lasts, stretched=False)
        return found.code

    def _mesh(self, found: Plan) -> bool:
        """Start the mesh client and log in; False when it did not work."""
        fault = found.mesh_fault
        if found.client == KERNEL:
            if not found.hidden:
                self._hear(f"tailscaled: {line}" for line in NO_TUN)
            if found.mesh is None and not fault:
                self._tell("mesh", f"tailscaled: {NO_TUN[1]}", failed=True)
                return False
            fault = f"{NO_DAEMON}: {NO_TUN[1]}"
        if not fault and found.mesh is None:
            self._tell("mesh", "tailscaled runs and nobody logged in")
            return True
        if not fault:
            self._pause(self._seconds("mesh"))
            fault = MESH_TIMEOUT if "mesh_fails" in self._parts else self._enter(found)
        if fault:
            self._hear(line.replace(OUTPUT, fault) for line in found.excuse)
            if not found.hidden:
                self._say("container", f"tailscale up: {fault}")
            self._tell("mesh", f"tailscale up: {fault}", failed=True)
        return not fault

    def _enter(self, found: Plan) -> str:
        """Log in, or come back with the state that was kept; why not, or ""."""
        details, tailnet = self._machine.details, self._all.tailnet
        kept = any(found.state_dir.startswith(str(path)) for path in details.get("mounts") or [] if found.state_dir)
        device = details.get("device") if kept else None
        if not device or not tailnet.set_online(device, True):
            try:
                device = self._join(t.cast(t.Any, found.mesh)).node_id
            except JoinRefused as refusal:
                return str(refusal)
            except Refused as refusal:
                return str(refusal).removeprefix("tailscale up: ")
            details["device"] = device
        if not self._lives():  # gone in the very moment it came
            tailnet.set_online(device, False)
            raise Over
        entry = tailnet.device(device)
        if entry is None:
            return "the device was removed from the tailnet"
        self._tell("mesh", f"{entry.ipv4} as {entry.label}")
        return ""

    # ---- words

    def _phase(self, phase: str, **more: t.Any) -> None:
        with self._world.lock:
            if not self._lives():
                raise Over
            self._machine.details.update(phase=phase, **more)

    def _silent_client(self) -> None:
        device = self._machine.details.get("device")
        if device:
            self._all.tailnet.set_online(device, False)

    def _tell(self, step: str, text: str, *, failed: bool = False) -> None:
        """A step; of a container that restarts on and on only the first rounds."""
        if self._machine.details["restarts"] < _TOLD:
            self._note(step, text, failed=failed)

    def _hear(self, lines: t.Iterable[str]) -> None:
        """What its scripts and programs print."""
        for line in lines:
            self._say("container", line)

    def _say(self, source: str, line: str) -> None:
        with self._world.lock:
            machine = self._machine
            if machine.boots != self._boots:
                raise Over
            log = machine.details["log"]
            log.append((self._world.clock.now(), source, line))
            machine.console.append(line)
            del log[:-_LINES], machine.console[:-_LINES]


def _program(found: Plan) -> str:
    """The command's name alone: its arguments may hold a secret."""
    return found.command if found.command.startswith("(") else found.command.split(" ", 1)[0].strip("'")
