# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module's ``run(task)`` inside the playbook's own worker process.

An ordinary module call spends a third of a second on packing and starting a Python before it does anything, and cannot print a
line until it ends. Ours run on the controller anyway, so this plugin (wired to each of them in meta/runtime.yml) calls the very
same function directly: same arguments, same checks, same result, plus live progress.

The host, connection and user of the task are not used; a warning says so where they are not those of the controller. ``async`` with a
``poll`` is a time limit for the same call, with ``poll: 0`` a process of the module's own on the controller.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import json
import os
import re
import signal
import sys
import time
import types
import typing as t

from ansible import constants, context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ..module_utils.core.bytecode import use_bytecode_cache
from ..module_utils.core.errors import InvalidInput, TgpError, library
from ..module_utils.core.events import starter
from ..module_utils.core.http import trusted
from ..module_utils.core.redact import redact
from ..module_utils.core.run_step import RunPart
from ..module_utils.core.task import CALLER, Task, execute, of_ansible, secret_values
from ..module_utils.core.variables import OLD_NAMES_END, called, check, renamed

_MODULES = "ansible_collections.tgp.gpu.plugins.modules."
_LIBRARIES = ("httpx", "jsonschema")  # of most runs
display = Display()
_limits: dict[str, int] = {}  # of tasks with async, which are run again for ``retries``
use_bytecode_cache()


def preload(*names: str) -> None:
    """Import the modules of these names and what they need when they run. For the process that all later tasks are forks of: what is
    imported there is paid once per play instead of once per task. What is missing is reported by whoever needs it.

    Nothing of it is garbage, and looking for some in each fork would copy their memory.
    """
    with _no_garbage():
        for name in (*(_MODULES + name for name in names), *_LIBRARIES):
            with contextlib.suppress(ImportError):
                library(name)
        with contextlib.suppress(ImportError, OSError, TgpError):
            trusted()
    gc.freeze()


