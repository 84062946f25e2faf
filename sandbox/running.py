# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox in a process of its own, and the environment that points everything at it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import httpx
import yaml

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
_START_SECONDS = 180.0
_OTHERS = ("ANSIBLE_", "TGP_", "TS_", "TAILSCALE_", "LAMBDA_", "VAST_", "RUNPOD_", "PAPERSPACE_", "WEBHOOK_")
_QUIET = {
    "ANSIBLE_LOCALHOST_WARNING": "False",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
    "ANSIBLE_NOCOWS": "1",
}
# wherever the collection is installed; the Makefile links a checkout to where Ansible looks anyway
_INSTALLED = (
    {"ANSIBLE_COLLECTIONS_PATH": str(ROOT.parent.parent.parent)} if ROOT.parent.parent.name == "ansible_collections" else {}
)


def clean_environment(*more: str) -> dict[str, str]:
    """This process's environment without what a developer's shell sets for Ansible, clouds and meshes, and without names that begin with
    ``more``."""
    return {name: value for name, value in os.environ.items() if not name.startswith((*_OTHERS, *more))}


class EndSignals:
    """From now on SIGINT and SIGTERM do not end this process: :meth:`wait` returns once one of them has arrived, after which they are ignored.

    The interpreter writes their number into a pipe. A handler that calls ``Event.set`` may run while the main thread holds that event's
    lock inside ``wait``: two signals within a moment, as a shell sends with ``kill`` and the ``kill`` of its EXIT trap, then block it for ever.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in self._NUMBERS:
            signal.signal(number, lambda *_: None)

    def wait(self) -> None:
        while os.read(self._reader, 1)[0] not in self._NUMBERS:
            pass
        for number in self._NUMBERS:
            signal.signal(number, signal.SIG_IGN)


class Running:
    """A running ``python -m sandbox up``.

    ``variables`` are the addresses and credentials, ``environment`` is this process's environment with them in the place of all others of
    their kind. ``kube`` is its Kubernetes as administrator. ``kubeconfig``: its machines join that cluster. ``python``, ``root`` and
    ``shell`` are the interpreter, the folder and the environment that it runs with. ``close`` ends it.
    RuntimeError with its log when it does not start.
    """

    program: t.Sequence[str] = ("-m", "sandbox")
    """What Python runs; a subclass may wrap the sandbox."""

    def __init__(
        self,
        folder: Path,
        *,
        speed: float,
        behind: float = 0,
        scenario: str | Path = "default",
        seed: int = 0,
        kubeconfig: Path | None = None,
        python: str | Path = sys.executable,
        root: Path = ROOT,
        shell: t.Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.speed = folder, speed
        env_file, log = folder / "env", folder / "sandbox.log"
        command = [str(python), *self.program, "up", "--env-file", str(env_file), "--state-dir", str(folder / "state")]
        command += ["--speed", str(speed), "--behind", str(behind), "--scenario", str(scenario), "--seed", str(seed)]
        command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        with log.open("w") as output:
            self._process = subprocess.Popen(command, cwd=root, env=shell, stdout=output, stderr=subprocess.STDOUT)
        try:
            self._wait(env_file, log)
        except BaseException:  # also when whoever waits is ended: it would live on
            self.close()
            raise
        self.variables = _variables(env_file.read_text())
        self.environment = {
            **clean_environment(),
            **_QUIET,
            **_INSTALLED,
            **self.variables,
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self.control = httpx.Client(base_url=self.variables["SANDBOX_URL"], timeout=60)
        self.kube = _administrator(Path(self.variables["KUBECONFIG"]))

    def _wait(self, env_file: Path, log: Path) -> None:
        end = time.monotonic() + _START_SECONDS
        while not env_file.exists():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the sandbox did not start:\n{log.read_text()}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def world(self) -> dict[str, t.Any]:
        """The truth: machines, devices, keys, nodes, totals and the bill."""
        return t.cast("dict[str, t.Any]", self.control.get("/world").raise_for_status().json())

    def advance(self, seconds: float) -> None:
        """Move the world's clock forward."""
        self.control.post("/clock", json={"advance": seconds}).raise_for_status()


def _variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: "".join(shlex.split(value)) for name, _sep, value in pairs}


def _administrator(kubeconfig: Path) -> httpx.Client:
    config = yaml.safe_load(kubeconfig.read_text())
    return httpx.Client(
        base_url=config["clusters"][0]["cluster"]["server"],
        headers={"authorization": f"Bearer {config['users'][0]['user']['token']}"},
        verify=False,
        timeout=60,
    )
