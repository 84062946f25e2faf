# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fleet_validate says of accounts that work but will hurt later, and of those with which nothing can be launched."""

from __future__ import annotations

import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import CLAIMS, TOKENS, rights_of
from ansible_collections.tgp.gpu.plugins.module_utils.model import Hub, MeshChoice, NodeClass
from ansible_collections.tgp.gpu.plugins.module_utils.preflight import endpoint_check
from ansible_collections.tgp.gpu.plugins.module_utils.talos.releases import tables

from sandbox import device_plugin, lambda_account, vast_account

from .rig import Rig

DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"


def check(rig: Rig, what: str) -> dict[str, t.Any]:
    """One check of a run, whether the run failed or not."""
    try:
        result = rig.run("validate")
    except InvalidInput as error:
        result = error.result  # type: ignore[attr-defined]
    return next(one for one in result["checks"] if one["what"] == what)


@pytest.mark.parametrize("documents", [True, False])
def test_L17_the_device_plugin_alone_has_three_answers(build: t.Callable[..., Rig], documents: bool) -> None:
    """Without documents what selects a pool by its labels is unknown, and what tolerates no taint of ours is none all the same."""
    rig = build(device_plugin=False)
    if not documents:
        rig.documents = []
    with pytest.raises(InvalidInput, match="tolerations for .*tgp.io/ephemeral") as caught:
        rig.run("validate", only="device plugin")
    assert [one["status"] for one in caught.value.result["checks"]] == ["NO"]  # type: ignore[attr-defined]
    body = device_plugin.manifest()
    body["metadata"]["name"] = "for-one-pool"
    body["spec"]["template"]["spec"]["nodeSelector"] = (
        {"feature.node.kubernetes.io/pci-10de.present": "true"} if documents else {"tgp.io/nodepool": "x"}
    )
    rig.kube("POST", DAEMONS, body)
    [open_question] = rig.run("validate", only="device plugin")["checks"]
    assert open_question["status"] == "warn" and "kube-system/for-one-pool selects nodes by label" in open_question["warnings"][0]
    rig.kube("POST", DAEMONS, device_plugin.manifest())
    [found] = rig.run("validate", only="device plugin")["checks"]
    assert found["status"] == "ok" and "kube-system/nvidia-device-plugin-daemonset" in found["message"]
    assert ("were not compared" in found["message"]) != documents


def test_rights_are_those_of_the_playbooks_and_of_the_machines_of_the_documents(rig: Rig) -> None:
    """By default those of a whole life. Own machines that are installed for good have no bootstrap token, so nobody asks for its rights."""

    def asked(**options: t.Any) -> str:
        found = rig.run("validate", **options)["checks"]
        return next(str(one["message"]) for one in found if one["what"] == "rights")

    def said(playbook: str, *features: str) -> str:
        return f"all {len(rights_of(playbook, features, asked=True))} there"

    assert asked() == said("provision", CLAIMS, TOKENS)
    assert asked(rights_of=["status"]) == said("status", CLAIMS)
    assert asked(rights_of=["reap", "status"]) == said("reap", CLAIMS, TOKENS)
    own = {"name": "webhook", "machines": [{"name": "box", "gpuCount": 1, "scaleUpEndpoint": "/on", "scaleDownEndpoint": "/off"}]}
    rig.demo_class["providers"] = [{**own, "settings": {"payload": "body"}}]
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
    assert check(rig, "rights")["message"] == said("provision", CLAIMS, TOKENS)
    rig.demo_class["providers"] = [own]
    assert check(rig, "rights")["message"] == said("provision", CLAIMS) != said("provision", CLAIMS, TOKENS)


def name_clouds(rig: Rig, *clouds: str) -> None:
    rig.demo_class["providers"] = [{"name": name} for name in clouds]
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]


def test_S0_06_what_will_hurt_later_is_a_warning(rig: Rig) -> None:
    name_clouds(rig, "lambda", "vast")
    assert check(rig, "cloud vast")["status"] in ("ok", "warn")
    vast_account.Account.of(rig.world).ssh_keys.clear()
    found = check(rig, "cloud vast")
    assert (found["ok"], found["status"]) == (True, "warn") and "no SSH key" in found["warnings"][0]
    assert rig.run("validate")["changed"] is False
    assert any("no SSH key" in text for text in rig.warnings)
    assert any(line.strip().startswith("warn  cloud vast") for line in rig.lines)


def test_S0_06_what_would_make_every_launch_fail_is_no_warning(rig: Rig) -> None:
    name_clouds(rig, "lambda")
    lambda_account.Account.of(rig.world).ssh_keys.clear()
    found = check(rig, "cloud lambda")
    assert (found["ok"], found["status"]) == (False, "NO") and "no SSH key" in found["message"]
    with pytest.raises(InvalidInput, match="cloud lambda"):
        rig.run("validate")


