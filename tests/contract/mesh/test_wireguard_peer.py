# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""wireguard_peer on a hub whose programs are stand-ins: the file, the interface, and what happens between the two."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core import redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard import file
from ansible_collections.tgp.gpu.plugins.modules import wireguard_peer

from sandbox.clock import SimClock

from ...fixtures.wireguard_programs import HUB_FILE, HUB_PRIVATE, LAPTOP, Programs

CLUSTER = "a1b2c3d4"
KEYS = ["j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=", "c9n3cWWwP0rqF2brMs++lHzbKjOSRDEOj3xn4MpGBAM="]
SECRETS = [HUB_PRIVATE, "bGFwdG9wLWxhcHRvcC1sYXB0b3AtbGFwdG9wLWxhcHQ="]
ZERO, ONE = f"tgp-{CLUSTER}-training-00000", f"tgp-{CLUSTER}-training-00001"


def peer(number: int, **more: t.Any) -> dict[str, t.Any]:
    return {"name": (ZERO, ONE)[number], "public_key": KEYS[number], "allowed_ips": [f"10.77.0.{11 + number}/32"], **more}


class HubMachine:
    """A hub's file and programs, and the module there."""

    def __init__(self, folder: Path) -> None:
        self.programs = Programs(folder / "bin")
        self.programs.up()
        self.file = folder / "wg-tgp.conf"
        self.file.write_text(HUB_FILE)
        self.file.chmod(0o600)
        self.clock = SimClock(speed=1000)
        self.warnings: list[str] = []

    @property
    def text(self) -> str:
        return self.file.read_text()

    def run(self, *peers: dict[str, t.Any], check: bool = False, diff: bool = True, **params: t.Any) -> dict[str, t.Any]:
        defaults = {name: option.get("default") for name, option in wireguard_peer.SPEC["argument_spec"].items()}
        given = {"cluster_id": CLUSTER, "config_file": str(self.file), "peers": list(peers), **params}
        self.warnings.clear()
        task = Task(params={**defaults, **given}, check_mode=check, diff_mode=diff, warn=self.warnings.append, clock=self.clock)
        result = execute(wireguard_peer.SPEC, wireguard_peer.run, task)
        assert [secret for secret in SECRETS if secret in json.dumps(result) + "".join(self.warnings)] == []
        return result


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[HubMachine]:
    machine = HubMachine(tmp_path)
    monkeypatch.setenv("PATH", f"{machine.programs.folder}:{os.environ['PATH']}")
    yield machine
    for secret in SECRETS:  # other tests of this process may print them
        redact._known.pop(secret, None)
    redact._longest_first, redact._masked = None, {}


def test_S1_32_a_peer_that_another_controller_has_just_added_stays(hub: HubMachine) -> None:
    hub.run(peer(0))
    found = hub.run(peer(1), keep_younger_than=86400)
    assert (found["added"], found["removed"], found["kept"]) == ([ONE], [], [ZERO])
    assert hub.run(peer(1))["removed"] == [ZERO]


def test_S1_32_peers_come_stay_and_go(hub: HubMachine) -> None:
    first = hub.run(peer(0))
    assert (first["changed"], first["added"], first["removed"], first["kept"], first["applied"]) == (True, [ZERO], [], [], True)
    assert first["peers"] == [{**peer(0), "last_handshake": None, "endpoint": None}]
    assert hub.text.startswith(HUB_FILE) and hub.text.endswith(f"PublicKey = {KEYS[0]}\nAllowedIPs = 10.77.0.11/32\n")
    hub.programs.set(**{KEYS[0]: {"allowed": ["10.77.0.11/32"], "handshake": 1763730000, "endpoint": "192.0.2.9:1234"}})

    second = hub.run(peer(0), peer(1))
    assert (second["added"], second["removed"], second["kept"]) == ([ONE], [], [ZERO])
    assert [one["last_handshake"] for one in second["peers"]] == ["2025-11-21T13:00:00Z", None]
    assert second["peers"][0]["endpoint"] == "192.0.2.9:1234"

    third = hub.run(peer(1))
    assert (third["added"], third["removed"], third["kept"]) == ([], [ZERO], [ONE])
    assert set(hub.programs.running()) == {LAPTOP, KEYS[1]}

    fourth = hub.run({"name": ONE}, state="absent")
    assert (fourth["changed"], fourth["removed"], fourth["peers"]) == (True, [ONE], [])
    assert hub.text == HUB_FILE and set(hub.programs.running()) == {LAPTOP}
    assert hub.programs.running()[LAPTOP]["handshake"] == 1763730000


