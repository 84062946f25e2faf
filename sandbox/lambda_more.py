# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda's SSH keys, file systems and firewall rules."""

from __future__ import annotations

import ipaddress
import json
import re
import typing as t
import uuid

import flask

from . import lambda_forms as forms
from .lambda_account import Account, Refused, invalid, machines, missing, not_found
from .lambda_audit import record
from .world import World

_GLOBAL = "global"  # the id of the ruleset of all regions
_VOLUME_NAME = re.compile(r"[a-zA-Z]+[0-9a-zA-Z-]*")


def _request() -> dict[str, t.Any]:
    try:
        content = json.loads(flask.request.get_data() or b"null")
    except ValueError:
        raise invalid("body", "Input should be valid JSON") from None
    if not isinstance(content, dict):
        raise invalid("body", "Input should be a valid dictionary")
    return content


def _text(request: dict[str, t.Any], field: str, longest: int = 64) -> str:
    value = request.get(field)
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise invalid(field, f"String should have 1 to {longest} characters")
    return value


def _data(value: t.Any) -> t.Any:
    return flask.jsonify({"data": value})


def routes(service: flask.Flask, world: World, account: Account) -> None:
    """Add the routes to the application."""
    _key_routes(service, world, account)
    _file_system_routes(service, world, account)
    _firewall_routes(service, world, account)


def _key_routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.get("/api/v1/ssh-keys")
    def ssh_keys() -> t.Any:
        return _data(account.ssh_keys)

    @service.post("/api/v1/ssh-keys")
    def add_ssh_key() -> t.Any:
        request = _request()
        name = _text(request, "name")
        if "public_key" in request and request["public_key"] is not None:
            return _data(added(name, _text(request, "public_key", 4096)))
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        pair = ed25519.Ed25519PrivateKey.generate()
        public = pair.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
        private = pair.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        ).decode()
        return _data({**added(name, public), "private_key": private})

    @service.delete("/api/v1/ssh-keys/<identity>")
    def delete_ssh_key(identity: str) -> t.Any:
        key = next((one for one in account.ssh_keys if one["id"] == identity), None)
        if key is None:
            raise not_found()
        with world.lock:
            if any(
                key["name"] in machine.details.get("ssh_key_names", ()) and machine.ended is None for machine in machines(world)
            ):
                raise Refused(400, "ssh-keys/key-in-use", "The SSH key is in use by an instance.")
            account.ssh_keys.remove(key)
        record(world, account, "ssh_key", "deleted", identity)
        return _data({})

    def added(name: str, public: str) -> dict[str, str]:
        key = account.add_key(name, public)
        record(world, account, "ssh_key", "created", key["id"])
        return key


def _file_system_routes(service: flask.Flask, world: World, account: Account) -> None:
    def in_use(volume: dict[str, t.Any]) -> bool:
        used = (machine.details.get("file_system_names", ()) for machine in machines(world) if machine.ended is None)
        return any(volume["name"] in names for names in used)

    @service.get("/api/v1/file-systems")
    def file_systems() -> t.Any:
        with world.lock:
            return _data([{**volume, "is_in_use": in_use(volume)} for volume in account.file_systems])

    @service.post("/api/v1/filesystems")
    def add_file_system() -> t.Any:
        request = _request()
        name, place = _text(request, "name", 60), _text(request, "region")
        if not _VOLUME_NAME.fullmatch(name):
            raise invalid("name", "String should match pattern '^[a-zA-Z]+[0-9a-zA-Z-]*$'")
        if place not in forms.LAMBDA_REGIONS:
            raise not_found()
        if any(one["name"] == name and one["region"]["name"] == place for one in account.file_systems):
            raise Refused(400, "global/duplicate", f"A filesystem with the name {name} exists already.")
        volume = account.add_file_system(name, place, world.clock.now())
        record(world, account, "filesystem", "created", str(volume["id"]))
        return _data(volume)

    @service.delete("/api/v1/filesystems/<identity>")
    def delete_file_system(identity: str) -> t.Any:
        volume = _one(account.file_systems, identity, "file system")
        with world.lock:
            if in_use(volume):
                raise Refused(400, "filesystems/filesystem-in-use", "The filesystem is in use.")
            account.file_systems.remove(volume)
            account.storage.drop(identity, world.clock.now())
        record(world, account, "filesystem", "deleted", identity)
        return _data({"deleted_ids": [identity]})


