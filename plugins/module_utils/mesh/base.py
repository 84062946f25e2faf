# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every mesh can be asked. Callers know this protocol, never a mesh by name."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing as t
from datetime import datetime

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

    ``own_server``: machines have to be told its URL, since clients know Tailscale's alone.
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