def test_a_second_run_changes_nothing_and_applies_nothing(hub: HubMachine) -> None:
    hub.run(peer(0), peer(1))
    before, calls = hub.file.stat(), len(hub.programs.calls("syncconf"))
    again = hub.run(peer(0), peer(1))
    assert (again["changed"], again["applied"], again["kept"]) == (False, True, [ZERO, ONE])
    assert (hub.file.stat().st_ino, hub.file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(hub.programs.calls("syncconf")) == calls == 1
    assert again["diff"]["before"] == again["diff"]["after"] != ""


def test_check_mode_writes_nothing_and_says_the_same(hub: HubMachine) -> None:
    listing = sorted(path.name for path in hub.file.parent.iterdir())
    would = hub.run(peer(0), check=True)
    assert (would["changed"], would["added"], hub.text) == (True, [ZERO], HUB_FILE)
    assert sorted(path.name for path in hub.file.parent.iterdir()) == listing and not hub.programs.calls("syncconf")
    done = hub.run(peer(0))
    assert would["diff"]["before"] == done["diff"]["before"] == "" and KEYS[0] in would["diff"]["after"]
    hub.programs.up()  # it lost the peer
    assert hub.run(peer(0), check=True)["changed"] is True and KEYS[0] not in hub.programs.running()


def test_a_diff_shows_the_cluster_s_peers_and_no_secret(hub: HubMachine) -> None:
    hub.run(peer(0))
    hub.file.write_text(hub.text.replace("AllowedIPs = 10.77.0.11", f"PresharedKey = {SECRETS[1]}\nAllowedIPs = 10.77.0.11"))
    diff = hub.run(peer(0), peer(1))["diff"]
    assert diff["before"].splitlines()[0] == "[Peer]" and "10.77.0.11/32" in diff["before"] and "10.77.0.12/32" in diff["after"]
    assert not [word for word in ("laptop", "Interface", "PresharedKey") if word in diff["before"] + diff["after"]]
    assert "diff" not in hub.run(peer(0), diff=False)


def test_mode_owner_and_link_stay(hub: HubMachine) -> None:
    link = hub.file.with_name("link.conf")
    link.symlink_to(hub.file)
    hub.file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(hub.file, 12345, 54321)
    owner = (hub.file.stat().st_uid, hub.file.stat().st_gid)
    assert hub.run(peer(0), config_file=str(link))["changed"] is True
    status = hub.file.stat()
    assert link.is_symlink() and status.st_mode & 0o777 == 0o640 and (status.st_uid, status.st_gid) == owner
    assert not list(hub.file.parent.glob("*.tgp-new"))
    assert Path(f"{hub.file}.lock").stat().st_mode & 0o777 == 0o600


def test_bytes_that_are_no_text_survive(hub: HubMachine) -> None:
    odd = HUB_FILE.encode().replace(b"# my laptop", b"# caf\xe9\r")
    hub.file.write_bytes(odd)
    hub.run(peer(0))
    assert hub.file.read_bytes().startswith(odd + b"\n[Peer]\n")
    hub.run(state="exact")
    assert hub.file.read_bytes() == odd


def test_an_interface_that_lost_a_peer_gets_it_again(hub: HubMachine) -> None:
    hub.run(peer(0))
    hub.programs.up()
    result = hub.run(peer(0))
    assert (result["changed"], result["added"], result["kept"]) == (True, [], [ZERO]) and KEYS[0] in hub.programs.running()
    hub.programs.set(**{KEYS[0]: {"allowed": ["10.77.0.99/32"]}})
    assert hub.run(peer(0))["changed"] is True and hub.programs.running()[KEYS[0]]["allowed"] == ["10.77.0.11/32"]


def test_what_others_have_not_applied_yet_is_no_change_of_ours(hub: HubMachine) -> None:
    hub.run(peer(0))
    hub.file.write_text(hub.text + f"\n[Peer]\nPublicKey = {KEYS[1]}\nAllowedIPs = 10.77.0.201/32\n")
    assert hub.run(peer(0))["changed"] is False and KEYS[1] not in hub.programs.running()


def test_an_interface_that_is_down_gets_the_file_alone(hub: HubMachine) -> None:
    hub.programs.down()
    result = hub.run(peer(0))
    assert (result["changed"], result["applied"]) == (True, False) and KEYS[0] in hub.text
    assert ["wg-tgp is not up" in text and "wg-quick up wg-tgp" in text for text in hub.warnings] == [True]
    again = hub.run(peer(0))
    assert (again["changed"], again["applied"], len(hub.warnings)) == (False, False, 1)
    hub.programs.up()
    assert hub.run(peer(0))["applied"] is True and not hub.warnings and KEYS[0] in hub.programs.running()


def test_apply_false_edits_the_file_and_asks_no_program(hub: HubMachine) -> None:
    result = hub.run(peer(0), apply=False)
    assert (result["changed"], result["applied"], hub.programs.calls(), hub.warnings) == (True, False, [], [])
    assert hub.run(peer(0), apply=False)["changed"] is False
    assert hub.run(peer(0))["changed"] is True and KEYS[0] in hub.programs.running()


def test_what_was_removed_without_being_applied_is_applied_later(hub: HubMachine) -> None:
    hub.run(peer(0), peer(1))
    hub.run(peer(1), apply=False)
    assert set(hub.programs.running()) == {LAPTOP, *KEYS}
    result = hub.run(peer(1))
    assert (result["changed"], result["removed"]) == (True, []) and set(hub.programs.running()) == {LAPTOP, KEYS[1]}
    assert hub.run(peer(1))["changed"] is False


@pytest.mark.parametrize("end", ["refused", "killed"])
def test_a_run_that_broke_off_between_file_and_interface_is_brought_to_its_end(
    hub: HubMachine, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.run(peer(0))
    if end == "refused":
        hub.programs.fail("syncconf", "Unable to modify interface: Operation not supported")
        broken = hub.run(peer(1))
        assert broken["failed"] and "The file is written" in broken["msg"] and "Operation not supported" in broken["msg"]
        hub.programs.fail("syncconf", "")
    else:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.hub.Running.sync", _killed)
            hub.run(peer(1))
    assert KEYS[1] in hub.text and set(hub.programs.running()) == {LAPTOP, KEYS[0]}
    result = hub.run(peer(1))
    assert (result["changed"], result["added"], result["kept"]) == (True, [], [ONE])
    assert set(hub.programs.running()) == {LAPTOP, KEYS[1]}
    assert hub.run(peer(1))["changed"] is False


def _killed(*_words: object) -> t.NoReturn:
    raise KeyboardInterrupt


def test_a_peer_that_only_the_interface_has_is_not_cut_off(hub: HubMachine) -> None:
    hub.programs.set(**{KEYS[1]: {"allowed": ["10.77.0.50/32"]}})
    result = hub.run(peer(0))
    assert result["failed"] and KEYS[1] in result["msg"] and "would cut them off" in result["msg"]
    assert hub.text == HUB_FILE and not hub.programs.calls("syncconf")
    assert hub.run(peer(0), check=True)["failed"]
    wanted = peer(0, public_key=KEYS[1], allowed_ips=["10.77.0.50/32"])  # it becomes ours: then it is not cut off
    assert hub.run(wanted)["changed"] is True


def test_nothing_is_cut_off_where_nothing_is_applied(hub: HubMachine) -> None:
    hub.run(peer(0))
    hub.programs.set(**{KEYS[1]: {"allowed": ["10.77.0.50/32"]}})
    assert hub.run(peer(0))["changed"] is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[Interface]\n", "[Interface]\nSaveConfig = true\n"), "SaveConfig = true"),
        (("10.77.0.200/32", "10.77.0.11/32"), "an address of the peer in line 8"),
        (("10.77.0.200/32", "10.77.0.0/27"), "an address of the peer in line 8"),
        ((LAPTOP, KEYS[0]), "its public_key belongs to the peer in line 8"),
        (("Address = 10.77.0.1/24", "Address = 10.77.0.11/24"), "the hub's own address"),
        (("[Interface]", "[Interfaces]"), "Line 2 begins a section"),
    ],
)
def test_refusals_leave_the_file_and_the_interface_as_they_are(hub: HubMachine, change: tuple[str, str], words: str) -> None:
    text = HUB_FILE.replace(*change)
    assert text != HUB_FILE
    hub.file.write_text(text)
    result = hub.run(peer(0))
    assert result["failed"] and words in result["msg"] and "changed" not in result
    assert hub.text == text and not hub.programs.calls("syncconf")


