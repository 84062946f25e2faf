# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm as a program: is the release there with these values, and if not, helm upgrade --install."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile

from ..core.errors import InvalidInput, TgpError
from ..core.redact import PLATFORMS, program_environment
from ..core.task import Task
from ..kube.client import Json
from .config import to_yaml
from .gpu_operator import OPERATOR_NAMESPACE, RELEASE, Chart

# what helm gets of the run's environment besides the login at a cloud's cluster; the rest holds API keys, which it has no need of
_KEPT = ("HELM_", "KUBECONFIG", "KUBERNETES_SERVICE_")


def install_release(task: Task, chart: Chart, values: Json) -> bool:
    """Whether the release was, or in check mode would be, installed or upgraded."""
    program = find_helm(task)
    if _is_there(task, program, chart, values):
        return False
    if not task.check_mode:
        _upgrade(task, program, chart, values)
    return True


def uninstall_release(task: Task, program: str) -> bool:
    """Whether the release was, or in check mode would be, removed. Definitions of kinds stay, as Helm leaves them."""
    if not json.loads(_helm(task, program, "list", "--all", "--filter", f"^{RELEASE}$", "--output", "json")):
        return False
    if not task.check_mode:
        _helm(task, program, "uninstall", RELEASE)
    return True


def _is_there(task: Task, program: str, chart: Chart, values: Json) -> bool:
    listed = json.loads(_helm(task, program, "list", "--filter", f"^{RELEASE}$", "--output", "json"))
    deployed = bool(listed) and listed[0].get("status") == "deployed" and str(listed[0].get("chart")).endswith(f"-{chart.version}")
    return deployed and json.loads(_helm(task, program, "get", "values", RELEASE, "--output", "json")) == values


def _upgrade(task: Task, program: str, chart: Chart, values: Json) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", prefix="tgp-values-", encoding="utf-8") as file:
        file.write(to_yaml(values))
        file.flush()
        where = ["--repo", chart.repository] if chart.repository else []
        version = ["--version", chart.version]
        wait = ["--wait", "--timeout", f"{max(task.params['timeout'], 1)}s"] if task.params["timeout"] > 0 else []
        _helm(task, program, "upgrade", "--install", RELEASE, chart.name, *where, *version, "--values", file.name, *wait)


def find_helm(task: Task) -> str:
    """The path of the program. InvalidInput says what else there is."""
    found = shutil.which(task.params["helm"])
    if found is None:
        raise InvalidInput(
            f"The profile operator needs helm, and {task.params['helm']} is not found.",
            remedy=f"Install helm or give its path with {task.called('helm')}; or write a folder for Flux with "
            f"{task.called('render_to')}; or choose {task.called('profile')}=standalone.",
        )
    return found


def _helm(task: Task, program: str, *words: str) -> str:
    """Its output. TgpError with what it said."""
    cluster = [
        word
        for option, flag in (("kubeconfig", "--kubeconfig"), ("context", "--kube-context"))
        if task.params.get(option)
        for word in (flag, task.params[option])
    ]
    command = [program, *words, "--namespace", OPERATOR_NAMESPACE, *cluster]
    done = subprocess.run(
        command,
        env=program_environment(network=True, prefixes=(*_KEPT, *PLATFORMS)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=task.params["timeout"] + 120,
        check=False,
    )
    if done.returncode:
        raise TgpError(f"helm {words[0]} failed with exit status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
