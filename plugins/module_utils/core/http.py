# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way out. Everything that leaves this process by HTTP goes through :class:`Api`.

Rules (each is money): a read is retried with exponential backoff inside a deadline, a write is sent once; ``Retry-After`` is honoured
within bounds; a write without a usable answer is LostAnswer, never repeated here; an answer that is not the documented form is BadShape;
calls are paced per account across all processes of this machine (rate_limit.py); no credential appears in any exception or log line.
:class:`RetryPolicy` and :func:`resend` are the one retry of this collection: clients differ in the policy, not in a loop.
"""

from __future__ import annotations

import dataclasses
import email.utils
import functools
import ipaddress
import json
import os
import socket
import threading
import time
import typing as t
from datetime import timezone
from urllib.parse import quote, urlsplit

from . import errors, tally
from .clock import Clock, SystemClock, compare
from .errors import SIGN, lazy, note_detail
from .rate_limit import RateLimiter, RetryPolicy, is_rate_limited, resend
from .redact import redact, redact_all

if t.TYPE_CHECKING:
    import ssl

    import httpx
else:
    httpx = lazy("httpx")

_T = t.TypeVar("_T")
_BY_STATUS: dict[int, type[errors.ApiError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.NotFound,
    412: errors.Conflict,
    429: errors.RateLimited,
}
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_READS = frozenset({"GET", "HEAD"})
CONNECTIONS = {"max_connections": 128, "max_keepalive_connections": 128}  # of one pool, whose threads are fewer
_POOLS = 16
_WHOLE = 10  # times the timeout: how long a whole answer may take to come in, as long as something comes
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "ProxyError", "InvalidURL")


@dataclasses.dataclass(frozen=True)
class Answer:
    """One HTTP answer: ``status``, lower-case ``headers``, ``text``, the decoded ``json`` (None when it is not JSON) and the raw ``body``."""

    status: int
    headers: t.Mapping[str, str]
    text: str
    json: t.Any = None
    body: bytes = dataclasses.field(default=b"", repr=False)


@dataclasses.dataclass(frozen=True)
class _Request:
    """What is to be sent, as :meth:`Api.call` takes it; each try of it is the same. ``parts`` are named as httpx names them."""

    method: str
    path: str
    parts: t.Mapping[str, t.Any]
    pace: str
    ok: t.Collection[int]
    timeout: float | None

    def built(self, client: httpx.Client) -> httpx.Request:
        """For ``client``, with its timeout unless the request has its own."""
        own: dict[str, t.Any] = {} if self.timeout is None else {"timeout": _timeouts(self.timeout)}
        return client.build_request(self.method, self.path, **self.parts, **own)


def part(entry: t.Mapping[str, t.Any], key: str) -> dict[str, t.Any]:
    """An object inside an answer's entry, empty while it is not there."""
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def code_and_message(body: t.Any, text: str) -> tuple[str | None, str]:
    """The service's own code and sentence, out of the error bodies in use; falls back to the start of the text."""
    if isinstance(body, dict):
        inner = body.get("error")
        if isinstance(inner, dict):
            return _word(inner.get("code")), " ".join(str(inner[key]) for key in ("message", "suggestion") if inner.get(key))
        for key in ("message", "error_description", "error", "detail", "title"):
            if body.get(key):
                return _word(body.get("code")) or _word(body.get("reason")), str(body[key])
    plain = " ".join(text.split())
    return None, plain[:200]


def _word(code: t.Any) -> str | None:
    """A code that callers can switch on; a number or worse is none of a service we know."""
    return code if isinstance(code, str) else None


def path_segment(value: str, label: str) -> str:
    """A value as one segment of a path. An empty one would address something else altogether. Raises InvalidInput."""
    if value in ("", ".", ".."):
        raise errors.InvalidInput(f"{value!r} is not a {label}.", field=label)
    return quote(value, safe="")


def trusted() -> ssl.SSLContext:
    """The usual authorities, those of SSL_CERT_FILE and SSL_CERT_DIR where they are set. Read once: it takes 20 ms of processor, and
    every service would do it for itself."""
    return _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=8)
