# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's tailnet: devices, keys, credentials and what happens to them as time passes.

Two doors lead here: the HTTP API (tailscale.py) and the machine side (:meth:`Tailnet.join`), which stands for ``tailscale up`` on a
rented machine and refuses with the words a real node would log.
"""

from __future__ import annotations

import ipaddress
import random
import re
import string
import threading
import typing as t
from datetime import datetime, timedelta

from .clock import SimClock
from .tailnet_policy import Policy
from .tailnet_records import Device, Key, Token

SAAS, HEADSCALE = "saas", "headscale"
HEADSCALE_V1 = "headscale-v1"  # headscale before 0.30, which has its own API only
PROFILES = (SAAS, HEADSCALE, HEADSCALE_V1)
_ALPHABET = string.ascii_letters + string.digits
_URL_SAFE = f"{_ALPHABET}-_"
_AUTH_KEY = "hskey-auth-"  # then twelve characters, a hyphen and 64 more
_AUTH_KEY_LENGTH = 77  # characters after it
OFFLINE, ALWAYS = "offline", "always"
LAST_SEEN = (OFFLINE, ALWAYS)


class JoinRefused(Exception):
    """The login failed; the message is what the node's log shows."""


class Tailnet:
    """One tailnet. Every public method takes ``lock``; times are those of ``clock``.

    ``ephemeral_seconds``: an ephemeral device is removed that long after it was last seen. ``name_hold_seconds``: the name of a
    removed device stays taken that long (then comes the "-1"). ``settings`` are the tailnet settings the API shows. ``last_seen`` "offline":
    a connected device has no ``lastSeen``; "always": it has one in the long form of a device. ``node_keys`` False: headscale does not tell
    which key a node came with.
    """

    def __init__(
        self,
        clock: SimClock,
        randomness: random.Random | None = None,
        policy: Policy | None = None,
        *,
        lock: t.Any = None,
        profile: str = SAAS,
        domain: str = "tail5ad0.ts.net",
        ephemeral_seconds: float = 1800,
        name_hold_seconds: float = 900,
        token_seconds: float = 3600,
        last_seen: str = OFFLINE,
        node_keys: bool = True,
    ) -> None:
        self.clock = clock
        self.random = randomness or random.Random(0)
        self.policy = policy or Policy()
        self.lock = lock or threading.RLock()
        self.profile = HEADSCALE if profile == HEADSCALE_V1 else profile
        self.v1_only = profile == HEADSCALE_V1
        self.domain = domain
        self.ephemeral_seconds = ephemeral_seconds
        self.name_hold_seconds = name_hold_seconds
        self.token_seconds = token_seconds
        self.last_seen, self.node_keys = last_seen, node_keys
        self.settings: dict[str, t.Any] = {
            "aclsExternallyManagedOn": False,
            "aclsExternalLink": "",
            "devicesApprovalOn": False,
            "devicesAutoUpdatesOn": False,
            "devicesKeyDurationDays": 180,
            "usersApprovalOn": False,
            "usersRoleAllowedToJoinExternalTailnets": "none",
            "networkFlowLoggingOn": False,
            "regionalRoutingOn": False,
            "postureIdentityCollectionOn": False,
            "httpsEnabled": False,
        }
        self.short_key_list = False  # the older service lists keys by id only
        self.lock_on = False  # tailnet lock: devices that nobody signed get no traffic
        self._devices: dict[str, Device] = {}
        self._keys: dict[str, Key] = {}
        self._tokens: dict[str, Token] = {}
        self._held: dict[str, datetime] = {}
        self._count = 0

    # ---- reading

    def devices(self) -> list[Device]:
        """All devices that exist now."""
        with self.lock:
            self._age()
            return list(self._devices.values())

    def device(self, device_id: str) -> Device | None:
        """By node id or legacy id."""
        return next((device for device in self.devices() if device_id in (device.node_id, device.id)), None)

    def keys(self) -> list[Key]:
        """All keys that were not deleted, used and expired ones included."""
        with self.lock:
            return [key for key in self._keys.values() if key.revoked is None]

    def key(self, key_id: str) -> Key | None:
        """One key, also a deleted one."""
        return self._keys.get(key_id)

    def live_keys(self) -> list[Key]:
        """Auth keys that a machine could still join with."""
        with self.lock:
            now = self.clock.now()
            return [key for key in self._keys.values() if key.kind == "auth" and not key.invalid(now)]

    def dns_name(self, device: Device) -> str:
        """What the API shows as ``name``."""
        return device.label if self.profile == HEADSCALE else f"{device.label}.{self.domain}"

    # ---- keys and credentials

    def create_key(self, kind: str, *, seconds: float | None, secret: str = "", key_id: str = "", **fields: t.Any) -> Key:
        """Make a key. ``kind`` auth, client or api; ``seconds`` None = no expiry."""
        with self.lock:
            now = self.clock.now()
            key_id = key_id or self._key_id(kind)
            text = secret or self._key_text(kind, key_id)
            expires = None if seconds is None else now + timedelta(seconds=seconds)
            key = Key(id=key_id, kind=kind, secret=text, created=now, expires=expires, **fields)
            self._keys[key.id] = key
            return key

    def delete_key(self, key_id: str) -> bool:
        """Revoke; False when there is no such key (any more)."""
        with self.lock:
            key = self._keys.get(key_id)
            if key is None or key.revoked is not None:
                return False
            key.revoked = self.clock.now()
            return True

    def by_secret(self, secret: str) -> Key | None:
        with self.lock:
            return next((key for key in self._keys.values() if key.secret == secret), None)

    def mint(self, client: Key, scopes: t.Collection[str], tags: t.Collection[str]) -> Token:
        """An access token for an OAuth client."""
        with self.lock:
            text = self._key_text("oauthtok", "") if self.profile == HEADSCALE else self._key_text("access", self._letters(12))
            until = self.clock.now() + timedelta(seconds=self.token_seconds)
            self._tokens[text] = Token(text, client.id, frozenset(scopes), frozenset(tags), until)
            return self._tokens[text]

    def token(self, secret: str) -> Token | None:
        """A token that is still good."""
        with self.lock:
            token = self._tokens.get(secret)
            if token is None or token.expires <= self.clock.now():
                return None
            client = self._keys.get(token.client)
            return token if client is not None and client.revoked is None else None

    def drop_tokens(self) -> None:
        """Every access token stops working at once (as after a revocation over there)."""
        with self.lock:
            self._tokens.clear()

    # ---- the machine side

    def join(
        self,
        key: str,
        hostname: str,
        *,
        advertise_tags: t.Sequence[str] = (),
        accept_routes: bool = False,
        advertise_routes: t.Sequence[str] = (),
    ) -> Device:
        """A machine logs in with ``key`` and asks for ``hostname``. Raises JoinRefused with the text of its log."""
        with self.lock:
            self._age()
            record = self._admit(key.partition("?")[0], advertise_tags)
            record.uses += 1
            tags = list(record.tags)
            if record.kind == "client":
                tags = list(advertise_tags)
            needs_approval = bool(self.settings["devicesApprovalOn"]) and not record.preauthorized
            device = self._new_device(hostname, tags, record, authorized=not needs_approval)
            device.accept_routes = accept_routes
            device.advertised_routes = list(advertise_routes)
            device.enabled_routes = [route for route in advertise_routes if self._auto_approved(route, tags)]
            device.lock_error = "this node's key is not signed, so it is locked out" if self.lock_on else ""
            return device

    def leave(self, device_id: str) -> bool:
        """The device is removed (logout, or deletion); False when it was gone. Its name stays taken for a while."""
        with self.lock:
            device = self.device(device_id)
            if device is None:
                return False
            self._remove(device)
            return True

    def set_online(self, device_id: str, online: bool) -> bool:
        """The machine's client connects or falls silent. False when the device is gone: it would have to log in anew."""
        with self.lock:
            device = self.device(device_id)
            if device is None:
                return False
            if device.online and not online:
                device.last_seen = self.clock.now()
            elif online:
                device.last_seen = None
            device.online = online
            return True

    def add_device(self, hostname: str, *, tags: t.Sequence[str] = (), external: bool = False) -> Device:
        """A device somebody else brought in, without any key of ours (a laptop, a control plane, a shared-in machine)."""
        with self.lock:
            key = Key("", "auth", "", "", self.clock.now(), None)
            device = self._new_device(hostname, list(tags), key, authorized=True)
            device.external = external
            return device

    def rename(self, device: Device, name: str) -> None:
        """Give another name; LookupError when it is taken. "" resets it to the hostname."""
        with self.lock:
            label = _label(name.partition(".")[0] or device.hostname)
            if label != device.label and self._taken(label):
                raise LookupError(name)
            device.label = label

    # ---- inside

    def _admit(self, secret: str, advertised: t.Sequence[str]) -> Key:
        """The key a login may use, or JoinRefused."""
        headscale = self.profile == HEADSCALE
        record = self.by_secret(secret)
        if record is None or record.kind == "api":
            raise JoinRefused(_malformed(secret) or "invalid pre auth key" if headscale else "invalid key: invalid API token")
        if record.kind == "client" and not advertised:
            raise JoinRefused("oauth authkeys require --advertise-tags")
        if record.revoked is not None:
            raise JoinRefused("authkey revoked" if headscale else "invalid key: API key does not exist")
        now = self.clock.now()
        if record.invalid(now):
            used = "authkey already used" if record.uses else "authkey expired"
            raise JoinRefused(used if headscale else f"invalid key: API key {record.id} not valid")
        if record.kind == "client":
            permitted = all(self.policy.assignable(tag, record.tags) for tag in advertised)
        else:
            permitted = set(advertised) <= set(record.tags)
        if not permitted:
            raise JoinRefused(f"requested tags [{' '.join(advertised)}] are invalid or not permitted")
        return record

    def _new_device(self, hostname: str, tags: list[str], key: Key, *, authorized: bool) -> Device:
        self._count += 1
        number = self._count
        digits = "".join(self.random.choices(string.digits, k=16))
        tagged = "tagged-devices" if self.profile == HEADSCALE else f"tagged-devices.{self.domain}"
        now = self.clock.now()
        device = Device(
            node_id=str(number) if self.profile == HEADSCALE else f"n{self._letters(12)}CNTRL",
            id=str(number) if self.profile == HEADSCALE else f"9{digits[1:]}",
            hostname=hostname,
            label=self._free_label(_label(hostname)),
            ipv4=f"100.{64 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}",
            ipv6=f"fd7a:115c:a1e0::{number:x}",
            tags=tags,
            user=tagged if tags else (key.user or "owner@example.com"),
            created=now,
            key_id=key.id,
            ephemeral=key.ephemeral or key.kind == "client",
            authorized=authorized,
            machine_key=f"mkey:{self.random.randbytes(32).hex()}",
            node_key=f"nodekey:{self.random.randbytes(32).hex()}",
            key_expiry_disabled=bool(tags),
            expires=None if tags else now + timedelta(days=self.settings["devicesKeyDurationDays"]),
        )
        self._devices[device.node_id] = device
        return device

    def _auto_approved(self, route: str, tags: t.Sequence[str]) -> bool:
        granted = (self.policy.content.get("autoApprovers") or {}).get("routes") or {}
        return any(_inside(route, prefix) and set(tags) & set(who) for prefix, who in granted.items())

    def _age(self) -> None:
        """Ephemeral devices that fell silent long ago are removed."""
        now = self.clock.now()
        for device in list(self._devices.values()):
            if device.ephemeral and not device.online and device.last_seen is not None:
                end = device.last_seen + timedelta(seconds=self.ephemeral_seconds)
                if end <= now:
                    self._remove(device, end)

    def _remove(self, device: Device, moment: datetime | None = None) -> None:
        del self._devices[device.node_id]
        self._held[device.label] = (moment or self.clock.now()) + timedelta(seconds=self.name_hold_seconds)

    def _taken(self, label: str) -> bool:
        held = self._held.get(label)
        return any(d.label == label for d in self._devices.values()) or (held is not None and held > self.clock.now())

    def _free_label(self, label: str) -> str:
        candidate, number = label, 0
        while self._taken(candidate):
            number += 1
            candidate = f"{label}-{number}"
        return candidate

    def _key_id(self, kind: str) -> str:
        if self.profile == HEADSCALE:
            return str(len(self._keys) + 1) if kind == "auth" else self.random.randbytes(6).hex()
        return f"k{self._letters(11)}CNTRL"

    def _key_text(self, kind: str, key_id: str) -> str:
        """headscale's secrets begin with a prefix of their own, which only for OAuth clients is the id. 0.28 writes all of it in URL-safe
        base64, hyphens and underscores included; what becomes 0.30 has hexadecimal prefixes."""
        if self.profile != HEADSCALE:
            return f"tskey-{kind}-{key_id}-{self._letters(32)}"
        prefix = self._letters(12, _URL_SAFE) if self.v1_only else self.random.randbytes(6).hex()
        return f"hskey-{kind}-{key_id if kind == 'client' else prefix}-{self._letters(64, _URL_SAFE)}"

    def _letters(self, count: int, alphabet: str = _ALPHABET) -> str:
        return "".join(self.random.choices(alphabet, k=count))


def _malformed(secret: str) -> str:
    """What headscale says of an auth key that is too short to be one; empty when it is not."""
    rest = secret.removeprefix(_AUTH_KEY)
    if rest == secret or len(rest) >= _AUTH_KEY_LENGTH:
        return ""
    return f"failed to parse auth-key: key too short, expected at least {_AUTH_KEY_LENGTH} chars after prefix, got {len(rest)}"


def _label(name: str) -> str:
    """A DNS label of any name."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63] or "device"


def _inside(route: str, prefix: str) -> bool:
    inner, outer = ipaddress.ip_network(route), ipaddress.ip_network(prefix)
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]
