# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lives in the same account, mesh and cluster and is not ours: somebody's own, another cluster's, and names that only look like ours."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

from sandbox.world import Machine, World

if t.TYPE_CHECKING:
    from ..contract.act.rig import Rig
    from .stage import Stage


_CONTRACT = 30 * 86_400  # seconds that a stranger's contract at Vast.ai has left


@dataclasses.dataclass
class Strangers:
    """Names of devices and Nodes, and machines, that have to outlive every story."""

    names: list[str]
    machines: list[Machine]
    devices: list[str] = dataclasses.field(default_factory=list)
    names_of_nodes: list[str] = dataclasses.field(default_factory=list)


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


def intrude(stage: Stage, what: str, place: int, stamped: bool) -> None:
    """Somebody else's machine, device or Node comes, under a name of our cluster: a free one, or (``place`` even) that of a machine of
    ours. ``stamped``: it says that it is another cluster's; where no stamp can be carried (Paperspace, the mesh), its name says so or is not
    quite one of ours."""
    sight, world = stage.sight, stage.world
    ours = sight.living()
    if what == "machine" and not sight.made():
        return
    name = f"tgp-{sight.cluster_id}-training-{stage.loom.dice.getrandbits(24) % 60466176:05d}"[:27]
    if ours and place % 2 == 0:
        name = ours[place % len(ours)].name
    if what == "device":
        name = f"tgp-ffffffff-training-{name[-5:]}" if stamped else f"tgp-{sight.cluster_id}-training-{name[-5:].upper()}x"
        device = stage.box.tailnet.add_device(name, tags=["tag:gpu"])
        stage.box.tailnet.set_online(device.node_id, place % 2 == 0)
        sight.foreign_things |= {("device", device.id), ("device", device.node_id)}
        stage.strangers.devices.append(device.node_id)
    elif what == "Node":
        name = f"tgp-ffffffff-training-{name[-5:]}" if stamped else f"gpu-{name[-5:]}"
        labels = {"tgp.io/provisioned": "true", "tgp.io/provider": "lambda"} | ({"tgp.io/cluster": "ffffffff"} if stamped else {})
        if name not in sight.nodes():
            uid = stage.kube("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})["metadata"]["uid"]
            sight.foreign_things.add(("Node", uid))
            stage.strangers.names_of_nodes.append(name)
    else:
        _machine(stage, sight.made()[place % len(sight.made())], name, stamped, world)


def _machine(stage: Stage, model: Machine, name: str, stamped: bool, world: World) -> None:
    """Like one of ours, but for its stamps: without any, or with another cluster's."""
    if model.cloud == "paperspace":
        name = name.replace(stage.sight.cluster_id, "ffffffff")
    number = str(world.random.randrange(10**7, 10**8))
    one = copy.copy(model)
    one.id = number if model.cloud == "vast" else (number + "f" * 24)[: len(model.id)]
    if model.cloud == "gcp":  # a machine is known by its zone and name, so one of ours and this one cannot share both
        offers = [model.offer, *(offer for offer in world.offers if offer.cloud == "gcp")]
        free = [offer for offer in offers if f"{offer.region}/{name}" not in world.machines]
        if not free:
            return
        one.offer, one.id = free[0], f"{free[0].region}/{name}"
    one.details = {
        key: value for key, value in copy.deepcopy(model.details).items() if key not in ("struck", "node", "device", "certificate")
    }
    one.name, one.hostname, one.payload, one.thread, one.watch = name, f"foreign-{number}", None, None, None
    one.created, one.ended, one.destroyed, one.state, one.placed = stage.clock.now(), None, None, "active", False
    one.rates, one.steps, one.console = [], [], []
    if one.cloud == "vast":  # what became of the model's contract is not to become of this one
        one.details.update(end=world.clock.seconds() + _CONTRACT, intended="running", queued=False, outbid=False)
    for key in ("tags", "labels", "env_form", "extra_env", "environment"):
        if one.details.get(key):
            one.details[key] = _restamped(one.details[key], stage.sight.cluster_id if stamped else "")
    if "label" in one.details:
        one.details["label"] = name
    with world.lock:
        world.machines[one.id] = one
    stage.sight.foreign[one.id] = one
    stage.strangers.machines.append(one)


def _restamped(stamps: t.Any, ours: str) -> t.Any:
    """Stamps of another cluster where ours were (``ours`` the id to be replaced), none without it."""
    if isinstance(stamps, dict):
        return {
            key: value.replace(ours, "ffffffff")
            for key, value in stamps.items()
            if ours or not key.startswith(("TGP", "TS_", "tgp-"))
        }
    kept = [one for one in stamps if ours or "tgp" not in str(one).lower()]
    if kept and isinstance(kept[0], dict):
        return [{**one, "value": str(one["value"]).replace(ours, "ffffffff")} for one in kept]
    if kept and isinstance(kept[0], str):
        return [one.replace(ours, "ffffffff") for one in kept]
    return [(key, value.replace(ours, "ffffffff")) for key, value in kept]


def missing(rig: Rig, there: Strangers) -> list[str]:
    """Those that did not outlive it."""
    devices, nodes = {one.hostname for one in rig.box.tailnet.devices()}, set(rig.nodes())
    gone = [f"device {name}" for name in there.names if name not in devices]
    ids = {one.node_id for one in rig.box.tailnet.devices()}
    gone += [f"device {one}" for one in there.devices if one not in ids]
    gone += [f"Node {name}" for name in there.names_of_nodes if name not in nodes]
    gone += [f"Node {name}" for name in there.names if name == name.lower() and name not in nodes]
    return gone + [f"machine {one.name}" for one in there.machines if one.ended is not None]
