# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""diagnose.yml as a user runs it: its exit status and its table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from sandbox.gpu_stack import FAULTS, GpuStack
from sandbox.kube import KubeApi, serve
from sandbox.talos_api import TalosApi

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stack(tmp_path: Path) -> t.Iterator[GpuStack]:
    """Two nodes with GPUs behind real sockets."""
    api = KubeApi(node_grace=None).start()
    server = serve(api)
    with TalosApi() as talos:
        api.write_kubeconfig(str(tmp_path / "kubeconfig"), server.url)
        (tmp_path / "talosconfig").write_text(talos.talosconfig())
        yield GpuStack(api, talos).healthy()
    server.stop()
    api.stop()


def diagnose(folder: Path, **variables: t.Any) -> subprocess.CompletedProcess[str]:
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH", "ANSIBLE_COLLECTIONS_PATH") if name in os.environ
    }
    environment = {
        **kept, "KUBECONFIG": str(folder / "kubeconfig"), "TALOSCONFIG": str(folder / "talosconfig"), "ANSIBLE_NOCOLOR": "1",
        "TGP_STATE_DIR": str(folder / "state"), "TGP_RUNTIME_DIR": str(folder / "pace"),
    }  # fmt: skip
    given = json.dumps({f"tgp_{name}": value for name, value in variables.items()})
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "playbooks/diagnose.yml", "-e", given]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_S4_22_the_playbook_prints_why_and_ends_with_2(stack: GpuStack, tmp_path: Path) -> None:
    well = diagnose(tmp_path, bundle=str(tmp_path / "gpus.tar.gz"))
    assert well.returncode == 0, well.stdout + well.stderr
    assert "8 allocatable = 2 GPUs × 4 slices" in well.stdout and (tmp_path / "gpus.tar.gz").exists()
    FAULTS["taint not tolerated"](stack)
    wrong = diagnose(tmp_path, pod="default/job")
    said = " ".join((wrong.stdout + wrong.stderr).split())
    assert wrong.returncode == 2, said
    assert (
        "NO pod default/job waits taint tgp.io/ephemeral=true:NoSchedule not tolerated on the nodes that it could use (2)." in said
    )
    assert "→ Add a toleration for tgp.io/ephemeral=true:NoSchedule to the pod" in said
