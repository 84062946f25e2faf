# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The takeover's program, really run below another root among commands that only pretend: what it refuses, and in which order it acts."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml

from tests import outsiders

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "roles" / "takeover" / "files" / "tgp-takeover"
KERNEL = b"\0" * 514 + b"HdrS" + b"\0" * 100
SECRET = "a-fake-secret-of-tests-0123456789"
IMAGES = "https://factory.talos.dev/image/" + "a" * 64 + "/v1.13.9"

PRETEND = r"""#!/bin/bash
name=${0##*/}
call="$name $*"
printf '%s\n' "$call" >>"$PLAY/calls"
[[ ! -s $PLAY/fail || $call != $(cat "$PLAY/fail")* ]] || exit 1
case $call in
  "id -u") cat "$PLAY/uid" ;;
  "uname -m") cat "$PLAY/arch" ;;
  systemd-detect-virt*) [[ -e $PLAY/container ]] ;;
  "findmnt -no SOURCE /") cat "$PLAY/source" ;;
  "lsblk -rno PKNAME "*) cat "$PLAY/parent" ;;
  "lsblk -rno TYPE "*) printf 'disk\npart\npart\n' ;;
  "lsblk -rno NAME,PARTTYPE "*) cat "$PLAY/partitions" ;;
  "lsblk -dbno SIZE "*) cat "$PLAY/size" ;;
  "readlink -f "*) echo "$2" ;;
  "ip -o -4 route show default") cat "$PLAY/route" ;;
  nvidia-smi*) cat "$PLAY/pids" ;;
  "tailscale ip -4") [[ -e $PLAY/enrolled ]] ;;
  curl*--max-time\ 15*) ;;
  curl*) while [[ $1 != -o ]]; do shift; done; cat "$PLAY/served/${2##*/}" >"$2" ;;
  apt-get*update) rm -f "$PLAY/no-index" ;;
  apt-get*install*) [[ ! -e $PLAY/no-index ]] ;;
  mountpoint*) [[ -e $PLAY/mounted ]] ;;
  "sgdisk -i "*) printf "Partition name: ''\n" ;;
  ldd*) exit 1 ;;
esac
"""
# fmt: off
NAMES = (
    "id", "uname", "systemd-detect-virt", "findmnt", "lsblk", "readlink", "ip", "nvidia-smi", "tailscale", "curl", "nc", "apt-get",
    "mountpoint", "mount", "sgdisk", "kexec", "systemd-run", "systemctl", "modprobe", "zstd", "mkfs.vfat", "mcopy", "ldd", "sync",
)
# fmt: on


class Victim:
    """A pretended Ubuntu machine below a folder, able to be taken over."""

    def __init__(self, folder: Path) -> None:
        self.root, self.play = folder / "root", folder / "play"
        (self.play / "bin").mkdir(parents=True)
        (self.play / "served").mkdir()
        stub = self.play / "bin" / "pretend"
        stub.write_text(PRETEND)
        stub.chmod(0o755)
        for name in NAMES:
            (self.play / "bin" / name).symlink_to(stub)
        self.answers(
            uid="0", arch="x86_64", source="/dev/vda1", parent="vda", size=str(40 * 1024**3), pids="", calls="",
            route="default via 10.0.0.1 dev ens5 proto dhcp src 10.0.0.7 metric 100",
            partitions="vda \nvda1 0fc63daf-8483-4772-8e79-3d69d8477de4\nvda15 c12a7328-f81f-11d2-ba4b-00c93ec93b3b",
        )  # fmt: skip
        self.serves("cmdline-metal-amd64", b"talos.platform=metal console=tty0 talos.config=metal-iso\n")
        self.serves("kernel-amd64", KERNEL)
        self.serves("initramfs-amd64.xz", bytes.fromhex("fd377a585a00") + b"initramfs")
        self.serves("metal-amd64.raw.zst", b"disk image")
        self.file("proc/sys/kernel/kexec_load_disabled", "0\n")
        self.file("proc/meminfo", "MemTotal:       64000000 kB\n")
        self.file("proc/cpuinfo", "flags : fpu la57\n")
        self.file("proc/cmdline", "quiet\n")
        self.file("sys/class/block/vda15/partition", "15\n")
        self.file("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
        self.file("boot/efi/EFI/ubuntu/grub.cfg", "")
        self.file("run/tgp-takeover-config.yaml", f"machine: {{token: {SECRET}}}\n")
        self.settings = {
            "TGP_VARIANT": "kexec", "TGP_ARCH": "amd64", "TGP_TALOS": "1.13.9", "TGP_IMAGES": IMAGES, "TGP_DISK": "/dev/vda",
            "TGP_API": "192.0.2.1:6443", "TGP_IP": "", "TGP_KERNEL_SHA256": "", "TGP_INITRAMFS_SHA256": "", "TGP_IMAGE_SHA256": "",
        }  # fmt: skip

    def answers(self, **files: str) -> None:
        for name, text in files.items():
            (self.play / name).write_text(text + "\n" if text else "")

    def serves(self, name: str, content: bytes) -> None:
        (self.play / "served" / name).write_bytes(content)

    def file(self, path: str, text: str | bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.play / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "PLAY": str(self.play), "TGP_ROOT": str(self.root)}

    def run(self, command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **self.settings, **settings}
        arguments = ["/bin/bash", str(PROGRAM), command]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)

    @property
    def calls(self) -> list[str]:
        return (self.play / "calls").read_text().splitlines()

    def acted(self) -> list[str]:
        """Calls that change something."""
        ways = ("apt-get", "mount ", "sgdisk -c", "sgdisk -n", "kexec", "systemd-run", "systemctl", "modprobe", "mkfs", "mcopy")
        return [call for call in self.calls if call.startswith(ways)]


