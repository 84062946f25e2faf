# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception family. Everything the collection raises on purpose is a TgpError."""

from __future__ import annotations

import importlib
import sys
import threading
import types
import typing as t


class TgpError(Exception):
    """A failure that a person can act on.

    ``message`` says what failed and where, ``remedy`` what to do about it. ``details`` are machine-readable facts
    (cloud, status, field, path ...) that end up in the module result under ``error``. No secret may be put in any of them.
    ``result`` is what the module returns although it failed (machines as last seen, checks made), beside ``msg`` and ``error``.
    """

    kind = "error"

    def __init__(self, message: str, *, remedy: str = "", result: t.Mapping[str, t.Any] | None = None, **details: t.Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.result = result
        self.details = {key: value for key, value in details.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip() if self.remedy else self.message


class InvalidInput(TgpError):
    """The user's input is wrong; nothing was done. ``problems`` lists every fault found, one sentence each."""

    kind = "invalid_input"

    def __init__(self, message: str, *, problems: t.Sequence[str] = (), **details: t.Any) -> None:
        super().__init__(message, problems=list(problems) or None, **details)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [super().__str__(), *(f"  - {problem}" for problem in self.problems)]
        return "\n".join(lines)


class InvalidCredential(InvalidInput):
    """What was given cannot be a credential of its service, so it was not even sent."""


class MissingLibrary(TgpError):
    """A Python library is not installed in the interpreter that runs the module."""

    kind = "missing_library"


class Locked(TgpError):
    """Another run holds the run lock."""

    kind = "lock_busy"


class LockLost(TgpError):
    """The run lock was taken over by another run; this run must not act any more."""

    kind = "lock_lost"


class NeverReady(TgpError):
    """What is waited for will never come, so that to wait longer is of no use."""

    kind = "never_ready"


class TimedOut(TgpError):
    """A wait reached its deadline."""

    kind = "timeout"


# ---- answers of remote services ------------------------------------------------------------------------------------


class ApiError(TgpError):
    """A remote service answered with an error, or not at all.

    ``service`` names the account or API ("lambda", "tailscale", "kubernetes"), ``status`` the HTTP status if there was one,
    ``code`` the service's own error code, ``body`` the decoded JSON error body (secrets removed) for callers that switch on it.
    """

    kind = "api"

    def __init__(
        self,
        message: str,
        *,
        service: str = "",
        status: int | None = None,
        code: str | None = None,
        body: t.Any = None,
        **details: t.Any,
    ) -> None:
        super().__init__(message, service=service or None, status=status, code=code, **details)
        self.service = service
        self.status = status
        self.code = code
        self.body = body


class Unauthorized(ApiError):
    """401: the credential is missing, wrong, expired or revoked."""

    kind = "auth"


class Forbidden(ApiError):
    """403: the credential is good but lacks a right."""

    kind = "forbidden"


class NotFound(ApiError):
    """404 or 410 of the thing asked for."""

    kind = "not_found"


class Conflict(ApiError):
    """409 or 412: another client changed it, or it exists."""

    kind = "conflict"


class RateLimited(ApiError):
    """429, also after the allowed waits. ``retry_after`` in seconds if the service said so."""

    kind = "rate"

    def __init__(self, message: str, *, retry_after: float | None = None, **details: t.Any) -> None:
        super().__init__(message, retry_after=retry_after, **details)
        self.retry_after = retry_after


class ServerError(ApiError):
    """5xx. For a write the outcome is unknown."""

    kind = "server"


class Unreachable(ApiError):
    """The request was never sent (name resolution, refused connection, TLS refusal): nothing happened over there."""

    kind = "unreachable"


class LostAnswer(ApiError):
    """The request was sent and no usable answer came: whether it took effect is unknown."""

    kind = "lost"


class BadShape(ApiError):
    """The answer is not of the documented form. Never read as "empty"."""

    kind = "bad_shape"


# ---- renting -------------------------------------------------------------------------------------------------------


class LaunchRefused(TgpError):
    """The cloud definitely did not make the machine (L-14).

    ``reason`` is one of capacity, conflict, quota, balance, auth, invalid, rate. ``instance_id`` is set when the refusal
    nevertheless left a machine behind that has to be destroyed.
    """

    kind = "launch_refused"

    def __init__(self, message: str, *, reason: str, instance_id: str | None = None, **details: t.Any) -> None:
        super().__init__(message, reason=reason, instance_id=instance_id, **details)
        self.reason = reason
        self.instance_id = instance_id


class LaunchUnknown(TgpError):
    """The create call may or may not have made a machine: look it up by name, never repeat it blindly (L-2)."""

    kind = "launch_unknown"


# ---- keeps the words of other services out of what is stored. An error names the status, the service's code and its sentence. The output
# of a run shows all of it. Records keep status and code only: a sentence may hold anything that the service was sent or knows, and a
# record is read by more people, and for longer, than the output. Sentences are remembered as soon as an answer is an error; what is
# stored passes through :func:`without_details`. Safe to use from several threads

_MOST = 500  # sentences; a process that lives on forgets the oldest
_mutex = threading.Lock()
_details: dict[str, str] = {}  # the piece of a message that ends with the sentence: what is kept of it
SIGN = " was answered "  # stands in each piece, so that most texts need no look


def note_detail(kept: str, sentence: str) -> None:
    """Remember that messages have ``kept: sentence``, of which records have ``kept`` only. ``kept`` contains SIGN: a sentence alone, which
    may be any word, is never looked for."""
    if SIGN not in kept:
        return
    with _mutex:
        for wording in {sentence, " ".join(sentence.split())}:
            piece = f"{kept}: {wording}"
            _details.pop(piece, None)
            _details[piece] = kept
        while len(_details) > _MOST:
            _details.pop(next(iter(_details)))


def without_details(value: t.Any) -> t.Any:
    """A JSON-like value without the sentences in its texts, also where a limit of length cut them."""
    if isinstance(value, str):
        return _without(value) if SIGN in value else value
    if isinstance(value, dict):
        return {key: without_details(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_details(item) for item in value]
    return value


def _without(text: str) -> str:
    with _mutex:
        pieces = sorted(_details.items(), key=lambda pair: len(pair[0]), reverse=True)
    for piece, kept in pieces:
        text = text.replace(piece, kept)
        start = text.rfind(f"{kept}: ")
        if start >= 0 and piece.startswith(text[start:]):
            text = text[:start] + kept
    return text


# ---- third-party libraries, imported when first used. A module must be importable without them (documentation tools and sanity checks do
# that), a missing one must be named with its remedy, and an unused one must not cost start-up time. Usage: ``httpx = lazy("httpx")``


# What a library imports without need. httpx imports its command line, and with it rich, click and pygments where they are installed. That
# takes twice as long as the rest of httpx.
_UNUSED_PARTS = {"httpx": "httpx._main"}


# Held while a library is imported. Parts of jinja2 import each other: of two threads that begin at different parts, one meets a module that
# is not complete, and its import fails although the library is there.
_importing = threading.RLock()


def library(name: str) -> types.ModuleType:
    """Import a library without its unused part. httpx does without that by itself where rich is not installed."""
    with _importing:
        return _imported(name)


def _imported(name: str) -> types.ModuleType:
    part = _UNUSED_PARTS.get(name)
    if part is None or name in sys.modules:
        return importlib.import_module(name)
    sys.modules[part] = t.cast(types.ModuleType, None)  # Python's way to say that a module cannot be imported
    try:
        return importlib.import_module(name)
    finally:
        sys.modules.pop(part, None)


class _Lazy:
    def __init__(self, name: str, package: str) -> None:
        self._name = name
        self._package = package
        self._module: types.ModuleType | None = None  # once it is complete

    def __getattr__(self, attribute: str) -> t.Any:
        if self._module is None or sys.modules.get(self._name) is not self._module:
            self._module = self._import()
        return getattr(self._module, attribute)

    def _import(self) -> types.ModuleType:
        try:
            return library(self._name)
        except ImportError as error:
            raise MissingLibrary(
                f"The Python library {self._package} is needed and could not be imported: {error}.",
                remedy=f"Install it into the interpreter that runs the module: pip install {self._package}.",
                library=self._package,
            ) from error


def lazy(name: str, package: str = "") -> t.Any:
    """A stand-in for the module ``name`` that imports it at the first use. ``package`` is its name on the package index."""
    return _Lazy(name, package or name.partition(".")[0])


def is_there(package: str) -> bool:
    """Whether an optional library can be imported."""
    try:
        library(package)
    except ImportError:
        return False
    return True
