# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods in RunPod's GraphQL: how they are shown, rented with a limit in time, stopped, resumed and terminated."""

from __future__ import annotations

import threading
import typing as t

from .clock import ClockClosed
from .graphql import Fault, Record, Type
from .runpod_account import NO_CAPACITY, Account, Problem
from .runpod_bodies import CREATE_POD, check
from .runpod_create import create
from .runpod_forms import pod as rest_pod
from .runpod_forms import read_moment
from .runpod_pods import end, start, stop
from .runpod_stock import pods
from .runpod_types import COMMUNITY, DATA_CENTERS, SECURE
from .world import Machine, World

_STATES = {"PROVISIONING": "RUNNING", "STARTING": "RUNNING", "ERROR": "DEAD"}
_PLAIN = {
    "name": "name",
    "imageName": "image",
    "dockerArgs": "args",
    "containerDiskInGb": "disk",
    "containerRegistryAuthId": "registry",
    "templateId": "templateId",
    "startSsh": "startSsh",
    "startJupyter": "startJupyter",
}
_OTHER = frozenset({
    "cloudType", "gpuTypeId", "gpuCount", "ports", "env", "volumeInGb", "volumeMountPath", "minVcpuCount", "minMemoryInGb", "dataCenterId",
    "countryCode", "networkVolumeId", "supportPublicIp", "allowedCudaVersions", "stopAfter", "terminateAfter",
})  # fmt: skip
_TIERS = {"SECURE": (SECURE,), "COMMUNITY": (COMMUNITY,), "ALL": (SECURE, COMMUNITY)}
_PORTS = Type("PodRuntimePorts", dict.fromkeys(("ip", "isIpPublic", "privatePort", "publicPort", "type")))
_RUNTIME = Type("PodRuntime", {"uptimeInSeconds": None, "ports": _PORTS})
POD = Type("Pod", {**dict.fromkeys(("id", "name", "desiredStatus", "costPerHr", "machineId")), "runtime": _RUNTIME})
MUTATIONS = Type("Mutation", {**dict.fromkeys(("podFindAndDeployOnDemand", "podStop", "podResume"), POD), "podTerminate": None})
Arguments = dict[str, t.Any]


def input_of(arguments: Arguments) -> Arguments:
    """The object that a field is given as ``input``; empty without one."""
    given = arguments.get("input")
    if given is not None and not isinstance(given, dict):
        raise Fault('Argument "input" got an invalid value.', "BAD_USER_INPUT")
    return given or {}


def pod_record(world: World, account: Account, machine: Machine) -> Record:
    shown = rest_pod(world, account, machine)
    runtime = None
    if shown["runtime"] is not None:
        ports = [
            {
                "ip": port["ip"],
                "isIpPublic": port["type"] == "tcp" and port["ip"] is not None,
                "privatePort": port["private"],
                "publicPort": port["public"],
                "type": port["type"],
            }
            for port in shown["runtime"]["ports"]
        ]
        runtime = Record(
            "PodRuntime",
            {"uptimeInSeconds": shown["runtime"]["uptime"], "ports": [Record("PodRuntimePorts", one) for one in ports]},
        )
    fields = {
        "id": machine.id,
        "name": machine.name,
        "desiredStatus": _STATES.get(shown["status"], shown["status"]),
        "costPerHr": float(machine.offer.price_hour),
        "machineId": machine.details["host"],
        "runtime": runtime,
    }
    return Record("Pod", fields)


def changes(world: World, account: Account, known: bool) -> Record:
    """The root of mutations (MUTATIONS); each with a key is noted as a write. Nobody without a key may change anything."""

    def of_key(act: t.Callable[[Arguments], t.Any], name: str) -> t.Callable[[Arguments], t.Any]:
        def guarded(arguments: Arguments) -> t.Any:
            if not known:
                raise Fault("Not authenticated", "UNAUTHENTICATED")
            wanted = input_of(arguments)
            with world.lock:
                world.writes.append((world.clock.now(), "runpod", f"POST /graphql {name}"))
            return act(wanted)

        return guarded

    def show(machine: Machine) -> Record:
        with world.lock:
            return pod_record(world, account, machine)

    def found(wanted: Arguments, action: str) -> Machine:
        with world.lock:
            for machine in pods(world):
                if machine.id == wanted.get("podId") and not machine.details["cluster"]:
                    return machine
        raise Fault(f"pod not found to {action}", "POD_NOT_FOUND")

    def rent(wanted: Arguments) -> Record:
        return show(_rent(world, account, wanted))

    def halt(wanted: Arguments) -> Record:
        machine = found(wanted, "stop")
        if machine.details["locked"]:
            raise Fault("pod is locked", "CONFLICT")
        stop(world, machine)
        return show(machine)

    def resume(wanted: Arguments) -> Record:
        machine = found(wanted, "resume")
        if machine.state != "stopped":
            raise Fault("pod is not stopped", "BAD_REQUEST")
        start(world, account, machine)
        return show(machine)

    def terminate(wanted: Arguments) -> None:
        end(world, found(wanted, "terminate"))

    acts: dict[str, t.Callable[[Arguments], t.Any]] = {
        "podFindAndDeployOnDemand": rent,
        "podStop": halt,
        "podResume": resume,
        "podTerminate": terminate,
    }
    return Record("Mutation", {name: of_key(act, name) for name, act in acts.items()})


