# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""/v2/pods: list, get, create, change, act on, end, and read the log of pods."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timezone
from decimal import Decimal

import flask

from . import runpod_bodies as bodies
from .runpod_account import NO_CAPACITY, Account, Problem, invalid
from .runpod_command import FIELDS, merged, started
from .runpod_create import create, mount_paths, running_rate, set_addresses, set_environment, stopped_rate
from .runpod_forms import ACTIONS, pod, read_moment, status
from .runpod_pages import page
from .runpod_stock import free, pods
from .runpod_templates import spread
from .world import Machine, World

_RESETTING = frozenset({"image", "args", *FIELDS, "disk", "ports", "env", "registry", "mounts", "globalNetworking"})
_TAIL, _LONGEST_TAIL = 100, 5000
GONE = "pod not found"


def routes(service: flask.Flask, world: World, account: Account) -> None:
    def find(identity: str) -> Machine:
        machine = next((one for one in pods(world) if one.id == identity), None)
        if machine is None or not _is_old(world, machine, account.shy_seconds):
            raise Problem(404, GONE)
        return machine

    def alone(identity: str) -> Machine:
        """The same, if it is no member of a cluster: those are managed with their cluster."""
        machine = find(identity)
        if machine.details["cluster"]:
            raise Problem(409, f"pod belongs to cluster {machine.details['cluster']['id']}")
        return machine

    def form(machine: Machine) -> dict[str, t.Any]:
        return pod(world, account, machine)

    @service.get("/v2/pods")
    def listed() -> t.Any:
        members = flask.request.args.get("includeClusterPods", "false")
        if members not in ("true", "false"):
            raise invalid("query.includeClusterPods: should be true or false")
        with world.lock:
            known = [one for one in pods(world) if members == "true" or not one.details["cluster"]]
            shown = [one for one in known if _is_old(world, one, account.list_after)]
            found, pagination = page(account, shown, by_age)
            return flask.jsonify({"pods": [form(machine) for machine in found], **pagination})

    @service.post("/v2/pods")
    def made() -> t.Any:
        machine = create(world, account, bodies.body(bodies.CREATE_POD, account.unknown_fields()))
        with world.lock:
            return flask.jsonify(form(machine)), 201

    @service.get("/v2/pods/<identity>")
    def one(identity: str) -> t.Any:
        with world.lock:
            return flask.jsonify(form(find(identity)))

    @service.patch("/v2/pods/<identity>")
    def changed(identity: str) -> t.Any:
        request = spread(account, bodies.body(bodies.CHANGE_POD, account.unknown_fields()))
        with world.lock:
            machine = alone(identity)
            resets = bool(_RESETTING & set(request))
            if resets and machine.details["locked"] and request.get("locked", True):
                raise Problem(409, "pod is locked")
            _change(account, machine, request)
            if machine.state != "stopped":
                machine.set_rate(world.clock.now(), running_rate(machine))
            running = resets and machine.state not in ("stopped", "unhealthy")
        if running:
            _restart(world, account, machine)
        with world.lock:
            return flask.jsonify(form(machine))

    @service.post("/v2/pods/<identity>/action")
    def act(identity: str) -> t.Any:
        action = bodies.body(bodies.ACT)["action"]
        with world.lock:
            machine = alone(identity)
            word = status(account, machine)
            if action not in ACTIONS[word]:
                raise Problem(409, f"pod cannot {action} while it is {word}")
            if action in ("stop", "restart") and machine.details["locked"]:
                raise Problem(409, "pod is locked")
        if action == "terminate":
            end(world, machine)
            return "", 204
        {"stop": stop, "restart": lambda w, m: _restart(w, account, m), "start": lambda w, m: start(w, account, m)}[action](
            world, machine
        )
        with world.lock:
            return flask.jsonify(form(machine))

    @service.delete("/v2/pods/<identity>")
    def ended(identity: str) -> t.Any:
        with world.lock:
            machine = alone(identity)
        end(world, machine)
        return "", 204

    @service.get("/v2/pods/<identity>/logs")
    def logs(identity: str) -> t.Any:
        with world.lock:
            machine = find(identity)
            lines = _lines(list(machine.details.get("log") or []))
        text = "".join(f"id: {line['ts']}\ndata: {json.dumps(line)}\n\n" for line in lines)
        return flask.Response(text, mimetype="text/event-stream", headers={"Cache-Control": "no-cache"})


def _is_old(world: World, machine: Machine, seconds: float) -> bool:
    """Whether a pod was made so long ago. Without any seconds always: the clock rounds otherwise than moments do."""
    return not seconds or world.clock.seconds() >= machine.created.timestamp() + seconds


def by_age(machine: Machine) -> str:
    """Sorts pods as they were made."""
    return f"{machine.created.astimezone(timezone.utc):%Y%m%d%H%M%S%f}-{machine.id}"


def stop(world: World, machine: Machine) -> None:
    """EXITED: nothing runs, the GPUs are free for others, a persistent volume is billed on."""
    world.halt(machine, stopped_rate(machine))
    with world.lock:
        machine.details.update(phase="stopped", started=None, serving_since=None)


