# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tailscale's API, version 2, which headscale (0.30 and later) serves too.

What is read is strict in shape (a list that is not a list is an error, never "nothing there"); what is made is made once: a key whose
answer was lost is looked up by its description, deleted, and only then made again.
"""

from __future__ import annotations

import math
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from ...core import errors
from ...core.clock import from_text
from ...core.http import Answer, Api, path_segment
from ...core.rate_limit import RetryPolicy
from ...core.redact import register
from ...model import Device, MeshKey
from ..base import NewKey, check_expiry, check_tags, description_of
from .policy import line_of_owners, loads
from .session import Credential, Session, said_by_service

# Of a create call that was answered 429, which certainly made nothing
_RATE_LIMITED = RetryPolicy(tries=4, first=1.0, jitter=(0.5, 1.5), deadline=math.inf, retry_after=(0.1, 30.0))
_READ_KEYS, _KEYS, _READ_DEVICES, _DEVICES = "auth_keys:read", "auth_keys", "devices:core:read", "devices:core"


class Tailscale:
    """One tailnet with one credential. ``api`` has the base URL up to ``/api/v2``; ``tailnet`` "-" is the credential's own.

    Safe for use by several threads.
    """

    backend = "tailscale"
    own_server = False
    describes_keys = True

    def __init__(self, api: Api, credential: Credential, tailnet: str = "-") -> None:
        self._api = api
        self._credential = credential
        self._session = Session(api, credential)
        self._tailnet = f"/tailnet/{path_segment(tailnet, 'tailscale_tailnet')}"

    def close(self) -> None:
        self._api.close()

    @property
    def session(self) -> Session:
        """The connection with its credential, for questions that this client does not ask (verify/)."""
        return self._session

    # ---- the credential

    def check(self, tags: t.Sequence[str]) -> str:
        """See Mesh. Raises Forbidden (details: cause scope or tag) when a scope is missing or a tag is certainly not to be had. Its
        questions are asked side by side: a run waits for the answers before it rents."""
        check_tags(tags)
        self._session.bearer()
        self._check_scopes()
        with ThreadPoolExecutor(max_workers=3, thread_name_prefix="mesh") as pool:
            listed, keys_read = pool.submit(self.devices), pool.submit(self.keys)
            judged = pool.submit(verdict, self, tags) if tags else None
        seen = f"tailscale: {self._credential.name} works, {len(listed.result())} devices and {len(keys_read.result())} keys are visible"
        return f"{seen}; {judged.result()}." if judged is not None else f"{seen}."

    def _check_scopes(self) -> None:
        granted = self._credential.scopes
        if granted is None or "all" in granted:
            return
        missing = [scope for scope in (_KEYS, _DEVICES) if scope not in granted]
        if missing:
            error = errors.Forbidden(
                f"tailscale: {self._credential.name} has the scopes {', '.join(sorted(granted))} and lacks {', '.join(missing)}.",
                service=self._api.service,
                cause="scope",
            )
            error.remedy = (
                "Scopes are fixed when an OAuth client is made: create a new one with auth_keys and devices:core and a tag."
            )
            raise error

    @property
    def client_id(self) -> str:
        """The OAuth client's id, empty with an API token."""
        return self._credential.client_id

    def caller(self) -> str:
        """The credential, for messages."""
        return self._credential.name

    def read(self, path: str, *, scope: str, accept: str = "application/json") -> Answer:
        """A read below the tailnet's path, for the policy check."""
        return self._session.call("GET", self._tailnet + path, scope=scope, headers={"accept": accept})

    def policy(self) -> str | None:
        """The policy text (HuJSON); None when the credential may not read it."""
        return policy_text(self)

    def carried_tags(self) -> set[str] | None:
        """The tags of the OAuth client itself; None with an API token, or when the credential may not see them."""
        return own_tags(self) if self.client_id else None

    def settings(self) -> dict[str, t.Any] | None:
        """The tailnet's settings; None when the credential may not see them."""
        try:
            answer = self.read("/settings", scope="feature_settings:read")
        except (errors.Forbidden, errors.NotFound):
            return None
        return answer.json if isinstance(answer.json, dict) else None

    def failed_policy_tests(self, tests: t.Sequence[t.Mapping[str, t.Any]]) -> list[str] | None:
        """What the service says to ``tests`` ({src, accept}) of the policy in force; [] = all pass, None = it cannot be asked."""
        path = f"{self._tailnet}/acl/validate"
        try:
            answer = self._session.call("POST", path, scope="policy_file:read", json=list(tests), idempotent=True)
        except (errors.Forbidden, errors.NotFound):
            return None
        if not isinstance(answer.json, dict) and answer.text.strip() not in ("", "null"):
            return None  # some page in between
        body = answer.json or {}
        message = str(body.get("message") or "")  # 200 also when tests fail
        if not message or message.startswith("warning"):
            return []
        failures = [
            f"{entry.get('user')}: {text}"
            for entry in body.get("data") or ()
            if isinstance(entry, dict)
            for text in entry.get("errors") or ()
        ]
        return failures or [message]

    # ---- keys

    def create_key(self, node: str, *, tags: t.Sequence[str], ephemeral: bool = True, expiry_seconds: int = 3600) -> NewKey:
        """See Mesh. Raises InvalidInput for impossible arguments, Forbidden or ApiError (details: cause) with what to do, and
        LostAnswer when two attempts were lost; a key of that description may then exist and ends by itself."""
        check_tags(tags)
        if self._credential.client_id and not tags:
            raise errors.InvalidInput(f"{node}: no tags for its mesh key.", remedy="Keys made by an OAuth client must carry tags.")
        check_expiry(node, expiry_seconds)
        description = description_of(node)
        try:
            return self._post_key(description, tags, ephemeral, expiry_seconds)
        except errors.ApiError as error:
            if not _outcome_unknown(error):
                raise
            self._revoke_orphans(description, error)
        try:
            return self._post_key(description, tags, ephemeral, expiry_seconds)
        except errors.ApiError as error:
            if _outcome_unknown(error):
                self._revoke_orphans(description, error)
            raise

    def _post_key(self, description: str, tags: t.Sequence[str], ephemeral: bool, seconds: int) -> NewKey:
        path = f"{self._tailnet}/keys"
        operation = f"POST {path}"
        create = {"reusable": False, "ephemeral": ephemeral, "preauthorized": True, "tags": list(tags)}
        body = {
            "keyType": "auth",
            "capabilities": {"devices": {"create": create}},
            "expirySeconds": seconds,
            "description": description,
        }
        asked = self._api.clock.now()
        answer = self._session.call("POST", path, scope=_KEYS, tags=tags, json=body, resend_rate_limited=_RATE_LIMITED)
        made = self._api.expect(answer.json, dict, operation)
        secret = made.get("key")
        if isinstance(secret, str):
            register(secret)
        if not isinstance(secret, str) or not secret or not isinstance(made.get("id"), str):
            raise self._api.bad_shape(operation, "the key or its id is missing")
        return NewKey(
            id=made["id"],
            secret=secret,
            description=description,
            created=moment(made.get("created")) or asked,
            expires=moment(made.get("expires")) or asked + timedelta(seconds=seconds),
        )

    def _revoke_orphans(self, description: str, lost: errors.ApiError) -> None:
        """Delete what a create call without answer may have left. ``lost`` is raised when that cannot be done."""
        try:
            for key in self.keys():
                if key.description == description and key.invalid is not True:
                    self.delete_key(key.id)
        except errors.ApiError as error:
            lost.remedy = (
                f"A key described {description!r} may exist; it could not be looked up ({error.message}) and ends by itself."
            )
            raise lost from error

    def keys(self) -> list[MeshKey]:
        """See Mesh. An API token sees all keys of the tailnet, an OAuth client those of the tailnet."""
        path = f"{self._tailnet}/keys"
        answer = self._session.call("GET", path, scope=_READ_KEYS, params={"all": "true"})
        items = listed(self._api, answer.json, "keys", f"GET {path}")
        for item in items:
            if not isinstance(item.get("id"), str):
                raise self._api.bad_shape(f"GET {path}", "a key has no id")
        short = [item["id"] for item in items if "created" not in item]
        if short:  # the older form of the list says nothing but the ids
            with ThreadPoolExecutor(min(8, len(short))) as pool:
                whole = dict(zip(short, pool.map(self._key, short), strict=True))
            items = [full for item in items if (full := whole.get(item["id"], item)) is not None]
        return [read_key(item) for item in items if item.get("keyType", "auth") == "auth"]

    def _key(self, key_id: str) -> dict[str, t.Any] | None:
        path = self._key_path(key_id)
        try:
            return self._api.expect(self._session.call("GET", path, scope=_READ_KEYS).json, dict, f"GET {path}")
        except errors.NotFound as error:
            if said_by_service(error):
                return None
            raise

    def _key_path(self, key_id: str) -> str:
        return f"{self._tailnet}/keys/{path_segment(key_id, 'key id')}"

    def delete_key(self, key_id: str) -> bool:
        """See Mesh."""

        def there() -> bool:
            item = self._key(key_id)
            return item is not None and read_key({"id": key_id, **item}).invalid is not True

        return self._session.delete(self._key_path(key_id), scope=_KEYS, there=there)

    # ---- devices

    def devices(self) -> list[Device]:
        """See Mesh. Only the default fields: asking for all of them can fail the list when devices are shared in."""
        path = f"{self._tailnet}/devices"
        answer = self._session.call("GET", path, scope=_READ_DEVICES, params={"fields": "default"})
        return [device(self._api, item, f"GET {path}") for item in listed(self._api, answer.json, "devices", f"GET {path}")]

    def device(self, device_id: str) -> Device | None:
        """See Mesh."""
        path = self._device_path(device_id)
        try:
            answer = self._session.call("GET", path, scope=_READ_DEVICES, params={"fields": "default"})
        except errors.NotFound as error:
            if said_by_service(error):
                return None
            raise
        return device(self._api, self._api.expect(answer.json, dict, f"GET {path}"), f"GET {path}")

    def delete_device(self, device_id: str) -> bool:
        """See Mesh. Raises ApiError (details: cause external) for a device shared in from elsewhere."""
        return self._session.delete(self._device_path(device_id), scope=_DEVICES, there=lambda: self.device(device_id) is not None)

    def set_tags(self, device_id: str, tags: t.Sequence[str]) -> None:
        """Replace a device's tags."""
        check_tags(tags)
        self._change(device_id, "tags", {"tags": list(tags)}, tags)

    def set_authorized(self, device_id: str, authorized: bool) -> None:
        """Approve a device, or take the approval back (headscale cannot)."""
        self._change(device_id, "authorized", {"authorized": authorized})

    def set_key_expiry(self, device_id: str, enabled: bool) -> None:
        """Let the device's own key expire, or not."""
        self._change(device_id, "key", {"keyExpiryDisabled": not enabled})

    def _change(self, device_id: str, attribute: str, body: dict[str, t.Any], tags: t.Sequence[str] = ()) -> None:
        self._session.call(
            "POST", f"{self._device_path(device_id)}/{attribute}", scope=_DEVICES, tags=tags, json=body, idempotent=True
        )

    def _device_path(self, device_id: str) -> str:
        return f"/device/{path_segment(device_id, 'device id')}"


