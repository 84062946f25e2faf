# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S1-32, S3-39: machines that reach the cluster through a WireGuard hub: addresses, keys, and what the hub is to know."""

from __future__ import annotations

import base64
import gzip
import json
import re
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.conf import public_key

from sandbox.world import Machine

from .rig import Cut, Killed, Rig

HUB = {
    "endpoint": "203.0.113.10:51820",
    "publicKey": "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=",
    "network": "10.77.0.0/24",
    "addresses": "10.77.0.8/29",
    "hub": "hub-1",
}


@pytest.fixture
def tunnel(rig: Rig) -> Rig:
    rig.demo_class.pop("tailscaleConfig", None)
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
    rig.demo_class["wireguardConfig"] = dict(HUB)
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    return rig


def private_key(machine: Machine) -> str:
    """From what the machine was handed at boot."""
    files = yaml.safe_load(str(machine.payload))["write_files"]
    for file in files:
        content = file["content"]
        if str(file.get("encoding", "")).startswith("gz"):
            content = gzip.decompress(base64.b64decode(content)).decode()
        found = re.search(r"PrivateKey\s*=\s*(\S{44})", content)
        if found:
            return found[1]
    raise AssertionError("no private key was handed over")


def test_S3_39_a_machine_gets_an_address_and_a_key_of_its_own(tunnel: Rig) -> None:
    done = tunnel.rent(nodes=2)
    assert [one["result"] for one in done["machines"]] == ["launched", "launched"]
    claims = tunnel.claims()
    (hub,) = done["hubs"]
    assert (hub["host"], hub["interface"], len(hub["peers"])) == ("hub-1", "wg-tgp", 2)
    for machine in tunnel.machines():
        secret = private_key(machine)
        (peer,) = [one for one in hub["peers"] if one["name"] == machine.name]
        assert peer["public_key"] == public_key(secret)
        assert re.fullmatch(r"10\.77\.0\.(8|9|1[0-5])/32", peer["allowed_ips"][0])
        assert secret not in json.dumps([done, claims, tunnel.lines, tunnel.warnings])
    assert len({one["allowed_ips"][0] for one in hub["peers"]}) == 2
    assert not [one for one in tunnel.writes() if "tailscale" in one]


def test_S3_39_hubs_hear_of_a_machine_until_its_record_is_gone(tunnel: Rig) -> None:
    tunnel.rent()
    (peer,) = tunnel.plan("reap", check=True)["hubs"][0]["peers"]
    assert peer["name"] == tunnel.machine().name
    done = tunnel.destroy(force=True)
    cluster = peer["name"].split("-")[1]
    assert done["hubs"] == [{"host": "hub-1", "interface": "wg-tgp", "cluster_id": cluster, "peers": [], "gone": [peer["name"]]}]
    assert tunnel.plan("reap")["hubs"][0]["peers"] == []
    tunnel.advance(31 * 86400)
    assert tunnel.plan("reap", check=True)["hubs"][0]["gone"] == []


def test_S3_39_the_hub_keeps_the_peer_of_a_machine_whose_record_was_lost(tunnel: Rig) -> None:
    """An adopted machine's key is on no record; without its peer it would be cut off while it works."""
    (peer,) = tunnel.rent()["hubs"][0]["peers"]
    name, file = peer["name"], tunnel.folder / "hub.conf"
    file.write_text(f"[Interface]\n[Peer]\nPublicKey = {peer['public_key']}\nAllowedIPs = {peer['allowed_ips'][0]}\n")
    tunnel.box.hub.config, tunnel.box.hub._key = str(file), HUB["publicKey"]
    assert tunnel.join()["machines"][0]["result"] == "ready"
    tunnel.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    (hub,) = tunnel.reap()["hubs"]
    assert tunnel.claim()["peer"] is None and (hub["peers"], hub["unknown"], hub["gone"]) == ([], [name], [])
    (hub,) = tunnel.destroy(force=True)["hubs"]
    assert hub["gone"] == [name] and "unknown" not in hub


