# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module sees of Ansible, and the only place where an error of ours becomes a failed result.

A module is ``SPEC`` (arguments of AnsibleModule, and ``run_report``, a word of run_step.RunPart) and ``run(task) -> dict``. The same ``run``
serves a real module process (:func:`main`) and the controller (``plugins/action/in_process.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import threading
import time
import typing as t

from .clock import Clock, from_environment
from .errors import InvalidInput, TgpError
from .events import Events, starter
from .notifications import Message
from .redact import redact, redact_all, register
from .run_step import RunStep

if t.TYPE_CHECKING:
    import httpx


_T = t.TypeVar("_T")


def _silent(_line: str) -> None:
    """Nothing listens."""


def _network(_base_url: str) -> httpx.BaseTransport | None:
    """No special transport: use the network."""
    return None


def _nobody() -> str | None:
    """The token is recorded nowhere."""
    return None


def _no_people(_message: Message) -> None:
    """Nobody gets messages."""


_SIGNED = ("lock", "step")  # events that say who runs the run: its first one, before it changes anything, and its last


@dataclasses.dataclass
class Task:
    """One module call.

    ``progress`` prints a line at once (a real module process cannot; there it is silent), ``warn`` adds a warning to the
    result. ``transport`` maps a base URL to an httpx transport; tests mount a WSGI app there, None means the network. ``events`` is
    the log of the run that the call belongs to, once it is known; ``playbook`` that run's playbook, where it is known. ``late_token`` looks for
    the token of notify_url where no option gives it, and ``tell_people`` sends a message to those whom the options name. ``variables`` are
    what the playbook in which the task stands calls the module's options; empty in a playbook that is not ours. ``cluster_id``, ``warnings``
    and ``notices`` are what the call has found and reported so far.
    ``started_by``: who runs the playbook (events.starter); it stands in each line about a lock and the end of a step.
    ``at_end``: called when the step is over, with the report of its run if that is over, too (else None).
    """

    params: dict[str, t.Any]
    check_mode: bool = False
    diff_mode: bool = False
    progress: t.Callable[[str], None] = _silent
    warn: t.Callable[[str], None] = _silent
    clock: Clock = dataclasses.field(default_factory=from_environment)
    transport: t.Callable[[str], httpx.BaseTransport | None] = _network
    events: Events | None = None
    playbook: str = ""
    late_token: t.Callable[[], str | None] = _nobody
    tell_people: t.Callable[[Message], None] = _no_people
    variables: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    started_by: t.Mapping[str, str] = dataclasses.field(default_factory=starter)
    cluster_id: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)
    notices: list[dict[str, str]] = dataclasses.field(default_factory=list)
    at_end: list[t.Callable[[dict[str, t.Any] | None], None]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        say, caution = self.progress, self.warn
        self.progress = lambda line: say(redact(line))

        def warn(line: str) -> None:
            self.warnings.append(redact(line))
            caution(redact(line))

        self.warn = warn

    def called(self, option: str) -> str:
        """What the reader of a message typed for an option: the variable of our playbook, or the option itself."""
        return self.variables.get(option, option)

    def read(self, option: str, parse: t.Callable[[t.Any], _T]) -> _T | None:
        """An option's value by ``parse``, None when it is not given. InvalidInput names the option as its reader typed it."""
        value = self.params.get(option)
        if value in (None, ""):
            return None
        try:
            return parse(value)
        except InvalidInput as error:
            raise InvalidInput(f"{self.called(option)}: {error.message}", remedy=error.remedy) from None

    def tell(self, kind: str, **facts: t.Any) -> int:
        """Write an event into the run's log; its number, 0 without a log."""
        if kind == "notice":
            self.notices.append({field: str(facts[field]) for field in ("notice", "key", "text")})
        if kind in _SIGNED:
            facts["started_by"] = dict(self.started_by)
        return self.events.write(kind, **facts) if self.events is not None else 0


Spec = dict[str, t.Any]
Run = t.Callable[[Task], "dict[str, t.Any]"]


_LIKE_A_SECRET = 16  # characters
# a relative path; a token has no "/", and between those of base64 text, which mostly has "+" or "=", there is more
_RELATIVE = re.compile(r"([\w.@ -]{1,32}/)+[\w.@ -]{1,32}")


def secret_values(spec: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> list[str]:
    """The values of all options marked no_log, nested ones included. A mapping (a machine configuration, a container's environment) has
    secrets and everyday words beside them: of its values those count that are as long as a secret, or names with ``worker`` or ``1`` in
    them would be masked and the next task would look for another machine."""
    secrets: list[str] = []
    for name, option in spec.items():
        value = params.get(name)
        if not value:  # nor an empty text, which is found everywhere
            continue
        if option.get("no_log") and not _is_path(option, value):
            secrets.extend([value] if isinstance(value, str) else [text for text in _strings(value) if len(text) >= _LIKE_A_SECRET])
        elif option.get("options"):
            for item in value if isinstance(value, list) else [value]:
                secrets.extend(secret_values(option["options"], item or {}))
    return secrets


def _is_path(option: t.Mapping[str, t.Any], value: t.Any) -> bool:
    """Whether the option takes a path or a mapping, and this is a path: a message about the file has to name it."""
    if option.get("type") != "raw" or not isinstance(value, str) or "\n" in value:
        return False
    if value.startswith(("/", "~", "./", "../")) or value.endswith((".yaml", ".yml", ".json")):
        return True
    return bool(_RELATIVE.fullmatch(value)) or os.path.isfile(value)


def _strings(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def execute(spec: Spec, run: Run, task: Task, name: str = "") -> dict[str, t.Any]:
    """Run a module's ``run`` and return a result without secrets; a TgpError becomes ``failed`` with ``msg`` and ``error``. What the
    module ``name`` did for a run goes into that run's events and report."""
    register(*secret_values(spec["argument_spec"], task.params))
    step = RunStep(task, name or run.__module__.rpartition(".")[2], spec, task.warn)
    try:
        try:
            step.begin()
            result = t.cast("dict[str, t.Any]", _public(run(task)))
        except TgpError as error:
            result = failure(error)
        except BaseException as error:
            step.broken_off(error)
            raise
        return step.with_result(result)
    finally:
        if task.events is not None:
            task.events.close()  # a loop is many calls in one process


def failure(error: TgpError) -> dict[str, t.Any]:
    """The failed result that stands for ``error``."""
    result = {"failed": True, "msg": str(error), "error": {"kind": error.kind, **error.details}, **(error.result or {})}
    return t.cast("dict[str, t.Any]", redact_all(result))


def _public(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """Redacted, but for the values a module returns on purpose and marks by ``_reveal`` (a list of top-level keys)."""
    reveal = result.pop("_reveal", ())
    return {key: (value if key in reveal else redact_all(value)) for key, value in result.items()}


CALLER = (
    "_TGP_CALLER"  # environment variable: what the controller's worker knows of the playbook, for a process of the module's own
)


def of_ansible(spec: Spec) -> Spec:
    """A module's ``SPEC`` without what only the collection reads: the arguments of AnsibleModule."""
    return {key: value for key, value in spec.items() if key != "run_report"}


def main(spec: Spec, run: Run) -> None:
    """Entry point of a real module process."""
    from ansible.module_utils.basic import AnsibleModule

    caller = json.loads(os.environ.pop(CALLER, "{}"))
    module = AnsibleModule(**of_ansible(spec))
    task = Task(params=module.params, check_mode=module.check_mode, diff_mode=module._diff, warn=module.warn, **caller)
    result = execute(spec, run, task, module._name)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


# ---- signals. Ansible's worker ends at once by either, without what stands in ``finally``


def like_an_interrupt() -> t.ContextManager[None]:
    """SIGTERM and SIGINT end the block by a KeyboardInterrupt, so that what is inside of ``finally`` is done."""
    return _signals({signal.SIGTERM: _stop, signal.SIGINT: _stop})


def undisturbed() -> t.ContextManager[None]:
    """Neither ends the block: what is in it removes what was made, and is over by itself."""
    return _signals({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN})


@contextlib.contextmanager
def _signals(handlers: t.Mapping[signal.Signals, t.Any]) -> t.Iterator[None]:
    """Handlers for the block. Only the main thread has any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(_number: int, _frame: t.Any) -> None:
    """The parent sends a second signal shortly after the first."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
