# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that our module made lets a real Tailscale client into a real headscale; our module finds the device and removes it."""

from __future__ import annotations

import json
import re
import time
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import Findings
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.log_patterns import meaning
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import diagnose
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.base import find_device
from ansible_collections.tgp.gpu.plugins.modules import (
    tailscale_device,
    tailscale_device_info,
    tailscale_key,
    tailscale_policy_info,
)

from sandbox.tailnet import HEADSCALE_V1, JoinRefused
from tests.contract.mesh.conftest import build

from .conftest import Hand
from .mesh import Server

TAGS = ["tag:gpu"]


def key_for(hand: Hand, name: str, **options: int) -> dict[str, str]:
    made = hand.run(tailscale_key, nodes=[name], tags=TAGS, **dict[str, t.Any](options))
    assert made["changed"] is True
    return dict(made["tailscale_keys"][0])


def devices(hand: Hand, name: str) -> list[dict[str, object]]:
    return list(hand.run(tailscale_device_info, hostnames=[name], tags=TAGS)["devices"])


def test_S0_key_enrols_a_real_client_that_is_found_and_removed(server: Server, hand: Hand) -> None:
    name = "tgp-a1b2c3d4-training-0k3zq"
    assert "works" in hand.mesh.check(TAGS)
    key = key_for(hand, name)
    now = SystemClock().now()
    assert find_device(hand.mesh.devices(), hostname=name, tags=TAGS, created_after=now).device is None
    assert [one.invalid for one in hand.mesh.keys() if one.id == key["id"]] == [False]

    node = server.node()
    assert node.up(key["key"], name) == ""
    (device,) = devices(hand, name)
    assert device["online"] is True and device["ephemeral"] is True and device["suffixed"] is False
    assert device["tags"] == TAGS and device["addresses"][0] == node.address()  # type: ignore[index]
    found = find_device(hand.mesh.devices(), hostname=name, tags=TAGS, created_after=now, ephemeral=True)
    assert found.device is not None and not found.stale and not found.suffixed
    assert [one.invalid for one in hand.mesh.keys() if one.id == key["id"]] == [True]

    # the key is over once it was used; taking it back leaves the device where and what it is
    assert hand.run(tailscale_key, state="absent", ids=[key["id"]])["changed"] is False
    assert devices(hand, name)[0]["ephemeral"] is True

    assert hand.run(tailscale_device, state="absent", hostnames=[name], tags=TAGS, check=True)["changed"] is True
    assert devices(hand, name)
    assert hand.run(tailscale_device, state="absent", hostnames=[name], tags=TAGS)["removed"] == [device["id"]]
    assert devices(hand, name) == []
    assert hand.run(tailscale_device, state="absent", hostnames=[name], tags=TAGS)["changed"] is False


def test_used_expired_foreign_and_malformed_keys_are_told_apart(server: Server, hand: Hand) -> None:
    used, revoked, short, tagged = (key_for(hand, f"tgp-keys-{word}")["key"] for word in ("used", "gone", "short", "tags"))
    assert server.node().up(used, "tgp-keys-used") == ""
    listed = sorted(hand.mesh.keys(), key=lambda key: int(key.id))
    hand.run(tailscale_key, state="absent", ids=[listed[-3].id])  # the second of the four
    brief = key_for(hand, "tgp-keys-brief", expiry_seconds=1)["key"]
    time.sleep(1.2)

    logged = []
    for key, flags, cause, code in (
        (used, (), "key_used", "used_key"),
        (revoked, (), "key_expired", "expired_key"),  # revoking means expiring: headscale has no other word for it
        (brief, (), "key_expired", "expired_key"),
        (short[:-20], (), "key_malformed", "mesh_login_refused"),
        ("hskey-auth-0123456789ab-" + "f" * 64, (), "key_unknown", "mesh_login_refused"),
        (tagged, ("--advertise-tags=tag:k8s-cp",), "tags", "tag_not_permitted"),
    ):
        late = server.node()  # one that was refused before may say the words of that refusal again
        words = late.up(key, "tgp-keys-late", *flags, seconds=10)
        told = meaning(words)
        assert told is not None and told.cause == cause, f"{cause}: {words}"
        findings = Findings(
            "tgp-keys-late", SystemClock().now(), uses_mesh=True, console=tuple(words.splitlines()), devices_read=True
        )
        diagnosis = diagnose(findings)
        assert diagnosis.code == code and diagnosis.remedy and key not in str(diagnosis)
        logged.append(meaning(late.child.log.read_text()))
    assert any(
        one is not None and one.quote for one in logged
    )  # the daemon's own log has the same words, though not of every attempt


def test_a_login_server_that_is_not_there(server: Server) -> None:
    lost = server.node()
    lost.server = "http://127.0.0.1:9"
    lost.up("hskey-auth-0123456789ab-" + "f" * 64, "tgp-lost", seconds=5)
    told = meaning(lost.child.log.read_text())
    assert told is not None and told.cause == "server", lost.child.last_words(20)


