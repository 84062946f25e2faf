# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_validate asks the tailnet's policy whether machines will reach the API server, and trustd where they are Talos's (S3-36)."""

from __future__ import annotations

import json
import typing as t

import pytest

from sandbox.tailnet_policy import DEFAULT, Policy, parse

from .rig import Rig
from .test_validate import check


@pytest.fixture
def api(rig: Rig) -> dict[str, str]:
    """The API server as a device of the tailnet; the option that names it."""
    device = rig.box.tailnet.add_device("cp-1", tags=["tag:k8s-cp"])
    return {"control_plane_endpoint": f"https://{device.ipv4}:6443"}


def policy(rig: Rig, change: t.Callable[[dict[str, t.Any]], None]) -> None:
    content = parse(DEFAULT)
    change(content)
    rig.box.tailnet.policy = Policy(json.dumps(content))


def ports(*open_ones: str) -> t.Callable[[dict[str, t.Any]], None]:
    def change(content: dict[str, t.Any]) -> None:
        content["acls"][0]["dst"] = [f"tag:k8s-cp:{','.join(open_ones)}"]

    return change


def asked(rig: Rig, **options: str) -> dict[str, t.Any]:
    run = rig.run
    rig.run = lambda name, **more: run(name, **{**options, **more})  # type: ignore[method-assign]
    try:
        return check(rig, "policy")
    finally:
        rig.run = run  # type: ignore[method-assign]


def test_S3_36_the_way_to_the_api_server_and_to_trustd_is_proven(rig: Rig, api: dict[str, str]) -> None:
    found = asked(rig, **api)
    assert (found["status"], found["warnings"]) == ("ok", [])
    host = api["control_plane_endpoint"].removeprefix("https://")
    assert found["message"] == f"it lets tag:gpu reach the API server {host}, and Talos machines trustd (50001)"
    assert any(line.split()[:2] == ["ok", "policy"] for line in rig.lines)


@pytest.mark.parametrize(("open_ones", "closed"), [(("50001",), "6443"), (("6443",), "50001"), (("443", "50001"), "6443")])
def test_S3_36_a_closed_way_is_no_set_up(rig: Rig, api: dict[str, str], open_ones: tuple[str, ...], closed: str) -> None:
    policy(rig, ports(*open_ones))
    found = asked(rig, **api)
    assert (found["ok"], found["status"]) == (False, "NO")
    assert "keeps machines from joining" in found["message"] and f':{closed}": want: Accept' in found["message"]
    assert "Add the acls of policy_snippet" in found["message"]


def test_S3_36_trustd_is_for_talos_machines_alone_and_the_port_is_the_endpoints(rig: Rig, api: dict[str, str]) -> None:
    rig.demo_class["providers"] = [{"name": "lambda"}]
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    policy(rig, ports("443"))
    exposed = {"control_plane_endpoint": api["control_plane_endpoint"].replace("6443", "443")}
    found = asked(rig, **exposed)
    assert found["status"] == "ok" and "trustd" not in found["message"]
    assert asked(rig, **api)["status"] == "NO"


def test_S3_36_a_pool_that_names_no_lane_may_get_talos_machines_beside_one_that_does(rig: Rig, api: dict[str, str]) -> None:
    rig.training["template"]["spec"]["lanes"] = ["kubelet"]
    policy(rig, ports("6443"))
    found = asked(rig, **api)
    assert found["status"] == "NO" and ':50001": want: Accept' in found["message"]
    rig.document("GPUNodePool", "own")["spec"]["template"]["spec"]["lanes"] = ["kubelet"]
    assert asked(rig, **api)["status"] == "ok"


def test_S3_06_a_route_that_nobody_approves_is_a_warning(rig: Rig, api: dict[str, str]) -> None:
    rig.demo_class["tailscaleConfig"]["advertiseRoutes"] = ["172.20.0.0/16"]
    found = asked(rig, **api)
    assert (found["ok"], found["status"]) == (True, "warn")
    assert "Nobody approves this route of tag:gpu" in found["warnings"][0] and "172.20.0.0/16" in found["warnings"][0]


def test_an_api_server_outside_of_the_tailnet_is_no_matter_of_its_policy(rig: Rig) -> None:
    policy(rig, ports("1"))
    found = asked(rig)
    assert found["status"] == "ok" and "is not a device of the tailnet" in found["message"]


def test_a_policy_that_may_not_be_read_is_never_called_good(rig: Rig, api: dict[str, str]) -> None:
    rig.box.tailnet.by_secret(rig.world.secrets["TS_OAUTH_CLIENT_SECRET"]).scopes.remove("policy_file:read")  # type: ignore[union-attr]
    found = asked(rig, **api)
    assert found["status"] == "ok" and "could not be asked" in found["message"] and "policy_file:read" in found["message"]
    assert "lets tag:gpu reach" not in found["message"].replace("whether it lets", "")


def test_a_policy_that_is_kept_elsewhere_is_tried_all_the_same(rig: Rig, api: dict[str, str]) -> None:
    policy(rig, ports("6443", "50001"))
    rig.box.tailnet.settings["aclsExternallyManagedOn"] = True
    found = asked(rig, **api)
    assert found["status"] == "ok" and "lets tag:gpu reach" in found["message"] and "kept elsewhere" in found["message"]
    assert "could not be asked" not in found["message"]


def test_a_mesh_that_cannot_be_read_is_told_once(rig: Rig, api: dict[str, str]) -> None:
    rig.faults.add({"service": "tailscale", "path": "/devices", "kind": "status", "status": 500, "times": None})
    found = asked(rig, **api)
    assert (found["ok"], found["status"]) == (True, "warn") and "not asked" in found["message"]


def test_classes_without_a_mesh_have_no_policy(rig: Rig) -> None:
    rig.demo_class.pop("tailscaleConfig")
    rig.demo_class["networking"] = {"backend": "none"}
    with pytest.raises(StopIteration):
        asked(rig)
