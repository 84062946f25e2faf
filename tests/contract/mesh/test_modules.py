# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules, called as the action plugin calls them."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.modules import (
    tailscale_device,
    tailscale_device_info,
    tailscale_key,
    tailscale_policy_info,
)

from tests.contract.mesh.conftest import Place, build

ONE, TWO = "tgp-a1b2c3d4-training-0k3zq", "tgp-a1b2c3d4-training-9zz01"
TAGS = ["tag:gpu"]


def documented(module: t.Any, name: str) -> set[str]:
    return set(yaml.safe_load(module.RETURN)[name]["contains"])


def joined(place: Place, *names: str) -> list[str]:
    made = place.run(tailscale_key, nodes=list(names), tags=TAGS)
    return [place.tailnet.join(one["key"], one["node"]).node_id for one in made["tailscale_keys"]]


# ---- tailscale_key


def test_keys_are_made_once_for_many_nodes(place: Place) -> None:
    first = place.run(tailscale_key, nodes=[ONE, TWO, ONE], tags=TAGS)
    assert first["changed"] and [one["node"] for one in first["tailscale_keys"]] == [ONE, TWO]
    assert all(one["key"].startswith("tskey-auth-") and one["status"] == "made" for one in first["tailscale_keys"])
    assert set(first["tailscale_keys"][0]) == documented(tailscale_key, "tailscale_keys")
    again = place.run(tailscale_key, nodes=[ONE, TWO], tags=TAGS)
    assert not again["changed"] and [(one["key"], one["status"]) for one in again["tailscale_keys"]] == [(None, "exists")] * 2
    assert [one["id"] for one in again["tailscale_keys"]] == [one["id"] for one in first["tailscale_keys"]]


def test_revealed_key_really_lets_a_machine_in(place: Place) -> None:
    joined(place, ONE)
    assert [device.hostname for device in place.tailnet.devices()] == [ONE]


def test_renew_replaces(place: Place) -> None:
    old = place.run(tailscale_key, nodes=[ONE], tags=TAGS)["tailscale_keys"][0]
    new = place.run(tailscale_key, nodes=[ONE], tags=TAGS, renew=True)["tailscale_keys"][0]
    assert [key.id for key in place.tailnet.live_keys()] == [new["id"]] and new["id"] != old["id"]


def test_used_or_expired_key_counts_as_none(place: Place) -> None:
    joined(place, ONE)
    assert place.run(tailscale_key, nodes=[ONE], tags=TAGS)["changed"]
    place.world.clock.advance(3601)
    assert place.run(tailscale_key, nodes=[ONE], tags=TAGS)["changed"]


def test_key_check_mode_and_diff(place: Place) -> None:
    plan = place.run(tailscale_key, nodes=[ONE], tags=TAGS, check=True, diff=True)
    assert plan["changed"] and plan["tailscale_keys"][0]["key"] is None and place.tailnet.live_keys() == []
    assert plan["diff"] == {"before": {}, "after": {f"tgp {ONE}": "a new key"}}
    place.run(tailscale_key, nodes=[ONE], tags=TAGS)
    gone = place.run(tailscale_key, state="absent", nodes=[ONE], check=True, diff=True)
    assert gone["changed"] and len(place.tailnet.live_keys()) == 1
    assert list(gone["diff"]["before"]) == [f"tgp {ONE}"] and gone["diff"]["after"] == {}
    real = place.run(tailscale_key, nodes=[TWO], tags=TAGS, diff=True)
    assert real["tailscale_keys"][0]["key"] not in str(real["diff"])


def test_revoking_by_node_and_by_id_is_idempotent(place: Place) -> None:
    made = place.run(tailscale_key, nodes=[ONE, TWO], tags=TAGS)["tailscale_keys"]
    gone = place.run(tailscale_key, state="absent", nodes=[ONE], ids=[made[1]["id"]])
    assert gone["changed"] and {one["id"] for one in gone["tailscale_keys"]} == {one["id"] for one in made}
    assert place.tailnet.live_keys() == []
    again = place.run(tailscale_key, state="absent", nodes=[ONE], ids=[made[1]["id"]])
    assert not again["changed"] and again["tailscale_keys"] == []


def test_one_failing_key_does_not_stop_the_others(place: Place) -> None:
    place.faults.add({"kind": "status", "status": 400, "method": "POST", "path": "/keys$", "body": {"message": "keys: odd"}})
    result = place.run(tailscale_key, nodes=[ONE, TWO], tags=TAGS)
    assert result["failed"] and sorted(one["status"] for one in result["tailscale_keys"]) == ["failed", "made"]
    (made,) = [one for one in result["tailscale_keys"] if one["status"] == "made"]
    assert made["key"].startswith("tskey-auth-") and made["key"] not in result["msg"]


def test_missing_credential_names_options_and_variables(place: Place) -> None:
    result = place.run(tailscale_key, nodes=[ONE], tags=TAGS, tailscale_oauth_client_id=None, tailscale_oauth_client_secret=None)
    assert result["failed"] and result["error"]["kind"] == "invalid_input"
    for word in ("tailscale_oauth_client_id", "TS_OAUTH_CLIENT_SECRET", "TAILSCALE_API_KEY"):
        assert word in result["msg"]


# ---- tailscale_device


def test_devices_go_and_stay_gone(place: Place) -> None:
    ids = joined(place, ONE, TWO)
    plan = place.run(tailscale_device, state="absent", hostnames=[ONE, TWO], tags=TAGS, check=True, diff=True)
    assert (
        plan["changed"] and len(place.tailnet.devices()) == 2 and len(plan["diff"]["before"]) == 2 and plan["diff"]["after"] == {}
    )
    real = place.run(tailscale_device, state="absent", hostnames=[ONE, TWO], tags=TAGS)
    assert real["changed"] and sorted(real["removed"]) == sorted(ids) and place.tailnet.devices() == []
    again = place.run(tailscale_device, state="absent", hostnames=[ONE], ids=ids)
    assert not again["changed"] and not again.get("failed")


