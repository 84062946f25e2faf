# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signing keys of the repositories that lane kubelet installs from: apt never sees one that is not pinned.

The bootstrap program runs among commands that only pretend; where gpg is installed, some runs have the real one.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet import cloud_config
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import Findings
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import diagnose
from ansible_collections.tgp.gpu.plugins.module_utils.model import Instance, InstanceState, Lane

from tests.unit.lanes.test_bootstrap import Machine

HOSTS = {
    "kubernetes": "pkgs.k8s.io",
    "docker": "download.docker.com",
    "tailscale": "pkgs.tailscale.com",
    "nvidia": "nvidia.github.io",
}
DOCKER = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
NOW = datetime(2026, 8, 21, 12, 0, tzinfo=timezone.utc)
OTHER = "0123456789ABCDEF0123456789ABCDEF01234567"
PAGE = "<html><body>Please log in to this network</body></html>\n"

# Two throwaway keys that gpg made; nobody has their secret halves any more.
ONE = """\
mDMEXgvhABYJKwYBBAHaRw8BAQdACzXv0SfDtnpqtGpogv8R4veywxWQ1EJWwNQS
k3/D/a60FlRlc3QgYSA8YUBleGFtcGxlLm9yZz6IkAQTFggAOBYhBH+S15ChTuRe
lsmDXN+r6eDRmzycBQJeC+EAAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJ
EN+r6eDRmzycq58A/1NIMxVW1w0jOYm80751Ra10+jXT9fUF3jFTv3HA+L7OAP97
sFP6Fmy3lEGOtqQCAg1AV5CDqaCl64SjePGQUmIdAw==
=oWwV
"""
TWO = """\
mDMEXgvhABYJKwYBBAHaRw8BAQdAKXel3DPlR0WQqlqfX2w+N+1Vd50kFDhk27d2
rSwPe1e0FlRlc3QgYiA8YkBleGFtcGxlLm9yZz6IkAQTFggAOBYhBHF98dIx0hAn
0av+ohR+q8vxUfTOBQJeC+EAAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJ
EBR+q8vxUfTOE8ABAOOe74nX/9Zmr2vPkF0fgxOv5RynUhtIPpEuXt5IjEuHAQCH
gtaR8eiYmdGzOzX/gVdQldQp9M8Bb8ZZ8tr32Z8uCQ==
=ewQv
"""
ONE_IS = "7F92D790A14EE45E96C9835CDFABE9E0D19B3C9C"
TWO_IS = "717DF1D231D21027D1ABFEA2147EABCBF151F4CE"


def armored(text: str) -> bytes:
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{text}-----END PGP PUBLIC KEY BLOCK-----\n".encode()


def binary(text: str) -> bytes:
    return base64.b64decode(text.rsplit("\n=", 1)[0])


