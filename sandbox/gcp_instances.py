# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the sandbox's Google Cloud: what a create call is checked for, its operation, what machines show, and how they end.

A call is answered with an operation. That it is DONE says nothing: quotas and missing capacity are errors inside of it.
"""

from __future__ import annotations

import re
import threading
import typing as t
import uuid
from datetime import timedelta
from decimal import Decimal

import flask

from . import payload
from .clock import ClockClosed
from .gcp_account import PROJECT, Account, Disk, Operation, Refused, machines, moment
from .gcp_catalogue import DISK_GB_HOUR, HYPERDISK, METRICS, SPOT_SHARE, TYPES, parted, region_of, sold
from .gcp_images import schematic_of
from .world import Machine, Offer, World

ROOT = "/compute/v1/projects/<project>"
STOPPING_SECONDS = 5.0  # that a deleted machine is still shown
PREEMPTION_SECONDS = 30.0
LONGEST_RUN = 120 * 86400
_VALUE_LIMIT = 262_144
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")
_TYPE = re.compile(r"(?:projects/[^/]+/)?zones/([^/]+)/machineTypes/([^/]+)")
_IMAGE = re.compile(r"(?:projects/([^/]+)/)?global/images/(?:family/)?([^/]+)")
_FINGERPRINT = "The supplied fingerprint does not match the current {} fingerprint."
Listed = t.Callable[..., t.Any]


def path_of(identity: str) -> str:
    zone, _slash, name = identity.partition("/")
    return f"projects/{PROJECT}/zones/{zone}/instances/{name}"


def find(world: World, zone: str, name: str) -> Machine:
    machine = world.machines.get(f"{zone}/{name}")
    if machine is None or machine.cloud != "gcp" or machine.destroyed is not None:
        raise Refused(404, "notFound", f"The resource '{path_of(f'{zone}/{name}')}' was not found")
    return machine


def instance_routes(service: flask.Flask, world: World, account: Account, listed: Listed) -> None:
    root = f"{ROOT}/zones/<zone>/instances"

    @service.get(f"{ROOT}/aggregated/instances")
    def every(project: str) -> t.Any:
        with world.lock:
            since = world.clock.seconds() - account.list_after
            shown = [one for one in machines(world) if one.created.timestamp() <= since]
            found = [(f"zones/{one.offer.region}", instance_form(world, one)) for one in shown]
        return listed("compute#instanceAggregatedList", "instances", found)

    @service.post(root)
    def create(project: str, zone: str) -> t.Any:
        request_id = _request_id()
        with world.lock:
            if request_id and request_id in account.requests:
                return shown_operation(world, account.operations[account.requests[request_id]])
            operation = insert(world, account, zone, _body())
            if request_id:
                account.requests[request_id] = operation.name
            return shown_operation(world, operation)

    @service.get(f"{root}/<name>")
    def one(project: str, zone: str, name: str) -> t.Any:
        with world.lock:
            return instance_form(world, find(world, zone, name))

    @service.delete(f"{root}/<name>")
    def delete(project: str, zone: str, name: str) -> t.Any:
        with world.lock:
            machine = find(world, zone, name)
            if machine.state == "terminating":
                raise Refused(400, "resourceNotReady", f"The resource '{path_of(machine.id)}' is not ready")
            machine.state = "terminating"
            answer = operation_form(world, account, "delete", zone, path_of(machine.id))
        _end(world, account, machine, STOPPING_SECONDS)
        return answer

    @service.post(f"{root}/<name>/stop")
    def stop(project: str, zone: str, name: str) -> t.Any:
        with world.lock:
            machine = find(world, zone, name)
            world.halt(machine, disk_hour(machine))
            return operation_form(world, account, "stop", zone, path_of(machine.id))

    @service.post(f"{root}/<name>/setLabels")
    def set_labels(project: str, zone: str, name: str) -> t.Any:
        return change(zone, name, "labels", "labelFingerprint", _checked_labels(_body().get("labels")))

    @service.post(f"{root}/<name>/setMetadata")
    def set_metadata(project: str, zone: str, name: str) -> t.Any:
        return change(zone, name, "metadata", "fingerprint", _checked_metadata(_body()))

    def change(zone: str, name: str, what: str, fingerprint: str, value: t.Any) -> t.Any:
        """The fingerprint says what the caller has read."""
        with world.lock:
            machine = find(world, zone, name)
            if _body().get(fingerprint) != machine.details[f"{what}_print"]:
                raise Refused(412, "conditionNotMet", _FINGERPRINT.format(what))
            machine.details[what], machine.details[f"{what}_print"] = value, uuid.uuid4().hex[:11] + "="
            return operation_form(world, account, f"set{what.capitalize()}", zone, path_of(machine.id))

    @service.get(f"{ROOT}/zones/<zone>/operations/<name>")
    def operation(project: str, zone: str, name: str) -> t.Any:
        with world.lock:
            return shown_operation(world, _operation(account, name))

    @service.post(f"{ROOT}/zones/<zone>/operations/<name>/wait")
    def wait(project: str, zone: str, name: str) -> t.Any:
        """Two minutes at most, and then it is answered as it is."""
        found = _operation(account, name)
        world.clock.sleep(min(max(found.done - world.clock.seconds(), 0.0), 120.0))
        return shown_operation(world, found)


def _operation(account: Account, name: str) -> Operation:
    if name not in account.operations:
        raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/operations/{name}' was not found")
    return account.operations[name]


def _body() -> dict[str, t.Any]:
    content = flask.request.get_json(silent=True)
    if not isinstance(content, dict):
        raise Refused(400, "parseError", "Parse Error")
    return content


def _request_id() -> str:
    given = flask.request.args.get("requestId", "")
    try:
        if given and not uuid.UUID(given).int:
            raise ValueError
    except ValueError:
        raise _invalid("requestId", given) from None
    return given


def _invalid(field: str, value: t.Any, why: str = "") -> Refused:
    return Refused(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}".rstrip())


# ---- operations


def shown_operation(world: World, operation: Operation) -> dict[str, t.Any]:
    """As the API has it now."""
    now = world.clock.seconds()
    status = "DONE" if now >= operation.done else "RUNNING" if now >= operation.began + 1 else "PENDING"
    form: dict[str, t.Any] = {
        "kind": "compute#operation",
        "id": str(uuid.uuid5(uuid.NAMESPACE_OID, operation.name).int)[:19],
        "name": operation.name,
        "operationType": operation.kind,
        "targetLink": f"https://www.googleapis.com/compute/v1/{operation.target}",
        "status": status,
        "progress": 100 if status == "DONE" else 0,
    }
    if status == "DONE" and operation.errors:
        form |= {"error": {"errors": operation.errors}, "httpErrorStatusCode": 403, "httpErrorMessage": "FORBIDDEN"}
    return form


def _begin(
    world: World, account: Account, kind: str, zone: str, target: str, problems: t.Sequence[dict[str, str]] = ()
) -> Operation:
    now = world.clock.seconds()
    name = f"operation-{int(now * 1000)}-{account.next_number():06d}"
    made = Operation(name, kind, zone, target, now, now + account.operation_seconds, list(problems))
    account.operations[name] = made
    return made


def operation_form(world: World, account: Account, kind: str, zone: str, target: str) -> dict[str, t.Any]:
    """A new operation. The caller holds the world's lock."""
    return shown_operation(world, _begin(world, account, kind, zone, target))


