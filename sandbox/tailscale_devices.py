# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of the Tailscale API."""

from __future__ import annotations

import typing as t

import flask

from . import tailscale_forms as forms
from .tailnet_records import Device
from .tailscale_access import Endpoints, Refused, Route

_ABSENT_WHEN_FALSE = ("isEphemeral", "multipleConnections")


class Devices(Endpoints):
    """The list of devices and everything below /device."""

    def routes(self) -> t.Iterator[Route]:
        yield "GET", "/tailnet/<tailnet>/devices", self.devices
        yield "GET", "/device/<device_id>", self.device
        yield "DELETE", "/device/<device_id>", self.delete_device
        yield "GET", "/device/<device_id>/routes", self.routes_of
        for name in ("authorized", "tags", "key", "expire", "name", "ip", "routes"):
            yield "POST", f"/device/<device_id>/{name}", getattr(self, f"set_{name}")

    def devices(self) -> t.Any:
        actor = self.actor("devices:core:read")
        everything = flask.request.args.get("fields") == "all"
        found = self.tailnet.devices()
        if everything and not self.headscale and any(device.external for device in found):
            raise Refused(404, "not found")
        shown = [forms.device(self.tailnet, device, everything) for device in found if not (actor.oauth and device.external)]
        if not self.headscale:
            shown = [form for form in shown if _matches(form)]
        return {"devices": shown}

    def _device(self, device_id: str) -> Device:
        found = self.tailnet.device(device_id)
        if found is None:
            raise Refused(404, "device not found" if self.headscale else "not found")
        return found

    def device(self, device_id: str) -> t.Any:
        self.actor("devices:core:read")
        return forms.device(self.tailnet, self._device(device_id), flask.request.args.get("fields") == "all")

    def delete_device(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        if self._device(device_id).external:
            raise Refused(501, "cannot delete devices outside of your tailnet")
        self.tailnet.leave(device_id)
        return flask.Response("", 200)

    def set_authorized(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, wanted = self._device(device_id), bool(self.body().get("authorized"))
        if self.headscale and not wanted:
            raise Refused(400, "Headscale does not support de-authorizing a device; delete it instead")
        device.authorized = wanted
        return {}

    def set_tags(self, device_id: str) -> t.Any:
        actor = self.actor("devices:core")
        device, tags = self._device(device_id), list(self.body().get("tags") or [])
        if not tags and not self.headscale:
            raise Refused(400, "tagged nodes cannot be untagged without reauth")
        self.permit_tags(actor, tags)
        device.tags = tags or device.tags
        return {}

    def set_key(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, wanted = self._device(device_id), bool(self.body().get("keyExpiryDisabled"))
        device.key_expiry_disabled = wanted or (self.headscale and device.key_expiry_disabled)
        return {}

    def set_expire(self, device_id: str) -> t.Any:
        self.saas_only()
        self.actor("devices:core")
        device = self._device(device_id)
        device.expires, device.key_expiry_disabled = self.tailnet.clock.now(), False
        self.tailnet.set_online(device.node_id, False)
        return {}

    def set_name(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, name = self._device(device_id), str(self.body().get("name", ""))
        try:
            self.tailnet.rename(device, name)
        except LookupError:
            if self.headscale:
                raise Refused(400, "renaming device", data=[{"errors": [f"node name is not unique: {name}"]}]) from None
            raise Refused(400, f'name "{name}" is already taken') from None
        return {}

    def set_ip(self, device_id: str) -> t.Any:
        self.saas_only()
        self.actor("devices:core")
        device, address = self._device(device_id), str(self.body().get("ipv4", ""))
        if any(other.ipv4 == address and other is not device for other in self.tailnet.devices()):
            raise Refused(400, f"address {address} is already in use")
        device.ipv4 = address
        return {}

    def routes_of(self, device_id: str) -> t.Any:
        self.actor("devices:routes:read")
        return self._routes(self._device(device_id))

    def set_routes(self, device_id: str) -> t.Any:
        self.actor("devices:routes")
        device = self._device(device_id)
        device.enabled_routes = list(self.body().get("routes") or [])
        return self._routes(device)

    @staticmethod
    def _routes(device: Device) -> dict[str, t.Any]:
        return {"advertisedRoutes": device.advertised_routes, "enabledRoutes": device.enabled_routes}


def _matches(form: t.Mapping[str, t.Any]) -> bool:
    """The request's filters: ``field=value``, exact, all must hold."""
    for name, value in flask.request.args.items(multi=True):
        if name == "fields":
            continue
        have = form.get(name, False if name in _ABSENT_WHEN_FALSE else None)
        if isinstance(have, list):
            if value not in have:
                return False
        elif (str(have).lower() if isinstance(have, bool) else str(have or "")) != value:
            return False
    return True
