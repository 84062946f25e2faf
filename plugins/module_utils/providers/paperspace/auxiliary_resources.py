# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Paperspace keeps beside machines: startup scripts, private networks and static addresses."""

from __future__ import annotations

import typing as t

from ...core import errors, redact
from ...model import Extra
from .api import REFUSED, Calls, answered
from .launch import network_name, script_name
from .records import ADDRESS, NETWORK, SCRIPT, is_deleted, machine_of, moment, to_extra
from .types import short_region


class Beside:
    """These things of one team."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # ---- making

    def script(self, machine: str, text: str) -> tuple[str, Extra | None]:
        """The id of the startup script of ``machine`` with this text, and the thing if it was made now. It runs at the first boot only,
        so that it cannot be read from inside the machine afterwards."""
        redact.register(text)
        name = script_name(machine, text)
        return self._made_once("/startup-scripts", SCRIPT, machine, {"name": name, "script": text, "isRunOnce": True})

    def network(self, machine: str, region: str) -> tuple[str, Extra | None]:
        """The same for a private network of its own."""
        wanted = {"name": network_name(machine), "region": short_region(region)}
        return self._made_once("/private-networks", NETWORK, machine, wanted)

    def _made_once(self, path: str, kind: str, machine: str, wanted: dict[str, t.Any]) -> tuple[str, Extra | None]:
        """Looked up by name before it is made, and after a lost answer."""
        if existing := self._named(path, wanted):
            return existing, None
        operation = f"POST {path}"
        try:
            answer = self._calls.send("POST", path, json=wanted)
            identity = self._calls.api.expect(self._calls.api.expect(answer.json, dict, operation).get("id"), str, operation, "id")
        except (errors.LostAnswer, errors.ServerError, errors.BadShape):
            identity = self._named(path, wanted)
            if not identity:
                raise
        return identity, Extra("paperspace", kind, identity, machine)

    def _named(self, path: str, wanted: dict[str, t.Any]) -> str:
        """The filter may mean "contains", so names are compared here; a network counts in its region only."""
        for entry in self._calls.pages(path, name=wanted["name"]):
            self._calls.api.expect(entry, dict, f"GET {path}", "an entry")
            placed = "region" not in wanted or short_region(str(entry.get("region") or "")) == wanted["region"]
            if entry.get("name") == wanted["name"] and placed and not is_deleted(entry):
                return str(self._calls.api.expect(entry.get("id"), str, f"GET {path}", "id of an entry"))
        return ""

    # ---- finding and removing

    def all(self) -> list[Extra]:
        """Those of ours, by the name of the machine they were made for."""
        extras = []
        for path, kind in (("/startup-scripts", SCRIPT), ("/private-networks", NETWORK)):
            entries = self._calls.pages(path)
            extras += [extra for entry in entries if (extra := to_extra(self._calls.api, entry, f"GET {path}", kind))]
        return [*extras, *self._addresses()]

    def _addresses(self) -> t.Iterator[Extra]:
        """Static addresses have no name; they are ours while they belong to a machine with a name of ours."""
        api, operation = self._calls.api, "GET /public-ips"
        held = [api.expect(entry, dict, operation, "an entry") for entry in self._calls.pages("/public-ips")]
        assigned = {str(entry["assignedMachineId"]): entry for entry in held if entry.get("assignedMachineId")}
        if not assigned:
            return
        for machine in self._calls.pages("/machines"):
            address = assigned.get(str(machine.get("id"))) if isinstance(machine, dict) else None
            if address is not None and (name := machine_of(str(machine.get("name") or ""))):
                identity = api.expect(address.get("ip"), str, operation, "ip")
                yield Extra("paperspace", ADDRESS, identity, name, moment(address.get("dtCreated")))

    def discard(self, extra: Extra) -> None:
        """Remove one; what is still assigned to a machine is unassigned first. A network waits for its machines: Conflict."""
        path = {SCRIPT: "/startup-scripts", NETWORK: "/private-networks", ADDRESS: "/public-ips"}.get(extra.kind)
        if path is None:
            raise errors.InvalidInput(f"paperspace: there is nothing of the kind {extra.kind!r}.")
        here = f"{path}/{extra.id}"
        if self._delete(here):
            return
        if extra.kind == SCRIPT:
            for machine in self._calls.get(here).get("assignedMachineIds") or []:
                self._calls.send("POST", f"{here}/unassign", json={"machineId": machine}, idempotent=True)
        elif extra.kind == ADDRESS:
            self._calls.send("PUT", here, json={"machineId": None}, idempotent=True)
        if extra.kind == NETWORK or not self._delete(here):
            raise errors.Conflict(
                f"paperspace: {extra.kind} {extra.id} of {extra.name} is still in use.",
                remedy="It can go once its machine is gone.",
                service="paperspace",
            )

    def _delete(self, path: str) -> bool:
        """False when it is refused as things are now."""
        try:
            self._calls.send("DELETE", path, idempotent=True)
        except errors.NotFound as error:
            if not answered(error):
                raise
        except errors.ApiError as error:
            if error.status not in REFUSED or not answered(error):
                raise
            return False
        return True