@contextlib.contextmanager
def _no_garbage() -> t.Iterator[None]:
    """Imports make none. Looking for some meanwhile would take as long as the imports do."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


class ActionModule(ActionBase):
    """One class for all modules of the collection; which one is meant comes from the task's action name."""

    _task: t.Any
    _connection: t.Any
    _requires_connection = False
    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables_of_task = task_vars or {}
        name = self._task.action.rpartition(".")[2]
        seconds = self._seconds()
        self._load_name = f"tgp.gpu.{name}"  # what messages about options call it
        self._say_where_it_runs(variables_of_task)
        with _no_garbage():
            module = importlib.import_module(_MODULES + name)
        spec = {key: value for key, value in of_ansible(module.SPEC).items() if key != "supports_check_mode"}
        with _surrounded_by(self._environment()):
            words = variables_of_task.get("tgp_variables", ())  # of our playbooks, and of those that take variables like them
            variables = called(spec["argument_spec"], words)
            try:
                self._check_variables(words)
                params = self._params(spec, variables)
            except AnsibleActionFail as error:
                self._summarize(error.message)
                raise
            if self._task.async_val:
                return self._started(variables_of_task, variables)
            quiet = bool(self._task.no_log)
            task = Task(
                params=params,
                check_mode=bool(self._task.check_mode),
                diff_mode=bool(self._task.diff),
                progress=_nothing if quiet else display.display,
                warn=lambda text: display.warning(redact(text)),
                playbook=_playbook(),
                variables=variables,
                started_by=self._starter(),
            )
            try:
                with _within(seconds):
                    result.update(execute(module.SPEC, module.run, task, name))
            except AsyncTimeout:
                result.update(failed=True, msg=f"async task did not complete within the requested time - {seconds}s")
        return _scrubbed(result, set(secret_values(module.SPEC["argument_spec"], params)))

    def _summarize(self, refusal: str) -> None:
        """Write the summary of a run that is refused before its module is called."""
        path = self._task.args.get("summary")
        if not path or not isinstance(path, str):
            return

        def refuse(_task: Task) -> dict[str, t.Any]:
            raise InvalidInput(refusal)

        task = Task(
            {"summary": os.path.expanduser(path)},
            check_mode=bool(self._task.check_mode),
            playbook=_playbook(),
            started_by=self._starter(),
        )
        execute({"argument_spec": {"run_id": {}}, "run_report": RunPart.NONE}, refuse, task, self._load_name)

    def _seconds(self) -> int:
        """The time limit of a task with ``async`` and a ``poll``; 0 is none.

        Ansible would ask the host of the task for the job. A worker has its own copy of the task, so there it is no longer asynchronous.
        """
        if self._task.async_val and self._task.poll:
            _limits[self._task._uuid] = self._task.async_val
            self._task.async_val = 0
        return _limits.get(self._task._uuid, 0)

    def _say_where_it_runs(self, task_vars: t.Mapping[str, t.Any]) -> None:
        """Warn when the task is sent to a host or user that the module does not use.

        Ansible prints equal warnings once. So the text names a host only when it is the same for all hosts of the play.
        """
        become = self._connection.become is not None
        target = self._task.delegate_to or task_vars.get("inventory_hostname", "")
        if not self._sent_to_controller() and target not in constants.LOCALHOST:
            many = not self._task.delegate_to and len(task_vars.get("ansible_play_hosts_all", ())) > 1
            display.warning(
                f"{self._load_name} runs on the controller, not on {'the hosts of this play' if many else target}: delegate_to, become and "
                f"connection variables have no effect. Write hosts: localhost or delegate_to: localhost{', and become: false' * become}."
            )
        elif become:
            display.warning(
                f"{self._load_name} runs on the controller as the user who started the playbook: become has no effect. Write become: false."
            )

    def _sent_to_controller(self) -> bool:
        """Whether the connection of the task leads to the controller. Those to network devices run modules there, too."""
        return self._connection.transport == "local" or bool(getattr(self._connection, "_remote_is_local", False))

    def _started(self, task_vars: dict[str, t.Any], variables: t.Mapping[str, str]) -> dict[str, t.Any]:
        """Start the module in the background with Ansible's own means, but on the controller, with the playbook's Python and as its user.

        The environment is inherited, so that no credential is in the arguments of a process.
        """
        if self._connection.transport == "local":
            self._connection.set_become_plugin(None)
        else:
            self._connection = self._connection_to_controller(task_vars)
        self._task = self._task.copy()
        self._task.delegate_to, self._task.environment = None, []
        caller = {"playbook": _playbook(), "variables": dict(variables), "started_by": self._starter()}
        with _surrounded_by({CALLER: json.dumps(caller)}):
            job = self._execute_module(
                module_name=self._load_name,
                task_vars={**task_vars, "ansible_python_interpreter": sys.executable},
                wrap_async=True,
            )
        return t.cast("dict[str, t.Any]", job)

    def _connection_to_controller(self, task_vars: t.Mapping[str, t.Any]) -> t.Any:
        """As async_status has it with delegate_to: localhost, so that both look for jobs in the same folder."""
        connection = self._shared_loader_obj.connection_loader.get("ansible.builtin.local", self._play_context.copy())
        given = task_vars["hostvars"]["localhost"]
        names = constants.config.get_plugin_vars("shell", connection._shell._load_name)
        connection._shell.set_options(var_options={name: given[name] for name in names if name in given})
        return connection

    def _check_variables(self, words: t.Collection[str]) -> None:
        """Refuse variables of the command line that resemble ours and are none, and tell of old names."""
        usage = check(load_extra_vars(self._loader), words) if words else None
        if usage is None:
            return
        for name in usage.old:
            display.deprecated(renamed(name), version=OLD_NAMES_END, collection_name="tgp.gpu")
        if usage.problems:
            raise AnsibleActionFail(" ".join(usage.problems))

    def _starter(self) -> dict[str, str]:
        """Who runs the playbook. Of AWX only what came with the command line counts: any inventory could say it."""
        return starter(load_extra_vars(self._loader))

    def _params(self, spec: dict[str, t.Any], variables: t.Mapping[str, str]) -> dict[str, t.Any]:
        """The checked arguments. What is wrong with one is said by the name under which the user gave it."""
        try:
            _validation, params = self.validate_argument_spec(
                **{**spec, "argument_spec": _mappings_unmarked(spec["argument_spec"])}
            )
        except AnsibleActionFail as error:
            raise AnsibleActionFail(explained(error.message, list(spec["argument_spec"]), variables)) from None
        with contextlib.suppress(ImportError):  # ansible-core before 2.22 masks nothing by itself
            importlib.import_module("ansible.module_utils.secrets").register_secrets(secret_values(spec["argument_spec"], params))
        return t.cast("dict[str, t.Any]", params)

    def _environment(self) -> dict[str, str]:
        """The keyword ``environment`` of play, block and task: what a module's own process would be started with."""
        environment: dict[str, str] = {}
        levels = self._task.environment or []
        for given in levels if isinstance(levels, list) else [levels]:
            variables = self._templar.template(given) if given else {}
            if not isinstance(variables, dict):
                raise AnsibleActionFail(f"environment must map names to values, got {type(variables).__name__}.")
            environment.update({str(name): str(value) for name, value in variables.items()})
        return environment