@pytest.fixture(name="victim")
def _victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


Break = t.Callable[[Victim], t.Any]
REFUSALS: list[tuple[str, str, Break, dict[str, str]]] = [
    ("root", "needs root", lambda v: v.answers(uid="1000"), {}),
    ("arch", "is arm64", lambda v: v.answers(arch="aarch64"), {}),
    ("container", "no kernel of its own", lambda v: v.answers(container="x"), {}),
    ("secure-boot", "Secure Boot is on", lambda v: v.file("sys/firmware/efi/efivars/SecureBoot-8be4", b"\6\0\0\0\1"), {}),
    ("lockdown", "locked down", lambda v: v.file("sys/kernel/security/lockdown", "none [integrity] confidentiality"), {}),
    ("kexec", "does not allow kexec", lambda v: v.file("proc/sys/kernel/kexec_load_disabled", "1"), {}),
    ("paging", "5-level paging", lambda v: None, {"TGP_TALOS": "1.11.6"}),
    ("disk", "not on a plain partition", lambda v: v.answers(source="/dev/mapper/vg-root"), {}),
    ("disk", "not on a plain partition", lambda v: v.answers(parent="vda\nvdb"), {}),
    ("disk", "installs Talos to /dev/sda", lambda v: None, {"TGP_DISK": "/dev/sda"}),
    ("disk-size", "smaller than 10 GiB", lambda v: v.answers(size=str(9 * 1024**3)), {}),
    ("esp", "no EFI system partition", lambda v: v.answers(partitions="vda \nvda1 0fc63daf"), {}),
    ("memory", "less than 4 GiB", lambda v: v.file("proc/meminfo", "MemTotal: 2000000 kB\n"), {}),
    ("dhcp", "no address by DHCP", lambda v: v.answers(route="default via 10.0.0.1 dev ens5 proto static"), {}),
    ("gpu-busy", "pids 41 42", lambda v: v.answers(pids="41\n42"), {}),
    (
        "internet",
        "factory.talos.dev cannot be reached",
        lambda v: v.answers(fail="curl -sS --max-time 15 -o /dev/null https://factory"),
        {},
    ),
    ("internet", "ghcr.io cannot be reached", lambda v: v.answers(fail="curl -sS --max-time 15 -o /dev/null https://ghcr"), {}),
    ("control-plane", "port 6443", lambda v: v.answers(fail="nc -z -w 10 192.0.2.1 6443"), {}),
    ("control-plane", "port 50001", lambda v: v.answers(fail="nc -z -w 10 192.0.2.1 50001"), {}),
]


@pytest.mark.parametrize(
    "name, words, break_it, settings", REFUSALS, ids=[f"{one[0]}-{number}" for number, one in enumerate(REFUSALS)]
)
@pytest.mark.parametrize("command", ["preflight", "prepare", "commit"])
def test_every_preflight_is_a_named_refusal_before_anything_is_done(
    victim: Victim, command: str, name: str, words: str, break_it: Break, settings: dict[str, str]
) -> None:
    break_it(victim)
    found = victim.run(command, **settings)
    refused = [line for line in found.stdout.splitlines() if line.startswith("refused ")]
    assert found.returncode == 3, found.stdout + found.stderr
    assert len(refused) == 1 and refused[0].startswith(f"refused {name}: ") and words in refused[0]
    assert victim.acted() == []


def test_all_that_is_in_the_way_is_said_at_once(victim: Victim) -> None:
    victim.answers(uid="1000", size="1")
    victim.file("proc/meminfo", "MemTotal: 2000000 kB\n")
    found = victim.run("preflight")
    assert [line.split(":")[0] for line in found.stdout.splitlines()[1:]] == ["refused root", "refused disk-size", "refused memory"]


