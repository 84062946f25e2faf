# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network of its own for a real control plane and the machines beside it. Nothing of this leaves its namespaces, and all of it ends
with the processes that are in them; only cgroups are tidied up by hand."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import typing as t

CGROUPS = pathlib.Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")
PREFIX = "tgp-node-"
PROGRAMS = ("bash", "curl", "ip", "mount", "nsenter", "pivot_root", "shred", "systemd-socket-activate", "unshare")
PROXY = pathlib.Path("/lib/systemd/systemd-socket-proxyd")
_NEW_NETWORK = 0x40000000
_SYS_ADMIN, _NET_ADMIN = 1 << 21, 1 << 12


def why_not() -> str:
    """What this machine lacks for a node of its own, in one line; empty when it can."""
    if os.geteuid() != 0:
        return "node: not run, it needs root for namespaces and cgroups of its own"
    status = pathlib.Path("/proc/self/status").read_text()
    capabilities = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    if capabilities & (wanted := _SYS_ADMIN | _NET_ADMIN) != wanted:
        return "node: not run, this root may not make namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN)"
    missing = [name for name in PROGRAMS if not shutil.which(name)] + [str(one) for one in (PROXY,) if not one.exists()]
    if missing:
        return f"node: not run, it needs {', '.join(missing)}"
    if (CGROUPS / "cgroup.controllers").exists():
        return "node: not run, this machine has cgroup v2 alone and the stand knows v1"
    closed = [name for name in CONTROLLERS if not os.access(CGROUPS / name, os.W_OK) or not (CGROUPS / name / "tasks").exists()]
    if closed:
        return f"node: not run, the cgroup controllers {', '.join(closed)} are missing or not writable"
    tried = (
        "mkdir u w r && mount -t overlay -o lowerdir=/,upperdir=u,workdir=w o r && test -d r/usr && test -d /sys/bus/pci/devices"
    )
    script = f"mount -t tmpfs tmpfs /mnt && cd /mnt && {tried}"
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--net", "--uts", "sh", "-c", script], capture_output=True, text=True
    )
    if done.returncode:
        return f"node: not run, an overlay of the root file system is refused here ({done.stderr.strip()[-120:]})"
    return ""


@contextlib.contextmanager
def own_network() -> t.Iterator[None]:
    """This thread, and all that it starts from now on, in a network with nothing but loopback. The caller's own comes back at the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "no network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            if libc.setns(before, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "the way back into the machine's own network is closed")
    finally:
        os.close(before)


def make_cgroup(name: str) -> None:
    """A cgroup of this name in each hierarchy, for all processors and memory."""
    for hierarchy in sorted({path.parent.resolve() for path in CGROUPS.glob("*/tasks")}):
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        if (folder / "cpuset.cpus").exists():
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (folder / setting).write_text((folder.parent / setting).read_text())


def remove_cgroup(name: str, seconds: float = 60) -> None:
    """All below it as well, as soon as its processes are gone."""
    end = time.monotonic() + seconds
    for top in {path.resolve() for path in CGROUPS.glob(f"*/{name}")}:
        while top.exists():
            for folder, _folders, _files in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # busy until its last process is gone
                    os.rmdir(folder)
            if top.exists():
                if time.monotonic() > end:
                    raise RuntimeError(f"{top} still has processes.")
                time.sleep(0.1)


def sweep() -> None:
    """Cgroups and folders of runs that were killed: those whose names begin with the id of a process that is no more."""

    def is_orphan(path: pathlib.Path) -> bool:
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        return owner.isdigit() and not pathlib.Path(f"/proc/{owner}").exists()

    for name in {path.name for path in CGROUPS.glob(f"*/{PREFIX}*") if is_orphan(path)}:
        remove_cgroup(name)
    for folder in filter(is_orphan, pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        shutil.rmtree(folder, ignore_errors=True)
