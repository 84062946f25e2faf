# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every mesh can be asked. Callers know this protocol, never a mesh by name."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing as t
from datetime import datetime, timedelta, timezone

from ..core import errors
from ..model import Device, MeshKey

_LONGEST = 50  # characters of a key's description
_LONGEST_KEY = 7776000  # seconds; the services' own limit
_TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class NewKey:
    """A fresh enrolment key. ``secret`` exists only here; it is registered for redaction."""

    id: str
    secret: str = dataclasses.field(repr=False)
    description: str
    created: datetime
    expires: datetime


class Mesh(t.Protocol):
    """One mesh with one credential. Every verb raises an ApiError of ``errors`` when the mesh cannot be read or refuses.

    ``own_server``: machines need its URL, since clients know only Tailscale's.
    """

    backend: str
    own_server: bool

    def check(self, tags: t.Sequence[str]) -> str:
        """Prove that the credential works and that ``tags`` may be handed out, without changing anything.

        Returns a sentence for people that also says what could not be seen; raises when something is certainly wrong.
        """
        ...

    def create_key(self, node: str, *, tags: t.Sequence[str], ephemeral: bool = True, expiry_seconds: int = 3600) -> NewKey:
        """A one-use, preauthorised key for one node. After a lost answer the orphan is found by its description and deleted."""
        ...

    def keys(self) -> list[MeshKey]:
        """Every enrolment key the credential can see, ours or not, used and expired ones included where the service lists them."""
        ...

    def delete_key(self, key_id: str) -> bool:
        """Revoke a key. True = done now, False = it was gone already. Devices that joined with it stay."""
        ...

    def devices(self) -> list[Device]:
        """Every device the credential can see, ours or not."""
        ...

    def device(self, device_id: str) -> Device | None:
        """One device; None when the service says it does not exist (any more)."""
        ...

    def delete_device(self, device_id: str) -> bool:
        """Remove a device. True = done now, False = it was gone already."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class DeviceMesh(Mesh, t.Protocol):
    """A mesh whose devices can be changed, too. ``describes_keys``: a key can be found again by its node."""

    @property
    def describes_keys(self) -> bool: ...

    def policy(self) -> str | None:
        """The policy text (HuJSON); None when there is none to be seen."""
        ...

    def carried_tags(self) -> set[str] | None:
        """The tags of an OAuth client itself; None when it is none, or may not see them."""
        ...

    def settings(self) -> dict[str, t.Any] | None:
        """The tailnet's settings as Tailscale names them; None when they cannot be seen."""
        ...

    def failed_policy_tests(self, tests: t.Sequence[t.Mapping[str, t.Any]]) -> list[str] | None:
        """What the mesh says to ``tests`` ({src, accept}) of the policy in force; [] = all pass, None = it cannot be asked."""
        ...

    def set_tags(self, device_id: str, tags: t.Sequence[str]) -> None:
        """Replace a device's tags."""
        ...

    def set_authorized(self, device_id: str, authorized: bool) -> None:
        """Approve a device, or take the approval back."""
        ...

    def set_key_expiry(self, device_id: str, enabled: bool) -> None:
        """Let the device's own key expire, or not."""
        ...


def check_tags(tags: t.Sequence[str]) -> None:
    """Raise InvalidInput for what cannot be a tag."""
    wrong = [tag for tag in tags if not _TAG.fullmatch(tag)]
    if wrong:
        raise errors.InvalidInput(
            f"These are no tags of a tailnet: {', '.join(map(repr, wrong))}.",
            remedy="A tag is written tag:name with letters, digits and hyphens, and begins with a letter.",
        )


def check_expiry(node: str, seconds: int) -> None:
    """Raise InvalidInput for a life that no key can have."""
    if not 1 <= seconds <= _LONGEST_KEY:
        raise errors.InvalidInput(
            f"{node}: a mesh key cannot live {seconds} s.", remedy=f"Give 1 to {_LONGEST_KEY} seconds.", field="expiry_seconds"
        )


def description_of(node: str) -> str:
    """The description of a node's key: ``tgp <node>``, at most 50 letters, digits, hyphens and spaces.

    A name that is too long or has other characters keeps its beginning (with the cluster id) and its random end, and gets eight hex
    digits of its hash in between, so two names never share a description and a person still recognises the node.
    """
    clean = _FOREIGN.sub("-", node)
    whole = f"tgp {clean}"
    if clean == node and len(whole) <= _LONGEST:
        return whole
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    tail = clean.rpartition("-")[2][-12:]
    end = f"-{digest}-{tail}" if tail and tail != clean else f"-{digest}"
    return whole[: _LONGEST - len(end)].rstrip("-") + end


# ---- finds a node's device among all devices. Pure

_SKEW = timedelta(seconds=120)  # the service's clock and the one that dated the key may differ by that much
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """``device``: the node's own, None when it has not joined. ``stale``: other entries of the same hostname and tags, to be
    removed. ``suffixed``: the mesh gave it another name ("host-1") because the wanted one was taken; reach it by address."""

    device: Device | None
    stale: tuple[Device, ...] = ()
    suffixed: bool = False


def find_device(
    devices: t.Iterable[Device],
    *,
    hostname: str,
    tags: t.Collection[str],
    created_after: datetime | None,
    ephemeral: bool | None = None,
) -> Found:
    """The device that asked for ``hostname``, carries all ``tags`` and is not shared in from elsewhere.

    ``created_after`` is when its key was made; older entries are an earlier machine's (120 s of clock difference allowed).
    ``ephemeral`` True or False asks for that kind, None for any; a device of which it is not known is of either. Of several the newest
    connected one is the node. The search never goes by the mesh's own name of a device: that one gets a "-1" when the wanted name is taken.
    """
    ours = [
        device
        for device in devices
        if device.hostname.lower() == hostname.lower()
        and set(tags) <= set(device.tags)
        and not device.external
        and (ephemeral is None or device.ephemeral in (ephemeral, None))
    ]
    fresh = [device for device in ours if _young(device, created_after)]
    fresh.sort(key=lambda device: (device.online is True, device.created or _NEVER), reverse=True)
    chosen = fresh[0] if fresh else None
    stale = tuple(device for device in ours if device is not chosen)
    return Found(chosen, stale, chosen is not None and is_suffixed(chosen))


def is_suffixed(device: Device) -> bool:
    """True when the mesh named the device "host-1" although it asked for "host"; headscale 0.28 adds eight letters instead."""
    label = device.name.partition(".")[0].lower()
    return re.fullmatch(re.escape(device.hostname.lower()) + r"-(\d+|[a-z0-9]{8})", label) is not None


def _young(device: Device, created_after: datetime | None) -> bool:
    if created_after is None:
        return True
    return device.created is not None and device.created >= created_after - _SKEW
