# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""runc, CNI plugins and iptables of this machine's own Debian, unpacked into the cache. Nothing is installed.

``python -m tests.node_real.debian`` fetches them, with apt's own check of their signatures, and prints where they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

from tests.build import ROOT, CannotBuild

# fmt: off
PACKAGES = (
    "runc", "containernetworking-plugins", "iptables",
    "libseccomp2", "libxtables12", "libip4tc2", "libip6tc2", "libnftnl11", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0",
)
# fmt: on


def tree() -> pathlib.Path:
    """The folder that has their files below usr/. Raises CannotBuild with the reason in one line."""
    release = pathlib.Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    if "ID=debian\n" not in text and "ID=ubuntu\n" not in text:
        raise CannotBuild("runc: not built, its packages are fetched on Debian and Ubuntu only.", 3)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise CannotBuild("runc: not built, there is no apt-get and dpkg-deb to fetch its package.", 3)
    digest = hashlib.sha256((text + " ".join(PACKAGES)).encode()).hexdigest()[:16]
    place = ROOT / ".cache" / "debian" / f"{digest}-{os.uname().machine}"
    if (place / "usr/sbin/runc").exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "usr/sbin/runc").exists():
            _unpack(place)
    return place


def _unpack(place: pathlib.Path) -> None:
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "debs").mkdir(parents=True)
    _fetch(fresh / "debs", place.parent / "apt")
    for package in sorted((fresh / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(fresh)], check=True, capture_output=True)
    shutil.rmtree(fresh / "debs")
    for name in ("lib", "sbin", "bin"):  # a folder of this name would hide the machine's own, which is a link to usr
        if (fresh / name).is_dir():
            shutil.copytree(fresh / name, fresh / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(fresh / name)
    fresh.replace(place)


def _fetch(folder: pathlib.Path, private: pathlib.Path) -> None:
    """By the lists of packages that this machine has; where there are none, by lists of our own."""
    download = ["download", *PACKAGES]
    done = _apt(folder, download)
    if done.returncode:
        for name in ("lists/partial", "cache/archives/partial"):
            (private / name).mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::Lists={private / 'lists'}", "-o", f"Dir::Cache={private / 'cache'}"]
        updated = _apt(folder, [*own, "update"])
        done = _apt(folder, [*own, *download]) if updated.returncode == 0 else updated
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise CannotBuild(f"runc: not built, its package cannot be fetched ({last}).", 5)


def _apt(folder: pathlib.Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    quiet = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]
    return subprocess.run([*quiet, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


if __name__ == "__main__":
    try:
        print(f"runc, CNI plugins and iptables: {tree().relative_to(ROOT)}")
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.status)