# ---- making a machine


def insert(world: World, account: Account, zone: str, request: dict[str, t.Any]) -> Operation:
    """Make one machine, or refuse and make none. The caller holds the world's lock."""
    name = str(request.get("name") or "")
    if not _NAME.fullmatch(name):
        raise _invalid("resource.name", name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
    identity, target = f"{zone}/{name}", path_of(f"{zone}/{name}")
    existing = world.machines.get(identity)
    if existing is not None and existing.destroyed is None:
        raise Refused(409, "alreadyExists", f"The resource '{target}' already exists")
    kind, accelerators = _hardware(world, zone, request)
    spot, scheduling = _scheduling(request, bool(accelerators))
    schematic, disk = _boot_disk(world, account, kind, request)
    labels, metadata = _checked_labels(request.get("labels")), _checked_metadata(request.get("metadata") or {})
    if not account.billing:
        raise Refused(
            403, "billingNotEnabled", f"Project '{PROJECT}' is not found and cannot be used for API calls: billing is disabled."
        )
    offer = _offer(world, zone, kind, accelerators)
    problem = _lack(world, account, zone, accelerators, spot) or _exhausted(zone, offer)
    if problem and account.errors_at_once:
        raise Refused(403 if "QUOTA" in problem["code"] else 503, problem["code"], problem["message"])
    if problem or offer is None:
        return _begin(world, account, "insert", zone, target, [problem] if problem else [])
    if existing is not None:
        del world.machines[identity]
    number = account.next_number()
    user_data = next((str(item["value"]) for item in metadata if item["key"] == "user-data"), None)
    machine = Machine(
        id=identity,
        cloud="gcp",
        name=name,
        hostname=name,
        offer=offer,
        created=world.clock.now(),
        payload=user_data,
        details={
            "number": str(7_000_000_000_000_000_000 + number),
            "addresses": (f"198.18.{100 + number // 250}.{number % 250 + 1}", f"10.128.{number // 250}.{number % 250 + 2}"),
            "labels": labels,
            "labels_print": uuid.uuid4().hex[:11] + "=",
            "metadata": metadata,
            "metadata_print": uuid.uuid4().hex[:11] + "=",
            "scheduling": scheduling,
            "spot": spot,
            "accelerators": accelerators,
            "disk": disk["size"],
            "auto_delete": disk["auto_delete"] and not account.keep_disks,
            "network": request.get("networkInterfaces") or [],
            "image": disk["image"],
            "system": payload.UBUNTU if schematic is None else payload.TALOS,
            **({} if schematic is None else {"schematic": schematic}),
        },
    )
    machine.agreed = offer.price_hour * (SPOT_SHARE if spot else 1) + disk_hour(machine)
    account.disks[zone, name] = Disk(
        zone, name, disk["size"], disk["labels"], machine.created, [target], bool(machine.details["auto_delete"]), disk["image"]
    )
    world.rent(machine)
    return _begin(world, account, "insert", zone, target)


def disk_hour(machine: Machine) -> Decimal:
    """What its disk costs an hour."""
    return (DISK_GB_HOUR * machine.details["disk"]).quantize(Decimal("0.000001"))


def _hardware(world: World, zone: str, request: t.Mapping[str, t.Any]) -> tuple[str, list[tuple[str, int]]]:
    found = _TYPE.fullmatch(str(request.get("machineType") or ""))
    if found is None or found[1] != zone:
        raise _invalid("resource.machineType", request.get("machineType"))
    kind = found[2]
    if kind not in TYPES or (zone, kind) not in sold(world):
        raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}/machineTypes/{kind}' was not found")
    attached = [
        (str(one.get("acceleratorType", "")).rpartition("/")[2], int(one.get("acceleratorCount", 1)))
        for one in request.get("guestAccelerators") or []
    ]
    if TYPES[kind].gpus and attached:
        raise _invalid("resource.guestAccelerators", attached[0][0], f"[{kind}] has accelerators of its own.")
    if attached and not kind.startswith("n1-"):
        raise _invalid("resource.guestAccelerators", attached[0][0], "Only N1 machine types take accelerators.")
    return kind, attached or ([(TYPES[kind].accelerator, TYPES[kind].gpus)] if TYPES[kind].gpus else [])