def test_L12a_another_cluster_with_the_same_id_takes_no_peer_from_a_machine(tunnel: Rig) -> None:
    """Its store has no claim for the machine, and the cloud lists it: the hub keeps what it knows, and so it does while a list fails."""
    tunnel.rent()
    twin = tunnel.twin()
    (hub,) = twin.reap()["hubs"]
    assert (hub["peers"], hub["unknown"], hub.get("state")) == ([], [tunnel.machine().name], None)
    tunnel.advance(60)
    tunnel.fault("status", "lambda", "GET", "/api/v1/instances$", status=503, times=None)
    (hub,) = twin.reap()["hubs"]
    assert (hub["peers"], hub.get("unknown"), hub["state"]) == ([], None, "present")


def test_S3_39_the_documents_may_have_forgotten_the_class(tunnel: Rig) -> None:
    tunnel.rent()
    tunnel.documents = []
    (hub,) = tunnel.plan("reap", check=True)["hubs"]
    assert (hub["host"], len(hub["peers"])) == ("hub-1", 1)


def test_S3_39_an_interrupted_launch_keeps_its_address_and_gets_another_key(tunnel: Rig) -> None:
    tunnel.cut = Cut(5, after=True)  # the generation, claim, its peer, token, token's id
    with pytest.raises(Killed):
        tunnel.rent()
    tunnel.cut = None
    (before,) = tunnel.claims().values()
    assert before["peer"]["address"].startswith("10.77.0.") and before["peer"]["public_key"] and not tunnel.machines()
    tunnel.rent()
    after = tunnel.claim()
    assert after["peer"]["address"] == before["peer"]["address"]
    assert after["peer"]["public_key"] == public_key(private_key(tunnel.machine())) != before["peer"]["public_key"]


def test_S3_39_a_network_without_room_is_told_before_anything_is_rented(tunnel: Rig) -> None:
    tunnel.demo_class["wireguardConfig"]["addresses"] = "10.77.0.0/30"
    plan = tunnel.plan("provision", pools=["training"], nodes=3, check=True)
    assert [one["action"] for one in plan["plan"]].count("launch") == 2
    assert "no address is free in 10.77.0.0/30" in " ".join(plan["problems"])


def test_S1_41_a_loop_does_not_begin_where_a_hub_is_to_be_told(tunnel: Rig) -> None:
    with pytest.raises(InvalidInput, match="a loop has none"):
        tunnel.plan("autoscale", loop=True)
    tunnel.demo_class["wireguardConfig"].pop("hub")
    assert tunnel.plan("autoscale", loop=True)["hubs"] == []


# ---- a hub of which some stands in a Secret

SECRETS = "/api/v1/namespaces/tgp-system/secrets"
VALUES = {"public-key": HUB["publicKey"], "endpoint": HUB["endpoint"], "network": HUB["network"]}
REFS = {f"{field}SecretRef": {"name": "hub", "key": key} for field, key in (("publicKey", "public-key"), ("endpoint", "endpoint"))}
OTHER_ENDPOINT = "203.0.113.77:51820"


def put_secret(rig: Rig, **values: str) -> None:
    rig.kube("POST", SECRETS, {"metadata": {"name": "hub"}, "stringData": VALUES | values})


@pytest.fixture
def secret(tunnel: Rig) -> Rig:
    """The class has the hub's key and endpoint in a Secret; nobody has made it yet."""
    rest = {name: value for name, value in HUB.items() if name not in ("publicKey", "endpoint")}
    tunnel.demo_class["wireguardConfig"] = {**rest, **REFS}
    tunnel.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    return tunnel


def working(rig: Rig) -> str:
    """One usable machine behind the hub; its name."""
    (peer,) = rig.rent()["hubs"][0]["peers"]
    file = rig.folder / "hub.conf"
    file.write_text(f"[Interface]\n[Peer]\nPublicKey = {peer['public_key']}\nAllowedIPs = {peer['allowed_ips'][0]}\n")
    rig.box.hub.config, rig.box.hub._key = str(file), HUB["publicKey"]
    assert rig.join()["machines"][0]["result"] == "ready"
    return str(peer["name"])


