# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that loses its GPUs while it is in use (L-20): closed, opened again when they come back, given back when they do not."""

from __future__ import annotations

from .rig import Rig

LOST = "tgp.io/gpu-lost"


def show_gpus(rig: Rig, number: int) -> None:
    amount = {"nvidia.com/gpu": str(number)}
    rig.kube("PATCH", f"/api/v1/nodes/{rig.machine().name}/status", {"status": {"capacity": amount, "allocatable": amount}})


def closed(rig: Rig) -> bool:
    return any(one["key"] == LOST for one in rig.nodes()[rig.machine().name]["spec"].get("taints") or [])


def test_L20_a_node_without_gpus_is_closed_and_opened_again(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    show_gpus(rig, 0)
    assert "GpuLost" in str(rig.reap()["plan"]["plan"]) and not closed(rig), "a kubelet may be starting again"
    rig.advance(61)
    writes = rig.writes()
    seen = rig.plan("reap", check=True)
    assert seen["changed"] and rig.writes() == writes and not closed(rig)
    rig.reap()
    assert closed(rig)
    rig.join()
    assert closed(rig), "setting our marks again does not open it"
    writes = rig.writes()
    rig.reap()
    assert rig.writes() == writes, "a second run writes nothing"
    show_gpus(rig, 1)
    rig.reap()
    assert not closed(rig) and len(rig.machines()) == 1


def test_L20_a_machine_whose_gpus_stay_away_is_given_back(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    show_gpus(rig, 0)
    rig.reap()
    rig.advance(1201)
    rig.reap()
    assert rig.left() == {} and rig.ledger()[0]["reason"] == "Unhealthy"
