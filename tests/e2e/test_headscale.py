# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole runs over a headscale, of both kinds of API: machines join, are listed, and leave nothing in the mesh."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from sandbox.scenario import SHIPPED

from .box import Sandbox


@pytest.fixture(scope="module", params=["headscale", "headscale-v1"])
def sandbox(request: pytest.FixtureRequest, start: t.Callable[..., Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """The default scenario, but that its mesh is a headscale."""
    content = yaml.safe_load((SHIPPED / "default.yaml").read_text())
    content["tailnet"] = {**content.get("tailnet", {}), "profile": request.param}
    path: Path = tmp_path_factory.mktemp("scenario") / f"{request.param}.yaml"
    path.write_text(yaml.safe_dump(content))
    return start(speed=100, scenario=path)


def test_machines_come_and_go_over_a_headscale(sandbox: Sandbox) -> None:
    """Both APIs of headscale under the playbooks: checked, joined, and no device or key left."""
    url = sandbox.environment["TAILSCALE_API_URL"]
    options = {"options": {"mesh_login_server": url}}
    checked = sandbox.playbook("validate", extra_vars=options).succeeded()
    assert "NO" not in {line.split()[0] for line in checked.out.splitlines() if line.startswith("  ")}, checked.text
    assert "mesh_login_server" not in checked.text
    assert "mesh_login_server is not given" in sandbox.playbook("validate").words
    sandbox.playbook("provision", extra_vars=options).succeeded()
    world = sandbox.world()
    online = [one for one in world["devices"] if one["online"]]
    assert len(online) == 2 and world["totals"]["instances"] == 2, json.dumps(world["totals"])
    sandbox.playbook("destroy", extra_vars={**options, "everything": True}).succeeded()
    after = sandbox.world()
    rented = [one for one in after["machines"] if one["cloud"] != "webhook" and one["ended"] is None]
    names = {one["name"] for one in world["machines"] if one["cloud"] != "webhook"}
    assert rented == [] and not [one for one in after["devices"] if one["hostname"] in names]
