# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a machine of Vast.ai: it is asked for, uploaded somewhere, and fetched from there. The API key does not go there."""

from __future__ import annotations

import typing as t
from urllib.parse import urlsplit

from ...core import errors
from ...core.clock import Clock
from ...core.http import Api, Retry
from ...core.redact import redact, register
from .api import GONE, VastApi

if t.TYPE_CHECKING:
    import httpx

_PATH = "/api/v0/instances/request_logs/{}/"
_LINES = "200"
_LONGEST = 64 * 1024  # characters kept, from the end
_TRIES, _PAUSE = 10, 2.0


def boot_log(api: VastApi, instance_id: str, transport: httpx.BaseTransport | None, clock: Clock) -> str | None:
    """Its last lines without known secrets; None when the machine is gone or the log does not come in time."""
    path = _PATH.format(instance_id)
    try:
        answer = api.repeat("PUT", path, json={"tail": _LINES})
    except errors.NotFound as error:
        if error.code in GONE:
            return None
        raise
    url = api.http.expect(answer.get("result_url"), str, f"PUT {path}", "result_url")
    try:
        parts, home = urlsplit(url), urlsplit(api.http.base_url)
    except ValueError as error:
        raise api.http.bad_shape(f"PUT {path}", f"its result_url is no address: {error}") from error
    register(parts.query)  # a signature: who has it may read the log
    ours = (parts.scheme, parts.netloc) == (home.scheme, home.netloc)
    if not parts.netloc or not (ours or parts.scheme == "https"):
        raise api.http.bad_shape(f"PUT {path}", "its result_url is neither https nor the API's own address")
    place = Api(
        "vast logs",
        f"{parts.scheme}://{parts.netloc}",
        transport=transport if ours else None,
        retry=Retry(tries=2, base=1.0, cap=2.0, deadline=10.0),
        clock=clock,
    )
    try:
        return _fetch(place, f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}", clock)
    finally:
        place.close()


def _fetch(place: Api, path: str, clock: Clock) -> str | None:
    """403 and 404 mean that it is not uploaded yet."""
    for turn in range(_TRIES):
        if turn:
            clock.sleep(_PAUSE)
        answer = place.call("GET", path, ok=(403, 404))
        if answer.status not in (403, 404):
            return redact(answer.text[-_LONGEST:])
    return None
