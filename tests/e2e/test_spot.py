# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spot machines by playbook: lost ones are given back and replaced by one run of provision.yml (L-15)."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from .box import ROOT, Sandbox

EXAMPLE = ROOT / "examples" / "clouds.yml"


@pytest.fixture(scope="module")
def shared(start: t.Callable[..., Sandbox]) -> Sandbox:
    return start(speed=100, scenario="four-clouds")


def documents() -> list[dict[str, t.Any]]:
    """The example's nodes, by auction on Vast."""
    node_class, pool = (one for one in yaml.safe_load_all(EXAMPLE.read_text()) if one["metadata"]["name"] in ("market", "nodes"))
    spec = node_class["spec"]
    spec["providers"] = [{"name": "vast", "bidMargin": "20%"}]
    spec["talosConfig"]["machineConfigTemplateFile"] = str(ROOT / "examples" / spec["talosConfig"]["machineConfigTemplateFile"])
    (spot,) = [one for one in pool["spec"]["template"]["spec"]["requirements"] if one["key"] == "tgp.io/spot"]
    spot["values"] = ["true"]
    return [node_class, pool]


def test_L15_one_run_gives_the_lost_machine_back_and_rents_another(sandbox: Sandbox) -> None:
    """Between two runs of provision.yml Vast.ai stops a spot machine; the second ends and replaces it."""
    wanted = documents()
    sandbox.behave({"kind": "vanish", "cloud": "vast", "seconds": 1200, "times": 1})
    sandbox.playbook("provision", documents=wanted).succeeded()
    (lost,) = sandbox.living()
    assert lost["name"] in sandbox.nodes()
    sandbox.pass_time(1300)
    sandbox.until(lambda: sandbox.living()[0]["state"] == "stopped", "Vast takes it back")
    result = sandbox.playbook("provision", documents=wanted).succeeded()
    (found,) = sandbox.living()
    assert found["id"] != lost["id"] and "SpotLost" in result.out
    assert set(sandbox.claims()) == {found["name"]} and lost["name"] not in sandbox.nodes()
    assert [one["reason"] for one in sandbox.ledger()] == ["SpotLost"]
    sandbox.playbook("destroy", documents=wanted, extra_vars={"everything": True}).succeeded()
    assert not any(sandbox.left().values())
