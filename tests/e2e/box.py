# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox in a process of its own, and the playbooks run against it exactly as a user runs them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import time
import typing as t
from decimal import Decimal
from pathlib import Path

import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.variables import PREFIX, WORDS

from sandbox.running import ROOT, Running
from tests.answers import told
from tests.fixtures.demo import DEMO

_PATIENCE = 400.0  # real seconds after which a playbook run counts as hanging
_RECAP = re.compile(r"^localhost\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\s+skipped=(\d+)", re.MULTILINE)
LOCK_WRITES = re.compile(r"^(PUT|PATCH|POST) /apis/coordination\.k8s\.io/v1/namespaces/tgp-system/leases")
NOTHING = {"instances": 0, "devices": 0, "keys": 0, "nodes": 0, "claims": 0, "tokens": 0}  # Sandbox.left() of an empty world
LOOKS = re.compile(r"^POST /apis/authorization\.k8s\.io/")

Documents = t.Sequence[t.Mapping[str, t.Any]] | Path


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended, with what it printed. ``seconds`` are real ones."""

    rc: int
    out: str
    err: str
    seconds: float

    @property
    def text(self) -> str:
        """Everything it printed."""
        return self.out + self.err

    @property
    def words(self) -> str:
        """Everything it printed with line breaks and runs of blanks as one blank, so that wrapped sentences can be found."""
        return " ".join(self.text.replace("\\n", " ").split())

    def count(self, what: str) -> int:
        """``ok``, ``changed``, ``failed`` or ``skipped`` of the recap."""
        found = _RECAP.search(self.out)
        if found is None:
            raise AssertionError(f"no recap:\n{self.text}")
        return int(found.group({"ok": 1, "changed": 2, "failed": 4, "skipped": 5}[what]))

    def succeeded(self) -> Result:
        assert self.rc == 0, self.text
        return self

    def failed(self) -> Result:
        assert self.rc != 0, self.text
        return self


class Sandbox(Running):
    """A running sandbox, what to ask of it, and the commands that are run against it. ``patience``: real seconds for one command."""

    patience = _PATIENCE
    watched: t.Sequence[str] = ("-m", "tests.answers.sandbox")
    """What Python runs: the sandbox with its answers checked."""

    def __init__(
        self,
        folder: Path,
        *,
        speed: float = 60,
        behind: float = 0,
        scenario: str | Path = "default",
        seed: int = 0,
        kubeconfig: Path | None = None,
    ) -> None:
        self._faults = folder.resolve() / "faults-of-answers"
        self.program = (*self.watched, str(self._faults))
        super().__init__(folder, speed=speed, behind=behind, scenario=scenario, seed=seed, kubeconfig=kubeconfig)
        self.environment |= {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOG_PATH": str(folder / "ansible.log")}
        self.state = Path(self.variables["TGP_STATE_DIR"])

    def close(self) -> None:
        """AssertionError if an emulator gave an answer that its service does not give."""
        super().close()
        wrong = self._faults.read_text().splitlines() if self._faults.exists() else []  # there from the start of the program on
        assert not wrong, told(wrong)

    # ---- the truth

    def totals(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.world()["totals"])

    def living(self) -> list[dict[str, t.Any]]:
        """The machines that are billed now."""
        return [one for one in self.world()["machines"] if one["ended"] is None]

    def writes(self) -> list[str]:
        """Every write that a client sent, as "service METHOD path". The run lock's own writes are left out: a run that changes nothing
        still takes the lock and gives it back."""
        lines = [(one["service"], one["what"]) for one in self.world()["writes"]]
        return [f"{service} {what}" for service, what in lines if not LOCK_WRITES.match(what) and not LOOKS.match(what)]

    def calls(self) -> int:
        """How many calls all services got."""
        return sum(self.world()["calls"].values())

    def left(self) -> dict[str, int]:
        """What of ours exists anywhere: all zero when everything was given back. A key whose time is over is nothing that is left."""
        world = self.world()
        keys = sum(not one["expired"] for one in world["keys"])
        claims, tokens = self.claims(), self.tokens()
        nodes = [name for name in self.nodes() if name.startswith("tgp-")]
        left = {"instances": world["totals"]["instances"], "devices": world["totals"]["devices"], "keys": keys}
        return {**left, "nodes": len(nodes), "claims": len(claims), "tokens": len(tokens)}

    # ---- levers

    def pass_time(self, seconds: float) -> None:
        """Let that much of the world's time pass as it is lived, at the sandbox's speed."""
        time.sleep(seconds / self.speed)

    @contextlib.contextmanager
    def moment(self) -> t.Iterator[None]:
        """The world's time passes as ours: two runs in it are of one moment, however long they take on a busy host. What is recorded from time
        to time is due in none of them, or in the first."""
        self.control.post("/clock", json={"speed": 1}).raise_for_status()
        try:
            yield
        finally:
            self.control.post("/clock", json={"speed": self.speed}).raise_for_status()

    def faults(self, *rules: t.Mapping[str, t.Any]) -> None:
        self.control.post("/faults", json=list(rules)).raise_for_status()

    def hits(self) -> int:
        """How often a rule has struck."""
        return sum(one["hits"] for one in self.control.get("/faults").raise_for_status().json()["faults"])

    def clear_faults(self) -> None:
        self.control.delete("/faults").raise_for_status()

    def behave(self, *rules: t.Mapping[str, t.Any]) -> None:
        self.control.post("/behaviours", json=list(rules)).raise_for_status()

    # ---- Kubernetes, as its administrator

    def get(self, path: str) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", self.kube.get(path).raise_for_status().json())

    def nodes(self) -> dict[str, dict[str, t.Any]]:
        return {one["metadata"]["name"]: one for one in self.get("/api/v1/nodes")["items"]}

    def annotate(self, node: str, annotations: t.Mapping[str, str | None]) -> None:
        self.kube.patch(
            f"/api/v1/nodes/{node}",
            content=json.dumps({"metadata": {"annotations": annotations}}),
            headers={"content-type": "application/merge-patch+json"},
        ).raise_for_status()

    def run_job(self, node: str, name: str = "training-job", **labels: str) -> None:
        """A pod on a node that has one of its GPUs; returns when it runs. ``labels``: of tgp.io, as team."""
        resources = {"limits": {"nvidia.com/gpu": "1"}}
        container = {"name": "train", "image": "registry.example/train:1", "resources": resources}
        spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]}
        marks = {f"tgp.io/{key}": value for key, value in labels.items()}
        meta = {"name": name, "namespace": "default", "labels": marks}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        self.kube.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()
        self.until(lambda: self.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase") == "Running", f"{name} runs")

    def end_job(self, name: str = "training-job") -> None:
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.kube.delete(path).raise_for_status()
        self.until(lambda: self.kube.get(path).status_code == 404, f"{name} is gone")

    def configmaps(self) -> list[dict[str, t.Any]]:
        return t.cast("list[dict[str, t.Any]]", self.get("/api/v1/namespaces/tgp-system/configmaps")["items"])

    def claims(self) -> dict[str, dict[str, t.Any]]:
        """Claims by name, as recorded."""
        found = [one for one in self.configmaps() if one["metadata"].get("labels", {}).get("tgp.io/claim") == "true"]
        records = [json.loads(one["data"]["claim.json"]) for one in found]
        return {one["name"]: one for one in records}

    def ledger(self) -> list[dict[str, t.Any]]:
        """All closing lines."""
        found = [one for one in self.configmaps() if one["metadata"].get("labels", {}).get("tgp.io/ledger") == "true"]
        return [json.loads(text) for one in found for text in (one.get("data") or {}).values()]

    def tokens(self) -> list[str]:
        """Names of the bootstrap tokens that exist."""
        secrets = self.get("/api/v1/namespaces/kube-system/secrets")["items"]
        return [one["metadata"]["name"] for one in secrets if one.get("type") == "bootstrap.kubernetes.io/token"]

    def until(self, what: t.Callable[[], bool], words: str, seconds: float = 180.0) -> None:
        """Wait, in real seconds, for something that the world does by itself."""
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, f"did not happen in {seconds} s: {words}"
            time.sleep(0.05)

    # ---- commands

    def command(self, *command: str, env: t.Mapping[str, str | None] | None = None) -> Result:
        """Run it to its end. A variable that is None is taken out of the environment."""
        run = self.begin(*command, env=env)
        try:
            return run.finish(self.patience)
        finally:
            run.kill()

    def begin(self, *command: str, env: t.Mapping[str, str | None] | None = None) -> Run:
        merged: dict[str, str | None] = {**self.environment, **(env or {})}
        return Run(command, {name: value for name, value in merged.items() if value is not None})

    def arguments(
        self,
        name: str,
        *arguments: str,
        documents: Documents | None = DEMO,
        extra_vars: t.Mapping[str, t.Any] | None = None,
        check: bool = False,
    ) -> list[str]:
        """The command line of a playbook run. ``extra_vars``: words of tgp_ variables, and other variables as they are."""
        variables = {f"{PREFIX}{name}" if name in WORDS else name: value for name, value in (extra_vars or {}).items()}
        if documents is not None:
            variables["tgp_documents"] = str(documents if isinstance(documents, Path) else self._file_of(documents))
        given = ["-e", json.dumps(variables)] if variables else []
        return ["ansible-playbook", f"playbooks/{name}.yml", *given, *(["--check", "--diff"] if check else []), *arguments]

    def _file_of(self, documents: t.Sequence[t.Mapping[str, t.Any]]) -> Path:
        """A file with these documents; as variables, Ansible would take the template in them for one of its own."""
        file = self.folder / "documents.yml"
        file.write_text(yaml.safe_dump_all([dict(one) for one in documents]))
        return file

    def playbook(self, name: str, *arguments: str, env: t.Mapping[str, str | None] | None = None, **more: t.Any) -> Result:
        """Run a playbook; see :meth:`arguments`. None of ours sends a module to a host or user that the module does not use."""
        done = self.command(*self.arguments(name, *arguments, **more), env=env)
        assert "runs on the controller" not in done.words, done.text
        return done


class Run:
    """A command at work."""

    def __init__(self, command: t.Sequence[str], environment: dict[str, str]) -> None:
        self.command = command
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self, seconds: float = _PATIENCE) -> Result:
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"{' '.join(self.command)} did not end in {seconds} s:\n{out}{err}") from None
        return Result(self.process.returncode, out, err, time.monotonic() - self._started)

    def kill(self) -> None:
        """``kill -9`` for the process and all that it started (Ansible's workers are in sessions of their own)."""
        if self.process.poll() is not None:
            return
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def kill_parent(self) -> list[int]:
        """``kill -9`` for the main process only; returns the workers that it leaves behind."""
        workers = descendants(self.process.pid)
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return workers


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, deepest last."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def bill(lines: t.Iterable[t.Mapping[str, t.Any]]) -> Decimal:
    return sum((Decimal(str(one["cost"])) for one in lines), Decimal(0))


def by_name(documents: t.Iterable[dict[str, t.Any]], kind: str, name: str) -> dict[str, t.Any]:
    return next(one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name)
