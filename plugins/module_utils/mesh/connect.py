# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the mesh that a module is to use: options first, then environment variables, then what the caller found elsewhere."""

from __future__ import annotations

import os
import re
import threading
import typing as t

from ansible.module_utils.basic import env_fallback

from ..core import errors
from ..core.errors import InvalidInput
from ..core.http import Answer, Api
from ..core.rate_limit import RetryPolicy
from ..core.redact import register
from ..core.task import Task
from ..model import Device, MeshKey
from .base import DeviceMesh, NewKey
from .headscale import Headscale
from .tailscale.client import Tailscale
from .tailscale.session import ApiToken, Credential, OAuthClient, refuse_mixed_up, words

PUBLIC = "https://api.tailscale.com"
_VARIABLES = {
    "tailscale_api_url": ["TAILSCALE_API_URL"],
    "tailscale_tailnet": ["TAILSCALE_TAILNET"],
    "tailscale_oauth_client_id": ["TS_OAUTH_CLIENT_ID"],
    "tailscale_oauth_client_secret": ["TS_OAUTH_CLIENT_SECRET"],
    "tailscale_api_token": ["TAILSCALE_API_KEY", "TS_API_KEY"],
}
MESH_SPEC: dict[str, t.Any] = dict(
    tailscale_api_url=dict(type="str", fallback=(env_fallback, _VARIABLES["tailscale_api_url"])),
    tailscale_tailnet=dict(type="str", fallback=(env_fallback, _VARIABLES["tailscale_tailnet"])),
    tailscale_oauth_client_id=dict(type="str", fallback=(env_fallback, _VARIABLES["tailscale_oauth_client_id"])),
    tailscale_oauth_client_secret=dict(
        type="str", no_log=True, fallback=(env_fallback, _VARIABLES["tailscale_oauth_client_secret"])
    ),
    tailscale_api_token=dict(type="str", no_log=True, fallback=(env_fallback, _VARIABLES["tailscale_api_token"])),
)
_HOW = (
    "Give tailscale_oauth_client_id and tailscale_oauth_client_secret (TS_OAUTH_CLIENT_ID, TS_OAUTH_CLIENT_SECRET), "
    "or tailscale_api_token (TAILSCALE_API_KEY or TS_API_KEY)."
)


def connect(task: Task, *, client_id: str = "", client_secret: str = "") -> DeviceMesh:
    """The mesh of this module call. ``client_id`` and ``client_secret`` count when neither option nor variable gives a credential.

    Raises InvalidInput naming option and variables when a credential is missing, halved, or of the wrong kind. Sends nothing yet.
    Which API another server than Tailscale's speaks is asked of it with the first call, unless the credential is one of Tailscale's.
    """
    root = _root(task)
    api = _api(task, root, "/api/v2")
    credential, tailnet = _credential(task, api, client_id, client_secret), _value(task, "tailscale_tailnet") or "-"
    if root == PUBLIC or credential.made_by_tailscale:
        return Tailscale(api, credential, tailnet)

    def decide() -> DeviceMesh:
        asking = _api(task, root, "")
        try:
            version = spoken(asking)
        finally:
            asking.close()
        if version != V1:
            return Tailscale(api, credential, tailnet)
        api.close()
        if credential.client_id:
            raise InvalidInput(
                f"{root} is a headscale without OAuth clients: it speaks its own API v1 only, as before 0.30.",
                remedy="Make an API key there (headscale apikeys create) and give it as tailscale_api_token, or update the server.",
            )
        return Headscale(_api(task, root, "/api/v1"), credential)

    return Undecided(decide)


def _root(task: Task) -> str:
    """The server's root; a path before its API stays, because a proxy may serve it there."""
    given = _value(task, "tailscale_api_url") or PUBLIC
    if "?" in given or "#" in given:
        raise InvalidInput(
            "tailscale_api_url has a query or a fragment.",
            remedy=f"Write {re.split('[?#]', given)[0]}; paths of the API are added.",
        )
    return given.rstrip("/").removesuffix("/api/v2").removesuffix("/api/v1").rstrip("/")


def _api(task: Task, root: str, path: str) -> Api:
    service = "headscale" if path == "/api/v1" else "tailscale"
    return Api(service, root + path, transport=task.transport(root), retry=RetryPolicy(tries=4), clock=task.clock, explain=words)


def _credential(task: Task, api: Api, client_id: str, client_secret: str) -> Credential:
    """Options before variables, within each the OAuth client before the token, then the caller's."""
    for read, written in ((_option, True), (_variable, False)):
        found_id, secret = read(task, "tailscale_oauth_client_id"), read(task, "tailscale_oauth_client_secret")
        token = read(task, "tailscale_api_token")
        register(secret, token)
        refuse_mixed_up(token, secret)
        if written and token and (found_id or secret):
            raise InvalidInput("Both tailscale_api_token and an OAuth client are given.", remedy="Give one of them.")
        if found_id or secret:  # one half may be an option and the other a variable
            found_id = found_id or _variable(task, "tailscale_oauth_client_id")
            secret = secret or _variable(task, "tailscale_oauth_client_secret")
            refuse_mixed_up("", secret)
        if found_id and secret:
            return OAuthClient(api, found_id, secret)
        if token:
            return ApiToken(token)
        if found_id or secret:
            half = "tailscale_oauth_client_secret" if found_id else "tailscale_oauth_client_id"
            names = " or ".join(_VARIABLES[half])
            raise InvalidInput(
                f"The OAuth client of the tailnet is incomplete: {half} is missing.", remedy=f"Give it, or set {names}."
            )
    if client_id and client_secret:
        refuse_mixed_up("", client_secret)
        return OAuthClient(api, client_id, client_secret)
    raise InvalidInput("There is no credential for the tailnet.", remedy=_HOW)


def _option(task: Task, name: str) -> str:
    """What was written in the task. A value that only the spec's fallback copied from the environment counts as a variable, so
    that a token written in the task beats an OAuth client that happens to be in the environment."""
    value = str(task.params.get(name) or "").strip()
    return "" if value and value == _variable(task, name) else value


def _variable(_task: Task, name: str) -> str:
    return next((value for key in _VARIABLES[name] if (value := os.environ.get(key, "").strip())), "")


def _value(task: Task, name: str) -> str:
    return _option(task, name) or _variable(task, name)


# ---- which of the two APIs a server speaks: asked of it, once, without the credential

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
    """A reported version that is too old is refused; servers built from source report none."""
    version = str(answer.json.get("version") or "") if isinstance(answer.json, dict) else ""
    match = re.match(r"v?(\d+)\.(\d+)\.", version)
    if match and (int(match[1]), int(match[2])) < _OLDEST:
        raise errors.InvalidInput(
            f"The server is headscale {version}, whose API this collection does not speak.",
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
