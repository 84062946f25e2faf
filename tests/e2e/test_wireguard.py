# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class whose machines come through a WireGuard hub: the playbooks tell the hub, the machines join, and their peers go with them."""

from __future__ import annotations

import copy
import dataclasses
import os
import stat
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from sandbox.hub import public_key
from tests.fixtures.demo import demo_documents

from .box import Sandbox, by_name

HUB_KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHl8="
OWN = """[Interface]
# the hub itself
PrivateKey = {key}
Address = 10.77.0.1/24
ListenPort = 51820

[Peer]
# a laptop, nobody else's business
PublicKey = c9n3cWWwP0rqF2brMs++lHzbKjOSRDEOj3xn4MpGBAM=
AllowedIPs = 10.77.0.2/32
"""


@dataclasses.dataclass
class Site:
    """A sandbox with a hub: ``file`` is the hub's, ``documents`` a class that uses it."""

    sandbox: Sandbox
    file: Path
    inventory: Path
    documents: list[dict[str, t.Any]]

    def play(self, name: str, *arguments: str, **variables: t.Any) -> t.Any:
        extra = {"hub_config_file": str(self.file), "hub_apply": False, **variables}
        return self.sandbox.playbook(name, "-i", str(self.inventory), *arguments, documents=self.documents, extra_vars=extra)

    def peers(self) -> list[str]:
        """Machine names of the hub's file."""
        return [line.split()[2] for line in self.file.read_text().splitlines() if line.startswith("# tgp:")]


@pytest.fixture(scope="module")
def site(start: t.Callable[..., Sandbox], tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("hub")
    file, inventory, scenario = folder / "wg-tgp.conf", folder / "hosts.yml", folder / "scenario.yaml"
    file.write_text(OWN.format(key=HUB_KEY))
    file.chmod(0o600)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"localhost": local, "hub-1": local}}}))
    offers = [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 9, "boot": 20}]
    scenario.write_text(yaml.safe_dump({"lambda": offers, "wireguard": {"hub_config": str(file)}}))
    documents = demo_documents()
    spec = by_name(documents, "GPUNodeClass", "demo")["spec"]
    spec.pop("tailscaleConfig", None)
    spec["providers"] = [one for one in spec["providers"] if one["name"] == "lambda"]
    spec["wireguardConfig"] = {
        "endpoint": "203.0.113.10:51820", "publicKey": public_key(HUB_KEY), "network": "10.77.0.0/24", "addresses": "10.77.0.128/25",
        "hub": "hub-1",
    }  # fmt: skip
    pools = [by_name(documents, "GPUNodePool", "training")]
    return Site(start(speed=40, scenario=scenario), file, inventory, [by_name(documents, "GPUNodeClass", "demo"), *pools])


def test_S1_32_machines_join_through_the_hub_and_their_peers_go_with_them(site: Site) -> None:
    first = site.play("provision", nodes={"training": 4}).succeeded()
    claims = site.sandbox.claims()
    assert {one["phase"] for one in claims.values()} == {"Ready"} and len(claims) == 4, (
        first.text
    )  # more than leave at once unexplained
    assert sorted(site.peers()) == sorted(claims)
    addresses = {name: one["peer"]["address"].partition("/")[0] for name, one in claims.items()}
    for name, node in site.sandbox.nodes().items():
        if name in addresses:
            assert {"type": "InternalIP", "address": addresses[name]} in node["status"]["addresses"]
    text = site.file.read_text()
    assert text.startswith(OWN.format(key=HUB_KEY).rstrip()), "what is not ours stays as it was"
    assert stat.S_IMODE(os.stat(site.file).st_mode) == 0o600
    assert "older way in" in first.words

    before = site.sandbox.writes()
    again = site.play("provision", nodes={"training": 4}).succeeded()
    assert again.count("changed") == 0 and site.sandbox.writes() == before and site.file.read_text() == text

    looked = site.play("destroy", "--check", "--diff", everything=True, force=True).succeeded()
    assert site.file.read_text() == text and HUB_KEY not in looked.text
    gone = site.play("destroy", everything=True, force=True).succeeded()
    assert site.peers() == [] and "laptop" in site.file.read_text() and HUB_KEY not in gone.text
    assert set(site.sandbox.left().values()) == {0}


def without_its_hub(site: Site) -> Site:
    """The same where nothing answers at the hub's address."""
    inventory = site.inventory.with_name("unreachable.yml")
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    nowhere = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_common_args": "-o BatchMode=yes -o ConnectTimeout=2"}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"localhost": local, "hub-1": nowhere}}}))
    return dataclasses.replace(site, inventory=inventory)