def said(rig: Rig, result: t.Any) -> str:
    return json.dumps([result, rig.claims(), rig.lines, rig.warnings], default=str)


def refused(rig: Rig, **params: t.Any) -> str:
    """What a person is told who asks for a machine that cannot come."""
    with pytest.raises(InvalidInput) as caught:
        rig.rent(**params)
    assert not rig.machines() and rig.creates() == 0
    return "\n".join([str(caught.value), *caught.value.problems])


def test_S3_39_key_and_endpoint_come_from_a_secret(secret: Rig) -> None:
    put_secret(secret, endpoint=f"{HUB['endpoint']}\n")
    name = working(secret)
    payload = str(secret.machine().payload)
    files = " ".join(str(file["content"]) for file in yaml.safe_load(payload)["write_files"])
    texts = [files, *(gzip.decompress(base64.b64decode(one)).decode() for one in re.findall(r"H4sI[A-Za-z0-9+/=]{100,}", files))]
    assert any(HUB["endpoint"] in one and HUB["publicKey"] in one for one in texts)
    done = secret.plan("autoscale")
    secret.unlock(done["run_id"])
    assert not [one for one in done["plan"] if one["name"] == name and one["reason"] == "Drifted"] and done["problems"] == []
    assert HUB["publicKey"] not in said(secret, done)


def test_S3_39_a_secret_that_is_missing_ends_the_run_before_anything_is_rented(secret: Rig) -> None:
    told = refused(secret)
    assert "spec.wireguardConfig.endpointSecretRef: The Secret tgp-system/hub does not exist" in told
    assert "`kubectl -n tgp-system describe secret hub`" in told
    secret.kube(
        "POST", SECRETS, {"metadata": {"name": "hub"}, "stringData": {"endpoint": HUB["endpoint"], "psk": "very-secret-0001"}}
    )
    told = refused(secret)
    assert (
        "spec.wireguardConfig.publicKeySecretRef: The Secret tgp-system/hub has no key public-key. Keys there: endpoint, psk"
        in told
    )
    assert "very-secret-0001" not in said(secret, told)
    secret.kube("PATCH", f"{SECRETS}/hub", {"stringData": {"public-key": "no-key-but-a-secret"}})
    told = refused(secret)
    assert "the value of key public-key of Secret tgp-system/hub is not a WireGuard key" in told
    assert "no-key-but-a-secret" not in said(secret, told)
    secret.kube("PATCH", f"{SECRETS}/hub", {"stringData": {"public-key": HUB["publicKey"]}})
    assert secret.rent()["machines"][0]["result"] == "launched"


def test_S3_39_without_the_right_the_refusal_names_it_and_no_machine_ends(secret: Rig) -> None:
    secret.training["disruption"] = {"driftPolicy": "Replace", "consolidateAfter": "Never"}
    put_secret(secret)
    name = working(secret)
    secret.advance(3600)
    secret.fault("status", "kubernetes", "GET", "/secrets/hub$", status=403, times=None)
    for mode in ("autoscale", "reap"):
        done = secret.plan(mode)
        secret.unlock(done["run_id"])
        assert done["destroy"] == done["launch"] == [] and [machine.name for machine in secret.machines()] == [name]
        told = " ".join(done["problems"])
        assert "spec.wireguardConfig.endpointSecretRef: " in told and "GET /api/v1/namespaces/tgp-system/secrets/hub" in told
        assert "kubectl -n tgp-system describe secret hub" in told
    (hub,) = secret.plan("reap", check=True)["hubs"]
    assert [peer["name"] for peer in hub["peers"]] == [name], "its peer stays"
    secret.run("info")
    secret.faults.clear()
    done = secret.plan("autoscale")
    secret.unlock(done["run_id"])
    assert done["problems"] == [] and done["destroy"] == []
    secret.kube("DELETE", f"{SECRETS}/hub")
    assert secret.destroy(force=True)["problems"] == [] and not secret.machines(), "who ends a machine needs no hub"


