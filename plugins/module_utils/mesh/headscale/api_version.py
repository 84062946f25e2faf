# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the two APIs a server speaks: asked of it, once, without the credential."""

from __future__ import annotations

import re
import threading
import typing as t

from ...core import errors
from ...core.http import Answer, Api
from ...model import Device, MeshKey
from ..base import DeviceMesh, NewKey

V1, V2 = "v1", "v2"
_ANY = range(400, 500)
_OLDEST = (0, 28)


def spoken(api: Api) -> str:
    """``v2`` (Tailscale's, headscale 0.30 and later) or ``v1`` (headscale's own). ``api`` has the server's root as base.

    The proof of an API is an answer in its own form, also a refusal: headscale answers paths it does not know with 200 and an empty
    page. Raises BadShape when there is neither API, InvalidInput for a headscale that is too old, and whatever keeps the server from
    being reached.
    """
    answer = api.call("GET", "/api/v2/tailnet/-/settings", ok=_ANY)
    if isinstance(answer.json, dict):
        return V2
    if not _is_v1(api.call("GET", "/api/v1/node", ok=_ANY)):
        error = api.bad_shape("GET /api/v2 and GET /api/v1", "neither is an API of Tailscale or headscale")
        error.remedy = "Check tailscale_api_url (TAILSCALE_API_URL): the root of the server, without /api, and no proxy's own page."
        raise error
    _refuse_old(api.call("GET", "/version", ok=_ANY))
    return V1


def _is_v1(answer: Answer) -> bool:
    return isinstance(answer.json, dict) or (answer.status == 401 and answer.text.strip() == "Unauthorized")


def _refuse_old(answer: Answer) -> None:
    """A version that is told and too old is refused; servers built from source tell none."""
    told = str(answer.json.get("version") or "") if isinstance(answer.json, dict) else ""
    found = re.match(r"v?(\d+)\.(\d+)\.", told)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        raise errors.InvalidInput(
            f"The server is headscale {told}, whose API this collection does not speak.",
            remedy="Update it to 0.28 or later, one minor version at a time; from 0.30 on it also has OAuth clients.",
        )


class Undecided:
    """A mesh whose API is found out with the first question, so that connecting sends nothing and cannot fail."""

    backend = "tailscale"
    own_server = True

    def __init__(self, decide: t.Callable[[], DeviceMesh]) -> None:
        self._decide = decide
        self._lock = threading.Lock()
        self._found: DeviceMesh | None = None

    def decided(self) -> DeviceMesh:
        """The client of the API that the server speaks."""
        with self._lock:
            if self._found is None:
                self._found = self._decide()
            return self._found

    @property
    def describes_keys(self) -> bool:
        return self.decided().describes_keys

    def policy(self) -> str | None:
        return self.decided().policy()

    def carried_tags(self) -> set[str] | None:
        return self.decided().carried_tags()

    def settings(self) -> dict[str, t.Any] | None:
        return self.decided().settings()

    def failed_policy_tests(self, tests: t.Sequence[t.Mapping[str, t.Any]]) -> list[str] | None:
        return self.decided().failed_policy_tests(tests)

    def check(self, tags: t.Sequence[str]) -> str:
        return self.decided().check(tags)

    def create_key(self, node: str, *, tags: t.Sequence[str], ephemeral: bool = True, expiry_seconds: int = 3600) -> NewKey:
        return self.decided().create_key(node, tags=tags, ephemeral=ephemeral, expiry_seconds=expiry_seconds)

    def keys(self) -> list[MeshKey]:
        return self.decided().keys()

    def delete_key(self, key_id: str) -> bool:
        return self.decided().delete_key(key_id)

    def devices(self) -> list[Device]:
        return self.decided().devices()

    def device(self, device_id: str) -> Device | None:
        return self.decided().device(device_id)

    def delete_device(self, device_id: str) -> bool:
        return self.decided().delete_device(device_id)

    def set_tags(self, device_id: str, tags: t.Sequence[str]) -> None:
        self.decided().set_tags(device_id, tags)

    def set_authorized(self, device_id: str, authorized: bool) -> None:
        self.decided().set_authorized(device_id, authorized)

    def set_key_expiry(self, device_id: str, enabled: bool) -> None:
        self.decided().set_key_expiry(device_id, enabled)

    def close(self) -> None:
        with self._lock:
            if self._found is not None:
                self._found.close()