def _outcome_unknown(error: errors.ApiError) -> bool:
    """True when the create call may have made a key: no answer, an answer nobody can read, or a server error."""
    return isinstance(error, (errors.LostAnswer, errors.ServerError, errors.BadShape))


# ---- whether the tailnet's policy lets our credential hand out the tags we want, as far as it can be seen without doing it


class Reader(t.Protocol):
    """What is needed of the client."""

    @property
    def client_id(self) -> str: ...

    def caller(self) -> str: ...

    def read(self, path: str, *, scope: str, accept: str = ...) -> Answer: ...


def verdict(reader: Reader, tags: t.Sequence[str]) -> str:
    """A sentence. Raises Forbidden (details: cause tag) when the policy rules a tag out."""
    wanted = ", ".join(tags)
    owners = _owners(reader)
    if owners is None:
        return f"whether it may hand out {wanted} shows with the first key (the credential may not read the policy)"
    undefined = [tag for tag in tags if tag not in owners]
    if undefined:
        raise _refusal(f"the policy does not define {', '.join(undefined)}", reader, undefined)
    if not reader.client_id:
        return f"the policy defines {wanted}"
    own = own_tags(reader)
    if own is None:
        return f"the policy defines {wanted}; whether a tag of {reader.caller()} owns it shows with the first key"
    denied = [tag for tag in tags if tag not in own and not own & set(owners[tag])]
    if denied:
        raise _refusal(
            f"{reader.caller()} carries {', '.join(sorted(own)) or 'no tag'}, which does not own {', '.join(denied)}",
            reader,
            denied,
        )
    return f"it may hand out {wanted}"


