# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Existing volumes by playbook (L-51), with the documents of examples/volumes.yml."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from .box import ROOT, Sandbox

EXAMPLES = ROOT / "examples"
SCENARIO = {
    "lambda": {
        "offers": [
            {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 4, "boot": 20},
            {"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 4, "boot": 20},
        ],
        "file_systems": [{"name": "datasets", "region": "us-south-2", "gb": 500}],
    },
    "runpod": {
        "offers": [
            {"type": "NVIDIA GeForce RTX 4090", "region": place, "stock": 4, "boot": 20} for place in ("EU-RO-1", "US-TX-3")
        ],
        "network_volumes": [{"name": "models", "size": 100, "dataCenter": "US-TX-3"}],
    },
    "timings": {"packages": 5, "mesh": 2, "csr": 1, "ready": 2, "gpu": 4},
    "rate_limits": False,
}


@pytest.fixture(scope="module")
def shared(start: t.Callable[..., Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    path: Path = tmp_path_factory.mktemp("volumes") / "volumes.yaml"
    path.write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")
    return start(speed=100, scenario=path)


def documents() -> list[dict[str, t.Any]]:
    found = [one for one in yaml.safe_load_all((EXAMPLES / "volumes.yml").read_text(encoding="utf-8")) if one]
    talos = found[0]["spec"]["talosConfig"]
    talos["machineConfigTemplateFile"] = str(EXAMPLES / talos["machineConfigTemplateFile"])
    return found


def test_L51_machines_come_where_the_volumes_are_and_leave_them_behind(sandbox: Sandbox) -> None:
    wanted = documents()
    checked = sandbox.playbook("validate", documents=wanted)
    assert "training rents in us-south-2 only" in checked.out and "inference rents in US-TX-3 only" in checked.out
    for pool in ("training", "inference"):
        sandbox.playbook("provision", documents=wanted, extra_vars={"tgp_pool": pool}).succeeded()
    assert {(one["cloud"], one["region"]) for one in sandbox.living()} == {("lambda", "us-south-2"), ("runpod", "US-TX-3")}
    told = sandbox.playbook("report", documents=wanted).succeeded()
    assert "Volumes are not in these sums and are billed without machines, too: $107.00 a month" in told.out
    sandbox.playbook("destroy", documents=wanted, extra_vars={"everything": True}).succeeded()
    assert not any(sandbox.left().values())
    accounts = sandbox.world()["accounts"]
    assert accounts["lambda"]["file_systems"] == ["datasets"] and len(accounts["runpod"]["volumes"]) == 1
    changed = documents()
    changed[0]["spec"]["providers"][0]["volumes"][0]["name"] = "lost"
    refused = sandbox.playbook("provision", documents=changed, extra_vars={"tgp_pool": "training"})
    assert "lambda: the account has no volume lost; it has datasets (" in refused.out and sandbox.living() == []