def _scheduling(request: t.Mapping[str, t.Any], gpus: bool) -> tuple[bool, dict[str, t.Any]]:
    given = dict(request.get("scheduling") or {})
    spot = given.get("provisioningModel") == "SPOT"
    if gpus and given.get("onHostMaintenance", "MIGRATE") != "TERMINATE":
        raise Refused(400, "badRequest", "Instances with guest accelerators do not support live migration.")
    if spot and given.get("automaticRestart", True):
        raise _invalid("scheduling", "automaticRestart", "Automatic restart must be disabled for Spot VMs.")
    run = given.get("maxRunDuration")
    if given.get("instanceTerminationAction") and not spot and not run:
        raise _invalid("scheduling.instanceTerminationAction", given["instanceTerminationAction"], "Needs a limit of its run time.")
    if run is not None and not 30 <= int(run.get("seconds", 0)) <= LONGEST_RUN:
        raise _invalid("scheduling.maxRunDuration", run.get("seconds"), "Must be between 30 seconds and 120 days.")
    return spot, {"onHostMaintenance": "MIGRATE", "automaticRestart": True, "provisioningModel": "STANDARD", **given}


def _boot_disk(world: World, account: Account, kind: str, request: t.Mapping[str, t.Any]) -> tuple[str | None, dict[str, t.Any]]:
    """Its image's schematic (None: no Talos), and the disk."""
    boot = next((one for one in request.get("disks") or [] if one.get("boot")), None)
    if boot is None:
        raise _invalid("resource.disks", "", "A boot disk must be specified.")
    made = boot.get("initializeParams") or {}
    disk_type = str(made.get("diskType", "")).rpartition("/")[2]
    if kind.startswith(HYPERDISK) is not disk_type.startswith("hyperdisk"):
        raise _invalid("resource.disks", disk_type, f"[{disk_type}] features are not compatible for creating instance.")
    image = str(made.get("sourceImage", ""))
    size = int(made.get("diskSizeGb", 10))
    labels = _checked_labels(made.get("labels"))
    return _schematic(world, account, image), {
        "size": size, "image": image, "labels": labels, "auto_delete": bool(boot.get("autoDelete", False))
    }  # fmt: skip