def _firewall_routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.get("/api/v1/firewall-rules")
    def rules() -> t.Any:
        return _data(account.rules)

    @service.put("/api/v1/firewall-rules")
    def replace_rules() -> t.Any:
        account.rules = _rules(_request().get("data"))
        record(world, account, "firewall_ruleset", "updated", _GLOBAL)
        return _data(account.rules)

    @service.get("/api/v1/firewall-rulesets")
    def rulesets() -> t.Any:
        return _data([shown(ruleset) for ruleset in account.rulesets])

    @service.post("/api/v1/firewall-rulesets")
    def add_ruleset() -> t.Any:
        request = _known(_request(), "name", "region", "rules")
        name, place = _text(request, "name"), _text(request, "region")
        if place not in forms.LAMBDA_REGIONS:
            raise not_found()
        ruleset = {
            "id": uuid.uuid4().hex,
            "name": name,
            "region": forms.region(place),
            "rules": _rules(request.get("rules")),
            "created": world.clock.now().isoformat(),
        }
        account.rulesets.append(ruleset)
        record(world, account, "firewall_ruleset", "created", str(ruleset["id"]))
        return _data(shown(ruleset))

    @service.get("/api/v1/firewall-rulesets/global")
    def global_ruleset() -> t.Any:
        return _data({"id": _GLOBAL, "name": "Global", "rules": account.rules})

    @service.patch("/api/v1/firewall-rulesets/global")
    def change_global_ruleset() -> t.Any:
        request = _known(_request(), "rules")
        if "rules" in request:
            account.rules = _rules(request["rules"])
            record(world, account, "firewall_ruleset", "updated", _GLOBAL)
        return global_ruleset()

    @service.get("/api/v1/firewall-rulesets/<identity>")
    def ruleset(identity: str) -> t.Any:
        return _data(shown(_one(account.rulesets, identity, "firewall ruleset")))

    @service.patch("/api/v1/firewall-rulesets/<identity>")
    def change_ruleset(identity: str) -> t.Any:
        request = _known(_request(), "name", "rules")
        found = _one(account.rulesets, identity, "firewall ruleset")
        changes: dict[str, t.Any] = {"name": _text(request, "name")} if "name" in request else {}
        changes |= {"rules": _rules(request["rules"])} if "rules" in request else {}
        if changes:
            found.update(changes)
            record(world, account, "firewall_ruleset", "updated", identity)
        return _data(shown(found))

    @service.delete("/api/v1/firewall-rulesets/<identity>")
    def delete_ruleset(identity: str) -> t.Any:
        found = _one(account.rulesets, identity, "firewall ruleset")
        if shown(found)["instance_ids"]:
            said, todo = "Firewall ruleset is in use by one or more instances.", "Terminate the instances that use it first."
            raise Refused(400, "firewall-rulesets/firewall-ruleset-in-use", said, todo)
        account.rulesets.remove(found)
        record(world, account, "firewall_ruleset", "deleted", identity)
        return _data({})

    def shown(ruleset: dict[str, t.Any]) -> dict[str, t.Any]:
        with world.lock:
            users = [
                machine.id
                for machine in machines(world)
                if machine.ended is None and {"id": ruleset["id"]} in (machine.details.get("firewall_rulesets") or ())
            ]
        return {**ruleset, "instance_ids": users}


def _known(request: dict[str, t.Any], *fields: str) -> dict[str, t.Any]:
    """The request, which has no other fields."""
    for name in request:
        if name not in fields:
            raise invalid(name, "Extra inputs are not permitted")
    return request


def _rules(value: t.Any) -> list[dict[str, t.Any]]:
    """Checked rules: a port range except for icmp, an IPv4 network, a short description."""
    if not isinstance(value, list):
        raise invalid("rules", "Input should be a valid list")
    for rule in value:
        if not isinstance(rule, dict) or rule.get("protocol") not in ("tcp", "udp", "icmp", "all"):
            raise invalid("protocol", "Input should be 'tcp', 'udp', 'icmp' or 'all'")
        if ("port_range" in rule) == (rule["protocol"] == "icmp"):
            raise invalid("port_range", "Required except for icmp, where it is not permitted")
        if "port_range" in rule and not _is_range(rule["port_range"]):
            raise invalid("port_range", "Input should be two ports, the smaller first")
        try:
            ipaddress.IPv4Network(rule.get("source_network"))
        except ValueError:
            raise invalid("source_network", "Input should be an IPv4 network") from None
        if not isinstance(rule.get("description"), str) or len(rule["description"]) > 128:
            raise invalid("description", "String should have at most 128 characters")
    return value


def _is_range(ports: t.Any) -> bool:
    return (
        isinstance(ports, list)
        and len(ports) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) for one in ports)
        and 1 <= ports[0] <= ports[1] <= 65535
    )


def _one(items: list[t.Any], identity: str, kind: str) -> t.Any:
    for item in items:
        if item["id"] == identity:
            return item
    raise missing(kind, identity)
