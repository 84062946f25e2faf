# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google's Compute API v1 over the sandbox's world, and the token endpoint, as Google's references and current clients describe them.

The key file is ``world.secrets["GCP_SERVICE_ACCOUNT_CONTENTS"]`` (made up when absent). All services, Cloud Storage among them, answer at one
address. Not here: networks, bulk inserts, reservations, managed instance groups. What nobody documents and we chose: an unknown filter finds
nothing, and a second delete of a machine is refused with ``resourceNotReady``.
"""

from __future__ import annotations

import typing as t

import flask

from .gcp_account import PROJECT, SECRET, Account, BadGrant, Refused, aggregated, moment, page, service_account
from .gcp_catalogue import (
    METRICS,
    SCENARIO_KEYS,
    ZONES,
    accelerator_form,
    accelerators,
    gcp_offer,
    matches,
    region_of,
    sold,
    type_form,
)
from .gcp_images import image_routes
from .gcp_instances import disk_hour, end_overdue, instance_routes, operation_form, shown_operation, taken, usage
from .gcp_storage import storage_routes
from .world import World
from .wsgi import Service

__all__ = ["SCENARIO_KEYS", "app", "gcp_offer"]
ROOT = "/compute/v1/projects/<project>"


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    account = Account.of(world)
    if SECRET not in world.secrets:
        world.secrets[SECRET] = service_account()
    service = Service("gcp")
    service.json.sort_keys = False  # type: ignore[attr-defined]
    world.on_taken["gcp"] = lambda machine: taken(world, account, machine)
    world.on_shutdown["gcp"] = lambda machine: world.halt(machine, disk_hour(machine))

    @service.errorhandler(Refused)
    def refuse(error: Refused) -> tuple[t.Any, int]:
        return flask.jsonify(error.body), error.code

    @service.errorhandler(BadGrant)
    def no_token(error: BadGrant) -> tuple[t.Any, int]:
        return flask.jsonify({"error": error.args[0], "error_description": error.args[1]}), 400

    @service.errorhandler(404)
    def unknown(_error: Exception) -> tuple[str, int]:
        return "<!DOCTYPE html><html><title>Error 404 (Not Found)!!1</title></html>", 404

    @service.before_request
    def guard() -> None:
        if flask.request.path == "/token":
            return
        if flask.request.path.startswith(("/storage/", "/upload/")):
            return  # another service, at another address: it admits callers itself
        project = (flask.request.view_args or {}).get("project", "")
        account.admit(world, flask.request.headers.get("Authorization", ""), project)
        account.check_pace(world)
        zone = (flask.request.view_args or {}).get("zone")
        if zone is not None and zone not in ZONES:
            raise Refused(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}' was not found")
        end_overdue(world, account)

    @service.post("/token")
    def token() -> t.Any:
        return account.grant(world, flask.request.form)

    @service.get(ROOT)
    def project_form(project: str) -> t.Any:
        with world.lock:
            used = usage(world)
            quota = {"metric": "GPUS_ALL_REGIONS", "limit": float(account.gpus_all_regions), "usage": float(sum(used.values()))}
        return {"kind": "compute#project", "name": project, "id": "104857600000000000", "quotas": [quota]}

    @service.get(f"{ROOT}/zones")
    def zones(project: str) -> t.Any:
        forms = [{"kind": "compute#zone", "name": zone, "status": "UP", "region": f"projects/{project}/regions/{region_of(zone)}"}
                 for zone in ZONES]  # fmt: skip
        return page(account, "compute#zoneList", forms, flask.request.args)

    @service.get(f"{ROOT}/regions")
    def regions(project: str) -> t.Any:
        names = sorted({region_of(zone) for zone in ZONES})
        with world.lock:
            forms = [_region_form(world, account, name) for name in names]
        return page(account, "compute#regionList", forms, flask.request.args)

    @service.get(f"{ROOT}/aggregated/machineTypes")
    def machine_types(project: str) -> t.Any:
        with world.lock:
            found = [(f"zones/{zone}", type_form(zone, name)) for zone, name in sold(world)]
        return listed("compute#machineTypeAggregatedList", "machineTypes", found)

    @service.get(f"{ROOT}/aggregated/acceleratorTypes")
    def accelerator_types(project: str) -> t.Any:
        with world.lock:
            found = [(f"zones/{zone}", accelerator_form(zone, name)) for zone, name in accelerators(world)]
        return listed("compute#acceleratorTypeAggregatedList", "acceleratorTypes", found)

    @service.get(f"{ROOT}/aggregated/disks")
    def disks(project: str) -> t.Any:
        with world.lock:
            found = [
                (
                    f"zones/{one.zone}",
                    {
                        "kind": "compute#disk",
                        "name": one.name,
                        "zone": f"projects/{project}/zones/{one.zone}",
                        "sizeGb": str(one.size_gb),
                        "labels": one.labels,
                        "creationTimestamp": moment(one.created),
                        "sourceImage": f"https://www.googleapis.com/compute/v1/{one.image}",
                        **({"users": list(one.users)} if one.users else {}),
                    },
                )
                for one in account.disks.values()
            ]
        return listed("compute#diskAggregatedList", "disks", found)

    @service.get(f"{ROOT}/aggregated/addresses")
    def addresses(project: str) -> t.Any:
        with world.lock:
            found = [
                (
                    f"regions/{one.region}",
                    {
                        "kind": "compute#address",
                        "name": one.name,
                        "region": f"projects/{project}/regions/{one.region}",
                        "address": one.address,
                        "addressType": "EXTERNAL",
                        "status": "IN_USE" if one.users else "RESERVED",
                        "creationTimestamp": moment(one.created),
                        **({"users": list(one.users)} if one.users else {}),
                    },
                )
                for one in account.addresses
            ]
        return listed("compute#addressAggregatedList", "addresses", found, regional=True)

    @service.delete(f"{ROOT}/zones/<zone>/disks/<name>")
    def delete_disk(project: str, zone: str, name: str) -> t.Any:
        with world.lock:
            disk = account.disks.get((zone, name))
            where = f"projects/{project}/zones/{zone}/disks/{name}"
            if disk is None:
                raise Refused(404, "notFound", f"The resource '{where}' was not found")
            if disk.users:
                message = f"The disk resource '{where}' is already being used by '{disk.users[0]}'"
                raise Refused(400, "resourceInUseByAnotherResource", message)
            del account.disks[zone, name]
            return operation_form(world, account, "delete", zone, where)

    @service.delete(f"{ROOT}/regions/<region>/addresses/<name>")
    def delete_address(project: str, region: str, name: str) -> t.Any:
        with world.lock:
            where = f"projects/{project}/regions/{region}/addresses/{name}"
            found = next((one for one in account.addresses if (one.region, one.name) == (region, name)), None)
            if found is None:
                raise Refused(404, "notFound", f"The resource '{where}' was not found")
            if found.users:
                raise Refused(400, "resourceInUseByAnotherResource", f"The address resource '{where}' is already being used")
            account.addresses.remove(found)
            return operation_form(world, account, "delete", "", where)

    def listed(kind: str, root: str, found: t.Sequence[tuple[str, t.Any]], *, regional: bool = False) -> t.Any:
        wanted = flask.request.args.get("filter", "")
        places = [f"regions/{one}" for one in sorted({region_of(zone) for zone in ZONES})] if regional else []
        places = places or [f"zones/{zone}" for zone in ZONES]
        shown = [(place, form) for place, form in found if matches(wanted, form)]
        return aggregated(account, kind, root, places, shown, flask.request.args)

    instance_routes(service, world, account, listed)
    image_routes(service, world, account, shown_operation)
    storage_routes(service, world, account)
    return service


def _region_form(world: World, account: Account, region: str) -> dict[str, t.Any]:
    """The caller holds the world's lock."""
    used = usage(world)
    quotas = [{"metric": "CPUS", "limit": 72.0, "usage": 0.0}]
    for accelerator, metric in METRICS.items():
        on_demand, spot = (used.get((region, accelerator, kind), 0) for kind in (False, True))
        quotas.append({"metric": metric, "limit": float(account.gpus_per_region), "usage": float(on_demand)})
        quotas.append({"metric": f"PREEMPTIBLE_{metric}", "limit": float(account.spot_gpus_per_region), "usage": float(spot)})
    zones = [f"projects/{PROJECT}/zones/{zone}" for zone in ZONES if region_of(zone) == region]
    return {"kind": "compute#region", "name": region, "status": "UP", "quotas": quotas, "zones": zones}