def test_S1_41_a_hub_that_cannot_be_reached_is_told_before_anybody_waits_for_machines(site: Site) -> None:
    there = without_its_hub(site)
    failed = there.play("provision", nodes={"training": 1}).failed()
    assert "hub-1 cannot be reached" in failed.words and "are billed and cannot join until it is" in failed.words
    assert len(site.sandbox.claims()) == 1 and site.peers() == []
    site.play("provision", nodes={"training": 1}).succeeded()
    assert {one["phase"] for one in site.sandbox.claims().values()} == {"Ready"}
    site.play("destroy", everything=True, force=True).succeeded()
    assert set(site.sandbox.left().values()) == {0}


def test_S1_41_a_hub_that_cannot_be_reached_keeps_no_machine_of_another_class_waiting(site: Site) -> None:
    """autoscale.yml waits for nobody: a class with a tailnet gets its machines in whatever is wrong with the hub of another one."""
    ours, theirs = (copy.deepcopy(one) for one in site.documents)
    demo = by_name(demo_documents(), "GPUNodeClass", "demo")["spec"]
    ours["metadata"]["name"] = theirs["metadata"]["name"] = "tailnet"
    ours["spec"] = {**ours["spec"], "tailscaleConfig": demo["tailscaleConfig"]}
    del ours["spec"]["wireguardConfig"]
    theirs["spec"] = {**theirs["spec"], "nodeClassRef": {"kind": "GPUNodeClass", "name": "tailnet"}, "minNodes": 1}
    tunnelled = copy.deepcopy(site.documents)
    tunnelled[1]["spec"]["minNodes"] = 1
    there = dataclasses.replace(without_its_hub(site), documents=[*tunnelled, ours, theirs])
    for _run in range(12):
        failed = there.play("autoscale").failed()
        assert "hub-1 cannot be reached" in failed.words and "Say what went wrong" in failed.words
        phases = {one["pool"]: one["phase"] for one in site.sandbox.claims().values()}
        if phases.get("default/tailnet") == "Ready":
            break
        site.sandbox.pass_time(40)
    assert phases["default/tailnet"] == "Ready" and phases["default/training"] != "Ready"
    there.play("destroy", everything=True, force=True).failed()
    site.play("destroy", everything=True, force=True).succeeded()
    assert set(site.sandbox.left().values()) == {0}


def on_the_tailnet(site: Site) -> Site:
    """The same with the pool in a second class, as the guide says (docs/how_to/migrate_mesh.md)."""
    demo, pool = (copy.deepcopy(one) for one in site.documents)
    second = copy.deepcopy(demo)
    second["metadata"]["name"] = "tailnet"
    second["spec"]["tailscaleConfig"] = by_name(demo_documents(), "GPUNodeClass", "demo")["spec"]["tailscaleConfig"]
    del second["spec"]["wireguardConfig"]
    pool["spec"] |= {"nodeClassRef": {"kind": "GPUNodeClass", "name": "tailnet"}, "minNodes": 1}
    return dataclasses.replace(site, documents=[demo, pool, second])


def test_S3_30_a_pool_moves_from_the_hub_to_a_tailnet(site: Site) -> None:
    """migrate.yml: planned, begun, waited for, and a second run without a change."""
    sandbox, there = site.sandbox, on_the_tailnet(site)
    site.play("provision", nodes={"training": 1}).succeeded()
    (old,) = sandbox.claims()
    sandbox.advance(11 * 60)

    writes = sandbox.writes()
    looked = there.play("migrate", "--check", "--diff", wait=True).succeeded()
    assert sandbox.writes() == writes and list(sandbox.claims()) == [old]
    assert "wireguard tailscale waits for its replacement" in looked.words, looked.text
    unknown = there.play("migrate", pool="trainnig").failed()
    assert "There is no pool trainnig among the documents." in unknown.words and sandbox.writes() == writes

    begun = there.play("migrate", pool="training").succeeded()
    assert "0 machines have moved, 1 have not" in begun.words and len(sandbox.claims()) == 2
    moved = there.play("migrate", wait=True, migrate_interval=1).succeeded()
    (claim,) = sandbox.claims().values()
    assert (claim["mesh_backend"], claim["replaces"]) == ("tailscale", old) and site.peers() == []
    assert "1 machines have moved, 0 have not" in moved.words and "having both cost $0." in moved.words, moved.text
    writes = sandbox.writes()
    again = there.play("migrate", wait=True).succeeded()
    assert again.count("changed") == 0 and sandbox.writes() == writes
    there.play("destroy", everything=True, force=True).succeeded()
    assert set(sandbox.left().values()) == {0}
