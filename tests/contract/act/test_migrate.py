# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3-30, S3-40: passes of migrate.yml, one after the other, both ways between a WireGuard hub and a tailnet, with a pod at work."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox.hub import public_key

from .rig import Rig
from .test_autoscale import ask, runs, state
from .test_surge import replacements, rows, watch_the_cordon

HUB_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8="
HUB = {
    "endpoint": "203.0.113.10:51820",
    "publicKey": public_key(HUB_KEY),
    "network": "10.77.0.0/24",
    "addresses": "10.77.0.8/29",
    "hub": "hub-1",
}
POD = "/api/v1/namespaces/default/pods/{}"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Site:
    """A cluster with a tailnet and a hub. ``hub_is_up`` False: nobody updates the hub's file."""

    def __init__(self, rig: Rig, file: Path) -> None:
        self.rig, self.file, self.hub_is_up = rig, file, True
        self.tailnet = copy.deepcopy(rig.demo_class["tailscaleConfig"])
        self.hubs([])
        rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
        rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]

    def enter(self, mesh: str) -> None:
        """The class's mesh from now on."""
        spec = self.rig.demo_class
        spec.pop("wireguardConfig", None)
        spec.pop("tailscaleConfig", None)
        field, config = ("wireguardConfig", HUB) if mesh == "wireguard" else ("tailscaleConfig", self.tailnet)
        spec[field] = copy.deepcopy(config)

    def hubs(self, hubs: t.Sequence[dict[str, t.Any]]) -> None:
        """What role hub does."""
        peers = [peer for hub in hubs for peer in hub["peers"]]
        blocks = [f"[Peer]\nPublicKey = {one['public_key']}\nAllowedIPs = {one['allowed_ips'][0]}\n" for one in peers]
        head = f"[Interface]\nPrivateKey = {HUB_KEY}\nAddress = 10.77.0.1/24\nListenPort = 51820\n\n"
        if self.hub_is_up:
            self.file.write_text(head + "\n".join(blocks))

    def step(self, **params: t.Any) -> dict[str, t.Any]:
        """One pass without waiting; what it planned."""
        plan = self.rig.plan("autoscale", **params)
        try:
            names = plan["launch"] + plan["destroy"]
            done = self.rig.run("scale", plan["run_id"], names=names, only_named=True, orphans=plan["orphans"])
            if done["hubs"]:  # as role hub does: a hub that is not named is not told
                self.hubs(done["hubs"])
            self.rig.run("join", plan["run_id"], names=plan["join"], wait=False)
        finally:
            self.rig.unlock(plan["run_id"])
        return plan

    def migrate(self, passes: int = 60) -> dict[str, t.Any]:
        """Passes until every machine has moved; the last one's plan. Never more than one machine beyond what is asked for."""
        for _pass in range(passes):
            plan = self.step(migrate=True)
            assert len(self.rig.machines()) <= 2
            if not plan["migration"]["unfinished"]:
                return plan
            self.rig.advance(20)
        raise AssertionError(f"not all have moved: {plan['migration']}")


@pytest.fixture
def site(build: t.Callable[..., Rig], tmp_path: Path) -> Site:
    file = tmp_path / "hub.conf"
    file.write_text("")
    return Site(build(wireguard={"hub_config": str(file)}), file)


def busy(site: Site, mesh: str) -> str:
    """One usable machine in this mesh with a pod at work, old enough to go; its name."""
    rig = site.rig
    site.enter(mesh)
    ask(rig, "train", labels={"app": "train"})
    for _pass in range(80):
        site.step()
        if state(rig, "train")[0] == "Running" and rig.claim()["phase"] == "Ready":
            rig.advance(1200)
            return str(rig.claim()["name"])
        rig.advance(20)
    raise AssertionError("it never became usable")


def guard(rig: Rig) -> None:
    """A PodDisruptionBudget that lets the pod not go."""
    body = {"metadata": {"name": "train"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}}
    rig.kube("POST", BUDGETS, body)


@pytest.mark.parametrize(("here", "there"), [("wireguard", "tailscale"), ("tailscale", "wireguard")])
def test_S3_30_a_busy_machine_moves_when_its_replacement_is_usable(site: Site, here: str, there: str) -> None:
    rig, old = site.rig, busy(site, here)
    assert rig.claims()[old]["mesh_backend"] == here
    site.enter(there)
    quiet = site.step()
    assert quiet["launch"] == quiet["destroy"] == [], "autoscale.yml migrates nothing"
    guard(rig)
    seen = watch_the_cordon(rig, old)
    looked = rig.plan("autoscale", check=True, migrate=True)
    (row,) = looked["migration"]["machines"]
    assert (row["mesh"], row["wanted"], row["state"]) == (here, there, "waits for its replacement") and rig.creates() == 1

    first = site.step(migrate=True)
    (detail,) = rows(first, "launch", "Replacement")
    assert detail.endswith(f"replaces {old}, which was in mesh {here}, and its class says {there}")
    for _pass in range(60):
        rig.advance(20)
        site.step(migrate=True)
        if rig.claims()[old]["blocked_until"]:
            break
    node = seen[0]
    (new,) = replacements(rig, old)
    ready = next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert node["metadata"]["name"] == new and ready == "True", "usable before the old one is cordoned"
    assert rig.claims()[old]["blocked_until"] and state(rig, "train")[0] == "Running", "its budget keeps the pod"
    kept = rig.plan("autoscale", check=True, migrate=True)["migration"]
    assert "its drain was blocked" in kept["kept"][old] and kept["moved"] == 1 and not kept["under_way"]

    rig.kube("DELETE", f"{BUDGETS}/train")
    rig.advance(3600)
    ask(rig, "successor")  # what its controller makes in its place finds room at once
    runs(rig, "successor")
    last = site.migrate()
    assert rig.kube("GET", POD.format("successor"))["spec"]["nodeName"] == new and list(rig.claims()) == [new]
    assert rig.claims()[new]["mesh_backend"] == there and rig.creates() == 2
    (line,) = rig.ledger()
    assert line["reason"] == "Drifted" and last["migration"]["moved"] == 1
    before = rig.writes()
    again = site.step(migrate=True)
    assert not again["changed"] and rig.writes() == before
    rig.check_bill()


