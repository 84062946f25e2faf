# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox in a process of its own, and the environment that points everything at it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import httpx
import yaml

ROOT = Path(__file__).resolve().parent.parent
_QUIET = {
    "ANSIBLE_LOCALHOST_WARNING": "False",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
    "ANSIBLE_NOCOWS": "1",
}


class Running:
    """``environment`` holds the addresses and credentials; ``close`` ends it. RuntimeError with its log when it does not start."""

    def __init__(self, folder: Path, *, speed: float, scenario: str = "", seed: int = 0) -> None:
        env_file, log = folder / "env", folder / "sandbox.log"
        command = [sys.executable, "-m", "sandbox", "up", "--env-file", str(env_file), "--speed", str(speed), "--seed", str(seed)]
        command += ["--state-dir", str(folder), *(["--scenario", scenario] if scenario else [])]
        with log.open("w") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        while not env_file.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"the sandbox did not start:\n{log.read_text()}")
            time.sleep(0.05)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self.environment = {**os.environ, **_QUIET, **_variables(env_file.read_text()), "PATH": path}
        self.url = self.environment["SANDBOX_URL"]

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def world(self) -> dict[str, t.Any]:
        """The truth: machines, devices, keys, nodes, totals and the bill."""
        return t.cast("dict[str, t.Any]", httpx.get(f"{self.url}/world", timeout=60).json())

    def advance(self, seconds: float) -> None:
        """Move the world's clock forward."""
        httpx.post(f"{self.url}/clock", json={"advance": seconds}, timeout=60).raise_for_status()

    def kube(self, method: str, path: str, body: t.Any = None) -> httpx.Response:
        """A call to the sandbox's Kubernetes as its administrator."""
        config = yaml.safe_load(Path(self.environment["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        headers = {"authorization": f"Bearer {user['token']}"}
        answer = httpx.request(method, cluster["server"] + path, json=body, headers=headers, verify=False, timeout=60)
        answer.raise_for_status()
        return answer


def _variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value.strip("'\"") for name, _sep, value in pairs}
