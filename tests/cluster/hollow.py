# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node without a machine: the real kubelet code with a container runtime that only pretends."""

from __future__ import annotations

import pathlib
import typing as t

from .processes import Child, Family


class HollowNode:
    """A running kubemark process. Stopped and started again it comes back with the certificate it got, as a real kubelet does."""

    def __init__(
        self,
        family: Family,
        binary: pathlib.Path,
        folder: pathlib.Path,
        name: str,
        bootstrap_kubeconfig: pathlib.Path,
        labels: dict[str, str],
        taints: t.Sequence[str],
        gpus: int,
    ) -> None:
        self.name = name
        self.folder = folder
        self._family = family
        self._argv = [
            str(binary),
            "kubemark",
            "--morph=kubelet",
            f"--name={name}",
            f"--bootstrap-kubeconfig={bootstrap_kubeconfig}",
            f"--kubeconfig={folder / 'kubeconfig'}",
            f"--cert-dir={folder / 'pki'}",
            "--kubelet-port=0",
            "--kubelet-read-only-port=0",
            "--use-host-image-service=false",
        ]
        if labels:
            self._argv.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
        if taints:
            self._argv.append("--register-with-taints=" + ",".join(taints))
        if gpus:
            self._argv.append(f"--extended-resources=nvidia.com/gpu={gpus}")
        self._child = self._spawn()

    def _spawn(self) -> Child:
        return self._family.start(f"kubemark {self.name}", self._argv, self.folder / "log")

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def stop(self) -> None:
        """Shut the kubelet down. Its Node object stays, as it does when a real machine is switched off."""
        self._child.stop()

    def kill(self) -> None:
        """As when the power fails."""
        self._child.kill()

    def start(self) -> None:
        """Switch it on again."""
        if not self.alive:
            self._child = self._spawn()