def _mappings_unmarked(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """An argument_spec for validation. ansible-core 2.22 masks every text of an option with no_log in all later output, so a mapping
    would mask words like ``worker`` or ``1``. Of mappings only what looks like a secret is masked (secret_values)."""
    unmarked = {}
    for name, option in options.items():
        unmarked[name] = (
            {**option, "no_log": False} if option.get("no_log") and option.get("type") in ("dict", "raw") else dict(option)
        )
        if option.get("options"):
            unmarked[name]["options"] = _mappings_unmarked(option["options"])
    return unmarked


def explained(message: str, options: t.Collection[str], variables: t.Mapping[str, str]) -> str:
    """Ansible's message about an argument, with what was probably meant, and with the names of ``variables``."""
    unknown = re.match(r"Unsupported parameters for \([^)]*\) module: (.*?)\. Supported", message)
    words = [(word, list(options)) for word in (unknown[1].split(", ") if unknown else ())]
    words += [
        (got, allowed.split(", "))
        for allowed, got in re.findall(r" must be one (?:or more )?of: (.*?)[,.] [gG]ot.*?: (\S+)", message)
    ]
    near = [match for word, allowed in words for match in difflib.get_close_matches(word, allowed, 1, 0.6)]
    for option, variable in variables.items():
        message = re.sub(rf"(argument '|value of |parameters? '?|required arguments: ){option}\b", rf"\g<1>{variable}", message)
    return f"{message.rstrip('.')}. Did you mean {' or '.join(near)}?" if near else message


@contextlib.contextmanager
def _surrounded_by(variables: dict[str, str]) -> t.Iterator[None]:
    """Have these environment variables for as long; a worker runs one task at a time, but each item of its loop."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class AsyncTimeout(BaseException):
    """The time limit of ``async`` has passed. Not an Exception, so that no module takes it for an error that it expects."""


@contextlib.contextmanager
def _within(seconds: int) -> t.Iterator[None]:
    """Raise AsyncTimeout after that many seconds; 0 is not a limit. The alarm of the task's ``timeout`` stays when it comes sooner."""
    others, _interval = signal.getitimer(signal.ITIMER_REAL)
    if not seconds or 0 < others <= seconds:
        yield
        return

    def passed(_number: int, _frame: types.FrameType | None) -> None:
        raise AsyncTimeout

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, passed)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if others:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, others - (time.monotonic() - began)))


def _playbook() -> str:
    """The playbook on the command line, ``reap`` for playbooks/reap.yml and tgp.gpu.reap; empty when there is none, or more than one."""
    named = context.CLIARGS.get("args") or ()
    if not isinstance(named, (list, tuple)) or len(named) != 1:
        return ""
    stem, suffix = os.path.splitext(os.path.basename(named[0]))
    return stem if suffix in ("", ".yml", ".yaml", ".json") else suffix[1:]


def _nothing(_line: str) -> None:
    """A task with no_log prints no progress either."""


def _scrubbed(result: dict[str, t.Any], secrets: set[str]) -> dict[str, t.Any]:
    """The result without the values of secret options. From core 2.22 on the core masks them itself."""
    try:
        importlib.import_module("ansible.module_utils.secrets")
    except ImportError:
        from ansible.module_utils.common.parameters import remove_values

        return t.cast("dict[str, t.Any]", remove_values(result, secrets))
    return result
