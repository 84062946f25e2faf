# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where findings are replayed: one version of the collection, and a sandbox of this commit.

The collection runs in processes of its own, as a user runs it: nothing of the old version is imported here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import subprocess
import sys
import typing as t
from pathlib import Path

import yaml

from tests.e2e.box import ROOT, Sandbox
from tests.mistakes.desk import Document, Papers

OLD = "4022514"
_PATIENCE = 180.0  # real seconds for one command
_FEW = 240  # characters of a command that are shown


_IN_0_1 = {  # files of module_utils as version 0.1 calls them
    "core.clock": "clock",
    "core.errors": "errors",
    "core.notifications": "notify",
    "core.task": "task",
    "kube": "cluster",
    "kube.auth.connect": "cluster.connect",
    "kube.auth.credentials": "cluster.credentials",
    "kube.auth.kubeconfig": "cluster.kubeconfig",
    "preflight": "act",
    "providers.lambda_.cloud": "clouds.lambda_cloud",
    "store.configmap": "claims.configmap",
}


@dataclasses.dataclass(frozen=True)
class Version:
    """A checkout, and the folder in which Ansible and Python find it as tgp.gpu."""

    name: str
    root: Path
    path: Path

    @property
    def old(self) -> bool:
        return self.name == OLD


def versions(folder: Path) -> tuple[Version, Version]:
    """Version 0.1 in a clone below this folder, and this checkout."""
    there = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(there)], check=True)
    if subprocess.run(["git", "cat-file", "-e", f"{OLD}^{{commit}}"], cwd=there, check=False).returncode:
        raise SystemExit(f"Commit {OLD} is not in this clone. Fetch the whole history: git fetch --unshallow")
    subprocess.run(["git", "checkout", "-q", OLD], cwd=there, check=True)
    return Version(OLD, there, _linked(folder / "old", there)), Version("this commit", ROOT, _linked(folder / "new", ROOT))


def _linked(path: Path, checkout: Path) -> Path:
    link = path / "ansible_collections" / "tgp" / "gpu"
    link.parent.mkdir(parents=True)
    link.symlink_to(checkout)
    return path


@dataclasses.dataclass(frozen=True)
class Done:
    """How it ended: the exit status, and everything that was said."""

    rc: int
    text: str

    @property
    def words(self) -> str:
        """With line breaks and runs of blanks as one blank, so that wrapped sentences can be found."""
        return " ".join(self.text.replace("\\n", " ").replace('\\"', '"').split())


class Desk(Papers):
    """One version, with sandboxes that rows of the table share, and a folder of its own for each row."""

    def __init__(self, version: Version, folder: Path) -> None:
        self.version, self._root = version, folder
        self.folder, self.name = folder, ""
        self.commands: list[str] = []
        self._shared: dict[str, Sandbox] = {}
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def row(self, number: str, scenario: str, *, alone: bool) -> t.Iterator[None]:
        """The place of one row. ``scenario``: a name, or YAML; ``alone``: with a sandbox of its own, else one that is shared by scenario."""
        self.folder = self._root / number
        self.folder.mkdir(parents=True)
        self.commands, self.name = [], f"tgp-row-{number.replace('.', '-')}"
        with contextlib.ExitStack() as mine:
            if alone:
                self.sandbox = self._started(scenario, mine)
            else:
                if scenario not in self._shared:
                    self._shared[scenario] = self._started(scenario, self._stack)
                self.sandbox = self._shared[scenario]
            try:
                yield
            finally:
                self.sandbox.clear_faults()

    def _started(self, scenario: str, stack: contextlib.ExitStack) -> Sandbox:
        name: str | Path = scenario
        if ":" in scenario:
            name = self.folder / "scenario.yml"
            name.write_text(scenario)
        made = Sandbox(self.folder / "sandbox", scenario=name, speed=120)
        stack.callback(made.close)
        return made

    # ---- what a user writes

    def inventory(self, **variables: t.Any) -> str:
        hosts = {"localhost": {"ansible_connection": "local"}}
        return self.file("inventory.yml", yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}))

    # ---- what a user runs

    def run(self, *words: str, env: t.Mapping[str, str | None] | None = None, shown: str = "") -> Done:
        """A command in the checkout of this version."""
        self.commands.append(shown or self._shown(words))
        path = str(self.version.path)
        ours = {"PYTHONPATH": path, "ANSIBLE_COLLECTIONS_PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        merged = {**self.sandbox.environment, **ours, **(env or {})}
        environment = {name: value for name, value in merged.items() if value is not None}
        done = subprocess.run(
            words,
            cwd=self.version.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        return Done(done.returncode, self._short(done.stdout))

    def playbook(
        self,
        playbook: str,
        /,
        *words: str,
        env: t.Mapping[str, str | None] | None = None,
        documents: str | None = "",
        **variables: t.Any,
    ) -> Done:
        """A playbook with these variables, given with -e: those of this version begin with tgp_. ``documents``: a file, "" for the demo's,
        None for none."""
        given = variables if documents is None else {"documents": documents or self.documents(), **variables}
        prefix = "" if self.version.old else "tgp_"
        extra = ["-e", json.dumps({f"{prefix}{name}": value for name, value in given.items()})] if given else []
        return self.run("ansible-playbook", f"playbooks/{playbook}.yml", *extra, *words, env=env)

    def plays(self, *tasks: Document, hosts: str = "localhost", inventory: str = "", **keywords: t.Any) -> Done:
        """A play of the user's own."""
        file = self.file("play.yml", yaml.safe_dump([{"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **keywords}]))
        shown = "; ".join(json.dumps(task) for task in tasks)
        given = ["-i", inventory] if inventory else []
        return self.run("ansible-playbook", *given, file, shown=f"ansible-playbook play.yml  # {shown}"[:_FEW])

    def module(self, module: str, /, *words: str, env: t.Mapping[str, str | None] | None = None, **params: t.Any) -> Done:
        """A module by itself."""
        return self.run("ansible", "localhost", "-m", f"tgp.gpu.{module}", "-a", json.dumps(params), *words, env=env)

    def python(self, code: str, *words: str, shown: str) -> Done:
        """A few lines with the collection of this version. They name files of ``module_utils`` as they are called now."""
        if self.version.old:
            for now, then in _IN_0_1.items():
                code = code.replace(f".module_utils.{now} import", f".module_utils.{then} import")
        return self.run(sys.executable, "-c", code, *words, shown=shown)

    def provision(self, nodes: int = 1, documents: str = "", **more: t.Any) -> str:
        """The documents of which machines were made nodes."""
        given = documents or self.documents()
        self._well(self.playbook("provision", documents=given, nodes=nodes, **more))
        return given

    def plan(self, documents: str | None = None, env: t.Mapping[str, str | None] | None = None, **params: t.Any) -> Done:
        """provision.yml --check."""
        return self.playbook("provision", "--check", env=env, documents=documents or "", **params)

    @staticmethod
    def _well(done: Done) -> None:
        if done.rc:
            raise AssertionError(done.text)

    def _shown(self, words: t.Sequence[str]) -> str:
        text = self._short(shlex.join(words))
        return text if len(text) <= _FEW else f"{text[:_FEW]}…"

    def _short(self, text: str) -> str:
        """Without the folders of this replay."""
        for place in (self.folder, self._root, self.version.path, self.version.root):
            text = text.replace(f"{place}/", "")
        return text

    @property
    def command(self) -> str:
        """The last one, which is the one that shows the finding."""
        return self.commands[-1] if self.commands else ""
