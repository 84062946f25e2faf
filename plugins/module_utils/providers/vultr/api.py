# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Vultr is talked to: its pace, its errors, its pages, and what its deletes and its 404 mean."""

from __future__ import annotations

import re
import typing as t

from ...core import errors
from ...core.clock import Clock
from ...core.http import Answer, Api
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy
from ..base import walk

if t.TYPE_CHECKING:
    import httpx

_ROOT = "/v2"
LIMITS = {"": Bucket(0.05), "queued": Bucket(0.0)}  # 30 calls per second and address; queued: its turn was waited for already
_PAGE = 500
_NOT_FOUND = re.compile(r"(?i)not found")
_LOCKED = re.compile(r"(?i)\blocked\b")
_LOCK_POLL, _LOCK_POLLS = 10.0, 30


class Calls:
    """The calls of one account."""

    def __init__(self, key: str, url: str, transport: httpx.BaseTransport | None, clock: Clock) -> None:
        self._clock = clock
        self.api = Api(
            "vultr",
            url,
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},  # it wants it of reads, too
            transport=transport,
            timeout=60.0,
            rate_limiter=RateLimiter(f"vultr {url} {key}", LIMITS),
            retry=RetryPolicy(tries=6, first=2.0, longest=60.0, deadline=150.0),
            clock=clock,
            auth_hint="Check VULTR_API_KEY (or the option vultr_api_key), and from which addresses it may be used, in the Vultr console.",
        )

    def get(self, path: str, kind: type, root: str, **params: t.Any) -> t.Any:
        """What stands below ``root`` in the answer to a read. BadShape when it is something else."""
        return self._below(self.send("GET", path, params=params or None), kind, root, f"GET {path}")

    def find(self, path: str, root: str) -> dict[str, t.Any] | None:
        """The object below ``root``; None where the answer proves that there is none."""
        try:
            return t.cast("dict[str, t.Any]", self.get(path, dict, root))
        except errors.NotFound as error:
            if is_absent(error):
                return None
            raise

    def delete(self, path: str) -> None:
        """Success also for what does not exist."""
        try:
            self.send("DELETE", path, idempotent=True)
        except errors.NotFound as error:
            if not is_absent(error):
                raise

    def send(self, method: str, path: str, **options: t.Any) -> Answer:
        """Any call, as Api.call has it. An answer that names an error is one, whatever its status."""
        answer = self.api.call(method, _ROOT + path, **options)
        body = answer.json
        if answer.status < 400 and isinstance(body, dict) and isinstance(body.get("error"), str) and body["error"]:
            status = body.get("status")
            meant = status if isinstance(status, int) and status >= 400 else 400
            answer = Answer(meant, answer.headers, answer.text, body)
        if answer.status >= 400:
            raise self.api.error(f"{method} {_ROOT}{path}", answer)
        return answer

    def made(self, path: str, body: t.Mapping[str, t.Any], root: str, **options: t.Any) -> dict[str, t.Any]:
        """The object that a POST answers."""
        answer = self.send("POST", path, json=body, **options)
        return t.cast("dict[str, t.Any]", self._below(answer, dict, root, f"POST {path}"))

    def pages(self, path: str, root: str, **params: t.Any) -> list[t.Any]:
        """A whole list. Its cursors are opaque, and the last page has an empty one."""
        operation, expect = f"GET {path}", self.api.expect

        def page(cursor: str | None) -> tuple[list[t.Any], str | None]:
            answer = self.send("GET", path, params={"per_page": _PAGE, **params, **({"cursor": cursor} if cursor else {})})
            items = self._below(answer, list, root, operation)
            meta = expect(answer.json.get("meta"), dict, operation, "meta")
            links = expect(meta.get("links"), dict, operation, "meta.links")
            return items, expect(links.get("next"), str, operation, "meta.links.next") or None

        return walk(self.api, operation, page)

    def delete_machine(self, path: str) -> None:
        """Success also when it is gone. While it is locked it is asked again for some minutes; then Conflict, and the next call goes on."""
        for poll in range(_LOCK_POLLS):
            if poll:
                self._clock.sleep(_LOCK_POLL)
            try:
                self.send("DELETE", path, idempotent=True, ok=(500,))
                return
            except errors.NotFound as error:
                if is_absent(error):
                    return
                raise
            except errors.ServerError as error:
                if not _LOCKED.search(own_words(error)):
                    raise
                last = error
        raise errors.Conflict(
            f"{last.message} Vultr deletes no machine while its disk is written.",
            remedy="It exists and is billed; the next run deletes it.",
            service="vultr",
            status=last.status,
        )

    def _below(self, answer: Answer, kind: type, root: str, operation: str) -> t.Any:
        return self.api.expect(self.api.expect(answer.json, dict, operation).get(root), kind, operation, root)


def answered(error: errors.ApiError) -> bool:
    """Whether the service itself answered, not something between it and us."""
    return isinstance(error.body, dict) and isinstance(error.body.get("error"), str)


def own_words(error: errors.ApiError) -> str:
    """Its sentence; there are no codes."""
    return str(error.body["error"]) if isinstance(error.body, dict) and answered(error) else ""


def is_absent(error: errors.NotFound) -> bool:
    """Whether a 404 proves that the thing does not exist: a wrong address is answered 404 in other words, a proxy without any."""
    return _NOT_FOUND.search(own_words(error)) is not None