def policy_text(reader: Reader) -> str | None:
    """The policy (HuJSON), None when it may not be read."""
    try:
        return reader.read("/acl", scope="policy_file:read").text
    except (errors.Forbidden, errors.NotFound):
        return None


def _owners(reader: Reader) -> dict[str, list[str]] | None:
    """``tagOwners``, None when the policy may not be read."""
    try:
        policy = loads(policy_text(reader) or "")
    except ValueError:
        return None
    owners = policy.get("tagOwners") if isinstance(policy, dict) else None
    if not isinstance(policy, dict) or not isinstance(owners, (dict, type(None))):
        return None
    return {str(tag): [str(owner) for owner in who or ()] for tag, who in (owners or {}).items()}


def own_tags(reader: Reader) -> set[str] | None:
    """The tags of the OAuth client itself; None when the credential may not see them."""
    try:
        answer = reader.read(f"/keys/{reader.client_id}", scope="oauth_keys:read")
    except (errors.Forbidden, errors.NotFound):
        return None
    tags = answer.json.get("tags") if isinstance(answer.json, dict) else None
    return {str(tag) for tag in tags} if isinstance(tags, list) else None


def _refusal(why: str, reader: Reader, tags: t.Sequence[str]) -> errors.Forbidden:
    return errors.Forbidden(
        f"tailscale: {why}, so no key with it can be made.",
        remedy=f"Write it into the policy, owned by a tag of {reader.caller()}, for example {line_of_owners(tags)}.",
        service="tailscale",
        cause="tag",
        tags=list(tags),
    )


