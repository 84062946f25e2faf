# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages to chat rooms, phones and mailboxes through the library apprise (docs/reference/events.md).

Nothing here fails a run: a service that does not take a message is a warning. URLs of apprise hold secrets, so no text names more of them than
the scheme.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import re
import time
import typing as t
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.clock import SystemClock
from ..core.errors import ApiError, InvalidInput, LostAnswer, ServerError, TgpError, lazy
from ..core.notifications import DEADLINE, Delivery, Message
from ..core.rate_limit import RetryPolicy, resend
from ..core.redact import redact, register
from ..core.task import Task
from ..units.calendar import HoursOfDay, TimeOfDay

if t.TYPE_CHECKING:
    import apprise
else:
    apprise = lazy("apprise")

SECRET = "secret"  # this word in the place of a URL: the key below of the common Secret has the URLs
SECRET_KEY = "notify-apprise"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_STATUS = re.compile(r"error=(\d{3})\b")
_RETRY = RetryPolicy(tries=3, first=0.25, growth=3.0, longest=0.75, deadline=math.inf)
_SHORTEST = 8  # characters of a part of a URL that is masked by itself
_KINDS = {"resolved": "success", "summary": "info"}  # how services show a message; others are warnings


class People:
    """Who gets messages, and when. InvalidInput, without the URLs, for options that cannot be meant."""

    def __init__(self, task: Task, late_urls: t.Callable[[], str | None]) -> None:
        self._task, self._late_urls = task, late_urls
        self._entries = _entries(task)
        self._urls: list[str] | None = None
        self._missed: list[str] = []  # warnings about messages that only some services have
        self.quiet = task.read("notify_quiet", HoursOfDay.of)
        self.summary = task.read("notify_summary", TimeOfDay.of)
        if not self.is_set and (self.quiet or self.summary):
            option = task.called("notify_quiet" if self.quiet else "notify_summary")
            raise InvalidInput(f"{option} is given without {task.called('notify_apprise')}.", remedy="Say where messages go.")
        if self.is_set and importlib.util.find_spec("apprise") is None:
            raise InvalidInput(
                f"{task.called('notify_apprise')} needs the Python library apprise.",
                remedy="Install it: pip install 'apprise>=1.9'.",
            )

    @property
    def is_set(self) -> bool:
        """Whether messages go anywhere."""
        return bool(self._entries)

    def begin(self, messages: t.Sequence[Message]) -> Delivery:
        """Send them beside other work; what became of them is asked of the Delivery."""
        return Delivery(self, self._task, messages if self.is_set else (), is_event=False)

    def tell_at_once(self, message: Message) -> None:
        """Send one and wait for it, within the deadline."""
        self.arrived(self.begin([message]))

    def arrived(self, delivery: Delivery) -> list[Message]:
        """Those that have arrived; a warning for each that has not, or not everywhere. Call it once."""
        messages = delivery.arrived(self._task.warn)
        missed, self._missed = self._missed, []
        for warning in missed:
            self._task.warn(warning)
        return messages

    def deliver(self, message: Message, end: float) -> str:
        """Send one message to every service until the moment ``end`` of the monotonic clock; what was in the way. It has arrived when one
        service has it: those that have it would get it again and again while another one is away."""
        try:
            urls = self._known()
        except TgpError as error:
            return redact(error.message)
        problems = []
        for url in urls:
            try:
                _send(url, message, end)
            except TgpError as error:
                problems.append(f"{_scheme(url)} {error.message}")
        why = redact("; ".join(problems))
        if len(problems) == len(urls):
            return why
        self._missed += [f"The notice {message.kind} about {message.subject} did not arrive everywhere: {why}"] if why else []
        return ""

    def _known(self) -> list[str]:
        """All URLs. Those of the Secret are read when the first message is sent."""
        if self._urls is None:
            found: list[str] = []
            for entry in self._entries:
                found += [entry] if entry != SECRET else _lines(self._late_urls() or "")
            _register(found)
            if not found:
                raise TgpError(f"the common Secret has no key {SECRET_KEY} with URLs, or it cannot be read.")
            self._urls = found
        return self._urls


def _entries(task: Task) -> list[str]:
    """URLs and the word ``secret``, of the option or the environment; files are read."""
    called = task.called("notify_apprise")
    given = task.params.get("notify_apprise") or os.environ.get("TGP_NOTIFY_APPRISE") or ""
    entries: list[str] = []
    for word in given.split() if isinstance(given, str) else [str(entry).strip() for entry in given]:
        if word.startswith(("/", "~", "./", "../")):
            entries += _lines(_content(os.path.expanduser(word), called))
        else:
            entries.append(word)
    wrong = [number for number, entry in enumerate(entries, 1) if entry != SECRET and not _URL.fullmatch(entry)]
    if wrong:
        raise InvalidInput(
            f"{called}: entry {wrong[0]} must be a URL of apprise.",
            remedy="Write scheme://…, the path of a file with URLs, or the word secret.",
        )
    _register(entries)
    return entries


def _content(path: str, called: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it must be text in UTF-8"
        raise InvalidInput(f"{called}: {path} cannot be read: {why}.", remedy="It has one URL of apprise a line.") from error


def _lines(text: str) -> list[str]:
    """The URLs of a file or Secret: one a line; lines with # are comments."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _register(urls: t.Iterable[str]) -> None:
    """Each URL, and each part of it that may be a secret."""
    for url in urls:
        with contextlib.suppress(ValueError):
            parts = urlsplit(url)
            pieces = [
                *re.split(r"[/:@]", parts.netloc),
                *parts.path.split("/"),
                *(value for _name, value in parse_qsl(parts.query)),
            ]
            register(
                *(form for piece in pieces for form in {piece, unquote(piece)} if len(form) >= _SHORTEST and form != parts.hostname)
            )
        if url != SECRET:
            register(url)


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _send(url: str, message: Message, end: float) -> None:
    """To one service, a few times. TgpError says what was in the way."""

    def check() -> None:
        if time.monotonic() >= end:
            raise LostAnswer(f"did not take it: the {DEADLINE:.0f} seconds for notices were over.")

    resend(lambda: _once(url, message), _RETRY, SystemClock(), when=_may_arrive_later, before=check)


def _once(url: str, message: Message) -> None:
    with _log() as lines:
        services = apprise.Apprise()
        if not services.add(url):
            raise TgpError("is a service that apprise does not know, or a part of its URL is missing.")
        state = message.data.get("state", "")
        title, kind = f"{message.kind}: {message.subject}", _KINDS.get(state, "warning")
        title = {"resolved": f"resolved: {title}", "summary": message.subject}.get(state, title)
        sent = services.notify(title=redact(title), body=redact(message.text), notify_type=kind, body_format="text")
    if not sent:
        status = next((int(found[1]) for line in lines if (found := _STATUS.search(line))), 0)
        text = f"answered {status}." if status else "did not take it, or cannot be reached."
        raise ServerError(text, status=status) if not 400 <= status < 500 or status == 429 else ApiError(text, status=status)


def _may_arrive_later(error: TgpError) -> bool:
    return isinstance(error, ServerError)


class _LogLines(logging.Handler):
    """Collects what is logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextlib.contextmanager
def _log() -> t.Iterator[list[str]]:
    """What apprise logs meanwhile, which goes nowhere else: it may name a URL."""
    lines: list[str] = []
    logger, handler = logging.getLogger("apprise"), _LogLines(lines)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
