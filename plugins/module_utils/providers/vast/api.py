# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Vast.ai's API is spoken to: what its answers mean, beyond their status.

A failure may come as 200 with ``"success": false``; a bad key as 404; a 429 as text, JSON or with a header. Paths keep their
trailing slash: without it the server redirects, and redirects are not followed.
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.clock import Clock
from ...core.http import Api
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy

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
_DAILY_QUOTA = "search_quota_exceeded"
GONE = frozenset({"no_such_instance", "not_found"})
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
        self.http = Api(
            "vast",
            url,
            headers={"authorization": f"Bearer {key}"},
            transport=transport,
            timeout=30.0,
            rate_limiter=RateLimiter(f"vast {url} {key}", LIMITS),
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
        return self._repeat("GET", path, None, None, "")

    def repeat(
        self, method: str, path: str, *, pace: str = "", params: t.Mapping[str, t.Any] | None = None, json: t.Any = None
    ) -> dict[str, t.Any]:
        """A call that may be repeated; its answer, an object that does not say that it failed. Raises ApiError."""
        return self.http.expect(self._repeat(method, path, json, params, pace), dict, f"{method} {path}")

    def once(self, method: str, path: str, *, json: t.Any, pace: str, timeout: float) -> dict[str, t.Any]:
        """A call that is sent once, whatever comes of it."""
        body = self._checked(method, path, json=json, pace=pace, timeout=timeout, idempotent=False)
        return self.http.expect(body, dict, f"{method} {path}")

    def _repeat(self, method: str, path: str, json: t.Any, params: t.Mapping[str, t.Any] | None, pace: str) -> t.Any:
        policy = _rate_limited(LIMITS[pace].interval)
        return self._checked(method, path, json=json, params=params, pace=pace, idempotent=True, resend_rate_limited=policy)

    def _checked(self, method: str, path: str, **options: t.Any) -> t.Any:
        """The decoded answer; BadShape when it is not JSON, ApiError also when it says itself that it failed."""
        operation = f"{method} {path}"
        try:
            answer = self.http.call(method, path, **options)
        except errors.ApiError as error:
            raise _understood(error) from error
        if answer.json is None:
            raise self.http.bad_shape(operation, "it is not JSON")
        if isinstance(answer.json, dict) and answer.json.get("success") is False:
            raise _understood(self.http.error(operation, answer))
        return answer.json


def _rate_limited(interval: float) -> RetryPolicy:
    """How a call that was answered 429 is resent: after what the answer asks for, else after the interval of the call, growing to a minute
    (with jitter). The day's searches come back at midnight only."""
    return RetryPolicy(
        tries=6, first=interval * 1.7, growth=1.7, longest=50.0, jitter=(0.8, 1.2), deadline=180.0, quota_codes=(_DAILY_QUOTA,)
    )


def _understood(error: errors.ApiError) -> errors.ApiError:
    """The error by its words: a bad key comes as 404 too, and "gone" as 200."""
    words = error.message.lower()
    if error.code == _DAILY_QUOTA:
        error.remedy = "The day's searches are used up; they begin anew at 00:00 UTC."
        return error
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