def test_S0_06_a_cloud_that_no_document_names_has_to_let_us_in_and_no_more(rig: Rig) -> None:
    name_clouds(rig, "vast")
    lambda_account.Account.of(rig.world).ssh_keys.clear()
    found = check(rig, "cloud lambda")
    assert (found["ok"], found["status"]) == (True, "warn") and "no document names it" in found["message"]
    with pytest.raises(InvalidInput, match="cloud lambda") as caught:
        rig.run("validate", lambda_api_key="secret_wrong_0123456789abcdef")
    assert "secret_wrong" not in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "body", "body": {"data": None}},
        {"kind": "truncate"},
        {"kind": "status", "status": 403},
        {"kind": "status", "status": 500},
    ],
    ids=lambda one: str(one.get("status", one["kind"])),
)
def test_S0_06_a_cloud_that_cannot_be_read_is_never_ok(rig: Rig, fault: dict[str, t.Any]) -> None:
    name_clouds(rig, "lambda")
    rig.faults.add({"service": "lambda", "path": "/instances", "times": None, **fault})
    found = check(rig, "cloud lambda")
    assert (found["ok"], found["status"]) == (False, "NO") and "lambda" in found["message"]


@pytest.mark.parametrize(
    ("url", "stage", "status", "words"),
    [
        ("https://192.0.2.1:6443", "", "ok", "answers"),
        ("https://192.0.2.1:6443", "connect", "NO", "192.0.2.1:6443 cannot be reached: no answer"),
        ("https://203.0.113.7:6443", "refused", "NO", "cannot be reached"),
        ("https://100.64.0.1:6443", "connect", "warn", "Only the mesh leads to 100.64.0.1, and this machine is not in it."),
        ("https://[fd7a:115c:a1e0::1]:6443", "connect", "warn", "was not tried"),
        ("https://100.64.0.1:6443", "certificate", "NO", "cannot be reached"),
        ("https://10.0.0.1:6443", "connect", "warn", "10.0.0.1 is a private address, and no way leads there from this machine."),
        ("https://127.0.0.1:6443", "connect", "NO", "cannot be reached"),
        ("https://cp.tail1234.ts.net:6443", "name", "warn", "port 6443 there was not tried"),
        ("https://cp.tail1234.ts.net:6443", "connect", "warn", "Only the mesh leads to cp.tail1234.ts.net"),
        ("https://cp.example.org:6443", "name", "warn", "an address is safer"),
    ],
)
def test_the_control_planes_address_is_probed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, url: str, stage: str, status: str, words: str
) -> None:
    """Machines that do not find it are billed until their deadline."""
    host, port = endpoint_check.endpoint(url)
    found = endpoint_check.Reached(
        endpoint_check.API, host, port, stage, f"{host}:{port} cannot be reached: no answer." if stage else ""
    )
    monkeypatch.setattr(endpoint_check, "look", lambda *_place, **_how: [found])
    try:
        result = rig.run("validate", control_plane_endpoint=url)
    except InvalidInput as error:
        result = error.result  # type: ignore[attr-defined]
    probed = next(one for one in result["checks"] if one["what"] == "control plane")
    assert probed["status"] == status and words in " ".join([probed["message"], *probed["warnings"]])


def test_a_name_server_that_does_not_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(endpoint_check, "_DEADLINE", 0.05)
    monkeypatch.setattr(endpoint_check, "look", lambda *_place, **_how: [] if asked.wait(10) else [])
    found = endpoint_check.check_endpoint("https://cp.example.org:6443", [])
    asked.set()
    assert "Looking up cp.example.org took longer than" in found.warnings[0]


def test_the_network_of_a_hub_is_not_seen_from_here() -> None:
    hub = Hub("192.0.2.1:51820", "", "198.51.100.0/24", "198.51.100.1", "198.51.100.0/25", ("203.0.113.0/24",))
    by_hub = NodeClass("c", (), mesh=MeshChoice(backend="wireguard", hub=hub))
    assert endpoint_check.not_from_here("203.0.113.7", [by_hub]) and not endpoint_check.not_from_here("203.0.113.7", [])
    assert not endpoint_check.not_from_here("127.0.0.1", [by_hub])


def test_B19_validate_tells_what_is_newer_than_the_tables_and_a_file_of_the_user_ends_it(rig: Rig, tmp_path: Path) -> None:
    """A class of Talos 1.16 has no row; the user's file adds it, is named by the check, and a wrong one stops the run before it begins."""
    rig.demo_class["talosConfig"] = {
        **rig.demo_class["talosConfig"],
        "image": f"factory.talos.dev/metal-installer/{'a' * 64}:v1.16.0",
    }
    said = check(rig, "releases")
    assert said["status"] == "warn" and any(
        "Talos 1.16 is newer than the newest in the tables, 1.15." in one for one in said["warnings"]
    )
    assert "as of 2026-11-22" in said["message"]
    mine = tmp_path / "mine.yml"
    mine.write_text(
        "asOf: 2026-12-20\nsource: the tags of 1.16\n"
        'talosReleases: [{release: "1.16", seen: "1.16.0", kubernetes: {oldest: "1.34", newest: "1.39"}, drivers: {lts: 595}}]\n'
    )
    try:
        found = next(one for one in rig.run("validate", release_tables=str(mine))["checks"] if one["what"] == "releases")
        assert found["status"] == "ok" and found["message"].endswith(f"Talos 1.16 from {mine}")
        mine.write_text(mine.read_text().replace("asOf", "asof"))
        with pytest.raises(InvalidInput, match="release tables cannot be used; nothing was done") as caught:
            rig.run("validate", release_tables=str(mine))
        assert f"{mine}:1: asof: unknown field. Did you mean asOf?" in caught.value.problems
    finally:
        tables.use(tables.BUILT_IN)
