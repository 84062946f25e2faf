# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules also work as processes of their own, as on any host other than the controller."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
import typing as t

import pytest
from cheroot.wsgi import Server

from sandbox.clock import SimClock

from .stands import KEY, LambdaStand, WebhookStand

MODULES = ("offer_info", "lambda_instance", "instance_info", "webhook_machine")
PACKAGE = "ansible_collections.tgp.gpu.plugins.modules"


@pytest.fixture
def environment(lambda_stand: LambdaStand, webhook_stand: WebhookStand, tmp_path: pathlib.Path) -> t.Iterator[dict[str, str]]:
    """Both emulators on loopback, without a limit on the pace, and the variables that lead there."""
    servers = []
    for stand in (lambda_stand, webhook_stand):
        stand.world.rate_limits = False
        server = Server(("127.0.0.1", 0), stand.app)
        server.prepare()
        threading.Thread(target=server.serve, daemon=True).start()
        servers.append(server)
    roots = [f"http://127.0.0.1:{server.bind_addr[1]}" for server in servers]
    SimClock(speed=2000.0, path=str(tmp_path / "clock"))  # else the product's own pace of one call per second is what takes time
    yield {
        **os.environ,
        "TGP_CLOCK_FILE": str(tmp_path / "clock"),
        "LAMBDA_API_URL": roots[0],
        "LAMBDA_API_KEY": KEY,
        "WEBHOOK_URL": roots[1],
        "WEBHOOK_AUTH_VALUE": KEY,
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
    }
    for server in servers:
        server.stop()


@pytest.mark.parametrize("module", MODULES)
def test_each_runs_as_a_module_process(environment: dict[str, str], tmp_path: pathlib.Path, module: str) -> None:
    rack = {"name": "rack-1", "gpu_count": 1, "scale_up_endpoint": "/rack-1/start", "scale_down_endpoint": "/rack-1/stop"}
    arguments: dict[str, t.Any] = {
        "offer_info": {"clouds": ["lambda"]},
        "instance_info": {},
        "lambda_instance": {"name": "tgp-demo", "instance_type": "gpu_1x_a10", "wait": False},
        "webhook_machine": {"name": "rack-1", "webhook_machines": [rack]},
    }[module]
    path = tmp_path / "arguments.json"
    path.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    run = subprocess.run(
        [sys.executable, "-m", f"{PACKAGE}.{module}", str(path)], env=environment, capture_output=True, text=True, timeout=60
    )
    result = json.loads(run.stdout)
    assert not result.get("failed"), result
    assert result["changed"] is (not module.endswith("_info"))
    assert KEY not in run.stdout
