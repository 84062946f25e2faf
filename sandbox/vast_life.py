# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A contract's life: what it costs in which state, how it stops, starts, is interrupted and ends, and the words the API has for that.

The disk is billed from creation until the contract is destroyed, the GPUs and the premium for reliability only while it runs. Traffic is
billed by the GB: the image, which is pulled once, and what a lever adds.
"""

from __future__ import annotations

import threading
import typing as t
from decimal import Decimal

from .clock import ClockClosed
from .vast_account import Account, living
from .vast_errors import Refused
from .vast_rows import disk_hour
from .world import Machine, World

UNAVAILABLE = "Required resources are currently unavailable, state change queued."
_PROVISIONING = 0.15  # part of the boot time in which the status is null, and again in which it is created


def prepare(world: World) -> None:
    """What happens to a machine of this cloud that is taken back, or powers itself off."""
    world.on_taken["vast"] = lambda machine: interrupt(world, machine)
    world.on_shutdown["vast"] = lambda machine: stop(world, machine, intended="stopped")


def disk_rate(machine: Machine) -> Decimal:
    return disk_hour(machine.offer, machine.details["disk"])


def gpu_rate(machine: Machine) -> Decimal:
    """The bid of an interruptible contract; the price that the others were rented for."""
    return t.cast(Decimal, machine.details["bid"] if machine.details["bid"] is not None else machine.price_hour)


def premium_rate(machine: Machine) -> Decimal:
    """What its offer asked for promised reliability when it was rented."""
    return t.cast(Decimal, machine.details["premium"])


def running_rate(machine: Machine) -> Decimal:
    """Dollars per hour while it runs."""
    return gpu_rate(machine) + premium_rate(machine) + disk_rate(machine)


def follow(world: World, machine: Machine) -> None:
    """Let the bill follow the state."""

    def changed(one: Machine) -> None:
        if one.state == "active":
            if not one.details.get("pulled"):
                one.details["pulled"] = True
                one.transfer(one.offer.details["pull_gb"])
            one.details.update(up=world.clock.seconds(), rebooting=False)
            one.set_rate(world.clock.now(), running_rate(one))

    machine.watch = changed
    machine.set_rate(machine.created, disk_rate(machine))


def interrupt(world: World, machine: Machine) -> None:
    """An interruptible contract was outbid and waits for its bid to win again; any other has come to its end."""
    stop(world, machine, intended="stopped")
    if machine.details["bid"] is not None:
        with world.lock:
            machine.details["outbid"] = True
            asked = machine.offer.details["min_bid"]
            machine.offer.details["min_bid"] = max(asked, machine.details["bid"] * Decimal("1.1"))
    else:
        machine.details["end"] = world.clock.seconds()
        expire(world, machine)


def expire(world: World, machine: Machine) -> None:
    """A stopped contract past its end is kept for a while, its disk billed, and then deleted."""

    began = world.clock.seconds()

    def leave() -> None:
        try:
            world.clock.pause(Account.of(world).switches.kept_seconds, lambda: machine.ended is not None, began)
        except ClockClosed:
            return
        destroy(world, machine)

    threading.Thread(target=leave, name=f"terminate-{machine.id}", daemon=True).start()


def stop(world: World, machine: Machine, *, intended: str) -> None:
    """The GPUs go, the disk stays."""
    with world.lock:
        machine.details.update(intended=intended, queued=False, outbid=False, up=None)
    world.halt(machine, disk_rate(machine))


def start(world: World, machine: Machine) -> bool:
    """Boot again. False when that must wait: then it starts by itself as soon as it can."""
    with world.lock:
        machine.details["intended"] = "running"
        if machine.state != "stopped":
            return True
        if _can_run(machine):
            machine.details.update(queued=False, outbid=False, booted=world.clock.seconds())
            world.resume(machine, disk_rate(machine))
            return True
        machine.details["queued"] = True
        return False


def reboot(world: World, machine: Machine) -> None:
    """Down and up on the same GPUs, which are billed on."""
    with world.lock:
        if machine.state != "active":
            raise Refused(400, "invalid_args", f"Instance {machine.id} is not running.")
        machine.state = "booting"
        machine.details.update(up=None, rebooting=True, booted=world.clock.seconds())
    world.on_end(machine)
    world.boot(machine)


def destroy(world: World, machine: Machine) -> None:
    """All charges end."""
    with world.lock:
        if machine.ended is not None:
            return
        machine.state = "terminated"
    world.release(machine)
    with world.lock:
        machine.destroyed = machine.ended


def settle(world: World) -> None:
    """What became due since the last call: ends of contracts, an empty purse, and starts that were waiting. The caller holds the lock."""
    now = world.clock.seconds()
    alive = living(world)
    if alive and Account.of(world).left(world) <= 0:
        for machine in alive:
            if machine.state != "stopped":
                stop(world, machine, intended="stopped")
    for machine in alive:
        if machine.state != "stopped" and now >= machine.details["end"]:
            stop(world, machine, intended="stopped")
            expire(world, machine)
        elif machine.state == "stopped" and (machine.details["queued"] or machine.details["outbid"]) and _can_run(machine):
            start(world, machine)


def _can_run(machine: Machine) -> bool:
    bid = machine.details["bid"]
    return machine.offer.stock > 0 and (bid is None or bid >= machine.offer.details["min_bid"])


def words(world: World, machine: Machine) -> tuple[str | None, str, str, str, str]:
    """actual_status, intended_status, cur_state, next_state, status_msg."""
    facts, state = machine.details, machine.state
    switches, now = Account.of(world).switches, world.clock.seconds()
    intended = str(facts["intended"])
    image = facts["image"]
    if state == "stopped":
        if facts["queued"]:
            return "scheduling", "running", "stopped", "running", UNAVAILABLE
        return "stopped", intended, "stopped", intended, "" if not facts["outbid"] else "outbid"
    if state == "active" and facts.get("phase") == "exited":
        return "exited", intended, "running", intended, ""
    if state == "active":
        return "running", intended, "running", intended, f"success, running {image}"
    if state == "unhealthy" and facts["up"] is None:
        return "created", intended, "running", intended, f"Error: {switches.boot_error_text}"
    if state == "unhealthy":
        return switches.dead_status, intended, "running", intended, "" if switches.dead_status == "exited" else "no heartbeat"
    if facts.get("rebooting"):
        return "rebooting", intended, "running", intended, "rebooting"
    passed = now - facts["booted"]
    part = machine.offer.boot_seconds * _PROVISIONING
    if passed < part:
        return None, intended, "running", intended, ""
    if passed < 2 * part:
        return "created", intended, "running", intended, "scheduled"
    return "loading", intended, "running", intended, f"Pulling image {image}"
