# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An own machine that runs Ubuntu becomes a node of lane kubelet by the user data of the call that switches it on."""

from __future__ import annotations

from .rig import Rig


def test_an_own_ubuntu_machine_is_handed_its_user_data_and_becomes_a_node(rig: Rig) -> None:
    rig.document("GPUNodePool", "own")["spec"]["template"]["spec"]["lanes"] = ["kubelet"]
    for machine in rig.world.machines.values():
        machine.details["system"] = "ubuntu"
    rig.rent(pool="own")
    (name,) = rig.claims()
    payload = rig.world.machines[name].payload
    assert payload is not None and payload.startswith("#cloud-config\n") and "/usr/local/sbin/tgp-bootstrap" in payload
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row["message"]
    node = rig.kube("GET", f"/api/v1/nodes/{name}")
    assert node["status"]["nodeInfo"]["osImage"].startswith("Ubuntu") and node["metadata"]["labels"]["tgp.io/provider"] == "webhook"
    rig.destroy()
    assert rig.left() == {}
