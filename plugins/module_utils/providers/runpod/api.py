# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How RunPod is talked to: the pace it asks for, its error bodies, its pages."""

from __future__ import annotations

import re
import threading
import typing as t

from ...core import errors
from ...core.clock import Clock
from ...core.http import Answer, Api
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy
from ..base import walk

if t.TYPE_CHECKING:
    import httpx

_ROOT = "/v2"
_LIMITS = {"": Bucket(0.2, burst=10), "queued": Bucket(0.0)}  # queued: its turn was waited for already
_FEW = 3  # calls left in a window at which we wait for the next one
_LONGEST_WAIT = 60.0
_WINDOW = re.compile(r'"(?P<name>[^"]*)"((?:;\s*[a-z]+=\d+)+)')


class Windows(RateLimiter):
    """Besides its own pace: when an answer's RateLimit header says that a window is nearly used up, the next calls wait for a new one."""

    def __init__(self, account: str) -> None:
        super().__init__(account, _LIMITS)
        self._lock = threading.Lock()
        self._closed_until = 0.0

    def wait(self, name: str, clock: Clock) -> None:
        with self._lock:
            pause = self._closed_until - clock.now().timestamp()
        clock.sleep(min(max(pause, 0.0), _LONGEST_WAIT))
        super().wait(name, clock)

    def note(self, header: str, clock: Clock) -> None:
        """Read ``"minute";r=41;t=12, "hour";...`` (calls remaining, seconds to the next window)."""
        pause = 0.0
        for window in _WINDOW.finditer(header):
            values = {key: int(value) for key, value in re.findall(r"([a-z]+)=(\d+)", window[2])}
            if values.get("r", _FEW + 1) <= _FEW:
                pause = max(pause, min(float(values.get("t", 1)), _LONGEST_WAIT))
        with self._lock:
            self._closed_until = clock.now().timestamp() + pause if pause else 0.0


def explain(body: t.Any, text: str) -> tuple[str | None, str]:
    """The sentence of a problem+json body: its detail (else its title) and every single error; of anything else its beginning."""
    if isinstance(body, dict):
        listed = [str(error) for error in body.get("errors") or [] if error] if isinstance(body.get("errors"), list) else []
        sentences = [str(body[key]) for key in ("detail", "title", "message", "error") if body.get(key)][:1]
        if sentences or listed:
            return None, "; ".join([*sentences, *listed])
    return None, " ".join(text.split())[:300]


class Calls:
    """The calls of one account."""

    def __init__(self, key: str, url: str, transport: httpx.BaseTransport | None, clock: Clock) -> None:
        self._rate_limiter = Windows(f"runpod {url} {key}")
        self._clock = clock
        self.api = Api(
            "runpod",
            url,
            headers={"authorization": f"Bearer {key}"},
            transport=transport,
            timeout=30.0,
            rate_limiter=self._rate_limiter,
            retry=RetryPolicy(tries=6, first=2.0, longest=60.0, deadline=150.0),
            clock=clock,
            auth_hint="Check RUNPOD_API_KEY (or the option runpod_api_key); keys are made in the RunPod console.",
            explain=explain,
        )

    def get(self, path: str, **params: t.Any) -> dict[str, t.Any]:
        """A read. The answer is an object, else BadShape."""
        answer = self.send("GET", path, params=params)
        return self.api.expect(answer.json, dict, f"GET {path}")

    def send(self, method: str, path: str, **options: t.Any) -> Answer:
        """Any call, as Api.call has it; raises its errors."""
        try:
            answer = self.api.call(method, _ROOT + path, **options)
        except errors.Forbidden as error:
            raise _told_apart(error) from error
        self._rate_limiter.note(answer.headers.get("ratelimit", ""), self._clock)
        return answer

    def pages(self, path: str, key: str, **params: t.Any) -> list[t.Any]:
        """A whole list. Today's answers may come without pagination; where they have it, it is followed."""
        operation, expect = f"GET {path}", self.api.expect

        def page(cursor: str | None) -> tuple[list[t.Any], str | None]:
            answer = self.get(path, **params, **({"cursor": cursor} if cursor else {}))
            items, paging = expect(answer.get(key), list, operation, key), answer.get("pagination")
            if paging is None or not expect(
                expect(paging, dict, operation, "pagination").get("hasNextPage"), bool, operation, "pagination.hasNextPage"
            ):
                return items, None
            return items, expect(paging.get("nextCursor"), str, operation, "pagination.nextCursor")

        return walk(self.api, operation, page)


def is_problem(error: errors.ApiError) -> bool:
    """Whether the service itself answered, not something between it and us."""
    return isinstance(error.body, dict) and any(key in error.body for key in ("detail", "title", "status"))


def _told_apart(error: errors.Forbidden) -> errors.Forbidden:
    """A 403 of a web firewall says nothing about the key."""
    if is_problem(error):
        return error
    return errors.Forbidden(
        f"{error.message} This is not an answer of RunPod's API: a firewall or proxy before it refuses the call; the key may be good.",
        remedy="Try from another network, or later.",
        service=error.service,
        status=error.status,
        firewall=True,
    )
