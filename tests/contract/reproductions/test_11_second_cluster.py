# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 11: a second cluster with the same id, empty or restored from a backup of etcd, terminates production's busy machines."""

from __future__ import annotations

import pytest

from sandbox import strangers
from tests.contract.act.rig import Rig

RUNS = 6
TERMINATED = "machines of production were terminated"


def busy(rig: Rig, nodes: int) -> list[str]:
    """So many machines of production, each with a running pod."""
    rig.provision(nodes=nodes)
    names = sorted(rig.claims())
    for number, name in enumerate(names):
        rig.pod(name, f"job-{number}")
    return names


def works(rig: Rig, names: list[str]) -> None:
    """Production's machines, devices, Nodes and claims are what they were."""
    assert sorted(one.name for one in rig.machines()) == names, TERMINATED
    assert all(one.ended is None for one in rig.machines(living=False)), TERMINATED
    assert {one.hostname for one in rig.box.tailnet.devices() if one.online} >= set(names)
    assert sorted(rig.claims()) == names
    assert set(names) <= set(rig.nodes())


def runs(rig: Rig, number: int = RUNS) -> list[dict[str, object]]:
    done = []
    for _run in range(number):
        done.append(rig.reap()["plan"])
        rig.advance(700)
    return done


def test_L12a_E_an_empty_twin_of_the_same_id_ends_nothing_of_production(rig: Rig) -> None:
    names = busy(rig, 2)
    rig.advance(700)
    twin = rig.twin()
    assert twin.cluster_id == rig.cluster_id
    plans = runs(twin)
    works(rig, names)
    reported = {row["name"] for row in plans[-1]["plan"] if row["action"] == "report"}
    assert reported >= set(names)
    assert twin.claims() == {}


@pytest.mark.parametrize("nodes", [1, pytest.param(2, marks=pytest.mark.control), pytest.param(3, marks=pytest.mark.control)])
def test_L12a_E_a_twin_restored_from_a_backup_ends_nothing_of_production(rig: Rig, nodes: int) -> None:
    names = busy(rig, nodes)
    twin = rig.twin(restored=True)
    assert sorted(twin.claims()) == names
    runs(twin)
    works(rig, names)


def test_L12a_E_a_twin_that_lost_its_claims_as_well_ends_nothing_of_production(rig: Rig) -> None:
    """The copy was made, and then somebody cleaned up its namespace of records, but for the generation."""
    names = busy(rig, 1)
    twin = rig.twin(restored=True)
    for name in names:
        twin.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
        twin.kube("DELETE", f"/api/v1/nodes/{name}")
    runs(twin, 2)
    works(rig, names)


@pytest.mark.control
def test_L12a_E_a_lost_store_with_its_generation_from_a_backup_adopts(rig: Rig) -> None:
    names = busy(rig, 2)
    for name in names:
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    runs(rig, 2)
    works(rig, names)


def test_L12a_E_a_new_store_without_the_old_generation_reports(rig: Rig) -> None:
    names = busy(rig, 2)
    rig.kube("DELETE", "/api/v1/namespaces/tgp-system")
    strangers.silence(rig.api)  # their Nodes show no life either: the machines alone would be orphans
    for device in rig.box.tailnet.devices():
        rig.box.tailnet.set_online(device.node_id, False)
    rig.advance(700)
    plans = runs(rig)
    assert all(one.ended is None for one in rig.machines(living=False)), TERMINATED
    assert {row["name"] for row in plans[-1]["plan"] if row["action"] == "report"} >= set(names)