# ---- renting


def _rent(world: World, account: Account, wanted: Arguments) -> Machine:
    """A pod by the rules of REST v2, in the first tier that has it. Limits in time are kept by the cloud itself."""
    if unknown := sorted(set(wanted) - set(_PLAIN) - _OTHER):
        raise Fault(f'Field "{unknown[0]}" is not defined by type "PodFindAndDeployOnDemandInput".', "BAD_USER_INPUT")
    tiers = _TIERS.get(wanted.get("cloudType") or "ALL")
    if tiers is None:
        raise Fault("cloudType should be SECURE, COMMUNITY or ALL", "BAD_USER_INPUT")
    limits = [(read_moment(name, str(wanted[name])), act) for name, act in _LIMITS.items() if wanted.get(name)]
    machine = None
    for tier in tiers:
        try:
            machine = create(world, account, check(_order(wanted, tier), CREATE_POD))
            break
        except (KeyError, TypeError, ValueError):
            raise Fault('Variable "$input" got an invalid value.', "BAD_USER_INPUT") from None
        except Problem as problem:
            if problem.status != 400 or tier == tiers[-1]:
                raise
    assert machine is not None  # the last tier made it or raised
    for moment, act in limits:
        _due(world, machine, moment.timestamp(), act)
    return machine


def _order(wanted: Arguments, tier: str) -> Arguments:
    """The same as a body of REST v2. Floors of RAM and vCPUs are those of the whole pod here, and per GPU there."""
    count = int(wanted.get("gpuCount") or 1)
    gpu = {"id": wanted.get("gpuTypeId") or "", "count": count, "allowedCudaVersions": wanted.get("allowedCudaVersions") or []}
    for name, floor in (("minVcpuCount", "minVcpuCountPerGpu"), ("minMemoryInGb", "minRamPerGpu")):
        if wanted.get(name):
            gpu[floor] = -(-int(wanted[name]) // count)
    body = {name: wanted[key] for key, name in _PLAIN.items() if wanted.get(key) not in (None, "")}
    body |= {"gpu": gpu, "cloud": tier, "env": {one["key"]: one["value"] for one in wanted.get("env") or []}}
    body["ports"] = [port.strip() for port in str(wanted.get("ports") or "").split(",") if port.strip()]
    if places := _places(wanted):
        body["dataCenterIds"] = places
    path = wanted.get("volumeMountPath") or "/workspace"
    if wanted.get("networkVolumeId"):
        body["mounts"] = {"network": [{"volumeId": wanted["networkVolumeId"], "path": path}]}
    elif wanted.get("volumeInGb"):
        body["mounts"] = {"persistent": {"size": wanted["volumeInGb"], "path": path}}
    return body


def _places(wanted: Arguments) -> list[str]:
    """The data centres of a country, or the one that is named; none = anywhere."""
    centre, country = wanted.get("dataCenterId"), wanted.get("countryCode")
    if not country:
        return [centre] if centre else []
    found = [place for place, facts in DATA_CENTERS.items() if facts.country == country and centre in (None, "", place)]
    if not found:
        raise Problem(400, NO_CAPACITY)
    return found


def _stop_late(world: World, machine: Machine) -> None:
    if machine.state != "stopped":
        stop(world, machine)


_LIMITS: dict[str, t.Callable[[World, Machine], None]] = {"stopAfter": _stop_late, "terminateAfter": end}


def _due(world: World, machine: Machine, when: float, act: t.Callable[[World, Machine], None]) -> None:
    """At a moment (world seconds), or at once when that has passed, the cloud acts on a pod that is still there."""

    def wait() -> None:
        now = world.clock.seconds()
        try:
            world.clock.sleep(max(0.0, when - now), now)
        except ClockClosed:
            return
        if machine.destroyed is None and machine.ended is None:
            act(world, machine)

    threading.Thread(target=wait, name=f"limit-{machine.name}", daemon=True).start()
