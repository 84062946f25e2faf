# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 13: a manual destroy that a PodDisruptionBudget holds up prevents no expiry, no repair and no budget."""

from __future__ import annotations

import pytest

from tests.contract.act.rig import Rig

HELD = "the manual destroy holds it up"


@pytest.fixture
def held(rig: Rig) -> Rig:
    """A machine whose end somebody asked for, without force; a budget does not let its pod go."""
    rig.training.setdefault("disruption", {})["consolidationPolicy"] = "Never"
    rig.provision()
    rig.pod(rig.claim()["node_name"], budget=True)
    done = rig.destroy()
    assert [one["result"] for one in done["machines"]] == ["pending"] and len(rig.machines()) == 1
    assert rig.claim()["deletion"]["reason"] == "Manual"
    return rig


def test_expiry_ends_it(held: Rig) -> None:
    held.training["disruption"]["expireAfter"] = "1h"
    held.advance(3600)
    began = held.clock.now()
    held.reap()
    assert held.machines() == [], HELD
    assert [line["reason"] for line in held.ledger()] == ["Expired"]
    assert (held.clock.now() - began).total_seconds() >= 540, (
        "the pod had the time that a drain for Expired gives, not that of Manual"
    )
    assert held.claims() == {} and not any(name.startswith("tgp-") for name in held.nodes())


def test_repair_ends_it(held: Rig) -> None:
    none = {"nvidia.com/gpu": "0"}
    held.kube("PATCH", f"/api/v1/nodes/{held.machine().name}/status", {"status": {"capacity": none, "allocatable": none}})
    held.reap()
    held.advance(1201)
    held.reap()
    assert held.machines() == [], HELD
    assert [line["reason"] for line in held.ledger()] == ["Unhealthy"]


def test_a_budget_ends_it(held: Rig) -> None:
    held.reap(budget={"period": "day", "amount": "0.01", "action": "drain_all", "soft_percent": 80, "time_zone": "UTC"})
    assert held.machines() == [], HELD
    assert [line["reason"] for line in held.ledger()] == ["Budget"]
