# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong between a client and a service: WSGI middleware that any emulator can be wrapped in.

The same :class:`LostConnection` serves both doors: mounted in a client it is a transport error of httpx, on a real socket the server
sees a broken connection and closes it without an answer.
"""

from __future__ import annotations

import dataclasses
import errno
import http
import json
import re
import threading
import typing as t
from collections import OrderedDict

import httpx

from .clock import ClockClosed, SimClock
from .wsgi import App, Environ, StartResponse, is_machine

KINDS = ("status", "status_after", "lost_before", "lost_after", "delay", "body", "truncate", "stale", "hang", "hang_after", "drip")
_REMEMBERED = 256  # answers kept for `stale`
_DRIP = 5.0  # seconds between two pieces: no pause is as long as a client's limit for one
_LARGEST = 1_000_000  # bytes; longer answers are not kept
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x20-\x7e\xa0-\xff]*")


class LostConnection(httpx.ReadError, ConnectionResetError):
    """The connection breaks and nobody answers."""

    def __init__(self, message: str = "the connection was closed without an answer") -> None:
        httpx.ReadError.__init__(self, message)
        self.args = (errno.ECONNRESET, message)  # the server looks at the number

    def __str__(self) -> str:
        return str(self.args[1])


@dataclasses.dataclass
class Fault:
    """One rule. It meets requests of ``service`` (empty: all) with ``method`` (empty: all) whose path and query match the expression
    ``path``; the first ``after_calls`` of them pass, the next ``times`` (None: all) are hit.

    ``kind``: status (answered with ``status`` and ``body``, no effect), status_after (the same after the effect), lost_before and
    lost_after (no answer, without or with the effect), delay (``seconds`` world time, then as usual), body (``body`` with status 200,
    no effect), truncate (half of the real answer), stale (the answer an earlier identical GET got), hang (no answer for ``seconds``
    world time, then the connection breaks; no effect), hang_after (the same after the effect), drip (the real answer in small pieces that
    take ``seconds`` world time in all).
    """

    kind: str
    service: str = ""
    method: str = ""
    path: str = ""
    times: int | None = 1
    after_calls: int = 0
    status: int = 500
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: t.Any = None
    seconds: float = 60.0
    hits: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault kind {self.kind!r}; one of {', '.join(KINDS)}")
        self.method = self.method.upper()
        try:
            self._path = re.compile(self.path)
        except re.error as error:
            raise ValueError(f"path {self.path!r} is no regular expression: {error}") from error
        if not 200 <= self.status <= 599:
            raise ValueError(f"status {self.status} is no HTTP status of an answer")
        if self.after_calls < 0 or (self.times or 0) < 0:
            raise ValueError("after_calls and times must be zero or more")
        for name, value in self.headers.items():
            if not isinstance(name, str) or not isinstance(value, str) or not _HEADER.fullmatch(f"{name}: {value}"):
                raise ValueError(f"header {name!r}: {value!r} should be a name and one line of text")
        if not 0 <= self.seconds < float("inf"):
            raise ValueError("seconds must be zero or more")

    def meets(self, service: str, method: str, path: str) -> bool:
        """Whether the rule is about this request."""
        fits = self.service in ("", service) and self.method in ("", method)
        return fits and self._path.search(path) is not None

    @classmethod
    def parse(cls, rule: t.Any) -> Fault:
        """A rule as JSON or YAML. ValueError says what is wrong with it."""
        if not isinstance(rule, dict):
            raise ValueError("a fault is an object with at least `kind`")
        known = {
            "kind": str,
            "service": str,
            "method": str,
            "path": str,
            "times": (int, type(None)),
            "after_calls": int,
            "status": int,
            "headers": dict,
            "body": object,
            "seconds": (int, float),
        }
        for key, value in rule.items():
            if key not in known:
                raise ValueError(f"unknown fault field {key!r}; known are {', '.join(known)}")
            if not isinstance(value, known[key]) or (isinstance(value, bool) and key != "body"):  # type: ignore[arg-type]
                raise ValueError(f"fault field {key!r} cannot be {value!r}")
        if "kind" not in rule:
            raise ValueError("a fault needs `kind`")
        return cls(**rule)

    def public(self) -> dict[str, t.Any]:
        """The rule as JSON, with how often it struck."""
        return dataclasses.asdict(self)


class Faults:
    """All rules in force. The first that meets a request and is not used up strikes."""

    def __init__(self, rules: t.Iterable[t.Any] = ()) -> None:
        self._lock = threading.Lock()
        self._rules: list[tuple[Fault, list[int]]] = []  # rule, [calls that may still pass]
        for rule in rules:
            self.add(rule)

    def add(self, rule: Fault | dict[str, t.Any]) -> Fault:
        fault = rule if isinstance(rule, Fault) else Fault.parse(rule)
        with self._lock:
            self._rules.append((fault, [fault.after_calls]))
        return fault

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def all(self) -> list[Fault]:
        with self._lock:
            return [fault for fault, _left in self._rules]

    def strike(self, service: str, method: str, path: str) -> Fault | None:
        """The rule that hits this request, now counted as used once more."""
        with self._lock:
            for fault, left in self._rules:
                if not fault.meets(service, method, path) or (fault.times is not None and fault.hits >= fault.times):
                    continue
                if left[0] > 0:
                    left[0] -= 1
                    continue
                fault.hits += 1
                return fault
        return None


@dataclasses.dataclass
class _Answer:
    status: str
    headers: list[tuple[str, str]]
    body: bytes

    def send(self, start_response: StartResponse) -> list[bytes]:
        kept = [(name, value) for name, value in self.headers if name.lower() not in ("content-length", "transfer-encoding")]
        start_response(self.status, [*kept, ("Content-Length", str(len(self.body)))])
        return [self.body]


class FaultyApp:
    """``app`` as seen through ``faults``. Calls of the world's own machines pass untouched."""

    def __init__(self, app: App, faults: Faults, service: str, clock: SimClock | None = None) -> None:
        self.app, self.faults, self.service, self._clock = app, faults, service, clock
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, _Answer] = OrderedDict()

    def __call__(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        if is_machine(environ):
            return self.app(environ, start_response)
        method = environ["REQUEST_METHOD"]
        query = environ.get("QUERY_STRING", "")
        path = environ.get("PATH_INFO", "") + (f"?{query}" if query else "")
        fault = self.faults.strike(self.service, method, path)
        if fault is None:
            return self._pass(method, path, environ, start_response)
        match fault.kind:
            case "status":
                return self._refuse(fault, path).send(start_response)
            case "body":
                return _answer(fault, 200).send(start_response)
            case "lost_before":
                raise LostConnection
            case "hang":
                self._sleep(fault.seconds)
                raise LostConnection("no answer came")
            case "delay":
                self._sleep(fault.seconds)
                return self._pass(method, path, environ, start_response)
            case "drip" if "watch=" in path or "follow=" in path:
                return self.app(environ, start_response)  # a stream has no end that could come late
            case "stale":
                with self._lock:
                    old = self._seen.get(path) if method == "GET" else None
                return old.send(start_response) if old else self._pass(method, path, environ, start_response)
        real = self._collect(environ)
        match fault.kind:
            case "status_after":
                return self._refuse(fault, path).send(start_response)
            case "truncate":
                real.body = real.body[: len(real.body) // 2]
                return real.send(start_response)
            case "hang_after":
                self._sleep(fault.seconds)
                raise LostConnection("no answer came")
            case "drip":
                (body,) = real.send(start_response)
                return self._drip(body, fault.seconds)
            case _:
                raise LostConnection

    def _pass(self, method: str, path: str, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        """The usual way; answers to reads are kept for `stale`, streams are not touched."""
        if method != "GET" or "watch=" in path or "follow=" in path:
            return self.app(environ, start_response)
        answer = self._collect(environ)
        if answer.status.startswith("2") and len(answer.body) <= _LARGEST and "continue=" not in path:
            with self._lock:
                self._seen[path] = answer
                self._seen.move_to_end(path)
                while len(self._seen) > _REMEMBERED:
                    self._seen.popitem(last=False)
        return answer.send(start_response)

    def _collect(self, environ: Environ) -> _Answer:
        """Let the app work and take its whole answer."""
        head: list[t.Any] = ["500 No Answer", []]

        def start(status: str, headers: list[tuple[str, str]], _exc_info: t.Any = None) -> t.Callable[[bytes], t.Any]:
            head[:] = [status, list(headers)]
            return lambda _data: None

        result = self.app(environ, start)
        try:
            body = b"".join(result)
        finally:
            if hasattr(result, "close"):
                result.close()
        return _Answer(head[0], head[1], body)

    def _refuse(self, fault: Fault, path: str) -> _Answer:
        """The answer of ``fault``. Without a body of its own the API server's is a Status object, as a real one sends it."""
        if self.service == "kubernetes" and fault.body is None and fault.status >= 400:
            return _answer(dataclasses.replace(fault, body=_status(fault.status, path)), fault.status)
        return _answer(fault, fault.status)

    def _drip(self, body: bytes, seconds: float) -> t.Iterator[bytes]:
        """The body, a piece every five seconds of the world; one that is too short for that, a byte at a time."""
        pieces = max(1, min(len(body), int(seconds / _DRIP)))
        for number in range(pieces):
            self._sleep(seconds / pieces)
            yield body[len(body) * number // pieces : len(body) * (number + 1) // pieces]

    def _sleep(self, seconds: float) -> None:
        if self._clock is not None:
            try:
                self._clock.sleep(seconds)
            except ClockClosed as end:
                raise LostConnection("the world has ended") from end


_REFUSALS = {
    403: ("Forbidden", 'admission webhook "policy.example.com" denied the request: {kind} "{name}" must not be changed'),
    409: (
        "Conflict",
        'Operation cannot be fulfilled on {kind} "{name}": the object has been modified; please apply your changes to the latest '
        "version and try again",
    ),
    422: ("Invalid", '{kind} "{name}" is invalid: data: Forbidden: field is immutable when `immutable` is set'),
    500: ("InternalError", "Internal error occurred: failed calling webhook: context deadline exceeded"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


def _status(code: int, path: str) -> dict[str, t.Any]:
    """The Status object that an API server sends with ``code`` for an object or collection at ``path``."""
    parts = path.partition("?")[0].strip("/").split("/")
    below = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts[:-2] else parts[2 if parts[0] == "api" else 3 :]
    kind, name = (*below, "", "")[:2]
    reason, words = _REFUSALS.get(code, ("", "the server rejected the request"))
    body: dict[str, t.Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body["message"] = words.format(kind=kind, name=name)
    return {**body, "reason": reason, "details": {"name": name, "kind": kind}, "code": code}


def _answer(fault: Fault, status: int) -> _Answer:
    """The answer a rule describes: an object becomes JSON, text stays text."""
    if isinstance(fault.body, str):
        body, kind = fault.body.encode(), "text/html" if fault.body.lstrip().startswith("<") else "text/plain"
    elif fault.body is None and status != 200:
        body, kind = b"", "text/plain"
    else:
        body, kind = json.dumps(fault.body).encode(), "application/json"
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    headers = dict({"content-type": kind}, **{name.lower(): value for name, value in fault.headers.items()})
    return _Answer(f"{status} {phrase}", list(headers.items()), body)