def secret_half(text: str) -> bytes:
    """The same key as a packet that holds a (made up) secret, too; apt's gpgv takes the public key out of it."""
    public, secret = binary(text)[2:53], b"\x00\xff" + b"\x7f" * 32
    body = public + b"\0" + secret + (sum(secret) & 0xFFFF).to_bytes(2, "big")
    return bytes([0x94, len(body)]) + body + binary(text)[53:]


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(name="real")
def _real(tmp_path: Path) -> Machine:
    """A machine with the real gpg, where every repository hands out key ONE and ONE is pinned."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    machine = Machine(tmp_path)
    (machine.play / "bin/gpg").unlink()
    for host in HOSTS.values():
        hands_out(machine, host, armored(ONE))
    pin(machine, **dict.fromkeys(HOSTS, ONE_IS))
    return machine


def hands_out(machine: Machine, host: str, content: bytes | str) -> None:
    """From now on ``host`` answers with this for its key."""
    (machine.play / f"key-{host}").write_bytes(content.encode() if isinstance(content, str) else content)


def pin(machine: Machine, **keys: str) -> None:
    """Pins other fingerprints by lines that node.env gets beside its own."""
    with (machine.root / "etc/tgp/node.env").open("a") as file:
        file.writelines(f"KEY_{name.upper()}='{value}'\n" for name, value in keys.items())


def without_gpg(machine: Machine, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """gpg is neither among the pretended commands nor among those of the machine that runs the tests."""
    (machine.play / "bin/gpg").unlink()
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            (folder / program.name).unlink(missing_ok=True)
            (folder / program.name).symlink_to(program)
    (folder / "gpg").unlink(missing_ok=True)
    monkeypatch.setenv("PATH", str(folder))


def last(machine: Machine) -> str:
    return machine.text("var/log/tgp-bootstrap.log").splitlines()[-1]


def refused(machine: Machine, name: str) -> str:
    """The run fails in step repositories because of this key, and apt has seen nothing of it; the sentence that says why."""
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail repositories\n"
    assert f"fail repositories: the signing key of {name} is not the pinned one: expected " in last(machine)
    assert not list((machine.root / "etc/apt/keyrings").glob(f"tgp-{name}*"))
    assert not (machine.root / f"etc/apt/sources.list.d/tgp-{name}.list").exists()
    assert not (machine.root / "run/tgp-gpg").exists()
    assert not [call for call in machine.calls if call.startswith("apt-get") and "kubelet=" in call]
    return last(machine)


def test_every_pin_is_a_fingerprint_of_a_repository_that_the_program_adds(machine: Machine) -> None:
    assert set(cloud_config.PINNED) == set(HOSTS)
    for fingerprints in cloud_config.PINNED.values():
        assert fingerprints and all(re.fullmatch("[0-9A-F]{40}", one) for one in fingerprints)
    assert machine.run() == 0
    assert {path.name for path in (machine.root / "etc/apt/keyrings").iterdir()} == {f"tgp-{name}.gpg" for name in HOSTS}
    for name in HOSTS:
        assert f"[signed-by={machine.root}/etc/apt/keyrings/tgp-{name}.gpg] " in machine.text(
            f"etc/apt/sources.list.d/tgp-{name}.list"
        )


def test_a_key_that_is_checked_is_readable_for_apt_and_leaves_nothing_beside_it(machine: Machine) -> None:
    assert machine.run() == 0
    for path in (machine.root / "etc/apt/keyrings").iterdir():
        assert path.stat().st_mode & 0o444 == 0o444, path
    assert not (machine.root / "run/tgp-gpg").exists()


@pytest.mark.parametrize("name", HOSTS)
def test_another_key_is_refused_by_name(machine: Machine, name: str) -> None:
    hands_out(machine, HOSTS[name], f"key {OTHER}\n")
    said = refused(machine, name)
    assert f"expected {' '.join(cloud_config.PINNED[name])}, came {OTHER}. " in said
    assert f"Take a newer tgp.gpu, or set KEY_{name.upper()} if its owner says that it is new (docs/how_to/kubelet_lane.md)" in said
    hands_out(machine, HOSTS[name], f"key {cloud_config.PINNED[name][0]}\n")
    assert machine.run() == 0


def test_a_second_key_in_the_file_is_refused(machine: Machine) -> None:
    hands_out(machine, HOSTS["docker"], f"key {DOCKER}\nkey {OTHER}\n")
    assert f"expected {DOCKER}, came {OTHER} {DOCKER}. " in refused(machine, "docker")


def test_a_page_instead_of_a_key_is_refused_and_shown(machine: Machine) -> None:
    hands_out(machine, HOSTS["tailscale"], PAGE)
    said = refused(machine, "tailscale")
    assert "came no key that gpg can read (it begins: <html><body>Please log in to this networ). " in said


def test_what_the_image_says_of_a_repository_stays_when_the_key_is_refused(machine: Machine) -> None:
    folder = machine.root / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    (folder / "docker.list").write_text("deb [signed-by=/x] https://download.docker.com/linux/ubuntu noble stable\n")
    hands_out(machine, HOSTS["docker"], PAGE)
    refused(machine, "docker")
    assert (folder / "docker.list").exists()


def test_a_key_that_was_right_once_is_not_replaced_by_a_wrong_one(machine: Machine) -> None:
    (machine.play / "fail").write_text("apt-cache")
    assert machine.run() == 1
    good = (machine.root / "etc/apt/keyrings/tgp-docker.gpg").read_bytes()
    hands_out(machine, HOSTS["docker"], f"key {OTHER}\n")
    assert machine.run() == 1 and "signing key of docker" in last(machine)
    assert (machine.root / "etc/apt/keyrings/tgp-docker.gpg").read_bytes() == good
    assert not list((machine.root / "etc/apt/keyrings").glob("*.new")) + list((machine.root / "etc/apt/keyrings").glob("*.came"))


def test_no_pin_is_no_permission(machine: Machine) -> None:
    pin(machine, docker="")
    hands_out(machine, HOSTS["docker"], "key \n")
    refused(machine, "docker")
    path = machine.root / "etc/tgp/node.env"
    path.write_text(re.sub("^KEY_DOCKER=.*\n", "", path.read_text(), flags=re.MULTILINE))
    assert machine.run() == 1
    assert "a setting is missing" in last(machine)


def test_a_template_pins_another_key(tmp_path: Path) -> None:
    """The way that docs/how_to/kubelet_lane.md names, for the days between a new key and a collection that has it.

    Case and order do not count.
    """
    line = f"KEY_DOCKER='{OTHER.lower()} {DOCKER}'\\n"
    patch = f'machine: {{files: [{{path: /etc/tgp/node.env, permissions: 0o600, op: append, content: "{line}"}}]}}\n'
    machine = Machine(tmp_path, patches=(patch,))
    hands_out(machine, HOSTS["docker"], f"key {DOCKER}\nkey {OTHER}\n")
    assert machine.run() == 0
    assert refused_alone(machine)


def refused_alone(machine: Machine) -> bool:
    """Of two pinned keys one alone is another file than expected, and is refused, too."""
    for path in ("done", "packages"):
        (machine.root / "var/lib/tgp" / path).unlink()
    hands_out(machine, HOSTS["docker"], f"key {DOCKER}\n")
    return machine.run() == 1 and f"expected {OTHER} {DOCKER}, came {DOCKER}. " in last(machine)


def test_gpg_that_is_missing_comes_from_the_distribution(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_gpg(machine, monkeypatch, tmp_path / "programs")
    (machine.play / "brings-gpg").touch()
    assert machine.run() == 0
    calls = machine.calls
    install = next(number for number, call in enumerate(calls) if call.startswith("apt-get") and call.endswith(" curl gnupg"))
    assert install < next(number for number, call in enumerate(calls) if call.startswith("gpg "))
    assert not [call for call in calls[:install] if call.startswith(("curl", "gpg"))]


def test_gpg_that_cannot_be_had_is_a_named_failure(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_gpg(machine, monkeypatch, tmp_path / "programs")
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail repositories\n"
    assert "gpg is missing although its package gnupg was installed" in last(machine)
    assert not [call for call in machine.calls if call.startswith("curl")]
    (machine.play / "fail").write_text("apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 install ca-certificates")
    assert machine.run() == 1
    assert "the tools for repositories (curl, gpg) cannot be installed" in last(machine)


def test_a_second_run_and_one_after_a_reboot_check_nothing_again(machine: Machine) -> None:
    assert machine.run() == 0
    (machine.root / "var/lib/tgp/done").unlink()
    before = len(machine.calls)
    hands_out(machine, HOSTS["docker"], PAGE)
    assert machine.run() == 0
    assert not [call for call in machine.calls[before:] if call.startswith(("gpg", "apt-get")) or "download.docker.com" in call]
    before = len(machine.calls)
    assert machine.run() == 0
    assert machine.calls[before:] == ["systemctl is-active --quiet kubelet"]


@pytest.mark.parametrize("form", [armored(ONE), binary(ONE)], ids=["armored", "binary"])
def test_the_real_gpg_takes_the_pinned_key_in_both_forms(real: Machine, form: bytes) -> None:
    hands_out(real, HOSTS["docker"], form)
    assert real.run() == 0
    assert (real.root / "etc/apt/keyrings/tgp-docker.gpg").read_bytes() == binary(ONE)
    assert not (real.root / "run/tgp-gpg").exists()


@pytest.mark.parametrize(
    "content, came",
    [
        (armored(TWO), f"came {TWO_IS}. "),
        (armored(ONE) + armored(TWO), f"came {TWO_IS} {ONE_IS}. "),
        (armored(TWO) + armored(ONE), f"came {TWO_IS} {ONE_IS}. "),
        (binary(ONE) + binary(TWO), f"came {TWO_IS} {ONE_IS}. "),
        (binary(ONE) + secret_half(TWO), f"came {TWO_IS} {ONE_IS}. "),
        # a key of a version that this gpg passes over, and another reader may not
        (binary(ONE) + binary(TWO)[:2] + b"\x06" + binary(TWO)[3:], "came no key that gpg can read"),
        (binary(ONE) + b"and more", "came no key that gpg can read"),
        (armored(ONE)[:200], "came no key that gpg can read (it begins: -----BEGIN PGP PUBLIC KEY BLOCK-----"),
        (PAGE.encode(), "came no key that gpg can read (it begins: <html>"),
        (b"", "came no key that gpg can read (it begins: )"),
        (b"\0\1\2\xff", "came no key that gpg can read (it begins: )"),
    ],
    ids=["another", "two blocks", "two blocks, other order", "two keys", "secret", "unknown version", "rest", "cut off", "page", "empty",
         "bytes"],
)  # fmt: skip
def test_the_real_gpg_refuses_everything_else(real: Machine, content: bytes, came: str) -> None:
    hands_out(real, HOSTS["docker"], content)
    assert came in refused(real, "docker")


def test_what_the_image_says_to_gpg_does_not_count(real: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / ".gnupg"
    home.mkdir(mode=0o700)
    (home / "gpg.conf").write_text("no-such-option\n")
    monkeypatch.setattr(Machine, "environment", {**real.environment, "HOME": str(tmp_path), "GNUPGHOME": str(home)})
    assert real.run() == 0


def test_the_sentence_becomes_a_diagnosis_that_fits_the_screen(machine: Machine) -> None:
    """S1-46: from the machine's own words to the cause that its user reads."""
    hands_out(machine, HOSTS["nvidia"], f"key {OTHER}\n")
    console = (refused(machine, "nvidia").split(" ", 1)[1],)
    found = diagnose(_findings(console))
    assert (found.code, found.certain) == ("repository_key", True)
    assert "NVIDIA" not in found.remedy and "KEY_" in found.remedy
    assert OTHER in found.evidence[0] and cloud_config.PINNED["nvidia"][0] in found.evidence[0]
    assert found.evidence[0].endswith("(docs/how_to/kubelet_lane.md)")


def _findings(console: t.Sequence[str]) -> Findings:
    instance = Instance(cloud="vast", id="1", name="n", state=InstanceState.RUNNING, raw_state="running")
    return Findings(
        name="n",
        now=NOW,
        cloud="vast",
        lane=Lane.KUBELET,
        launched=NOW - timedelta(minutes=9),
        instance=instance,
        instance_id="1",
        instance_listed=True,
        console=tuple(console),
        uses_mesh=True,
        devices_read=True,
        requests_read=True,
        nodes_read=True,
    )
