# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""runc, CNI plugins and iptables of this machine's own Debian, WireGuard in user space, and Prometheus, unpacked into the cache. Nothing is
installed.

``python -m tests.node_real.debian`` fetches them, with apt's own check of their signatures, and prints where they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

from tests.build import ROOT, CannotBuild

# fmt: off
PACKAGES = (
    "runc", "containernetworking-plugins", "iptables",
    "libseccomp2", "libxtables12", "libip4tc2", "libip6tc2", "libnftnl11", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0",
)
# fmt: on
WIREGUARD = ("wireguard-go", "wireguard-tools")
PROMETHEUS = ("prometheus", "prometheus-node-exporter", "prometheus-pushgateway")


def tree(packages: t.Sequence[str] = PACKAGES, proof: str = "usr/sbin/runc") -> pathlib.Path:
    """The folder that has the packages' files below usr/, ``proof`` among them. Raises CannotBuild with the reason in one line."""
    what = pathlib.PurePath(proof).name
    release = pathlib.Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    if "ID=debian\n" not in text and "ID=ubuntu\n" not in text:
        raise CannotBuild(f"{what}: not built, its packages are fetched on Debian and Ubuntu only.", 3)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise CannotBuild(f"{what}: not built, there is no apt-get and dpkg-deb to fetch its package.", 3)
    digest = hashlib.sha256((text + " ".join(packages)).encode()).hexdigest()[:16]
    place = ROOT / ".cache" / "debian" / f"{digest}-{os.uname().machine}"
    if (place / proof).exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / proof).exists():
            _unpack(place, packages, what)
    return place


def wireguard() -> pathlib.Path:
    """The same for wireguard-go, wg and wg-quick, in usr/bin."""
    return tree(WIREGUARD, "usr/bin/wireguard-go")


def prometheus() -> pathlib.Path:
    """The folder with prometheus, promtool, prometheus-node-exporter and prometheus-pushgateway. Since Debian 13 promtool is a package."""
    release = pathlib.Path("/etc/os-release")
    version = re.search(r'^VERSION_ID="(\d+)"$', release.read_text(), re.MULTILINE) if release.exists() else None
    alone = version is not None and int(version[1]) >= 13
    return tree((*PROMETHEUS, "promtool") if alone else PROMETHEUS, "usr/bin/promtool") / "usr" / "bin"


def _unpack(place: pathlib.Path, packages: t.Sequence[str], what: str) -> None:
    fresh = place.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "debs").mkdir(parents=True)
    _fetch(fresh / "debs", place.parent / "apt", packages, what)
    for package in sorted((fresh / "debs").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(fresh)], check=True, capture_output=True)
    shutil.rmtree(fresh / "debs")
    for name in ("lib", "sbin", "bin"):  # a folder of this name would hide the machine's own, which is a link to usr
        if (fresh / name).is_dir():
            shutil.copytree(fresh / name, fresh / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(fresh / name)
    fresh.replace(place)


def _fetch(folder: pathlib.Path, private: pathlib.Path, packages: t.Sequence[str], what: str) -> None:
    """By the lists of packages that this machine has; where there are none, by lists of our own."""
    download = ["download", *packages]
    done = _apt(folder, download)
    if done.returncode:
        for name in ("lists/partial", "cache/archives/partial"):
            (private / name).mkdir(parents=True, exist_ok=True)
        own = ["-o", f"Dir::State::Lists={private / 'lists'}", "-o", f"Dir::Cache={private / 'cache'}"]
        updated = _apt(folder, [*own, "update"])
        done = _apt(folder, [*own, *download]) if updated.returncode == 0 else updated
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise CannotBuild(f"{what}: not built, its package cannot be fetched ({last}).", 5)


def _apt(folder: pathlib.Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    quiet = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]
    return subprocess.run([*quiet, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


if __name__ == "__main__":
    try:
        print(f"runc, CNI plugins and iptables: {tree().relative_to(ROOT)}")
        print(f"WireGuard in user space: {wireguard().relative_to(ROOT)}")
        print(f"Prometheus: {prometheus().relative_to(ROOT)}")
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.status)
