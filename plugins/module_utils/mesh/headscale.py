# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""headscale's own API, version 1, for servers that have no other (0.28 and 0.29).

A key here has no description and its deletion would make the device that came with it lasting: what is made is recognised by its
exact end, and what is over is expired, never deleted.
"""

from __future__ import annotations

import random
import typing as t
from datetime import datetime, timedelta, timezone

from ..core import errors
from ..core.clock import to_text
from ..core.http import Api, path_segment
from ..core.redact import register
from ..model import Device, MeshKey
from .base import NewKey, check_expiry, check_tags, description_of
from .tailscale import client
from .tailscale.client import moment, strings
from .tailscale.policy import loads
from .tailscale.session import Credential, Session, said_by_service


class Headscale:
    """One headscale server with one of its API keys. ``api`` has the base URL up to ``/api/v1``. Safe for use by several threads."""

    backend = "tailscale"
    own_server = True
    describes_keys = False

    def __init__(self, api: Api, credential: Credential) -> None:
        self._api = api
        self._credential = credential
        self._session = Session(api, credential)

    def close(self) -> None:
        self._api.close()

    @property
    def session(self) -> Session:
        """The connection with its credential, for questions that this client does not ask (verify/)."""
        return self._session

    def check(self, tags: t.Sequence[str]) -> str:
        """See Mesh. An API key of headscale may do everything; what can be wrong is that the policy does not know a tag."""
        check_tags(tags)
        devices, keys = self.devices(), self.keys()
        seen = f"headscale (API v1): {self._credential.name} works, {len(devices)} devices and {len(keys)} keys are visible"
        return f"{seen}; {verdict(self.policy(), tags)}." if tags else f"{seen}."

    def policy(self) -> str | None:
        """The policy text (HuJSON); None when the server has none or does not show it."""
        try:
            answer = self._session.call("GET", "/policy", scope="")
        except (errors.NotFound, errors.ServerError):  # "acl policy not found" comes as 500
            return None
        text = answer.json.get("policy") if isinstance(answer.json, dict) else None
        return text if isinstance(text, str) and text.strip() else None

    def carried_tags(self) -> None:
        """An API key of headscale carries none and may hand out any."""

    def settings(self) -> None:
        """There are none in this API."""

    def failed_policy_tests(self, tests: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """This API cannot try a connection."""

    # ---- keys

    def create_key(self, node: str, *, tags: t.Sequence[str], ephemeral: bool = True, expiry_seconds: int = 3600) -> NewKey:
        """See Mesh. An end must always be sent: a key without one counts as expired there."""
        check_tags(tags)
        check_expiry(node, expiry_seconds)
        if not tags:
            raise errors.InvalidInput(
                f"{node}: no tags for its mesh key.",
                remedy="A key of headscale belongs to a user or carries tags; give at least one.",
            )
        now = self._api.clock.now()
        # the fraction of a second is drawn, so that no two keys end at the same moment
        end = (now + timedelta(seconds=expiry_seconds)).replace(microsecond=random.randrange(1, 999_999))
        try:
            return self._post_key(node, tags, ephemeral, now, end)
        except (errors.LostAnswer, errors.ServerError, errors.BadShape) as error:
            self._expire_orphans(end, error)
        return self._post_key(node, tags, ephemeral, now, end)

    def _post_key(self, node: str, tags: t.Sequence[str], ephemeral: bool, now: datetime, end: datetime) -> NewKey:
        operation = "POST /preauthkey"
        spec = {"reusable": False, "ephemeral": ephemeral, "expiration": precise(end), "aclTags": list(tags)}
        answer = self._session.call("POST", "/preauthkey", scope="", tags=tags, json=spec)
        body = self._api.expect(answer.json, dict, operation)
        made = self._api.expect(body.get("preAuthKey"), dict, operation, "preAuthKey")
        secret, key_id = made.get("key"), made.get("id")
        if isinstance(secret, str):
            register(secret)
        if not isinstance(secret, str) or not secret or not isinstance(key_id, str):
            raise self._api.bad_shape(operation, "the key or its id is missing")
        created = client.moment(made.get("createdAt")) or now
        if created >= end:
            raise errors.ApiError(
                f"headscale: the key {key_id} for {node} was over when it was made: the server's clock says {to_text(created)}, "
                f"this machine's {to_text(now)}.",
                remedy="Set up time synchronisation on both.",
                service=self._api.service,
                cause="clock",
            )
        return NewKey(id=key_id, secret=secret, description=description_of(node), created=created, expires=end)

    def _expire_orphans(self, end: datetime, lost: errors.ApiError) -> None:
        """Expire what a create call without answer may have left. ``lost`` is raised when that cannot be done."""
        try:
            for key in self.keys():
                if key.expires == end and not key.invalid:
                    self._expire(key.id)
        except errors.ApiError as error:
            lost.remedy = f"A key that ends at {to_text(end)} may exist; it could not be looked up ({error.message})."
            raise lost from error

    def keys(self) -> list[MeshKey]:
        """See Mesh. Without descriptions: headscale keeps none."""
        answer = self._session.call("GET", "/preauthkey", scope="")
        return [to_key(self._api, item) for item in client.listed(self._api, answer.json, "preAuthKeys", "GET /preauthkey")]

    def delete_key(self, key_id: str) -> bool:
        """See Mesh. Expires it: whether there was something to expire is looked up, since headscale says yes to any id."""
        path_segment(key_id, "key id")
        now = self._api.clock.now()
        for key in self.keys():
            if key.id == key_id:
                if key.invalid or (key.expires is not None and key.expires <= now):
                    return False
                self._expire(key_id)
                return True
        return False

    def _expire(self, key_id: str) -> None:
        self._session.call("POST", "/preauthkey/expire", scope="", json={"id": key_id}, idempotent=True)

    # ---- devices

    def devices(self) -> list[Device]:
        """See Mesh."""
        answer = self._session.call("GET", "/node", scope="")
        return [device(self._api, item, "GET /node") for item in client.listed(self._api, answer.json, "nodes", "GET /node")]

    def device(self, device_id: str) -> Device | None:
        """See Mesh."""
        path = self._node(device_id)
        try:
            answer = self._session.call("GET", path, scope="")
        except errors.NotFound as error:
            if said_by_service(error):
                return None
            raise
        body = self._api.expect(answer.json, dict, f"GET {path}")
        return device(self._api, self._api.expect(body.get("node"), dict, f"GET {path}", "node"), f"GET {path}")

    def delete_device(self, device_id: str) -> bool:
        """See Mesh."""
        return self._session.delete(self._node(device_id), scope="", there=lambda: self.device(device_id) is not None)

    def set_tags(self, device_id: str, tags: t.Sequence[str]) -> None:
        """Replace a device's tags."""
        check_tags(tags)
        path = f"{self._node(device_id)}/tags"
        self._session.call("POST", path, scope="", tags=tags, json={"tags": list(tags)}, idempotent=True)

    def set_authorized(self, device_id: str, authorized: bool) -> None:
        """Every device of headscale is approved from the start; that cannot be taken back."""
        if not authorized:
            raise errors.InvalidInput(
                f"{device_id}: headscale cannot take back the approval of a device.", remedy="Remove the device instead."
            )

    def set_key_expiry(self, device_id: str, enabled: bool) -> None:
        """Not to be had here: which servers of API v1 can switch it cannot be asked of them."""
        raise errors.InvalidInput(
            f"{device_id}: headscale's API v1 does not switch the expiry of a device's key for every version.",
            remedy="Leave key_expiry out: devices that joined with a tagged key do not expire.",
        )

    @staticmethod
    def _node(device_id: str) -> str:
        return f"/node/{path_segment(device_id, 'device id')}"


