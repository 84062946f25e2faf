# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells people who do not watch the run: a JSON body to a URL, to a command's standard input, or both (docs/reference/events.md).

It never fails a run and holds it up for ten seconds at most: what cannot be delivered is a warning and an event.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
import subprocess
import threading
import time
import typing as t
from urllib.parse import urlsplit

from .clock import Clock, SystemClock, to_text
from .errors import ApiError, InvalidInput, LostAnswer, RateLimited, ServerError, TgpError, Unreachable
from .events import Events
from .http import Api
from .rate_limit import RetryPolicy, resend
from .redact import program_environment, redact, redact_all, register

Json = dict[str, t.Any]

DEADLINE = 10.0  # real seconds for everything that one step has to tell
_LIKE_A_SECRET = 16  # characters; a shorter path would blank innocent texts
_EACH = 4.0  # real seconds for one try
# A receiver may ask for no longer pause than those between the tries: DEADLINE is all there is.
_RETRY = RetryPolicy(tries=3, first=0.25, growth=3.0, longest=0.75, deadline=math.inf, retry_after=(0.0, 0.75))
_FIELDS = ("kind", "subject", "text", "key", "run", "time", "playbook")


@dataclasses.dataclass(frozen=True)
class Message:
    """One notice; the fields are those of fleet.model.Notice."""

    kind: str
    key: str
    subject: str
    text: str
    data: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


class Deliverer(t.Protocol):
    """Sends one message until a moment of the monotonic clock; says what was in the way, nothing when it arrived."""

    def deliver(self, message: Message, end: float) -> str: ...


class Delivery:
    """Messages on their way. ``is_event``: each is written into the event log, too."""

    def __init__(self, sender: Deliverer, task: Caller, messages: t.Sequence[Message], *, is_event: bool = True) -> None:
        self._sender, self._task, self._messages, self._is_event = sender, task, messages, is_event
        self._problems: dict[str, str] = {}  # key of each message that was tried, with what was in the way
        self._end = time.monotonic() + DEADLINE
        self._thread = threading.Thread(target=self._send, name="notices", daemon=True)
        if messages:
            self._thread.start()

    def _send(self) -> None:
        for message in self._messages:
            self._problems[message.key] = self._sender.deliver(message, self._end)

    def arrived(self, warn: t.Callable[[str], None]) -> list[Message]:
        """Those that arrived everywhere, after the deadline at the latest; a warning for each that did not. Call it once."""
        if self._messages:
            self._thread.join(max(0.0, self._end - time.monotonic()) + 0.5)
        messages = []
        for message in self._messages:
            problem = self._problems.get(message.key, "the receiver is too slow")
            if self._is_event:
                self._tell(message, {"result": "failed", "error": problem} if problem else {"result": "sent"})
            if problem:
                warn(f"The notice {message.kind} about {message.subject} could not be delivered: {problem}")
            else:
                messages.append(message)
        return messages

    def _tell(self, message: Message, facts: t.Mapping[str, str]) -> None:
        named = {"notice": message.kind, "name": message.subject, "key": message.key, "text": message.text}
        self._task.tell("notice", **named, data=dict(message.data), **facts)


class Caller(t.Protocol):
    """What is needed of the module call (task.Task). ``late_token`` looks for the bearer token where no option gives it."""

    params: Json
    clock: Clock
    events: Events | None
    playbook: str

    @property
    def late_token(self) -> t.Callable[[], str | None]: ...

    @property
    def transport(self) -> t.Callable[[str], t.Any]: ...

    def tell(self, kind: str, **facts: t.Any) -> int: ...