def test_S3_30_the_hub_forgets_the_last_machine_of_a_class_that_left_it(site: Site) -> None:
    old = busy(site, "wireguard")
    assert old in {peer["name"] for hub in site.rig.plan("autoscale", check=True)["hubs"] for peer in hub["peers"]}
    assert "[Peer]" in site.file.read_text()
    site.enter("tailscale")
    site.rig.kube("DELETE", POD.format("train"))
    site.migrate()
    assert "[Peer]" not in site.file.read_text()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("earlier", "number"), [(0, 1), (0, 2), (0, 4), (1, 1), (2, 1), (2, 3), (4, 1), (6, 2)])
def test_S3_30_a_migration_that_is_killed_goes_on(site: Site, earlier: int, number: int, after: bool) -> None:
    """State is in the claims: the same command makes one replacement of the machine, and ends it."""
    rig, old = site.rig, busy(site, "wireguard")
    site.enter("tailscale")
    for _pass in range(earlier):
        site.step(migrate=True)
        rig.advance(20)
    with rig.killed_at(number, after=after):
        site.step(migrate=True)
    rig.advance(60)
    if old in rig.claims():
        site.step()  # a run of autoscale.yml in between keeps the pair as it is
        assert len(replacements(rig, old)) <= 1
    rig.advance(60)
    site.migrate()
    (claim,) = rig.claims().values()
    assert (claim["replaces"], claim["mesh_backend"]) == (old, "tailscale") and rig.creates() == 2


def test_S3_30_a_hub_that_is_down_ends_no_machine(site: Site) -> None:
    rig, old = site.rig, busy(site, "tailscale")
    site.enter("wireguard")
    site.hub_is_up = False
    for _pass in range(12):
        found = site.step(migrate=True)
        rig.advance(20)
    assert old in rig.claims() and rig.claims()[old]["deletion"] is None and state(rig, "train")[0] == "Running"
    assert found["migration"]["under_way"] and found["destroy"] == []
    site.hub_is_up = True
    site.migrate()
    assert old not in rig.claims()


def test_S3_30_without_room_in_the_limits_nothing_moves_and_the_reason_says_so(site: Site) -> None:
    rig, old = site.rig, busy(site, "wireguard")
    site.enter("tailscale")
    rig.training["limits"] = {"maxNodes": 1}
    found = site.step(migrate=True)
    assert found["launch"] == found["destroy"] == []
    assert found["migration"]["kept"] == {
        old: "no replacement can be launched: limit:pool.maxNodes (disruption.surge: false lets it go first; its pods wait meanwhile)"
    }
    rig.training["disruption"]["surge"] = False
    assert site.step(migrate=True)["destroy"] == [old]


def test_S3_30_a_paused_pool_stays_and_goes_on_when_it_is_resumed(site: Site) -> None:
    rig, old = site.rig, busy(site, "wireguard")
    site.enter("tailscale")
    rig.run("pause", state="paused", pools=["training"], classes=[])
    found = site.step(migrate=True)
    assert found["launch"] == found["destroy"] == [] and "paused" in found["migration"]["kept"][old]
    rig.run("pause", state="resumed", pools=["training"], classes=[])
    site.migrate()
    assert old not in rig.claims()


def test_S3_39_a_class_whose_hub_cannot_be_read_takes_no_machine_in_and_ends_none(site: Site) -> None:
    rig, old = site.rig, busy(site, "tailscale")
    site.enter("wireguard")
    hub = rig.demo_class["wireguardConfig"]
    values = {"public-key": hub.pop("publicKey"), "endpoint": hub.pop("endpoint")}
    hub |= {
        f"{field}SecretRef": {"name": "hub", "key": key} for field, key in (("publicKey", "public-key"), ("endpoint", "endpoint"))
    }
    for _pass in range(3):
        found = site.step(migrate=True)
        assert (
            found["launch"] == found["destroy"] == []
            and "The Secret tgp-system/hub does not exist" in found["migration"]["kept"][old]
        )
        assert "The Secret tgp-system/hub does not exist" in " ".join(found["problems"])
        rig.advance(600)
    rig.kube("POST", "/api/v1/namespaces/tgp-system/secrets", {"metadata": {"name": "hub"}, "stringData": values})
    assert rig.claim()["name"] == old
    site.migrate()
    assert old not in rig.claims() and rig.claim()["mesh_backend"] == "wireguard"


def test_S3_40_only_pools_that_are_named_move_and_a_wrong_name_is_refused(site: Site) -> None:
    busy(site, "wireguard")
    site.enter("tailscale")
    with pytest.raises(InvalidInput, match=r"There is no pool trainnig among the documents"):
        site.rig.plan("autoscale", check=True, migrate=True, migrate_pools=["trainnig"])
    with pytest.raises(InvalidInput, match="migrate cannot be used in mode reap"):
        site.rig.plan("reap", check=True, migrate=True)
    with pytest.raises(InvalidInput, match="no effect without migrate"):
        site.rig.plan("autoscale", check=True, migrate_pools=["training"])
    for name in ("training", "default/training"):
        assert len(site.rig.plan("autoscale", check=True, migrate=True, migrate_pools=[name])["launch"]) == 1
