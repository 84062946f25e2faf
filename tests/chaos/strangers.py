# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lives in the same account, mesh and cluster and is not ours: somebody's own, another cluster's, and names that only look like ours."""

from __future__ import annotations

import dataclasses
import typing as t

from sandbox.world import Machine

if t.TYPE_CHECKING:
    from ..contract.act.rig import Rig


@dataclasses.dataclass
class Strangers:
    """Names of devices and Nodes, and machines, that have to outlive every story."""

    names: list[str]
    machines: list[Machine]


def settle_in(rig: Rig, cluster_id: str) -> Strangers:
    """They are there before the first run: silent devices, Nodes that are not Ready, and machines where Lambda is among the clouds."""
    names = [
        "my-workstation",
        "tgp-ffffffff-training-0k3zq",
        f"tgp-{cluster_id}-training",
        f"tgp-{cluster_id.upper()}-training-00000",
    ]
    for name in names:
        device = rig.box.tailnet.add_device(name, tags=["tag:gpu"])
        rig.box.tailnet.set_online(device.node_id, False)
        labels = {"tgp.io/provisioned": "true", "tgp.io/provider": "lambda"}
        if name == name.lower():  # no Node can have another name
            rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    machines = []
    for name, offer in zip(names, [one for one in rig.world.offers if one.cloud == "lambda"] * len(names), strict=False):
        machine = Machine(
            id=f"{len(machines):032x}", cloud="lambda", name=name, hostname=f"stranger-{len(machines)}", offer=offer,
            created=rig.clock.now(), state="active", placed=False, details={"ssh_key_names": ["tgp"], "file_system_names": []},
        )  # fmt: skip
        rig.world.machines[machine.id] = machine
        machines.append(machine)
    return Strangers(names, machines)


def missing(rig: Rig, there: Strangers) -> list[str]:
    """Those that did not outlive it."""
    devices, nodes = {one.hostname for one in rig.box.tailnet.devices()}, set(rig.nodes())
    gone = [f"device {name}" for name in there.names if name not in devices]
    gone += [f"Node {name}" for name in there.names if name == name.lower() and name not in nodes]
    return gone + [f"machine {one.name}" for one in there.machines if one.ended is not None]
