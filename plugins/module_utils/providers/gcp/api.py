# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the Compute API is talked to: its tokens, its reasons, its pages, and operations, which can fail although they are DONE."""

from __future__ import annotations

import typing as t
from urllib.parse import urlsplit

from ...core import errors
from ...core.clock import Clock
from ...core.http import Api
from ...core.rate_limit import Bucket, RateLimiter, RetryPolicy, resend
from ..base import walk
from .service_account import AccessTokens, ServiceAccount

if t.TYPE_CHECKING:
    import httpx

LIMITS = {"": Bucket(0.1), "queued": Bucket(0.0)}  # queued: its turn was waited for already
_PAGE = 500
RETRY = RetryPolicy(tries=6, first=2.0, longest=60.0, deadline=150.0)
_RATE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED")
_EMPTY = "NO_RESULTS_ON_PAGE"
_POLL = 2.0
_HINT = "Look at the service account and its roles in the Google Cloud console: it needs Compute Instance Admin (v1)."


class Calls:
    """The calls of one service account in one project."""

    def __init__(
        self,
        account: ServiceAccount,
        project: str,
        url: str,
        token_url: str,
        transport: httpx.BaseTransport | None,
        clock: Clock,
        token_transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.access = (
            f"The service account {account.email} is of project {account.project}. In {project} enable the Compute Engine API, and give it "
            "the role Compute Instance Admin (v1)."
        )
        self._clock = clock
        token_api = Api("gcp", token_url, transport=token_transport or transport, retry=RETRY, clock=clock, explain=explain)
        self.tokens = AccessTokens(account, token_api)
        self._token_api = token_api
        self.root = f"{url}/compute/v1/projects/{project}"
        self.api = Api(
            "gcp",
            self.root,
            auth=self._sign,
            transport=transport,
            timeout=60.0,
            rate_limiter=RateLimiter(f"gcp {url} {project} {account.email}", LIMITS),
            retry=RETRY,
            clock=clock,
            auth_hint=_HINT,
            explain=explain,
        )

    def close(self) -> None:
        self.api.close()
        self._token_api.close()

    def _sign(self, request: httpx.Request) -> httpx.Request:
        if "authorization" not in request.headers:
            request.headers["authorization"] = f"Bearer {self.tokens.bearer()}"
        return request

    def send(self, method: str, path: str, *, once: bool = False, **options: t.Any) -> dict[str, t.Any]:
        """Any call below the project (empty: the project itself), as Api.call has it; its answer is an object. A token that is
        refused is fetched anew, once. A call above a rate limit was turned away unseen and is sent again, unless it is to be sent ``once``."""
        bearer = self.tokens.bearer()
        try:
            return self._sent(method, path, once, options)
        except errors.Unauthorized:
            self.tokens.rejected(bearer)
            self.tokens.bearer()
            return self._sent(method, path, once, options)

    def find(self, path: str) -> dict[str, t.Any] | None:
        """The object at ``path``; None where the answer proves that there is none."""
        try:
            return self.send("GET", path)
        except errors.NotFound as error:
            if is_absent(error, path):
                return None
            raise

    def _sent(self, method: str, path: str, once: bool, options: dict[str, t.Any]) -> dict[str, t.Any]:
        def call() -> t.Any:
            try:
                return self.api.call(method, path or self.root, **options).json
            except errors.Forbidden as error:
                if error.code not in _RATE_REASONS:
                    error.remedy = error.remedy or self.access
                    raise
                raise errors.RateLimited(error.message, service="gcp", status=403, code=error.code, body=error.body) from error

        answer = call() if once else resend(call, RETRY, self._clock)
        return t.cast("dict[str, t.Any]", self.api.expect(answer, dict, f"{method} {path or self.root}"))

    def pages(self, path: str, kind: str, **params: t.Any) -> list[t.Any]:
        """A whole list. An empty one has no ``items``, so its ``kind`` tells it from something else."""
        operation = f"GET {path}"

        def page(token: str | None) -> tuple[list[t.Any], str | None]:
            answer = self._page(path, kind, token, params)
            return self.api.expect(answer.get("items", []), list, operation, "items"), self._next(answer, operation)

        return walk(self.api, operation, page)

    def aggregated(self, what: str, kind: str, **params: t.Any) -> list[tuple[str, t.Any]]:
        """A whole list over all zones or regions, as (zone or region, entry). BadShape when one of them was not reached: what
        is there is not known then."""
        path = f"/aggregated/{what}"
        operation = f"GET {path}"

        def page(token: str | None) -> tuple[list[t.Any], str | None]:
            answer = self._page(path, kind, token, params)
            scopes = self.api.expect(answer.get("items", {}), dict, operation, "items")
            return [pair for scope in scopes.items() for pair in self._in_scope(scope, what, operation)], self._next(
                answer, operation
            )

        return walk(self.api, operation, page)

    def _in_scope(self, scope: tuple[str, t.Any], what: str, operation: str) -> t.Iterator[tuple[str, t.Any]]:
        name, held = scope[0], self.api.expect(scope[1], dict, operation, f"items of {scope[0]}")
        if what not in held:
            warning = self.api.expect(held.get("warning"), dict, operation, f"{what} of {name}")
            if warning.get("code") != _EMPTY:
                raise self.api.bad_shape(operation, f"{name} says {warning.get('code')}, so what is there is unknown")
            return
        for entry in self.api.expect(held[what], list, operation, f"{what} of {name}"):
            yield name.rpartition("/")[2], entry

    def _page(self, path: str, kind: str, token: str | None, params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        answer = self.send("GET", path, params={"maxResults": _PAGE, **params, **({"pageToken": token} if token else {})})
        if answer.get("kind") != kind:
            raise self.api.bad_shape(f"GET {path}", f"its kind is not {kind}")
        return answer

    def _next(self, answer: t.Mapping[str, t.Any], operation: str) -> str | None:
        return self.api.expect(answer.get("nextPageToken", ""), str, operation, "nextPageToken") or None

    # ---- operations

    def operation_name(self, answer: t.Mapping[str, t.Any], call: str) -> str:
        if answer.get("kind") != "compute#operation":
            raise self.api.bad_shape(call, "its kind is not compute#operation")
        return t.cast(str, self.api.expect(answer.get("name") or None, str, call, "name"))

    def follow(self, operation: dict[str, t.Any], zone: str, call: str, seconds: float) -> errors.ApiError | None:
        """Look at the operation until it is DONE, at most ``seconds``. Its error, None when it went well or goes on. Raises an ApiError when
        it cannot be looked at."""
        name, end = self.operation_name(operation, call), self._clock.now().timestamp() + seconds
        while operation.get("status") != "DONE" and self._clock.now().timestamp() < end:
            self._clock.sleep(_POLL)
            operation = self.send("GET", f"/zones/{zone}/operations/{name}")
        return operation_error(operation, call) if operation.get("status") == "DONE" else None


def operation_error(operation: t.Mapping[str, t.Any], call: str) -> errors.ApiError | None:
    """What went wrong in an operation that is DONE."""
    found = operation.get("error")
    if not found:
        return None
    inner = found.get("errors") if isinstance(found, dict) else None
    problems = [one for one in inner if isinstance(one, dict)] if isinstance(inner, list) else []
    code = next((str(one["code"]) for one in problems if one.get("code")), "UNKNOWN")
    said = " ".join(str(one.get("message") or one.get("code") or "") for one in problems).strip() or "no text"
    status = operation.get("httpErrorStatusCode")
    return errors.ApiError(
        f"gcp: {call} failed with {code}: {said.rstrip('. ')}.",
        service="gcp",
        status=status if isinstance(status, int) else None,
        code=code,
    )


def explain(body: t.Any, text: str) -> tuple[str | None, str]:
    """The reason and the sentence of an error."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):  # of the token endpoint
        return error, str(body.get("error_description") or error)
    if not isinstance(error, dict):
        return None, " ".join(text.split())[:200]
    entries = error.get("errors")
    first = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
    reason = first.get("reason") or error.get("status")
    return (reason if isinstance(reason, str) else None), str(error.get("message") or "no text")


def is_absent(error: errors.NotFound, path: str) -> bool:
    """Whether a 404 proves that what ``path`` names does not exist: its project or zone is answered 404, too, and a wrong address without a
    reason."""
    return error.code == "notFound" and f"{path}'" in error.message


def host_of(address: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