def test_a_taken_name_is_seen_by_the_mesh_s_name_and_not_by_ours(server: Server, hand: Hand) -> None:
    name = "tgp-taken"
    nodes = [server.node(), server.node()]
    for node in nodes:
        assert node.up(key_for(hand, name)["key"], name) == ""
    both = devices(hand, name)
    assert [one["hostname"] for one in both] == [name, name]
    assert sorted(bool(one["suffixed"]) for one in both) == [False, True]
    assert sorted(hand.run(tailscale_device, state="absent", hostnames=[name])["removed"]) == sorted(str(one["id"]) for one in both)


def test_S3_06_hostname_tags_ephemeral_and_routes_arrive(server: Server, hand: Hand) -> None:
    name = "tgp-routes"
    node = server.node()
    lasting = key_for(hand, name, ephemeral=False)
    assert node.up(lasting["key"], name, "--accept-routes=true", "--advertise-routes=10.9.0.0/16") == ""
    answer = httpx.get(f"{server.url}/api/v1/node", headers={"authorization": f"Bearer {server.api_key}"}, trust_env=False).json()
    (seen,) = [one for one in answer["nodes"] if one["name"] == name]
    assert seen["availableRoutes"] == ["10.9.0.0/16"] and seen["tags"] == TAGS and seen["preAuthKey"]["ephemeral"] is False
    assert node.run("debug", "prefs").stdout.count('"RouteAll": true') == 1
    hand.run(tailscale_device, state="absent", ids=[seen["id"]])


def test_S3_36_headscale_takes_the_rules_we_write(server: Server, hand: Hand) -> None:
    spec: dict[str, t.Any] = {
        "tags": TAGS,
        "control_planes": "tag:k8s-cp",
        "advertise_routes": ["10.9.0.0/16"],
        "client_tag": "tag:k8s-cp",
    }
    told = hand.run(tailscale_policy_info, **spec)
    assert [one["subject"] for one in told["problems"]] == ["10.9.0.0/16"]
    snippet = {name: part for name, part in told["policy_snippet"].items() if name != "tests"}  # those from 0.29 on
    (server.folder / "ours.json").write_text(json.dumps(snippet))
    before = httpx.get(f"{server.url}/api/v1/policy", headers={"authorization": f"Bearer {server.api_key}"}, trust_env=False).json()
    server.command("policy", "set", "--file", str(server.folder / "ours.json"))
    try:
        assert hand.run(tailscale_policy_info, **spec)["ok"] is True
    finally:
        (server.folder / "before").write_text(before["policy"])
        server.command("policy", "set", "--file", str(server.folder / "before"))


_KEY = {"ephemeral": True, "expiration": "2099-01-01T00:00:00Z", "aclTags": TAGS}
_CALLS: tuple[tuple[str, str, t.Any], ...] = (
    ("POST", "/api/v1/preauthkey", {"aclTags": []}),
    ("POST", "/api/v1/preauthkey", {"user": "77"}),
    ("POST", "/api/v1/preauthkey/expire", {"id": "77"}),
    ("DELETE", "/api/v1/preauthkey?id=77", None),
    ("GET", "/api/v1/node/77", None),
    ("GET", "/health", None),
    ("GET", "/api/v2/tailnet/-/settings", None),
)


def answers(http: httpx.Client) -> list[tuple[int, str, t.Any]]:
    """Status, type and JSON of each of the calls."""
    found = [http.request(method, path, json=body) for method, path, body in _CALLS]
    kinds = [one.headers["content-type"].partition(";")[0] for one in found]
    return [(one.status_code, kind, one.json() if "json" in kind else None) for one, kind in zip(found, kinds, strict=True)]


def test_the_sandbox_answers_as_this_server_does(server: Server) -> None:
    """Refusals, the form of keys and what a node hears of a key that is too short, side by side."""
    place = build(HEADSCALE_V1)
    inside = httpx.WSGITransport(app=place.wsgi)
    told, made = [], []
    for url, token, transport in (
        (server.url, server.api_key, None),
        ("http://sandbox", place.world.secrets["TAILSCALE_API_KEY"], inside),
    ):
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, transport=transport, trust_env=False) as http:
            told.append(
                (answers(http), http.get("/version").json()["version"], sorted(http.post("/api/v1/preauthkey", json=_KEY).json()))
            )
            key = http.post("/api/v1/preauthkey", json=_KEY).json()["preAuthKey"]
            listed = {one["id"]: one["key"] for one in http.get("/api/v1/preauthkey").json()["preAuthKeys"]}
            assert re.fullmatch(r"hskey-auth-[\w-]{12}-[\w-]{64}", key["key"]) and listed[key["id"]] == f"{key['key'][:23]}-***"
            assert re.fullmatch(r"hskey-api-[\w-]{12}-[\w-]{64}", token)
            made.append(key)
    assert told[0] == told[1]
    assert set(made[0]) == set(made[1])
    with pytest.raises(JoinRefused) as refused:
        place.tailnet.join(made[1]["key"][:-20], "tgp-short")
    assert str(refused.value) in server.node().up(made[0]["key"][:-20], "tgp-short", seconds=5)


@pytest.mark.slow
def test_S3_34_an_ephemeral_machine_that_logs_out_leaves_nothing(server: Server, hand: Hand) -> None:
    name = "tgp-leaves"
    node = server.node()
    assert node.up(key_for(hand, name)["key"], name) == ""
    assert devices(hand, name)
    node.child.stop()  # with its state in memory the client logs out when it is ended
    server.until(lambda: not devices(hand, name), "the device to go", timeout=30)