@pytest.mark.parametrize("variant", ["kexec", "disk"])
def test_a_look_changes_nothing(victim: Victim, variant: str) -> None:
    found = victim.run("preflight", TGP_VARIANT=variant)
    assert (found.returncode, found.stdout, victim.acted()) == (0, "tgp-step preflight\n", [])


def test_what_cannot_be_seen_from_outside_the_mesh_is_said(victim: Victim) -> None:
    found = victim.run("preflight", TGP_API="100.64.0.1:6443")
    assert found.returncode == 0 and "note control-plane: 100.64.0.1 is in the tailnet" in found.stdout
    assert not [call for call in victim.calls if call.startswith("nc")]


def test_kexec_in_its_order(victim: Victim) -> None:
    assert victim.run("prepare").returncode == 0
    assert [call.split()[0] for call in victim.acted()] == ["apt-get", "mount"]
    before = len(victim.acted())
    (victim.root / "sys/module/nvidia").mkdir(parents=True)
    found = victim.run("commit")
    assert found.returncode == 0, found.stdout + found.stderr
    acted = victim.acted()[before:]
    assert acted[-5:-1] == [
        "modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia",
        f"mount /dev/vda15 {victim.root}/boot/efi",
        "sgdisk -c 15:metal-iso /dev/vda",
        f"kexec -s -l {victim.root}/run/tgp-takeover/kernel-amd64 --initrd={victim.root}/run/tgp-takeover/initramfs-amd64.xz "
        "--command-line=talos.platform=metal console=tty0 talos.config=metal-iso sysctl.kernel.kexec_load_disabled=1",
    ]
    assert acted[-1] == "systemd-run --on-active=3 --collect systemctl kexec"
    assert found.stdout.splitlines()[-1] == "tgp-step point-of-no-return"
    config = victim.root / "boot/efi/config.yaml"
    assert SECRET in config.read_text() and stat.S_IMODE(config.stat().st_mode) == 0o600
    assert SECRET not in "\n".join(victim.calls) + found.stdout


@pytest.mark.parametrize(
    "broken, words",
    [("modprobe -r", "fail gpu: "), ("kexec ", "fail kexec: "), ("sgdisk -c 15:metal-iso", "undone")],
)
def test_what_was_done_before_the_point_of_no_return_is_undone(victim: Victim, broken: str, words: str) -> None:
    victim.run("prepare")
    (victim.root / "sys/module/nvidia").mkdir(parents=True)
    victim.answers(fail=broken)
    found = victim.run("commit")
    assert found.returncode != 0 and words in found.stdout and "undone: this machine is Ubuntu as before" in found.stdout
    assert not (victim.root / "boot/efi/config.yaml").exists()
    assert not [call for call in victim.calls if call.startswith("systemd-run")]
    if broken == "kexec ":
        assert [call for call in victim.calls if call.startswith("sgdisk -c")] == [
            "sgdisk -c 15:metal-iso /dev/vda",
            "sgdisk -c 15: /dev/vda",
        ]


def test_an_image_without_an_index_of_packages_gets_one(victim: Victim) -> None:
    (victim.play / "no-index").touch()
    assert victim.run("prepare").returncode == 0
    assert [call.split()[5] for call in victim.acted() if call.startswith("apt-get")] == ["install", "update", "install"]


@pytest.mark.parametrize(
    "name, content, variant, words",
    [
        ("kernel-amd64", b"<html>not found</html>" * 40, "kexec", "kernel-amd64 is no Linux kernel"),
        ("initramfs-amd64.xz", b"<html>", "kexec", "neither xz nor zstd"),
        ("cmdline-metal-amd64", b"talos.platform=aws", "kexec", "not of platform metal"),
        ("cmdline-metal-amd64", b"talos.platform=metal", "disk", "no kernel argument talos.config=metal-iso"),
    ],
)
def test_what_is_not_what_it_should_be_is_not_used(victim: Victim, name: str, content: bytes, variant: str, words: str) -> None:
    victim.serves(name, content)
    found = victim.run("prepare", TGP_VARIANT=variant)
    assert found.returncode == 1 and words in found.stdout


def test_a_checksum_that_is_given_has_to_be_met(victim: Victim) -> None:
    assert victim.run("prepare", TGP_KERNEL_SHA256=hashlib.sha256(KERNEL).hexdigest()).returncode == 0
    found = victim.run("prepare", TGP_KERNEL_SHA256="0" * 64)
    assert found.returncode == 1 and "fail checksum: kernel-amd64" in found.stdout