def test_wrong_input_is_refused_with_every_fault(hub: HubMachine) -> None:
    result = hub.run(peer(0, name="laptop"), peer(1, public_key="short"))
    assert result["error"]["kind"] == "invalid_input" and len(result["error"]["problems"]) == 2
    assert "not a name of an interface" in hub.run(interface="a/../b")["msg"]
    assert hub.text == HUB_FILE and not hub.programs.calls()


def test_L12_the_mass_guard_holds_and_can_be_lifted(hub: HubMachine) -> None:
    many = [
        {"name": f"tgp-{CLUSTER}-training-{number:05d}", "public_key": _key(number), "allowed_ips": [f"10.77.0.{number}/32"]}
        for number in range(20, 24)
    ]
    hub.run(*many)
    before = hub.text
    refused = hub.run()
    assert refused["error"]["kind"] == "guard_refused" and refused["msg"].startswith("guard_refused: 4 of 4 wireguard peers")
    assert hub.text == before
    assert len(hub.run(allow_mass_delete=True)["removed"]) == 4 and hub.text == HUB_FILE


def _key(number: int) -> str:
    return chr(ord("A") + number - 20) * 42 + "A="


def test_a_file_that_is_not_there_leaves_nothing_behind(hub: HubMachine) -> None:
    for path in (hub.file.with_name("other.conf"), hub.file.parent / "nowhere" / "wg-tgp.conf", hub.file.parent):
        result = hub.run(peer(0), config_file=str(path))
        assert result["failed"] and str(path) in result["msg"] and "cannot be read" in result["msg"]
    assert not list(hub.file.parent.glob("*.lock"))


