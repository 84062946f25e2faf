# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""autoscale.yml as cron runs it: a pod waits, a machine comes, the pod runs, the machine goes."""

from __future__ import annotations

import typing as t

from .box import NOTHING, Sandbox


def phase(sandbox: Sandbox, name: str) -> str:
    return t.cast(str, sandbox.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase", ""))


def test_a_pod_gets_its_machine_and_the_machine_goes(start: t.Callable[..., Sandbox]) -> None:
    """The whole life by autoscale.yml: check mode first, a pod that runs on its machine, and no machine afterwards."""
    sandbox = start(speed=100)
    container = {"name": "train", "image": "registry.example/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"tgp.io/provider": "lambda"}, "containers": [container]}
    pod = {"metadata": {"name": "train", "namespace": "default"}, "spec": spec}
    sandbox.kube.post("/api/v1/namespaces/default/pods", json=pod).raise_for_status()
    sandbox.until(
        lambda: sandbox.get("/api/v1/namespaces/default/pods/train")["status"].get("conditions"), "the scheduler has looked"
    )

    before = sandbox.writes()
    shown = sandbox.playbook("autoscale", "--check").succeeded()
    assert "default/train" in shown.words and sandbox.writes() == before

    for _run in range(12):
        sandbox.playbook("autoscale").succeeded()
        if phase(sandbox, "train") == "Running":
            break
        sandbox.pass_time(60)
    assert phase(sandbox, "train") == "Running"
    assert len(sandbox.living()) == 1

    with sandbox.moment():
        sandbox.playbook("autoscale").succeeded()
        writes = sandbox.writes()
        again = sandbox.playbook("autoscale").succeeded()
    assert again.count("changed") == 0 and sandbox.writes() == writes

    sandbox.end_job("train")
    sandbox.playbook("autoscale").succeeded()
    sandbox.advance(11 * 60)
    sandbox.playbook("autoscale").succeeded()
    assert sandbox.left() == NOTHING
