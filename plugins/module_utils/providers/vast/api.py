# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Vast.ai's API is spoken to: what its answers mean, beyond their status.

A failure may come as 200 with ``"success": false``; a bad key as 404; a request for patience as text, JSON or a header. Paths keep their
trailing slash: without it the server redirects, and redirects are not followed.
"""

from __future__ import annotations

import random
import time
import typing as t

from ...core import errors
from ...core.clock import Clock
from ...core.http import Answer, Api, RetryPolicy
from ...core.rate_limit import Bucket, Pace

if t.TYPE_CHECKING:
    import httpx

# Seconds between two calls of one kind and account, as documented; "queued": its turn was waited for already.
LIMITS = {
    "": Bucket(1.0),
    "search": Bucket(8.0, burst=3),  # ten in any minute, and a usual question is answered at once
    "list": Bucket(1.0),
    "get": Bucket(2.0),
    "create": Bucket(4.5),
    "queued": Bucket(0.0),
    "destroy": Bucket(3.0),
    "bid": Bucket(5.5),
}
GONE = frozenset({"no_such_instance", "not_found"})
_TRIES = 6
_DEADLINE = 180.0
_LONGEST_PAUSE = 60.0
_KEY_HINT = "Check VAST_API_KEY (or the option vast_api_key); keys are made on the account page of console.vast.ai."
_RIGHTS_HINT = "Give the API key the rights misc, user_read, instance_read and instance_write."
_TWO_FACTOR_HINT = "Log in with the second factor in the console, or use an API key that needs none."


def explain(body: t.Any, text: str) -> tuple[str | None, str]:
    """Vast.ai's own code and sentence, in the order in which its answers carry them; else the start of the text."""
    if isinstance(body, dict):
        code = body.get("error") if isinstance(body.get("error"), str) else None
        for key in ("msg", "message", "detail", "error"):
            if body.get(key):
                return code, " ".join(str(body[key]).split())[:300]
    return None, " ".join(text.split())[:300]


class VastApi:
    """One account. ``clock`` decides what a second is; ``transport`` replaces the network in tests."""

    def __init__(self, key: str, url: str, *, transport: httpx.BaseTransport | None, clock: Clock) -> None:
        self._clock = clock
        self.http = Api(
            "vast",
            url,
            headers={"authorization": f"Bearer {key}"},
            transport=transport,
            timeout=30.0,
            pace=Pace(f"vast {url} {key}", LIMITS),
            retry=RetryPolicy(tries=4, first=2.0, longest=30.0, deadline=90.0),
            clock=clock,
            auth_hint=_KEY_HINT,
            explain=explain,
        )

    def close(self) -> None:
        self.http.close()

    def read(self, path: str, *, pace: str = "", params: t.Mapping[str, t.Any] | None = None) -> dict[str, t.Any]:
        """A GET; see :meth:`repeat`."""
        return self.repeat("GET", path, pace=pace, params=params)

    def read_any(self, path: str) -> t.Any:
        """A GET whose answer may be a bare list."""
        return self._patiently("GET", path, None, None, "")

    def repeat(
        self, method: str, path: str, *, pace: str = "", params: t.Mapping[str, t.Any] | None = None, json: t.Any = None
    ) -> dict[str, t.Any]:
        """A call that may be repeated; its answer, an object that does not say that it failed. Raises ApiError."""
        return self.http.expect(self._patiently(method, path, json, params, pace), dict, f"{method} {path}")

    def once(self, method: str, path: str, *, json: t.Any, pace: str, timeout: float) -> dict[str, t.Any]:
        """A call that is sent once, whatever comes of it."""
        body = self._checked(method, path, json, None, pace, timeout, False)
        return self.http.expect(body, dict, f"{method} {path}")

    def _patiently(self, method: str, path: str, json: t.Any, params: t.Mapping[str, t.Any] | None, pace: str) -> t.Any:
        started, attempt = time.monotonic(), 0
        while True:
            attempt += 1
            try:
                return self._checked(method, path, json, params, pace, None, True)
            except errors.RateLimited as error:
                pause = _pause(error, attempt, LIMITS[pace].interval)
                passed = (time.monotonic() - started) * self._clock.speed
                if error.code == "search_quota_exceeded" or attempt >= _TRIES or passed + pause > _DEADLINE:
                    raise
                self._clock.sleep(pause)

    def _checked(
        self,
        method: str,
        path: str,
        json: t.Any,
        params: t.Mapping[str, t.Any] | None,
        pace: str,
        timeout: float | None,
        repeatable: bool,
    ) -> t.Any:
        """The decoded answer; BadShape when it is no JSON, ApiError also when it says itself that it failed."""
        what = f"{method} {path}"
        try:
            # a 429 is handled by repeat(), which also knows the answer's body
            answer = self.http.call(
                method, path, json=json, params=params, pace=pace, timeout=timeout, idempotent=repeatable, ok=(429,)
            )
        except errors.ApiError as error:
            raise _understood(error) from error
        if answer.status == 429:
            raise self._too_often(what, answer)
        if answer.json is None:
            raise self.http.bad_shape(what, "it is not JSON")
        if isinstance(answer.json, dict) and answer.json.get("success") is False:
            raise _understood(self.http.error(what, answer))
        return answer.json

    def _too_often(self, what: str, answer: Answer) -> errors.ApiError:
        error = self.http.error(what, answer)
        said = answer.json.get("retry_after") if isinstance(answer.json, dict) else None
        if isinstance(error, errors.RateLimited):
            if error.retry_after is None and isinstance(said, (int, float)) and not isinstance(said, bool):
                error.retry_after = error.details["retry_after"] = max(0.0, float(said))
            if error.code == "search_quota_exceeded":
                error.remedy = "The day's searches are used up; they begin anew at 00:00 UTC."
        return error


def _pause(error: errors.RateLimited, attempt: int, interval: float) -> float:
    """Seconds before another try: what the answer asks for, else the interval of the call, growing."""
    if error.retry_after is not None:
        return min(max(error.retry_after, 1.0), _LONGEST_PAUSE)
    return min(interval * 1.7**attempt * random.uniform(0.8, 1.2), _LONGEST_PAUSE)


def _understood(error: errors.ApiError) -> errors.ApiError:
    """The error by its words: a bad key comes as 404 too, and "gone" as 200."""
    words = error.message.lower()
    if error.code == "auth_error" or "invalid user key" in words:
        return _as(errors.Unauthorized, error, _KEY_HINT)
    if "two factor authentication" in words or (error.status == 404 and "session expired" in words):
        return _as(errors.Unauthorized, error, _TWO_FACTOR_HINT)
    if isinstance(error, errors.Forbidden):
        return _as(errors.Forbidden, error, _RIGHTS_HINT)
    if error.status == 200 and error.code in GONE:
        return _as(errors.NotFound, error, "")
    return error


def _as(kind: type[errors.ApiError], error: errors.ApiError, remedy: str) -> errors.ApiError:
    return kind(error.message, remedy=remedy, service=error.service, status=error.status, code=error.code, body=error.body)