class Sender:
    """Where messages of one step go to. InvalidInput for options that cannot be meant."""

    def __init__(self, task: Caller) -> None:
        self._task = task
        self._url = str(task.params.get("notify_url") or "")
        self._command = command_of(task.params)
        self._template = template_of(task.params)
        if self._url:
            host_of(self._url)

    @property
    def is_set(self) -> bool:
        """Whether any notification target is set."""
        return bool(self._url or self._command)

    def begin(self, messages: t.Sequence[Message]) -> Delivery:
        """Send them beside other work; what became of them is asked of the Delivery."""
        return Delivery(self, self._task, messages if self.is_set else ())

    def deliver(self, message: Message, end: float) -> str:
        """Send one message until the moment ``end`` of the monotonic clock; what was in the way, empty when it arrived."""
        body = self.body(message)
        try:
            if self._url:
                self._post(body, end)
            if self._command:
                self._run(body, end)
        except TgpError as error:
            return redact(error.message)
        except ValueError as error:  # a word that no command line can carry, a host that is not a name
            return redact(f"it cannot be sent with these options: {error}.")
        return ""

    def body(self, message: Message) -> Json:
        """What is sent: the notice, or the template with its fields filled in."""
        events = self._task.events
        now = to_text(self._task.clock.now())
        run = events.run_id if events is not None else str(self._task.params.get("run_id") or "")
        whole = {**dataclasses.asdict(message), "data": dict(message.data)}
        whole = redact_all({"version": 1, **whole, "run": run, "time": now, "playbook": self._task.playbook})
        return whole if self._template is None else t.cast(Json, _filled(self._template, whole))

    def _retried(self, send: t.Callable[[float], object], end: float) -> None:
        """``send(seconds it may take)``, a few times, until the moment ``end``."""

        def left() -> float:
            return end - time.monotonic()

        def check() -> None:
            if left() <= 0.05:
                raise LostAnswer(f"the {DEADLINE:.0f} seconds for notices were over.")

        resend(lambda: send(min(_EACH, left())), _RETRY, SystemClock(), when=_may_arrive_later, before=check)

    def _post(self, body: Json, end: float) -> None:
        parts = urlsplit(self._url)
        root = f"{parts.scheme}://{parts.netloc}"
        secrets = (self._url, parts.path, parts.query, parts.password)  # the paths of such receivers are often their secret
        register(*(secret for secret in secrets if secret and len(secret) >= _LIKE_A_SECRET))
        token = self._task.params.get("notify_token") or self._task.late_token()
        register(token)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        api = Api("notify_url", root, headers=headers, transport=self._task.transport(root), retry=RetryPolicy(tries=1))
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            self._retried(lambda left: api.call("POST", path or "/", json=body, timeout=left), end)
        except ApiError as error:
            status = f"answered {error.status}" if error.status else "cannot be reached"
            raise TgpError(f"the receiver at {parts.hostname} {status}.") from None
        finally:
            api.close()

    def _run(self, body: Json, end: float) -> None:
        def once(left: float) -> None:
            try:
                completed = subprocess.run(
                    self._command,
                    env=program_environment(network=True),
                    input=json.dumps(body),
                    text=True,
                    capture_output=True,
                    timeout=left,
                    check=False,
                    start_new_session=True,
                )
            except subprocess.TimeoutExpired:
                raise LostAnswer(f"{self._command[0]} did not end in time.") from None
            except OSError as error:
                raise TgpError(f"{self._command[0]} cannot be started: {error.strerror}.") from None
            if completed.returncode:
                stderr = " ".join(completed.stderr.split())[:200]
                raise ServerError(f"{self._command[0]} ended with {completed.returncode}{f': {stderr}' if stderr else ''}.")

        self._retried(once, end)


def _may_arrive_later(error: TgpError) -> bool:
    return isinstance(error, (Unreachable, LostAnswer, ServerError, RateLimited))


def host_of(url: str) -> str:
    """The host of ``notify_url``. InvalidInput, without the URL, whose path may be a secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        host = None
    if not host:
        raise InvalidInput("notify_url is not an http(s) URL.", remedy="Write https://host/path.")
    return host


def command_of(params: t.Mapping[str, t.Any]) -> list[str]:
    """The words of ``notify_command`` (a list, or a line that is split as a shell would, without a shell). InvalidInput."""
    given = params.get("notify_command") or os.environ.get("TGP_NOTIFY_COMMAND") or ""
    try:
        words = shlex.split(given) if isinstance(given, str) else [str(entry) for entry in given]
    except ValueError as error:
        raise InvalidInput(f"notify_command is not understood: {error}.", remedy="Give a list of words.") from None
    return [os.path.expanduser(words[0]), *words[1:]] if words else []


def template_of(params: t.Mapping[str, t.Any]) -> Json | None:
    """``notify_template``, None when the usual body is meant. InvalidInput for something else than a mapping."""
    given = params.get("notify_template")
    return dict(given) if given else None


def _filled(value: t.Any, fields: Json) -> t.Any:
    if isinstance(value, str):
        for name in _FIELDS:
            value = value.replace(f"{{{name}}}", str(fields[name]))
        return value
    if isinstance(value, dict):
        return {key: _filled(item, fields) for key, item in value.items()}
    return [_filled(item, fields) for item in value] if isinstance(value, list) else value
