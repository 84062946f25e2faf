# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The task "Update the WireGuard hubs" of the playbooks, as a call of the run that can fail and can be its last one."""

from __future__ import annotations

import importlib
import json
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task

from ..contract.act.rig import MODULES
from .sight import Call, Run

if t.TYPE_CHECKING:
    from .stage import Order, Stage

SERVICE = "hub"


def tell(stage: Stage, run: Run, order: Order, said: dict[str, t.Any]) -> None:
    """The role ``hub`` with what the last step said of the hubs. One that cannot be reached ends the run, but not ``autoscale``."""
    names = ("launch", "teardown", "plan") if order.playbook == "provision" else ("teardown", "scale", "launch", "plan")
    steps = [said[name] for name in names if "hubs" in said.get(name, {})]
    for one in steps[0]["hubs"] if steps else ():
        try:
            _bring_in_line(stage, run, one)
        except ApiError as error:
            if order.playbook not in ("autoscale", "migrate"):  # a hub that is down ends no pass
                raise
            said["hub"] = {"problems": [str(error)]}


def _bring_in_line(stage: Stage, run: Run, hub: dict[str, t.Any]) -> None:
    process, path = stage.loom.current.process, f"/{hub['interface']}"
    assert process is not None
    call = Call(run, SERVICE, "PUT", path, json.dumps(hub), writes=False)  # whether it changes anything shows afterwards
    stage.loom.sleep(stage.loom.dice.uniform(0.001, 0.1))
    due = stage.begin(call, process)
    stage.sight.peers_before = stage.sight.peers()
    fault = stage.faults.strike(SERVICE, "PUT", path)
    try:
        if fault is not None and fault.kind != "lost_after":
            raise ApiError("hub-1 cannot be reached.", service=SERVICE)
        with stage.loom.shielded():
            call.writes = bool(_module(stage, hub)["changed"])
        call.status = 200
        if call.writes:
            stage.world.writes.append((stage.clock.now(), SERVICE, f"PUT {path}"))
        if fault is not None:
            raise ApiError("hub-1 cannot be reached.", service=SERVICE)
    finally:
        stage.end(call)
    if due:
        stage.die(process)


def _module(stage: Stage, hub: dict[str, t.Any]) -> dict[str, t.Any]:
    code = importlib.import_module(f"{MODULES}.wireguard_peer")
    given = {name: option.get("default") for name, option in code.SPEC["argument_spec"].items()}
    given |= {name: hub.get(name, []) for name in ("peers", "gone", "unknown")}
    given |= {"state": hub.get("state", "exact"), "keep_younger_than": 600}  # as in roles/hub
    given |= {"interface": hub["interface"], "cluster_id": hub["cluster_id"], "config_file": stage.sight.hub, "apply": False}
    task = Task(given, clock=stage.host, progress=stage.lines.append, warn=stage.warnings.append)
    return t.cast("dict[str, t.Any]", code.run(task))