def test_removal_by_hostname_spares_other_tags_and_shared_in_devices(place: Place) -> None:
    joined(place, ONE)
    place.tailnet.add_device(ONE, tags=["tag:k8s-cp"])
    place.tailnet.add_device(ONE, external=True)
    token = {"tailscale_api_token": place.world.secrets["TAILSCALE_API_KEY"]}
    params = {"tailscale_oauth_client_id": None, "tailscale_oauth_client_secret": None, **token}
    result = place.run(tailscale_device, state="absent", hostnames=[ONE], tags=TAGS, **params)
    assert len(result["removed"]) == 1 and len(place.tailnet.devices()) == 2


def test_all_devices_of_a_hostname_go_with_the_suffixed_one(place: Place) -> None:
    joined(place, ONE)
    joined(place, ONE)
    assert sorted(device.label for device in place.tailnet.devices()) == [ONE, f"{ONE}-1"]
    assert len(place.run(tailscale_device, state="absent", hostnames=[ONE])["removed"]) == 2


def test_device_is_brought_to_what_is_wanted(place: Place) -> None:
    (device_id,) = joined(place, ONE)
    wanted = {"hostnames": [ONE], "tags": ["tag:gpu", "tag:k8s"], "authorized": True, "key_expiry": True}
    plan = place.run(tailscale_device, check=True, **wanted)
    assert plan["changed"] and plan["devices"][0]["tags"] == ["tag:gpu", "tag:k8s"] and place.tailnet.devices()[0].tags == TAGS
    real = place.run(tailscale_device, diff=True, **wanted)
    assert (
        real["changed"]
        and real["devices"][0]["key_expiry"] is True
        and set(real["devices"][0]) == documented(tailscale_device, "devices")
    )
    assert place.tailnet.devices()[0].tags == ["tag:gpu", "tag:k8s"]
    assert not place.run(tailscale_device, **wanted)["changed"]
    assert not place.run(tailscale_device, ids=[device_id], tags=["tag:k8s", "tag:gpu"])["changed"]


def test_a_call_that_changes_nothing_is_no_change() -> None:
    """headscale says yes to a device's key that shall expire, and does nothing."""
    place = build("headscale")
    made = place.run(tailscale_key, nodes=[ONE], tags=TAGS, tailscale_api_url="https://hs.example")
    place.tailnet.join(made["tailscale_keys"][0]["key"], ONE)
    wanted = {"hostnames": [ONE], "tailscale_api_url": "https://hs.example"}
    result = place.run(tailscale_device, **wanted, key_expiry=True)
    assert result["failed"] and not result.get("changed") and "left the expiry of its key as it was" in result["msg"]
    assert not place.run(tailscale_device, **wanted, key_expiry=False).get("failed")


def test_missing_device_fails_after_the_others_are_done(place: Place) -> None:
    joined(place, ONE)
    result = place.run(tailscale_device, hostnames=[TWO, ONE], tags=["tag:k8s"])
    assert result["failed"] and TWO in result["msg"] and place.tailnet.devices()[0].tags == ["tag:k8s"]


def test_suffixed_device_is_pointed_out(place: Place) -> None:
    (first,) = joined(place, ONE)
    joined(place, ONE)
    place.tailnet.set_online(first, False)
    result = place.run(tailscale_device, hostnames=[ONE], authorized=True)
    assert result["devices"][0]["suffixed"] and any("address" in text for text in place.warnings)


def test_approval(place: Place) -> None:
    place.tailnet.settings["devicesApprovalOn"] = True
    joined(place, ONE)
    assert place.tailnet.devices()[0].authorized  # our keys are preauthorised
    place.tailnet.devices()[0].authorized = False
    assert place.run(tailscale_device_info)["devices"][0]["problem"]
    assert place.run(tailscale_device, hostnames=[ONE], authorized=True)["changed"] and place.tailnet.devices()[0].authorized


# ---- tailscale_device_info


def test_info_filters(place: Place) -> None:
    one, _two = joined(place, ONE, TWO)
    place.tailnet.add_device("control-plane", tags=["tag:k8s-cp"])
    place.tailnet.set_online(one, False)

    def names(**params: t.Any) -> list[str]:
        result = place.run(tailscale_device_info, **params)
        assert result["changed"] is False
        return [device["hostname"] for device in result["devices"]]

    assert names() == ["control-plane", ONE, TWO]
    assert names(prefix="tgp-a1b2c3d4-") == [ONE, TWO]
    assert names(tags=["tag:k8s-cp"]) == ["control-plane"]
    assert names(hostnames=[TWO.upper()]) == [TWO]
    assert names(offline_for=600) == []
    place.world.clock.advance(700)
    assert names(offline_for=600) == [ONE]
    assert set(place.run(tailscale_device_info)["devices"][0]) == documented(tailscale_device_info, "devices")


@pytest.mark.parametrize("module", [tailscale_key, tailscale_device, tailscale_device_info, tailscale_policy_info])
def test_options_are_documented_and_examples_parse(module: t.Any) -> None:
    from ansible_collections.tgp.gpu.plugins.doc_fragments.tailscale import ModuleDocFragment

    own = set(yaml.safe_load(module.DOCUMENTATION)["options"])
    shared = set(yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"])
    assert own | shared == set(module.SPEC["argument_spec"])
    for example in yaml.safe_load(module.EXAMPLES):
        for arguments in [value for key, value in example.items() if key.startswith("tgp.gpu.")]:
            assert set(arguments) <= own
