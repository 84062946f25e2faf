# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm as a user runs it, with the chart of this checkout."""

from __future__ import annotations

import os
import pathlib
import subprocess
import typing as t

import yaml

from tests.build import ROOT

CHART = ROOT / "charts" / "tgp-gpu"
SPACE = "tgp-system"
RELEASE = "tgp-gpu"
KUBERNETES = "1.36.3"  # a build from the module takes itself for one of Kubernetes 1.20


class HelmFailed(Exception):
    """It ended with another status than 0; the message is what it said."""


class Helm:
    """``kubeconfig`` and ``patience`` (seconds that a hook may take) are for commands that need a cluster."""

    def __init__(
        self, binary: pathlib.Path, folder: pathlib.Path, kubeconfig: pathlib.Path | None = None, patience: int = 120
    ) -> None:
        self._binary, self._folder, self._kubeconfig, self._patience = binary, folder, kubeconfig, patience

    def at(self, kubeconfig: pathlib.Path) -> Helm:
        return Helm(self._binary, self._folder, kubeconfig)

    def run(self, *words: str) -> str:
        """Its output. HelmFailed with what it said."""
        homes = {f"HELM_{name}_HOME": str(self._folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        cluster = {"KUBECONFIG": str(self._kubeconfig)} if self._kubeconfig else {}
        surroundings = {**os.environ, **homes, **cluster}
        command = [str(self._binary), "--namespace", SPACE, *words]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=2 * self._patience, check=False)
        if done.returncode:
            raise HelmFailed(done.stdout + done.stderr)
        return done.stdout

    def template(self, *words: str, release: str = RELEASE) -> list[dict[str, t.Any]]:
        text = self.run("template", release, str(CHART), "--kube-version", KUBERNETES, *words)
        return [one for one in yaml.safe_load_all(text) if one]

    def refuses(self, *words: str) -> str:
        """What it says to values that it does not take."""
        try:
            self.template(*words)
        except HelmFailed as said:
            return str(said)
        raise AssertionError(f"taken: {words}")

    def deploy(self, verb: str, *words: str) -> str:
        return self.run(verb, RELEASE, str(CHART), "--create-namespace", "--timeout", f"{self._patience}s", *words)

    def hook(self, verb: str, *words: str) -> str:
        """``test`` or ``uninstall``."""
        return self.run(verb, RELEASE, "--timeout", f"{self._patience}s", *words)