# ---- what headscale's policy says of tags. It hands out any tag, so an unknown one is only pointed out


def verdict(policy: str | None, tags: t.Sequence[str]) -> str:
    """The end of a sentence for people."""
    wanted = ", ".join(tags)
    if policy is None:
        return f"it has no policy to be seen, so every device reaches every other and {wanted} needs no rule"
    try:
        content = loads(policy)
    except ValueError as error:
        return f"its policy cannot be read ({error}), whether it knows {wanted} is not sure"
    owners = content.get("tagOwners") if isinstance(content, dict) else None
    undefined = [tag for tag in tags if tag not in (owners or {})]
    if undefined:
        return (
            f"it hands out any tag, but its policy does not define {', '.join(undefined)}, so no rule can let such a machine reach "
            'anything unless one is for "*": write it into tagOwners'
        )
    return f"its policy defines {wanted}"


# ---- turns what headscale's API v1 writes into our records


def precise(when: datetime) -> str:
    """RFC 3339 with microseconds."""
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def device(api: Api, item: t.Mapping[str, t.Any], operation: str) -> Device:
    """One node. ``givenName`` is the mesh's name of it: the domain is not reported."""
    if not isinstance(item.get("id"), str) or not isinstance(item.get("name"), str):
        raise api.bad_shape(operation, "a node has no id or no name")
    if "tags" not in item:
        raise api.bad_shape(operation, "a node has no tags, as before headscale 0.28; this collection needs 0.28 or later")
    online = item.get("online")
    to_key = item.get("preAuthKey")
    return Device(
        id=item["id"],
        hostname=item["name"],
        name=str(item.get("givenName") or ""),
        addresses=strings(item.get("ipAddresses")),
        tags=strings(item.get("tags")),
        online=online if isinstance(online, bool) else None,
        created=moment(item.get("createdAt")),
        last_seen=None if online is True else moment(item.get("lastSeen")),
        ephemeral=to_key.get("ephemeral") is True if isinstance(to_key, dict) else None,
        key_expiry_disabled=moment(item.get("expiry")) is None,
        expires=moment(item.get("expiry")),
    )


def to_key(api: Api, item: t.Mapping[str, t.Any]) -> MeshKey:
    """One pre-auth key. One without an end is of no use: the server takes the missing end for one in the year 1."""
    if not isinstance(item.get("id"), str):
        raise api.bad_shape("GET /preauthkey", "a key has no id")
    expires = moment(item.get("expiration"))
    used_up = item.get("used") is True and item.get("reusable") is not True
    return MeshKey(
        id=item["id"], description="", created=moment(item.get("createdAt")), expires=expires, invalid=used_up or expires is None
    )
