# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of the stand: namespaces of its own over this machine's files, with the commands of an Ubuntu that cannot be had here
played by stand-ins. The bootstrap program runs in it whole; containerd, runc, CNI plugins and kubelet are real.

What is played: apt (the packages are there already), systemd (``systemctl`` beside this file), kernel modules, sysctls outside of the
network namespace, swap, the clock's state, the mesh client (a cable instead), the GPU with its driver, and nvidia-ctk (the runtime
``nvidia`` it sets is runc under another name).
"""

from __future__ import annotations

import base64
import gzip
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import typing as t

import yaml

from tests.cluster.processes import Family

from . import image
from .stand import PREFIX, make_cgroup, remove_cgroup

HERE = pathlib.Path(__file__).resolve().parent
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GATEWAY, NETWORK = "100.64.9.1", 24

# All in which a node of the stand differs from what is rendered, by the daemons' own drop-ins. Why: no systemd runs here, this machine
# may have cgroup v1 and swap, settings of its kernel are not ours to change, and root may lack CAP_SYS_RESOURCE. Tests need not wait the
# usual 10 s for what a kubelet reports.
KUBELET: dict[str, t.Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "protectKernelDefaults": False,
    "nodeStatusUpdateFrequency": "1s",
    "evictionHard": {"memory.available": "100Mi"},
}
CONTAINERD = f"""\
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{image.NAME}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""
NVIDIA = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'nvidia'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
BinaryName = '/usr/bin/nvidia-container-runtime'
"""
# Stand-ins: name -> what it does. Whatever is not here is this machine's own command.
PLAYED = {
    "systemd-detect-virt": "exit 1",
    "hostnamectl": 'hostname "$2"',
    "timedatectl": "echo yes",
    "dpkg": ":",
    "swapoff": ":",
    "modprobe": ":",
    "sysctl": '[[ $1 != -n ]] || { cat "/proc/sys/${2//.//}"; exit; }; echo 1 >/proc/sys/net/ipv4/ip_forward',
    "journalctl": "tail -n 40 /var/log/kubelet.service.log",
    "nvidia-smi": "echo 'GPU 0: NVIDIA A10 (UUID: GPU-0)'",
    "nvidia-ctk": "cp /etc/stand/nvidia.toml /etc/containerd/conf.d/99-nvidia.toml",
    "tailscale": f"""case "$1 $2" in
  "ip -4") [[ -e /run/stand/enrolled ]] && cat /etc/stand/address ;;
  up\\ *) mkdir -p /run/stand && touch /run/stand/enrolled ;;
  ping\\ *) ping -c 1 -W 2 {GATEWAY} ;;