def _trusted(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _spared(url: str) -> bool:
    """Whether NO_PROXY names the address by its network, as clusters do for their Services; httpx reads names and addresses only."""
    try:
        address = ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    for part in named.split(","):
        try:
            if "/" in part and address in ipaddress.ip_network(part.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def _timeouts(seconds: float) -> httpx.Timeout:
    """An answer may take so long; who does not even take the call is not there."""
    return httpx.Timeout(seconds, connect=min(seconds, 10.0))


def check_headers(service: str, headers: t.Mapping[str, str]) -> None:
    """InvalidInput for a value that cannot be sent. The library that would refuse it shows it, and a secret is likely to stand in it."""
    for name, value in headers.items():
        if value != value.strip() or not (value.isascii() and value.isprintable()):
            raise errors.InvalidInput(
                f"{service}: the header {name} cannot be sent: its value has a line end, a blank at an end, or a letter beyond ASCII.",
                remedy="A credential is one line of plain letters, digits and signs; copy it again.",
            )


class _Clients:
    """The connections of one account, in ``count`` pools. httpx looks through all connections of a pool for each request: among those of a
    hundred threads that takes more time than the requests. A thread keeps to one pool, which is made when it is used first."""

    def __init__(self, make: t.Callable[[], httpx.Client], count: int) -> None:
        self._make, self._count = make, count
        self._guard = threading.Lock()
        self._pools: dict[int, httpx.Client] = {}
        self.is_closed = False
        self.of_thread()  # what is wrong with the address or the environment is met here

    def of_thread(self) -> httpx.Client:
        """That of the calling thread. After :meth:`close` it takes no request."""
        number = threading.get_native_id() % self._count
        with self._guard:
            if number not in self._pools:
                self._pools[number] = next(iter(self._pools.values())) if self.is_closed else self._make()
            return self._pools[number]

    def close(self) -> None:
        with self._guard:
            self.is_closed = True
            for client in self._pools.values():
                client.close()


class Api:
    """One account of one service.

    ``service`` is its name in messages. ``headers`` carry the credential (never printed). ``transport`` replaces the network in
    tests. ``rate_limiter`` paces calls per account. ``auth_hint`` is the remedy printed with a 401. ``clock`` decides what a second is.
    """

    def __init__(
        self,
        service: str,
        base_url: str,
        *,
        headers: t.Mapping[str, str] | None = None,
        auth: t.Any = None,
        transport: httpx.BaseTransport | None = None,
        verify: t.Any = True,
        cert: t.Any = None,
        timeout: float = 30.0,
        rate_limiter: RateLimiter | None = None,
        retry: RetryPolicy = RetryPolicy(),
        clock: Clock | None = None,
        auth_hint: str = "",
        explain: t.Callable[[t.Any, str], tuple[str | None, str]] = code_and_message,
    ) -> None:
        self.service = service
        self.base_url = base_url.rstrip("/")
        self.clock = clock or SystemClock()
        self._timeout = timeout
        self.retry = retry
        self._rate_limiter = rate_limiter
        self._hint = auth_hint
        self._explain = explain
        if not self.base_url.startswith(("http://", "https://")):
            raise errors.InvalidInput(f"{service}: the address {base_url!r} is not an http(s) URL.", remedy="Write https://host.")
        check_headers(service, headers or {})
        try:
            make = functools.partial(
                httpx.Client,
                base_url=self.base_url,
                headers={"accept": "application/json", "user-agent": "tgp.gpu", **(headers or {})},
                auth=auth,
                transport=transport,
                verify=trusted() if verify is True and cert is None and transport is None else verify,
                cert=cert,
                timeout=_timeouts(timeout),
                limits=httpx.Limits(**CONNECTIONS),
                follow_redirects=False,
                trust_env=transport is None and not _spared(self.base_url),
            )
            self._clients = _Clients(make, _POOLS if transport is None else 1)
        except httpx.InvalidURL as error:
            raise errors.InvalidInput(
                f"{service}: the address {base_url!r} is not a URL: {error}.", remedy="Write https://host."
            ) from error
        except (OSError, ValueError, ImportError) as error:
            raise errors.InvalidInput(
                f"{service}: this machine is not set up for connections: {redact(str(error))}.",
                remedy="Look at the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR.",
            ) from error

    def close(self) -> None:
        self._clients.close()

    # ---- verbs

    def get(self, path: str, *, params: t.Mapping[str, t.Any] | None = None, pace: str = "", **options: t.Any) -> t.Any:
        """A read; returns decoded JSON (BadShape when it is none)."""
        return self._json(self.call("GET", path, params=params, pace=pace, **options), f"GET {path}")

    def call(
        self,
        method: str,
        path: str,
        *,
        params: t.Mapping[str, t.Any] | None = None,
        json: t.Any = None,
        content: str | bytes | None = None,
        data: t.Mapping[str, str] | None = None,
        headers: t.Mapping[str, str] | None = None,
        pace: str = "",
        idempotent: bool | None = None,
        resend_rate_limited: RetryPolicy | None = None,
        ok: t.Collection[int] = (),
        timeout: float | None = None,
    ) -> Answer:
        """Send a request and return the answer of a 2xx (or of a status in ``ok``); anything else is raised.

        ``idempotent`` True lets a write be retried like a read (a delete that may be repeated). ``resend_rate_limited`` is the policy by
        which a 429 is resent, of a write too; None = that of reads, for reads. ``pace`` names the bucket of the account's pacing ("" =
        the general one).
        """
        check_headers(self.service, headers or {})
        parts = {"params": params, "json": json, "content": content, "data": data, "headers": headers}
        request = _Request(method, path, parts, pace, ok, timeout)
        repeatable = method in _READS if idempotent is None else idempotent

        def is_transient(error: errors.TgpError) -> bool:
            if isinstance(error, errors.Unreachable):
                return True  # never sent: a repetition cannot do harm
            if not repeatable or (resend_rate_limited is not None and is_rate_limited(error)):
                return False
            return isinstance(error, errors.LostAnswer) or error.details.get("status") in _TRANSIENT

        retried = functools.partial(resend, lambda: self._once(request), self.retry, self.clock, when=is_transient)
        return retried() if resend_rate_limited is None else resend(retried, resend_rate_limited, self.clock)

    def take_turn(self, bucket: str) -> None:
        """Wait until the account's pacing lets a call of ``bucket`` go out, and book it as sent."""
        if self._rate_limiter is not None:
            before = self.clock.now()
            self._rate_limiter.wait(bucket, self.clock)
            tally.waited(self.service, (self.clock.now() - before).total_seconds())

    def stream(self, path: str, *, params: t.Mapping[str, t.Any] | None = None, timeout: float = 60.0) -> _Lines:
        """Open a GET whose lines arrive over time (a watch). ``timeout`` is the longest silence, real seconds."""
        return _Lines(self, path, dict(params or {}), timeout)

    # ---- inside

    def _once(self, request: _Request) -> Answer:
        self.take_turn(request.pace)
        began, status = time.monotonic(), "ok"
        try:
            return self._sent(request)
        except errors.ApiError as error:
            status = error.kind
            raise
        finally:
            tally.called(self.service, request.method, status, (time.monotonic() - began) * self.clock.speed)

    def _sent(self, request: _Request) -> Answer:
        operation = redact(f"{request.method} {request.path}")  # errors are kept in claims, and an address may hold a secret
        try:
            client = self._clients.of_thread()
            built = request.built(client)
            before = self.clock.now()
            response = client.send(built, stream=True)
            compare(self.clock, self.service, response.headers, before, self.clock.now())
            body = self._body(response, request.timeout or self._timeout)
            text = body.decode(response.encoding or "utf-8", "replace")
        except httpx.HTTPError as error:
            raise self._transport_error(operation, error) from error
        except httpx.InvalidURL as error:
            raise errors.Unreachable(f"{self.service}: {operation} has no valid address: {error}", service=self.service) from error
        except RuntimeError as error:
            raise self._after_close(operation, error) from error
        answer = Answer(response.status_code, {k.lower(): v for k, v in response.headers.items()}, text, _decode(body), body)
        if 200 <= answer.status < 300 or answer.status in request.ok:
            return answer
        raise self.error(operation, answer)

    def _body(self, response: httpx.Response, timeout: float) -> bytes:
        """All of it. The client's own limit is the pause between two pieces: a sender that drips would hold a run, and its lock, for ever."""
        end, pieces = time.monotonic() + _WHOLE * timeout, []
        try:
            for piece in response.iter_bytes():
                pieces.append(piece)
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"it did not end within {_WHOLE * timeout:.0f} s", request=response.request)
        finally:
            response.close()
        return b"".join(pieces)

    def _after_close(self, operation: str, error: RuntimeError) -> Exception:
        """A thread that follows something may want one more answer when the run is over and its connections are closed."""
        if not self._clients.is_closed:
            return error
        return errors.ApiError(f"{self.service}: {operation} was not sent: the connections are closed.", service=self.service)

    def _transport_error(self, operation: str, error: Exception) -> errors.ApiError:
        name = type(error).__name__
        reason = redact(str(error)) or name
        if name in _NOT_SENT:
            return errors.Unreachable(
                f"{self.service}: {operation} could not be sent to {self.base_url}: {reason}.",
                remedy="Check the address, name resolution and the network.",
                service=self.service,
            )
        return errors.LostAnswer(f"{self.service}: no answer to {operation} ({name}: {reason}).", service=self.service)

    def error(self, operation: str, answer: Answer) -> errors.ApiError:
        """The exception that stands for a non-2xx answer."""
        code, sentence = self._explain(answer.json, answer.text)
        status = answer.status
        kind = _BY_STATUS.get(status, errors.ServerError if status >= 500 else errors.ApiError)
        if 300 <= status < 400:
            kind, sentence = errors.BadShape, f"redirect to {answer.headers.get('location', 'nowhere')}, not followed"
        details: dict[str, t.Any] = {"service": self.service, "status": status, "code": code, "body": redact_all(answer.json)}
        if kind is errors.RateLimited:
            details["retry_after"] = retry_after(answer, self.clock)
        remedy = self._hint if kind is errors.Unauthorized else ""
        wording = redact(sentence).rstrip(". ") or "no text"
        kept = f"{self.service}: {operation}{SIGN}{status}{f' {code}' if code else ''}"
        message = f"{kept}: {wording}."
        if self.service != "kubernetes" and not 300 <= status < 400:
            note_detail(kept, wording)  # the cluster that holds the records may read its own words there
        if request_id := answer.headers.get("x-tailscale-request-id"):
            message += f" (request {request_id})"
        return kind(message, remedy=remedy, **details)

    def _json(self, answer: Answer, operation: str) -> t.Any:
        if answer.json is None:
            raise self.bad_shape(operation, "it is not JSON")
        return answer.json

    def bad_shape(self, operation: str, why: str) -> errors.BadShape:
        """The exception for an answer of a form nobody documented."""
        return errors.BadShape(
            f"{self.service}: the answer to {redact(operation)} is not understood: {why}. It is not taken as an empty list.",
            remedy="A proxy, an outage page or a change of the API; look at the address and try again later.",
            service=self.service,
            why=why,
        )

    def expect(self, value: t.Any, kind: type[_T], operation: str, field: str = "the answer") -> _T:
        """``value`` if it is a ``kind``, else BadShape naming the field."""
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.bad_shape(operation, f"{field} should be a {kind.__name__} and is {type(value).__name__}")
        return value


class _Lines:
    """Context manager of :meth:`Api.stream`."""

    def __init__(self, api: Api, path: str, params: dict[str, t.Any], timeout: float) -> None:
        self._api, self._path, self._params, self._timeout = api, path, params, timeout

    def __enter__(self) -> t.Iterator[str]:
        client = self._api._clients.of_thread()
        request = client.build_request("GET", self._path, params=self._params, timeout=httpx.Timeout(self._timeout, connect=10.0))
        try:
            self._response = client.send(request, stream=True)
        except RuntimeError as error:
            raise self._api._after_close(f"GET {self._path}", error) from error
        except httpx.HTTPError as error:
            raise self._api._transport_error(f"GET {self._path}", error) from error
        if self._response.status_code != 200:
            raise self._api.error(f"GET {self._path}", self._refusal())
        return self._iterate()

    def _refusal(self) -> Answer:
        """The answer that is not a stream, with as much of its text as comes: its status says what matters."""
        try:
            text = self._response.read().decode("utf-8", "replace")
            body = _decode(self._response.content)
        except (httpx.HTTPError, httpx.StreamError):
            text, body = "", None
        finally:
            self._response.close()
        return Answer(self._response.status_code, dict(self._response.headers), text, body)

    def _iterate(self) -> t.Iterator[str]:
        """By line ends alone: httpx also ends a line at letters that JSON may have within a text."""
        rest = b""
        try:
            for part in self._response.iter_bytes():
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", "replace").rstrip("\r")
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._api._transport_error(f"GET {self._path}", error) from error
        if rest:
            yield rest.decode("utf-8", "replace")

    def __exit__(self, *_exc: object) -> None:
        self._response.close()

    def cancel(self) -> None:
        """Wake a reader in another thread: for it the stream ends (with LostAnswer, or quietly). A no-op before it is open."""
        response = getattr(self, "_response", None)
        stream = response.extensions.get("network_stream") if response is not None else None
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            try:
                # the plain method: the TLS one would pull its state from under the reader
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                pass  # closed already


def _decode(body: bytes) -> t.Any:
    try:
        decoded = json.loads(body)
    except ValueError:
        return None
    if b"\\ud" in body or b"\\uD" in body:  # half of a character can be read, but never be written down again
        decoded = json.loads(json.dumps(decoded, ensure_ascii=False).encode("utf-8", "replace"))
    return decoded


def retry_after(answer: Answer, clock: Clock) -> float | None:
    """Seconds of a ``Retry-After`` header (number or HTTP date), else of a number ``retry_after`` in the body; None when neither says."""
    value = answer.headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        seconds = answer.json.get("retry_after") if isinstance(answer.json, dict) else None
        return max(0.0, float(seconds)) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - clock.now()).total_seconds())
