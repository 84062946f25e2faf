# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module's ``run(task)`` inside the playbook's own worker process.

An ordinary module call spends a third of a second on packing and starting a Python before it does anything, and cannot print a
line until it ends. Ours run on the controller anyway, so this plugin (wired to each of them in meta/runtime.yml) calls the very
same function directly: same arguments, same checks, same result, plus live progress. ``async`` still gets a real module process.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import os
import re
import typing as t

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from ..module_utils.bytecode import keep, kept
from ..module_utils.errors import TgpError
from ..module_utils.http import trusted
from ..module_utils.redact import redact
from ..module_utils.task import Task, execute, secret_values
from ..module_utils.variables import OLD_NAMES_END, PREFIX, called, check

_MODULES = "ansible_collections.tgp.gpu.plugins.modules."
_WARM = ("httpx", "yaml", "jsonschema", "jinja2.sandbox", f"{_MODULES}fleet_plan", f"{_MODULES}fleet_launch")
display = Display()


def _import_all() -> None:
    """This file is loaded in the parent process, each task runs in a fork of it: what is imported here is paid once per play instead of
    once per task (a third of a second each). What is missing is reported by whoever needs it.

    Nothing of it is garbage. Looking for some meanwhile would take as long as the imports do, and looking again in each fork would copy
    their memory.
    """
    looks = gc.isenabled()
    gc.disable()
    with kept():
        for name in _WARM:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    with contextlib.suppress(ImportError, OSError, TgpError):
        trusted()
    if looks:
        gc.enable()
    gc.freeze()


_import_all()


class ActionModule(ActionBase):
    """One class for all modules of the collection; which one is meant comes from the task's action name."""

    _requires_connection = False
    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        name = self._task.action.rpartition(".")[2]
        if self._task.async_val:
            return t.cast(
                "dict[str, t.Any]",
                self._execute_module(module_name=f"tgp.gpu.{name}", task_vars=task_vars, wrap_async=True),
            )
        keep()
        self._load_name = f"tgp.gpu.{name}"  # what messages about options call it
        module = importlib.import_module(_MODULES + name)
        spec = {key: value for key, value in module.SPEC.items() if key != "supports_check_mode"}
        with _surrounded_by(self._environment()):
            words = (task_vars or {}).get("tgp_variables", ())  # of our playbooks, and of those that take variables like them
            self._check_variables(words)
            variables = called(spec["argument_spec"], words)
            params = self._params(spec, variables)
            quiet = bool(self._task.no_log)
            task = Task(
                params=params,
                check_mode=bool(self._task.check_mode),
                diff_mode=bool(self._task.diff),
                progress=_nothing if quiet else display.display,
                warn=lambda text: display.warning(redact(text)),
                playbook=_playbook(),
                variables=variables,
            )
            result.update(execute(module.SPEC, module.run, task, name))
        return _scrubbed(result, set(secret_values(module.SPEC["argument_spec"], params)))

    def _check_variables(self, words: t.Collection[str]) -> None:
        """Refuse variables of the command line that resemble ours and are none, and tell of old names."""
        found = check(load_extra_vars(self._loader), words) if words else None
        if found is None:
            return
        for one in found.old:
            text = f"The variable {one} is called {PREFIX}{one} now, and works under that name from the inventory, too."
            display.deprecated(text, version=OLD_NAMES_END, collection_name="tgp.gpu")
        if found.problems:
            raise AnsibleActionFail(" ".join(found.problems))

    def _params(self, spec: dict[str, t.Any], variables: t.Mapping[str, str]) -> dict[str, t.Any]:
        """The checked arguments. What is wrong with one is said by the name under which the user gave it."""
        try:
            _validation, params = self.validate_argument_spec(**spec)
        except AnsibleActionFail as error:
            raise AnsibleActionFail(explained(error.message, list(spec["argument_spec"]), variables)) from None
        return t.cast("dict[str, t.Any]", params)

    def _environment(self) -> dict[str, str]:
        """The keyword ``environment`` of play, block and task: what a module's own process would be started with."""
        found: dict[str, str] = {}
        levels = self._task.environment or []
        for given in levels if isinstance(levels, list) else [levels]:
            variables = self._templar.template(given) if given else {}
            if not isinstance(variables, dict):
                raise AnsibleActionFail(f"environment is no mapping of names to values, but {type(variables).__name__}.")
            found.update({str(name): str(value) for name, value in variables.items()})
        return found


def explained(message: str, options: t.Collection[str], variables: t.Mapping[str, str]) -> str:
    """Ansible's message about an argument, with what was probably meant, and with the names of ``variables``."""
    unknown = re.match(r"Unsupported parameters for \([^)]*\) module: (.*?)\. Supported", message)
    words = [(one, list(options)) for one in (unknown[1].split(", ") if unknown else ())]
    words += [
        (got, known.split(", ")) for known, got in re.findall(r" must be one (?:or more )?of: (.*?)[,.] [gG]ot.*?: (\S+)", message)
    ]
    near = [found for word, known in words for found in difflib.get_close_matches(word, known, 1, 0.6)]
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


def _playbook() -> str:
    """The playbook on the command line; empty when there is none, or more than one."""
    named = context.CLIARGS.get("args") or ()
    return os.path.splitext(os.path.basename(named[0]))[0] if isinstance(named, (list, tuple)) and len(named) == 1 else ""


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