def test_S3_39_a_changed_value_is_drift_as_a_changed_document_is(secret: Rig) -> None:
    put_secret(secret)
    name = working(secret)

    def drifted() -> bool:
        plan = secret.plan("autoscale", check=True)
        return any(one["name"] == name and one["reason"] == "Drifted" for one in plan["plan"])

    assert not drifted()
    secret.demo_class["wireguardConfig"] = dict(HUB)
    assert not drifted(), "the same values in the document make the same machine"
    secret.demo_class["wireguardConfig"] = {**HUB, "endpoint": OTHER_ENDPOINT}
    assert drifted()
    secret.demo_class["wireguardConfig"] = {
        name: value for name, value in {**HUB, **REFS}.items() if name not in ("publicKey", "endpoint")
    }
    secret.kube("PATCH", f"{SECRETS}/hub", {"stringData": {"endpoint": OTHER_ENDPOINT}})
    assert drifted()


def test_S3_39_a_secret_that_goes_between_plan_and_apply_stops_the_launch(secret: Rig) -> None:
    put_secret(secret)
    file = str(secret.folder / "plan.json")
    secret.plan("provision", pools=["training"], nodes=1, save_to=file)
    secret.kube("DELETE", f"{SECRETS}/hub")
    with pytest.raises(InvalidInput) as caught:
        secret.run("apply", file=file)
    assert "The Secret tgp-system/hub does not exist" in "\n".join([str(caught.value), *caught.value.problems])
    put_secret(secret)
    plan = secret.plan("provision", pools=["training"], nodes=1)
    secret.kube("DELETE", f"{SECRETS}/hub")
    done = secret.run("launch", plan["run_id"])
    secret.unlock(plan["run_id"])
    assert "The Secret tgp-system/hub does not exist" in " ".join(done["problems"]) and not secret.machines()


def test_S3_39_validate_reads_the_secret_or_says_that_it_did_not(secret: Rig) -> None:
    def checks(**params: t.Any) -> dict[str, dict[str, t.Any]]:
        try:
            found = secret.run("validate", **params)["checks"]
        except InvalidInput as error:
            found = error.result["checks"]  # type: ignore[attr-defined]
        return {one["what"]: one for one in found}

    missing = checks()["hub of demo"]
    assert missing["status"] == "NO" and "The Secret tgp-system/hub does not exist" in missing["message"]
    secret.run("validate", only="device plugin")
    put_secret(secret)
    found = checks()
    assert found["hub of demo"]["message"] == f"public key and endpoint {HUB['endpoint']}; read from Secret tgp-system/hub"
    assert found["rights"]["ok"] and found["template of demo"]["ok"]
    secret.fault("status", "kubernetes", "GET", "", status=503, times=None)
    alone = checks()["cluster"]
    assert alone["status"] == "NO" and "Nor were the WireGuard hubs in Secret tgp-system/hub read." in alone["message"]


def test_S3_08_the_settings_of_tgp_operator_rent_a_machine_as_they_stand(secret: Rig) -> None:
    """Its Secret has a private key, which no machine gets."""
    private = "gI6EdUSYvn8ugXOt8QQD6Yc+JyiZxIhp3GInSWRfWGE="
    del secret.demo_class["wireguardConfig"]
    keys = {"privateKey": "private-key", "publicKey": "public-key", "serverEndpoint": "endpoint", "address": "address"}
    section = {f"{field}SecretRef": {"name": "hub", "key": key} for field, key in keys.items()}
    secret.demo_class.setdefault("talosConfig", {})["wireGuardConfig"] = {**section, "allowedIPs": ["10.77.0.0/24"]}
    put_secret(secret, **{"private-key": private, "address": "10.77.0.2/24"})
    done = secret.rent()
    assert done["machines"][0]["result"] == "launched" and done["hubs"] == [], "it names no hub of the inventory"
    assert private_key(secret.machine()) != private and private not in said(secret, done) + str(secret.machine().payload)
    assert secret.claim()["peer"]["address"].startswith("10.77.0.")
    assert any("is the section of tgp-operator, which tgp.gpu reads until version 1.0" in text for text in secret.warnings)