def test_programs_that_are_not_installed(hub: HubMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.hub._PLACES", ())
    monkeypatch.setenv("PATH", str(hub.programs.folder))
    (hub.programs.folder / "wg").unlink()
    result = hub.run(peer(0))
    assert result["failed"] and result["msg"].startswith("wg cannot be found") and hub.text == HUB_FILE
    assert hub.run(peer(0), apply=False)["changed"] is True


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Unable to access interface: Operation not permitted", "Run as root"),
        ("something new", "wg show wg-tgp failed: something new"),
    ],
)
def test_an_interface_that_cannot_be_asked_is_not_taken_for_a_missing_one(hub: HubMachine, words: str, told: str) -> None:
    hub.programs.fail("show", words)
    result = hub.run(peer(0))
    assert result["failed"] and told in result["msg"] and hub.text == HUB_FILE


def test_a_program_that_quotes_a_key_does_not_give_it_away(hub: HubMachine) -> None:
    hub.file.write_text(HUB_FILE.replace("PrivateKey =", "PrivatKey ="))
    result = hub.run(peer(0))
    assert result["failed"] and "wg syncconf failed" in result["msg"] and "Line" not in result["msg"]
    hub.programs.fail("syncconf", f"Line unrecognized: `PrivatKey={HUB_PRIVATE}'")
    assert "PrivatKey=********" in hub.run(peer(0))["msg"]


def test_only_one_writes_at_a_time(hub: HubMachine) -> None:
    with open(f"{hub.file}.lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        started = hub.clock.now()
        result = hub.run(peer(0))
        assert result["error"]["kind"] == "lock_busy" and hub.text == HUB_FILE
        assert (hub.clock.now() - started).total_seconds() >= file.WAIT - 1
        assert hub.run(peer(0), check=True)["changed"] is True  # it only looks
    assert hub.run(peer(0))["changed"] is True


def test_an_editor_s_save_meanwhile_is_not_overwritten(hub: HubMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = file._stamp
    seen: list[object] = []

    def edited(handle: int) -> tuple[int, int, int]:
        seen.append(handle)
        if len(seen) == 3:  # read twice, now before the write
            hub.file.write_text(HUB_FILE + "# saved\n")
        return stamp(handle)

    monkeypatch.setattr(file, "_stamp", edited)
    result = hub.run(peer(0))
    assert result["failed"] and "edited meanwhile by another writer" in result["msg"]
    assert hub.text == HUB_FILE + "# saved\n" and not list(hub.file.parent.glob("*.tgp-new"))


def test_a_delegated_task_runs_on_the_hub_with_nothing_but_python_there(hub: HubMachine, tmp_path: Path) -> None:
    """Other modules run inside the playbook's worker; this one must be sent to the machine it is about."""
    marker, wrapper = tmp_path / "hub-python-ran", tmp_path / "python-of-the-hub"
    wrapper.write_text(f'#!/bin/sh\ntouch {marker}\nexec {sys.executable} -SE "$@"\n')
    wrapper.chmod(0o755)
    inventory = {
        "all": {
            "hosts": {
                "here": {"ansible_connection": "local", "ansible_python_interpreter": "/bin/false"},
                "hub": {"ansible_connection": "local", "ansible_python_interpreter": str(wrapper)},
            }
        }
    }
    task = {"cluster_id": CLUSTER, "config_file": str(hub.file), "peers": [peer(0)]}
    play = [
        {
            "hosts": "here",
            "gather_facts": False,
            "tasks": [
                {"tgp.gpu.wireguard_peer": task, "delegate_to": "hub"},
                {"tgp.gpu.wireguard_peer": task, "delegate_to": "hub"},
            ],
        }
    ]
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "inventory.yml", "--diff", "-vv", "play.yml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert marker.exists() and "ok=2    changed=1" in done.stdout and KEYS[0] in hub.text
    assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr]
    assert KEYS[0] in hub.programs.running()
