# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Paperspace is talked to: its pace, its errors (also under 200), its pages, and the web firewall in front of it."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...core.clock import Clock
from ...core.http import Answer, Api
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy
from ..base import walk

if t.TYPE_CHECKING:
    import httpx

_ROOT = "/v1"
_LIMITS = {"": Bucket(0.5), "queued": Bucket(0.0)}  # limits are not published; queued: its turn was waited for already
_PAGE = 50
_STATUS_OF = {
    "PARSE_ERROR": 400,
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_SUPPORTED": 405,
    "TIMEOUT": 408,
    "CONFLICT": 409,
    "PRECONDITION_FAILED": 412,
    "PAYLOAD_TOO_LARGE": 413,
    "TOO_MANY_REQUESTS": 429,
    "CLIENT_CLOSED_REQUEST": 499,
    "INTERNAL_SERVER_ERROR": 500,
}
REFUSED = frozenset({400, 409, 412})  # how it says "not in this state"


def explain(body: t.Any, text: str) -> tuple[str | None, str]:
    """Code and sentence of an error body, with every single issue; of anything else its beginning."""
    if isinstance(body, dict) and (body.get("message") or body.get("code")):
        issues = body.get("issues")
        listed = [str(issue.get("message")) for issue in issues if isinstance(issue, dict)] if isinstance(issues, list) else []
        code = body.get("code")
        return (str(code) if code else None), "; ".join([str(body.get("message") or ""), *listed]).strip("; ")
    return None, " ".join(text.split())[:300]


class Calls:
    """The calls of one team."""

    def __init__(self, key: str, url: str, transport: httpx.BaseTransport | None, clock: Clock) -> None:
        self.api = Api(
            "paperspace",
            url,
            headers={"authorization": f"Bearer {key}"},
            transport=transport,
            timeout=60.0,
            rate_limiter=RateLimiter(f"paperspace {url} {key}", _LIMITS),
            retry=RetryPolicy(tries=6, first=2.0, longest=60.0, deadline=150.0),
            clock=clock,
            auth_hint="Check PAPERSPACE_API_KEY (or the option paperspace_api_key); keys are made in the Paperspace console, one per team.",
            explain=explain,
        )

    def get(self, path: str, **params: t.Any) -> dict[str, t.Any]:
        """A read. The answer is an object, else BadShape."""
        answer = self.send("GET", path, params=params)
        return self.api.expect(answer.json, dict, f"GET {path}")

    def send(self, method: str, path: str, **options: t.Any) -> Answer:
        """Any call, as Api.call has it; raises its errors, also those that come under status 200."""
        try:
            answer = self.api.call(method, _ROOT + path, **options)
        except errors.ApiError as error:
            raise _told_apart(error) from error
        body = answer.json
        if isinstance(body, dict) and "code" in body and "message" in body and len(body) <= 3:
            meant = Answer(_STATUS_OF.get(str(body["code"]), 400), answer.headers, answer.text, body)
            raise self.api.error(f"{method} {_ROOT}{path}", meant)
        return answer

    def pages(self, path: str, **params: t.Any) -> list[t.Any]:
        """A whole list."""
        operation, expect = f"GET {path}", self.api.expect

        def page(after: str | None) -> tuple[list[t.Any], str | None]:
            answer = self.get(path, limit=_PAGE, **params, **({"after": after} if after else {}))
            items = expect(answer.get("items"), list, operation, "items")
            more = expect(answer.get("hasMore"), bool, operation, "hasMore") and answer.get("nextPage")
            return items, expect(more, str, operation, "nextPage") if more else None

        return walk(self.api, operation, page)


def answered(error: errors.ApiError) -> bool:
    """Whether the service itself answered, not something between it and us."""
    return isinstance(error.body, dict) and "message" in error.body


def _told_apart(error: errors.ApiError) -> errors.ApiError:
    """A 403 in HTML comes from the web firewall (its own number for it may be 1008); it says nothing about the key."""
    if not isinstance(error, errors.Forbidden) or answered(error):
        return error
    return errors.Forbidden(
        f"{error.message} The call was blocked by the web firewall in front of Paperspace; the key may be good.",
        remedy="It judges by the caller's address and by what a request looks like: try from another network.",
        service=error.service,
        status=error.status,
        firewall=True,
    )