@pytest.mark.skipif(shutil.which("truncate") is None, reason="needs GNU coreutils")
def test_the_disk_is_written_by_programs_that_are_in_memory(victim: Victim) -> None:
    (victim.play / "bin/cp").write_text('#!/bin/sh\nexec /bin/cp "$@"\n')
    assert victim.run("prepare", TGP_VARIANT="disk").returncode == 0
    work = victim.root / "run/tgp-takeover"
    script = (work / "root/write").read_text()
    order = ["echo u >/proc/sysrq-trigger", "dd of=/dev/vda", "sgdisk -e /dev/vda", "sgdisk -n 0:-16M:0", "config.vfat", "echo b >"]
    assert [script.index(word) for word in order] == sorted(script.index(word) for word in order)
    assert not outsiders.shell_faults(script) if outsiders.shellcheck() else True
    assert (work / "root/bin/bash").exists()
    found = victim.run("commit", TGP_VARIANT="disk")
    assert found.returncode == 0, found.stdout + found.stderr
    assert victim.acted()[-1] == f"systemd-run --on-active=3 --collect chroot {work}/root /bin/bash /write"
    assert not [call for call in victim.calls if call.startswith(("sgdisk -c", "kexec"))]


@pytest.mark.skipif(outsiders.shellcheck() is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_against_it(record_property: t.Callable[[str, object], None]) -> None:
    assert outsiders.shell_faults(PROGRAM.read_text()) == ""
    record_property("checked", ("scripts by shellcheck", 1))


def test_what_is_unproven_stands_in_the_docs() -> None:
    told = (ROOT / "docs" / "how_to" / "takeover.md").read_text(encoding="utf-8")
    unproven = yaml.safe_load((ROOT / "roles/takeover/vars/main.yml").read_text(encoding="utf-8"))["takeover_unproven"]
    assert [one for one in unproven if f"- {one}" not in told.splitlines()] == []
    assert {name for name, *_rest in REFUSALS} == {
        line.split("`")[1]
        for line in told.partition("## What is refused")[2].partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    }


_REAL = ("sgdisk", "mkfs.vfat", "mcopy", "zstd", "dd", "truncate")
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


@pytest.mark.skipif(any(shutil.which(one, path=_PATH) is None for one in _REAL), reason="needs gdisk, dosfstools, mtools and zstd")
def test_the_program_that_overwrites_a_disk_does_so_to_a_file(victim: Victim, tmp_path: Path) -> None:
    """The real tools, an image with a partition table, and a larger "disk": afterwards the image is there, and behind it the configuration."""

    def run(*command: str) -> str:
        environment = {**os.environ, "PATH": _PATH}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    image, disk, work = tmp_path / "image", tmp_path / "disk", victim.root / "run/tgp-takeover"
    run("truncate", "-s", "64M", str(image))
    run("sgdisk", "-n", "1:0:+8M", "-c", "1:EFI", "-n", "2:0:+8M", "-c", "2:STATE", str(image))
    run("zstd", "-q", str(image), "-o", str(tmp_path / "metal.raw.zst"))
    run("truncate", "-s", "160M", str(disk))
    disk.open("r+b").write(b"Ubuntu" * 1000)
    for name in ("zstd", "mkfs.vfat", "mcopy"):
        (victim.play / "bin" / name).unlink()
    shutil.copy(tmp_path / "metal.raw.zst", victim.play / "served/metal-amd64.raw.zst")
    (victim.play / "bin/ldd").unlink()
    (victim.play / "bin/ldd").write_text("#!/bin/sh\nexit 1\n")
    (victim.play / "bin/ldd").chmod(0o755)
    assert victim.run("prepare", TGP_VARIANT="disk", PATH=f"{victim.play / 'bin'}:{_PATH}").returncode == 0
    script = (work / "root/write").read_text()
    for old, new in (
        ("/dev/vda", str(disk)),
        ("/proc/sysrq-trigger", str(tmp_path / "sysrq")),
        ("/metal.raw.zst", str(work / "metal-amd64.raw.zst")),
        ("/config.vfat", str(work / "config.vfat")),
        ("sleep 2", ""),
    ):
        script = script.replace(old, new)
    ran = subprocess.run(["/bin/bash"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    table = run("sgdisk", "-p", str(disk))
    rows = [line.split() for line in table.splitlines() if line.strip()[:1].isdigit()]
    assert [row[-1] for row in rows] == ["EFI", "STATE", "metal-iso"]
    assert "No problems found" in run("sgdisk", "-v", str(disk))
    assert run("mcopy", "-i", f"{disk}@@{int(rows[-1][1]) * 512}", "::config.yaml", "-") == f"machine: {{token: {SECRET}}}\n"
    assert (tmp_path / "sysrq").read_text() == "b\n"