# ---- turns what the API writes into our records. Missing fields are tolerated where headscale leaves them out, odd ones are not


def moment(value: t.Any) -> datetime | None:
    """A time, None when absent, empty, unreadable or the zero time (year 1), which stands for "none"."""
    if not isinstance(value, str) or not value:
        return None
    try:
        parsed = from_text(value)
    except ValueError:
        return None
    return parsed if parsed.year > 1 else None


def listed(api: Api, body: t.Any, field: str, operation: str) -> list[dict[str, t.Any]]:
    """The list under ``field``. Anything but a list of objects is BadShape: an odd answer is never "there are none"."""
    items = api.expect(api.expect(body, dict, operation).get(field), list, operation, field)
    return [api.expect(item, dict, operation, f"an entry of {field}") for item in items]


def device(api: Api, item: t.Mapping[str, t.Any], operation: str) -> Device:
    """One device."""
    device_id = item.get("nodeId") or item.get("id")
    if not isinstance(device_id, str) or not isinstance(item.get("hostname"), str):
        raise api.bad_shape(operation, "a device has no id or no hostname")
    created = moment(item.get("created"))
    addresses = strings(item.get("addresses"))
    expiry_off = item.get("keyExpiryDisabled")
    return Device(
        id=device_id,
        hostname=item["hostname"],
        name=str(item.get("name") or ""),
        addresses=addresses,
        tags=strings(item.get("tags")),
        online=_online(item, bool(addresses) and created is not None),
        created=created,
        last_seen=moment(item.get("lastSeen")),
        ephemeral=item.get("isEphemeral") is True,
        external=item.get("isExternal") is True,
        authorized=item.get("authorized") is not False,
        problem=_problem(item),
        key_expiry_disabled=expiry_off if isinstance(expiry_off, bool) else None,
        expires=moment(item.get("expires")),
    )


def _online(item: t.Mapping[str, t.Any], joined: bool) -> bool | None:
    """``connectedToControl`` where the service has it. Without it: a device that has joined is online while ``lastSeen`` is left
    out; one without address or creation time never connected, and of a shared-in device it is unknown."""
    connected = item.get("connectedToControl")
    if isinstance(connected, bool):
        return connected
    if item.get("isExternal") is True:
        return None
    return joined and not item.get("lastSeen")


def _problem(item: t.Mapping[str, t.Any]) -> str:
    problems = []
    if item.get("tailnetLockError"):
        problems.append(f"tailnet lock lets no traffic through: {item['tailnetLockError']}")
    if item.get("authorized") is False:
        problems.append("it waits for approval by an administrator")
    if item.get("multipleConnections") is True:
        problems.append("several machines use its identity (copied state)")
    return "; ".join(problems)


def read_key(item: t.Mapping[str, t.Any]) -> MeshKey:
    """One key, without its secret."""
    invalid = item.get("invalid")
    if moment(item.get("revoked")) is not None:
        invalid = True
    return MeshKey(
        id=str(item["id"]),
        description=str(item.get("description") or ""),
        created=moment(item.get("created")),
        expires=moment(item.get("expires")),
        invalid=invalid if isinstance(invalid, bool) else None,
    )


def strings(value: t.Any) -> tuple[str, ...]:
    """The texts of a list; anything else is none."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