esac""",
}
UNIT = "[Service]\nExecStart={}\n"


class MachineFailed(Exception):
    """The message carries what the machine said last."""


class Machine:
    """One machine from ``__enter__`` to ``__exit__``; ``number`` (2 to 250) makes its address. ``programs`` are name -> binary, "plane"
    among them, which is the kubelet."""

    def __init__(self, family: Family, number: int, debian: pathlib.Path, programs: t.Mapping[str, pathlib.Path]) -> None:
        self._family, self._debian, self._programs = family, debian, dict(programs)
        self.address = f"100.64.9.{number}"
        self.cgroup = f"{PREFIX}{os.getpid()}-{number}"
        self._cable = f"node{number}"

    def __enter__(self) -> t.Self:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.cgroup}-"))
        try:
            make_cgroup(self.cgroup)
            self._give()
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Its first process takes all others, its mounts and its network with it."""
        if hasattr(self, "_first"):
            self._first.kill()
        remove_cgroup(self.cgroup)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what is there from the start

    def _give(self) -> None:
        given = self.folder / "given"
        (self.folder / "memory").mkdir()
        files: dict[str, str] = {
            "etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\nVERSION_CODENAME=noble\n",
            "etc/stand/address": self.address + "\n",
            "etc/stand/nvidia.toml": NVIDIA,
            "etc/stand/kubelet/50-stand.conf": yaml.safe_dump({**KUBELET, "cgroupRoot": f"/{self.cgroup}"}),
            "etc/containerd/conf.d/98-stand.toml": CONTAINERD,
            "run/systemd/resolve/resolv.conf": "nameserver 127.0.0.1\n",
            "sys/fs/cgroup/cgroup.controllers": "",
        }
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2236")):
            files[f"sys/bus/pci/devices/0000:00:1e.0/{name}"] = value + "\n"
        for unit, command in (("containerd", "/usr/bin/containerd"), ("kubelet", "/usr/bin/kubelet"), ("tailscaled", "sleep inf")):
            files[f"usr/lib/systemd/system/{unit}.service"] = UNIT.format(command)
        for path, text in files.items():
            (given / path).parent.mkdir(parents=True, exist_ok=True)
            (given / path).write_text(text)
        commands = {name: f"#!/bin/bash\n{script}\n" for name, script in PLAYED.items()}
        commands["systemctl"] = (HERE / "systemctl").read_text()
        commands["kubelet"] = (
            '#!/bin/bash\n[[ ${1-} == --version ]] || set -- "$@" --config-dir=/etc/stand/kubelet\nexec plane kubelet "$@"\n'
        )
        for folder in ("usr/bin", "usr/sbin"):  # some stand in the one and some in the other, where they are this machine's own
            (given / folder).mkdir(parents=True, exist_ok=True)
            for name, text in commands.items():
                (given / folder / name).write_text(text)
                (given / folder / name).chmod(0o755)
        (given / "usr/bin/nvidia-container-runtime").symlink_to("/usr/sbin/runc")
        for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables"):  # Debian's alternatives
            (given / "usr/sbin" / name).symlink_to("/usr/sbin/xtables-nft-multi")
        (given / "opt/cni").mkdir(parents=True)
        (given / "opt/cni/bin").symlink_to("/usr/lib/cni")

    def _begin(self) -> None:
        # fmt: off
        self._first = self._family.start(
            self.cgroup,
            [
                "unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--propagation", "private",
                "bash", str(HERE / "begin.sh"), str(self.folder), str(self._debian),
                *(f"{name}={path}" for name, path in self._programs.items()),
            ],
            self.folder / "log",
        )
        # fmt: on
        self.until(lambda: self._inner() and (self.root / "run/begun").exists(), 120, "the machine to begin")
        cable = ["ip", "link", "add", self._cable, "mtu", "1280", "type", "veth", "peer", "name", "tailscale0", "mtu", "1280"]
        subprocess.run([*cable, "netns", str(self._inner())], check=True)
        subprocess.run(["ip", "link", "set", self._cable, "up", "master", "mesh"], check=True)
        self.run("ip", "address", "add", f"{self.address}/{NETWORK}", "dev", "tailscale0")
        self.run("ip", "link", "set", "tailscale0", "up")

    def _inner(self) -> int:
        """The first process of the machine, as it is called outside; 0 = not there."""
        pid = self._first.pid
        try:
            return int((pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or ["0"])[0])
        except OSError:
            return 0

    # ---- what is done with it

    @property
    def root(self) -> pathlib.Path:
        """Its files, as long as it lives."""
        return pathlib.Path(f"/proc/{self._inner()}/root")

    def text(self, path: str) -> str:
        """A file of it, "" without."""
        file = self.root / path.lstrip("/")
        return file.read_text(errors="replace") if file.exists() else ""

    def run(self, *words: str, given: bytes = b"", check: bool = True, **environment: str) -> str:
        """A command in it; what it printed."""
        enter = ["nsenter", f"--target={self._inner()}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd"]
        variables = [f"PATH={PATH}", *(f"{name}={value}" for name, value in environment.items())]
        done = subprocess.run(
            [*enter, "env", "-i", *variables, *words],
            input=given, capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        if check and done.returncode:
            raise MachineFailed(f"{' '.join(words)[:200]}: {(done.stdout + done.stderr).decode(errors='replace')[-800:]}")
        return done.stdout.decode(errors="replace")

    def write(self, path: str, text: str, mode: int) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def install(self, kubelet: str, mesh: str = "tailscale") -> None:
        """What apt would have done: the record of the bootstrap program that these packages are there."""
        self.write("/var/lib/tgp/packages", f"{kubelet} {mesh} 1\n", 0o644)

    def boot(self, cloud_config: str, **environment: str) -> None:
        """As cloud-init does: the files, then the commands. ``environment`` is for the bootstrap program."""
        document = yaml.safe_load(cloud_config)
        for file in document["write_files"]:
            content = file["content"]
            if file.get("encoding"):
                content = gzip.decompress(base64.b64decode(content)).decode()
            self.write(file["path"], content, int(file["permissions"], 8))
        for command in document["runcmd"]:
            self.run(*command, **environment)

    @property
    def step(self) -> str:
        """The bootstrap program's last word: the name of a step, "fail NAME" or "done"."""
        return self.text("/run/tgp.step").strip()

    @property
    def log(self) -> list[str]:
        """What it said, without times."""
        lines = self.text("/var/log/tgp-bootstrap.log").splitlines()
        return [line.partition(" ")[2] for line in lines if line[:4].isdigit() and line[10:11] == "T"]

    def until(self, there: t.Callable[[], t.Any], seconds: float, what: str) -> t.Any:
        """The first true answer."""
        end = time.monotonic() + seconds
        while not (found := there()):
            if not self._first.alive:
                raise MachineFailed(f"the machine ended: {self._first.last_words()}")
            if time.monotonic() > end:
                names = ("tgp-bootstrap.log", "containerd.service.log", "kubelet.service.log")
                told = [self.text(f"/var/log/{name}")[-1500:] for name in names]
                raise MachineFailed(f"waited {seconds:.0f} s for {what}:\n" + "\n---\n".join(told))
            time.sleep(0.1)
        return found