def end(world: World, machine: Machine) -> None:
    """The pod is gone at once, and from every list."""
    with world.lock:
        machine.state = "terminated"
        machine.destroyed = world.clock.now()
    world.release(machine)


def settle(world: World, account: Account) -> None:
    """Without money every pod is stopped, and one without a network volume terminated after a while."""
    if account.balance is None:
        return
    with world.lock:
        broke, now = account.left(world) == 0, world.clock.seconds()
        running = [one for one in pods(world) if broke and one.state != "stopped"]
        for machine in pods(world):
            if not broke:
                machine.details.pop("broke_since", None)
            elif machine.state == "stopped":
                machine.details.setdefault("broke_since", now)
        late = [one for one in pods(world) if now - one.details.get("broke_since", now) > account.kept_without_money]
    for machine in running:
        stop(world, machine)
        machine.details["broke_since"] = now
    for machine in late:
        if not machine.details["mount_form"].get("network"):
            end(world, machine)


def _change(account: Account, machine: Machine, request: dict[str, t.Any]) -> None:
    facts = machine.details
    names = {"image": "image", "disk": "disk", "env": "env_form", "registry": "registry", "ports": "port_form"}
    if request.get("registry") is not None and request["registry"] not in account.registries:
        raise Problem(404, "registry not found")
    mounts = _remounted(facts["mount_form"], request.get("mounts") or {})
    facts["args"] = merged(facts["args"], request)
    for name, key in {**names, "locked": "locked", "globalNetworking": "global_network"}.items():
        if name in request:
            facts[key] = request[name]
    facts["command"] = started(facts["args"], account.has_program(facts["image"]))
    machine.name = request.get("name", machine.name)
    facts["mount_form"], facts["mounts"] = mounts, mount_paths(mounts)
    set_environment(account, _ported(account, machine))


def _remounted(kept: dict[str, t.Any], wanted: dict[str, t.Any]) -> dict[str, t.Any]:
    """The mounts after a change, which may name another path of the same mount and nothing else."""

    def fixed(mounts: dict[str, t.Any]) -> t.Any:
        """What cannot be changed of them."""
        return (mounts.get("persistent") or {}).get("size"), [one["volumeId"] for one in mounts.get("network", [])]

    if wanted and fixed(kept) != fixed(wanted):
        raise Problem(400, "a mount keeps its kind, its size and its volume; only its path can be changed")
    return wanted or kept


def _ported(account: Account, machine: Machine) -> Machine:
    """Public ports for those that have none yet."""
    facts = machine.details
    facts["ports"] = [int(text.partition("/")[0]) for text in facts["port_form"]]
    facts["public_ports"] = {text: facts["public_ports"].get(text) or account.next_port() for text in facts["port_form"]}
    return machine


def _restart(world: World, account: Account, machine: Machine) -> None:
    """The container begins anew, with new addresses; the bill goes on."""
    with world.lock:
        machine.state = "booting"
        machine.details.update(phase="starting", started=None, serving_since=None)
        set_addresses(account, machine)
        set_environment(account, machine)
        machine.boots += 1  # whatever runs now is over
    world.clock.wake()
    world.on_end(machine)
    world.boot(machine)


def start(world: World, account: Account, machine: Machine) -> None:
    """Back on the host it was on, if its GPUs are still free there."""
    if machine.state == "unhealthy":
        _restart(world, account, machine)
        return
    with world.lock:
        shelf = machine.details["shelf"]
        if shelf is not None and free(world, shelf) < machine.offer.gpu_count:
            raise Problem(400, f"not enough free GPUs on the host machine to start this pod. {NO_CAPACITY}")
        if account.left(world) is not None and (account.left(world) or Decimal(0)) < running_rate(machine):
            raise Problem(402, "your balance is too low to start this pod: credit for at least one hour is required")
        machine.details.update(phase="starting")
        set_addresses(account, machine)
        set_environment(account, machine)
    world.resume(machine, running_rate(machine))


def _lines(log: list[tuple[datetime, str, str]]) -> list[dict[str, str]]:
    """The asked-for part of a log: what came after Last-Event-ID, else since a moment, else the last lines (with a tail of 0: none)."""
    query, after = flask.request.args, flask.request.headers.get("Last-Event-ID")
    source, tail, since = query.get("source"), query.get("tail", str(_TAIL)), query.get("since")
    if source not in (None, "container", "system"):
        raise invalid("query.source: should be container or system")
    if not tail.isdecimal() or int(tail) > _LONGEST_TAIL:
        raise invalid(f"query.tail: should be a number from 0 to {_LONGEST_TAIL}")
    lines = [(when, {"source": kind, "line": line, "ts": stamp(when)}) for when, kind, line in log if source in (None, kind)]
    if after is not None:
        begin = stamp(read_moment("Last-Event-ID", after))
        return [line for _when, line in lines if line["ts"] > begin]
    if since is not None:
        moment = read_moment("query.since", since)
        return [line for when, line in lines if when >= moment]
    return [line for _when, line in lines[-int(tail) :]] if int(tail) else []


def stamp(when: datetime) -> str:
    """The moment of a line, by which a stream can be resumed."""
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
