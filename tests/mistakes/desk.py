# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the mistakes are made.

What only a module answers is asked of the module in this process, as the playbook calls it. The exit status is that of the playbook, which
fails where the module does and where it reports problems. What is about variables, inventories and Ansible itself is done on a command line.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import json
import os
import typing as t
from pathlib import Path

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute, of_ansible

from tests.e2e.box import Sandbox, by_name
from tests.fixtures.demo import demo_documents

MODULES = "ansible_collections.tgp.gpu.plugins.modules"
Document = dict[str, t.Any]
Change = t.Callable[[Document, Document], None]


@dataclasses.dataclass(frozen=True)
class Done:
    """How it ended: the exit status, and everything that was said."""

    rc: int
    text: str

    @property
    def words(self) -> str:
        return " ".join(self.text.replace("\\n", " ").split())


class Papers:
    """What a user writes: files in a folder, beside a sandbox."""

    sandbox: Sandbox
    folder: Path

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def documents(self, change: Change | None = None, *more: Document) -> str:
        """The demo's class and its pool of rented machines, altered, in a file."""
        found = demo_documents()
        node_class, pool = by_name(found, "GPUNodeClass", "demo"), by_name(found, "GPUNodePool", "training")
        if change is not None:
            change(node_class, pool)
        return self.file("pools.yml", yaml.safe_dump_all([node_class, pool, *more]))

    def kubeconfig(self, change: t.Callable[[Document], None]) -> dict[str, str | None]:
        """The environment with an altered kubeconfig."""
        config = yaml.safe_load(Path(self.sandbox.variables["KUBECONFIG"]).read_text())
        change(config)
        return {"KUBECONFIG": self.file("kubeconfig", yaml.safe_dump(config))}


class Desk(Papers):
    """Where the mistakes are made: a sandbox, and a folder of the newcomer's own for each mistake."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox, self._root = sandbox, folder
        self.folder = folder

    def begin(self, number: int) -> None:
        self.folder = self._root / str(number)
        self.folder.mkdir()

    # ---- what a newcomer runs

    def module(self, name: str, env: t.Mapping[str, str | None] | None = None, *, check: bool = True, **params: t.Any) -> Done:
        """A module as its playbook calls it."""
        result, lines = self.call(name, env, check=check, **params)
        problems = [str(one) for one in result.get("problems") or ()]
        rc = 2 if result.get("failed") or problems else 0
        return Done(rc, "\n".join([*([str(result["msg"])] if result.get("msg") else []), *problems, *lines]))

    def call(
        self, name: str, env: t.Mapping[str, str | None] | None = None, *, check: bool = True, **params: t.Any
    ) -> tuple[dict[str, t.Any], list[str]]:
        """The module's result, and the lines that it printed, warnings among them."""
        code = importlib.import_module(f"{MODULES}.{name}")
        spec = {key: value for key, value in of_ansible(code.SPEC).items() if key != "supports_check_mode"}
        lines: list[str] = []
        with _environment({**self.sandbox.environment, **(env or {})}):
            read = ArgumentSpecValidator(**spec).validate(copy.deepcopy(params))
            if read.error_messages:
                return {"failed": True, "msg": "; ".join(read.error_messages)}, lines
            say, warn = lines.append, lambda text: lines.append(f"[WARNING]: {text}")
            task = Task(read.validated_parameters, check_mode=check, diff_mode=check, progress=say, warn=warn)
            return execute(code.SPEC, code.run, task, name), lines

    def plan(self, documents: str | None = None, env: t.Mapping[str, str | None] | None = None, **params: t.Any) -> Done:
        """provision.yml --check."""
        given = [documents or self.documents()]
        return self.module("fleet_plan", env, **{"mode": "provision", "documents": given, **params})

    def command(self, *words: str, env: t.Mapping[str, str | None] | None = None) -> Done:
        done = self.sandbox.command(*words, env=env)
        return Done(done.rc, done.text)

    def playbook(self, name: str, *words: str, documents: bool = True, **variables: t.Any) -> Done:
        """A playbook with these variables, given with -e."""
        given = {"tgp_documents": self.documents(), **variables} if documents else variables
        extra = ["-e", json.dumps(given)] if given else []
        return self.command("ansible-playbook", f"playbooks/{name}.yml", *extra, *words)

    # ---- what a newcomer has

    def machine(self) -> str:
        """The name of a machine that was rented, and that no node came of yet."""
        plan, _lines = self.call("fleet_plan", check=False, mode="provision", documents=[self.documents()], nodes=1)
        try:
            self.call("fleet_launch", check=False, run_id=plan["run_id"], documents=[self.documents()])
        finally:
            self.call("fleet_unlock", check=False, run_id=plan["run_id"])
        return str(plan["launch"][0])


@contextlib.contextmanager
def _environment(wanted: t.Mapping[str, str | None]) -> t.Iterator[None]:
    """This process with the environment that a command would have."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update({name: value for name, value in wanted.items() if value is not None})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclasses.dataclass(frozen=True)
class Mistake:
    """``rc`` and ``words`` are what it has to end with; ``never``: what must not be said."""

    what: str
    make: t.Callable[[Desk], Done]
    rc: int
    words: tuple[str, ...]
    never: tuple[str, ...] = ()

    def faults(self, done: Done) -> list[str]:
        """How it ended otherwise than it has to."""
        found = [f"exit status {done.rc}, it has to be {self.rc}"] if done.rc != self.rc else []
        found += [f"it does not say {text!r}" for text in self.words if text not in done.words]
        found += [f"it says {text!r}" for text in (*self.never, "Traceback") if text in done.words]
        return found