def _schematic(world: World, account: Account, image: str) -> str | None:
    """That of an image of Talos; None for a public one of Ubuntu."""
    found = _IMAGE.fullmatch(image)
    if found is not None and found[1] == "ubuntu-os-cloud" and found[2].startswith("ubuntu-2404-lts"):
        return None
    if found is not None and found[1] in (None, PROJECT):
        schematic = schematic_of(world, account, found[2])
        if schematic is not None:
            return schematic
    raise Refused(404, "notFound", f"The resource '{image}' was not found")


def _checked_labels(given: t.Any) -> dict[str, str]:
    labels = dict(given or {})
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not isinstance(value, str) or not _LABEL.fullmatch(value):
            raise _invalid(f"resource.labels.{key}", value, "Only lowercase letters, digits, dashes and underscores, 63 at most.")
    return labels


def _checked_metadata(given: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    items = [{"key": str(one["key"]), "value": str(one.get("value", ""))} for one in given.get("items") or []]
    for item in items:
        if len(item["value"].encode()) > _VALUE_LIMIT:
            raise _invalid("resource.metadata.items", item["key"], f"Value is too large: maximum size {_VALUE_LIMIT} bytes.")
    return items


def _offer(world: World, zone: str, kind: str, accelerators: t.Sequence[tuple[str, int]]) -> Offer | None:
    for one in world.offers:
        if (one.cloud, one.region) == ("gcp", zone) and one.type.partition("+")[0] == kind:
            wanted = parted(one.type)[1]
            if [name for name, _count in accelerators] == ([wanted] if wanted else []):
                return one
    return None


def usage(world: World) -> dict[tuple[str, str, bool], int]:
    """GPUs in use by region, accelerator and whether spot. The caller holds the world's lock."""
    used: dict[tuple[str, str, bool], int] = {}
    for machine in machines(world):
        if machine.ended is None and machine.state != "stopped":
            for name, count in machine.details["accelerators"]:
                key = (region_of(machine.offer.region), name, machine.details["spot"])
                used[key] = used.get(key, 0) + count
    return used


def _lack(
    world: World, account: Account, zone: str, accelerators: t.Sequence[tuple[str, int]], spot: bool
) -> dict[str, str] | None:
    """The quota that does not allow them. Spot machines use their own where the project has one."""
    used, region = usage(world), region_of(zone)
    for name, count in accelerators:
        if sum(used.values()) + count > account.gpus_all_regions:
            message = f"Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: {account.gpus_all_regions:.1f} globally."
            return {"code": "QUOTA_EXCEEDED", "message": message}
        own = spot and account.spot_gpus_per_region > 0
        limit = account.spot_gpus_per_region if own else account.gpus_per_region
        if name in METRICS and used.get((region, name, own), 0) + count > limit:
            metric = f"PREEMPTIBLE_{METRICS[name]}" if own else METRICS[name]
            return {"code": "QUOTA_EXCEEDED", "message": f"Quota '{metric}' exceeded.  Limit: {limit:.1f} in region {region}."}
    return None


def _exhausted(zone: str, offer: Offer | None) -> dict[str, str] | None:
    if offer is not None and offer.stock > 0:
        return None
    where = f"projects/{PROJECT}/zones/{zone}"
    message = f"The zone '{where}' does not have enough resources available to fulfill the request.  Try a different zone, or try again later."
    return {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": message}


# ---- what it shows


def _status(world: World, machine: Machine) -> str:
    if machine.state == "terminating":
        return "STOPPING"
    if machine.state in ("stopped", "unhealthy"):
        return "TERMINATED"
    if machine.state != "booting":
        return "RUNNING"
    share = (world.clock.seconds() - (machine.began or machine.created.timestamp())) / max(machine.offer.boot_seconds, 1e-9)
    return "PROVISIONING" if share < 0.2 else "STAGING" if share < 0.5 else "RUNNING"


def instance_form(world: World, machine: Machine) -> dict[str, t.Any]:
    """One machine. Numbers of 64 bits are texts; an address is there from STAGING on."""
    facts, zone = machine.details, machine.offer.region
    status = _status(world, machine)
    shown = status in ("STAGING", "RUNNING", "STOPPING")
    if shown and machine.ip is None:
        machine.ip, machine.private_ip = facts["addresses"]
    interface: dict[str, t.Any] = {"name": "nic0", "network": f"projects/{PROJECT}/global/networks/default"}
    interface["networkIP"] = facts["addresses"][1]
    if any(one.get("accessConfigs") for one in facts["network"]):
        interface["accessConfigs"] = [
            {"type": "ONE_TO_ONE_NAT", "name": "External NAT", **({"natIP": machine.ip} if shown else {})}
        ]
    source = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/{zone}"
    form: dict[str, t.Any] = {
        "kind": "compute#instance",
        "id": facts["number"],
        "name": machine.name,
        "zone": source,
        "machineType": f"{source}/machineTypes/{machine.offer.type.partition('+')[0]}",
        "status": status,
        "creationTimestamp": moment(machine.created),
        "labels": dict(facts["labels"]),
        "labelFingerprint": facts["labels_print"],
        "metadata": {
            "kind": "compute#metadata",
            "fingerprint": facts["metadata_print"],
            **({"items": [dict(one) for one in facts["metadata"]]} if facts["metadata"] else {}),
        },
        "networkInterfaces": [interface],
        "disks": [
            {
                "kind": "compute#attachedDisk",
                "boot": True,
                "autoDelete": facts["auto_delete"],
                "deviceName": "persistent-disk-0",
                "source": f"{source}/disks/{machine.name}",
                "diskSizeGb": str(facts["disk"]),
            }
        ],
        "scheduling": dict(facts["scheduling"]),
    }
    if facts["accelerators"]:
        form["guestAccelerators"] = [
            {"acceleratorType": f"{source}/acceleratorTypes/{name}", "acceleratorCount": count}
            for name, count in facts["accelerators"]
        ]
    if status in ("RUNNING", "STOPPING"):
        form["lastStartTimestamp"] = moment(machine.created)
    return form


# ---- its end


def taken(world: World, account: Account, machine: Machine) -> None:
    """A spot machine is preempted: STOPPING for half a minute, and then deleted or stopped, as it was ordered. Any other one is gone."""
    with world.lock:
        if machine.ended is not None:
            return
        spot = machine.details["spot"]
        stays = spot and machine.details["scheduling"].get("instanceTerminationAction") != "DELETE"
        if not stays:
            machine.state = "terminating"
    if stays:
        world.halt(machine, disk_hour(machine))
    else:
        _end(world, account, machine, PREEMPTION_SECONDS if spot else 0.0)


def end_overdue(world: World, account: Account) -> None:
    """Machines whose ``maxRunDuration`` is over have ended at that moment; it is seen with the next call."""
    with world.lock:
        now = world.clock.now()
        due = []
        for machine in machines(world):
            seconds = (machine.details["scheduling"].get("maxRunDuration") or {}).get("seconds")
            if machine.ended is None and machine.state != "terminating" and seconds is not None:
                until = machine.created + timedelta(seconds=int(seconds))
                if until <= now:
                    machine.state = "terminating"
                    due.append((machine, until))
    for machine, until in due:
        _end(world, account, machine, 0.0)
        machine.ended = until


def _end(world: World, account: Account, machine: Machine, shown_for: float) -> None:
    """Billing ends at once; for some seconds it is shown as STOPPING. Its disk goes with it, unless that was not wanted."""
    began = world.clock.seconds()
    world.release(machine)

    def leave() -> None:
        try:
            world.clock.sleep(shown_for, began)
        except ClockClosed:
            return
        with world.lock:
            machine.state, machine.destroyed = "terminated", world.clock.now()
            disk = account.disks.get((machine.offer.region, machine.name))
            if disk is not None and disk.users == [path_of(machine.id)]:
                disk.users = []
                if machine.details["auto_delete"]:
                    del account.disks[disk.zone, disk.name]

    if shown_for:
        threading.Thread(target=leave, name=f"terminate-{machine.name}-{uuid.uuid4().hex[:4]}", daemon=True).start()
    else:
        leave()
