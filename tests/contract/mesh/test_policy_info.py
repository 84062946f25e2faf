# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy is held against what pools need; what the snippet says is what makes it pass."""

from __future__ import annotations

import json

import pytest
from ansible_collections.tgp.gpu.plugins.modules import tailscale_policy_info

from sandbox.tailnet import HEADSCALE_V1
from sandbox.tailnet_policy import DEFAULT, Policy
from tests.contract.mesh.conftest import Place, build

MISSING = {"tags": ["tag:train"], "control_planes": "tag:cp", "advertise_routes": ["172.20.0.0/16"]}


def test_a_policy_that_is_right(place: Place) -> None:
    told = place.run(tailscale_policy_info, tags=["tag:gpu"], control_planes="tag:k8s-cp", advertise_routes=["10.4.0.0/16"])
    assert (told["ok"], told["problems"], told["changed"]) == (True, [], False)
    assert all(call.startswith("GET") or call.endswith(("/oauth/token", "/acl/validate")) for call in place.calls)


def test_S3_36_each_fault_has_its_line_and_the_snippet_heals_them_all(place: Place) -> None:
    told = place.run(tailscale_policy_info, **MISSING)
    faults = {one["subject"]: one for one in told["problems"]}
    assert told["ok"] is False and set(faults) == {"tag:train", "172.20.0.0/16", "rules"}
    assert faults["tag:train"]["remedy"] == 'Add to tagOwners: "tag:train": ["tag:tgp"]'
    assert faults["172.20.0.0/16"]["remedy"] == 'Add to autoApprovers.routes: "172.20.0.0/16": ["tag:train"]'
    snippet = told["policy_snippet"]
    snippet["tagOwners"]["tag:cp"] = []  # the control planes' own tag is not ours to give
    place.tailnet.policy = Policy(json.dumps(snippet))
    assert place.run(tailscale_policy_info, **MISSING)["ok"] is True


def test_a_tag_of_another_owner_names_the_client_s_tags(place: Place) -> None:
    place.tailnet.by_secret(place.world.secrets["TS_OAUTH_CLIENT_SECRET"]).scopes.append("oauth_keys:read")  # type: ignore[union-attr]
    told = place.run(tailscale_policy_info, tags=["tag:k8s-operator"])
    (fault,) = told["problems"]
    assert "carries tag:tgp" in fault["problem"] and '"tag:k8s-operator": ["tag:tgp"]' in fault["remedy"]


def test_a_route_that_we_cannot_read_hides_no_other(place: Place) -> None:
    policy = {"tagOwners": {"tag:tgp": [], "tag:gpu": ["tag:tgp"]}, "acls": [], "autoApprovers": {}}
    policy["autoApprovers"] = {"routes": {"ipset:prod": ["tag:gpu"], "10.4.0.1/16": ["tag:gpu"]}}
    place.tailnet.policy = Policy(json.dumps(policy))
    assert place.run(tailscale_policy_info, tags=["tag:gpu"], advertise_routes=["10.4.7.0/24"])["problems"] == []
    (fault,) = place.run(tailscale_policy_info, tags=["tag:gpu"], advertise_routes=["10.5.0.0/24"])["problems"]
    assert fault["subject"] == "10.5.0.0/24"


def test_a_page_that_is_no_answer_is_no_passed_test(place: Place) -> None:
    """The service answers 200 also to tests that fail, and with nothing to those that pass."""
    place.faults.add({"kind": "body", "path": "/acl/validate", "body": "<html>please log in</html>"})
    told = place.run(tailscale_policy_info, tags=["tag:gpu"], control_planes="tag:cp")
    assert "does not try it out" in told["unseen"][0]
    told = place.run(tailscale_policy_info, tags=["tag:gpu"], control_planes="tag:cp")
    assert told["ok"] is False and told["unseen"] == []


def test_what_cannot_be_seen_is_said_and_is_no_fault(place: Place) -> None:
    place.tailnet.by_secret(place.world.secrets["TS_OAUTH_CLIENT_SECRET"]).scopes.remove("policy_file:read")  # type: ignore[union-attr]
    told = place.run(tailscale_policy_info)
    assert told["ok"] is True and "policy_file:read" in told["unseen"][0]


@pytest.mark.parametrize("profile", ["headscale", HEADSCALE_V1])
def test_headscale_in_both_apis(profile: str) -> None:
    place = build(profile)
    place.tailnet.policy = Policy(DEFAULT)
    own = {**dict.fromkeys(place.oauth(), ""), "tailscale_api_token": place.world.secrets["TAILSCALE_API_KEY"]}
    told = place.run(tailscale_policy_info, **own, tailscale_api_url="https://hs.example", **MISSING)
    assert {one["subject"] for one in told["problems"]} == {"tag:train", "172.20.0.0/16"}
    assert "does not try it out" in told["unseen"][0] and told["policy_snippet"]["tests"]


def test_settings_that_say_the_policy_is_kept_elsewhere(place: Place) -> None:
    place.tailnet.settings["aclsExternallyManagedOn"] = True
    assert any("kept elsewhere" in text for text in place.run(tailscale_policy_info)["unseen"])


@pytest.mark.parametrize(("option", "value"), [("tags", ["gpu"]), ("advertise_routes", ["10.0.0.1/8"])])
def test_bad_input_is_refused_before_anything_is_sent(place: Place, option: str, value: list[str]) -> None:
    assert place.run(tailscale_policy_info, **{option: value})["failed"] and not place.calls
