# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bootstrap program, really run: with the files of a real payload, below another root, among commands that only pretend."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import pathlib
import re
import resource
import shutil
import stat
import subprocess
import tarfile

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.cloud_config import boot
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.script import BOOTSTRAP
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import Payload, documents_for, payload, start_script
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.user_data import pack
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Carrier, Lane, MeshChoice

from tests.fixtures.talos_nodes import NODE_KEY, NODE_TOKEN, make
from tests.fixtures.tunnels import HUB, WIREGUARD, make_tunnelled

STEPS = [
    "preflight",
    "apt-lock",
    "kernel",
    "repositories",
    "packages",
    "driver",
    "mesh",
    "api",
    "containerd",
    "kubelet",
    "erase",
    "done",
]

CARRIED = {
    Carrier.USER_DATA: Capability("a", (Lane.KUBELET,), user_data_limit=1_000_000),
    Carrier.SCRIPT: Capability("b", (Lane.KUBELET,), carrier=Carrier.SCRIPT, user_data_limit=16_000),
    Carrier.ENVIRONMENT: Capability("c", (Lane.KUBELET,), carrier=Carrier.ENVIRONMENT, user_data_limit=32_000),
}

# One program under every name. It notes its call, fails once or always where a file says so, and plays what matters.
PRETEND = r"""#!/bin/bash
name=${0##*/}
call="$name $*"
printf '%s\n' "$call" >>"$PLAY/calls"
if [[ -s $PLAY/fail && $call == $(cat "$PLAY/fail")* ]]; then
  [[ -e $PLAY/always ]] || : >"$PLAY/fail"
  exit 1
fi
case $call in
  id\ -u) echo 0 ;;
  systemd-detect-virt*) [[ -e $PLAY/container ]] ;;
  df*) printf ' Avail\n  90G\n' ;;
  timedatectl*) echo yes ;;
  "sysctl -n"*) echo 1 ;;
  "apt-cache madison"*) echo ' kubelet | 1.36.3-1.1 | https://pkgs.k8s.io' ;;
  "dpkg-query -W -f "*)
    case ${*: -1} in
      kubelet) echo 1.36.3-1.1 ;;
      containerd.io) echo 2.1.4-1~ubuntu.24.04~noble ;;
      kubernetes-cni) echo 1.8.0-1.1 ;;
      tailscale) echo 1.102.2 ;;
      nvidia-container-toolkit) echo 1.19.1-1 ;;
    esac >"$PLAY/version"
    grep -s "^${*: -1} " "$PLAY/installed" | cut -d ' ' -f 2 >"$PLAY/other"
    if [[ -s $PLAY/other ]]; then cat "$PLAY/other"; else cat "$PLAY/version"; fi ;;
  "kubelet --version") echo 'Kubernetes v1.36.3' ;;
  "containerd --version") echo "containerd containerd.io $(cat "$PLAY/containerd") 05044ec" ;;
  "containerd config dump") echo "BinaryName = '/usr/bin/nvidia-container-runtime'" ;;
  getent*) [[ ! -e $PLAY/no-dns ]] && echo "$2  STREAM x" ;;
  "tailscale ip -4 "*) [[ -e $PLAY/magic ]] && echo 100.64.0.1 ;;
  "tailscale ping"*) [[ -e $PLAY/peer ]] ;;
  "ip -o route"*) echo "$4 via 10.0.0.1 dev eth0 src 10.0.0.7 uid 0" ;;
  journalctl*wg-quick*) echo 'RTNETLINK answers: Operation not permitted' ;;
  journalctl*) echo "E0101 bootstrap.go:1] cannot create certificate signing request: Unauthorized" ;;
  "uname -r") echo 6.8.0-50-generic ;;
  nvidia-smi*) [[ ! -e $PLAY/driverless || -e $PLAY/loaded ]] && printf 'GPU 0: NVIDIA A10 (UUID: GPU-0)\n' ;;
  "tailscale ip -4") [[ -e $PLAY/enrolled ]] && echo 100.64.0.7 ;;
  "modprobe nvidia_uvm") touch "$PLAY/loaded" ;;
  "tailscale up"*) touch "$PLAY/enrolled" ;;
  # as systemd: what runs goes on as it was started, until it is started anew
  "systemctl enable --now wg-quick@"* | "systemctl start wg-quick@"*)
    [[ -e $PLAY/tunnel ]] || cp "$TGP_ROOT/etc/wireguard/wg-tgp.conf" "$PLAY/tunnel" ;;
  "systemctl restart wg-quick@"*) cp "$TGP_ROOT/etc/wireguard/wg-tgp.conf" "$PLAY/tunnel" ;;
  "systemctl try-restart tgp-api.service" | "systemctl restart tgp-api.service") rm -f "$PLAY/forwarder" ;;
  "wg show "*" latest-handshakes")
    [[ ! -e $PLAY/known ]] || grep -qF "$(cat "$PLAY/known")" "$PLAY/tunnel" || exit 0
    printf 'c3RyYW5nZXI=\t1700000000\n%s\t%s\n' "$(cat "$PLAY/hub")" "$(cat "$PLAY/handshake")" ;;
  "wg show "*" public-key") echo j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8= ;;
  "containerd config default") printf 'version = 3\n            SystemdCgroup = false\n' ;;
  "systemctl enable --now --no-block tgp-bootstrap.service")
    [[ -z ${TGP_ROOT:-} ]] || "$TGP_ROOT/usr/local/sbin/tgp-bootstrap" </dev/null >/dev/null 2>&1 & ;;
  "systemctl restart kubelet")
    mkdir -p "$TGP_ROOT/var/lib/kubelet/pki"
    [[ -e $PLAY/asks ]] || touch "$TGP_ROOT/var/lib/kubelet/pki/kubelet-client-current.pem" ;;
  curl*http_code*)
    [[ -e $PLAY/forwarder ]] || cp "$TGP_ROOT/etc/systemd/system/tgp-api.service" "$PLAY/forwarder"
    [[ ! -e $PLAY/server ]] || grep -qF "socket-proxyd $(cat "$PLAY/server")" "$PLAY/forwarder" || { printf 000; exit 7; }
    [[ ! -e $PLAY/header ]] || cp "$TGP_ROOT/etc/tgp/api.header" "$PLAY/header"
    cat "$PLAY/code"
    [[ ! -e $PLAY/curl ]] || { cat "$PLAY/curl" >&2; exit "$(sed -E 's/curl: .([0-9]+).*/\1/' "$PLAY/curl")"; } ;;
  curl*/flannel.tgz) while [[ $1 != -o ]]; do shift; done; cat "$PLAY/archive" >"$2" || echo other >"$2" ;;
  curl*)
    while [[ $1 != -o ]]; do shift; done
    host=${3#https://}
    host=${host%%/*}
    case $host in
      pkgs.k8s.io) echo key DE15B14486CD377B9E876E1A234654DA9A296436 ;;
      download.docker.com) echo key 9DC858229FC7DD38854AE2D88D81803C0EBFCD88 ;;
      pkgs.tailscale.com) echo key 2596A99EAAB33821893C0A79458CA832957F5868 ;;
      nvidia.github.io) echo key C95B321B61E88C1809C4F759DDCAE044F796ECB0 ;;
    esac >"$2"
    [[ ! -e $PLAY/key-$host ]] || cat "$PLAY/key-$host" >"$2" ;;
  gpg*--dearmor*)
    while [[ $1 != --output ]]; do shift; done
    grep -q '^key ' "$4" && cat "$4" >"$2" ;;
  gpg*--show-keys*) sed -E 's/^key (.*)/pub:-:4096:1:\nfpr:::::::::\1:\nsub:-:4096:1:\nfpr:::::::::00\1:/' "${*: -1}" ;;
  apt-get*install*gnupg*) [[ ! -e $PLAY/brings-gpg ]] || ln -s pretend "$PLAY/bin/gpg" ;;
esac
"""
# fmt: off
NAMES = (
    "id", "systemd-detect-virt", "df", "timedatectl", "hostnamectl", "systemctl", "swapoff", "modprobe", "sysctl", "apt-get", "apt-cache",
    "apt-mark", "curl", "kubelet", "nvidia-smi", "nvidia-ctk", "tailscale", "containerd", "ctr", "uname", "ip",
    "dpkg", "dpkg-query", "getent", "journalctl", "gpg", "wg",
)
# fmt: on

pytestmark = pytest.mark.skipif(shutil.which("shred") is None, reason="needs GNU coreutils")


class Machine:
    """A pretended Ubuntu machine below a folder."""

    def __init__(self, folder: pathlib.Path, carrier: Carrier = Carrier.USER_DATA, **changes) -> None:
        self.root, self.play = folder / "root", folder / "play"
        (self.play / "bin").mkdir(parents=True)
        stub = self.play / "bin" / "pretend"
        stub.write_text(PRETEND)
        stub.chmod(0o755)
        for name in NAMES:
            (self.play / "bin" / name).symlink_to(stub)
        (self.play / "code").write_text("200")
        (self.play / "containerd").write_text("v2.1.4")
        (self.play / "hub").write_text(HUB)
        (self.play / "handshake").write_text("1763734000")
        self.bus("0x20b0")
        (self.root / "sys/fs/cgroup").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/cgroup.controllers").touch()
        self.release("ubuntu", "24.04")
        made = payload(self.spec(**changes), capability=CARRIED[carrier])
        if carrier is Carrier.USER_DATA:
            self._by_cloud_init(made.text)
        else:
            self._by_script(made)

    @staticmethod
    def spec(**changes):
        return (make_tunnelled if changes.get("mesh") == WIREGUARD else make)(lane=Lane.KUBELET, **changes)

    def _by_cloud_init(self, cloud_config: str) -> None:
        user_data = self.root / "var/lib/cloud/instances/i-1/user-data.txt"
        user_data.parent.mkdir(parents=True)
        user_data.write_text(cloud_config)
        for file in yaml.safe_load(cloud_config)["write_files"]:
            path = self.root / file["path"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = file["content"]
            if file.get("encoding"):
                content = gzip.decompress(base64.b64decode(content)).decode()
            with path.open("a" if file.get("append") else "w") as target:
                target.write(content)
            path.chmod(int(file["permissions"], 8))

    def _by_script(self, made: Payload) -> None:
        """The wrapper is run by bash, from standard input as a cloud may do; what it unpacks and starts is then run by bash, too."""
        (self.root / "run").mkdir()
        (self.root / "etc/environment").write_text(
            'PATH="/usr/bin:/bin"\n' + "".join(f'{name}="{value}"\n' for name, value in reversed(made.environment.items()))
        )
        inner = self.play / "inner"
        (self.play / "bin/bash").write_text(f"#!/bin/sh\ncat >>'{self.play / 'eaten'}'\ncp \"$1\" '{inner}'\n")
        (self.play / "bin/bash").chmod(0o755)
        environment = {"PATH": f"{self.play / 'bin'}:{os.environ['PATH']}", "PLAY": str(self.play)}
        for text in (made.text, None):
            script = self.rooted(text or inner.read_text()).encode()
            subprocess.run(["/bin/bash"], input=script, env=environment, timeout=60, check=True)
        assert not (self.play / "eaten").read_text() and not (self.root / "run/tgp-payload").exists()
        inner.unlink()
        (self.play / "bin/bash").unlink()

    def rooted(self, script: str) -> str:
        """The script with its own absolute paths below this machine's root; here-documents stay as they are."""
        lines, end = [], ""
        for line in script.split("\n"):
            if not end:
                line = re.sub(r"(?<=[ >])/(?=(?:etc|usr|run|var)/)", f"{self.root}/", line)
                found = re.search(r"<<'(\w+)'", line)
                end = found[1] if found else ""
            elif line == end:
                end = ""
            lines.append(line)
        return "\n".join(lines)

    def bus(self, *cards: str, kind: str = "0x030200") -> None:
        """Exactly these NVIDIA devices of this class are on the PCI bus, beside a network card."""
        for number, (vendor, device) in enumerate([("0x1af4", "0x1041"), *(("0x10de", one) for one in cards)]):
            folder = self.root / f"sys/bus/pci/devices/0000:00:{number:02x}.{kind[4]}"
            folder.mkdir(parents=True, exist_ok=True)
            for name, value in (("vendor", vendor), ("class", kind if number else "0x020000"), ("device", device)):
                (folder / name).write_text(value + "\n")

    def release(self, name: str, version: str) -> None:
        path = self.root / "etc/os-release"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"ID={name}\nVERSION_ID={version}\nVERSION_CODENAME=noble\n")

    @property
    def environment(self) -> dict[str, str]:
        """What puts a process on this machine."""
        return {
            "PATH": f"{self.play / 'bin'}:{os.environ['PATH']}",
            "TGP_ROOT": str(self.root),
            "TGP_CONSOLE": str(self.play / "console"),
            "TGP_PATIENCE": "0",
            "TGP_PAUSE": "0",
            "PLAY": str(self.play),
        }

    def run(self) -> int:
        """The exit status of one run; never longer than a few seconds."""
        script = self.root / "usr/local/sbin/tgp-bootstrap"
        return subprocess.run(["bash", str(script)], env=self.environment, timeout=60, capture_output=True, check=False).returncode

    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    @property
    def calls(self) -> list[str]:
        return (self.play / "calls").read_text().splitlines()

    @property
    def steps(self) -> list[str]:
        return [line.split()[-1] for line in self.text("var/log/tgp-bootstrap.log").splitlines() if " tgp-step " in line]


@pytest.fixture(name="machine")
def _machine(tmp_path):
    return Machine(tmp_path)


def _files(folder):
    return {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file() and "sys" not in path.parts}


@pytest.mark.parametrize("carrier", [Carrier.SCRIPT, Carrier.ENVIRONMENT])
@pytest.mark.parametrize("changes", [{}, {"mesh": MeshChoice(backend="none"), "auth_key": ""}, {"mesh": WIREGUARD}])
def test_every_carrier_brings_the_same_files(tmp_path, carrier, changes):
    wanted, made = _files(Machine(tmp_path / "a", **changes).root), _files(Machine(tmp_path / "b", carrier, **changes).root)
    ways = {pathlib.Path("var/lib/cloud/instances/i-1/user-data.txt"), pathlib.Path("etc/environment")}
    assert wanted.keys() - ways == made.keys() - ways
    for name in wanted.keys() - ways:
        assert made[name].read_bytes() == wanted[name].read_bytes(), name
        assert stat.S_IMODE(made[name].stat().st_mode) == stat.S_IMODE(wanted[name].stat().st_mode), name


@pytest.mark.parametrize("carrier", [Carrier.SCRIPT, Carrier.ENVIRONMENT])
def test_a_machine_that_was_told_by_a_script_becomes_a_node_and_keeps_no_secret(tmp_path, carrier):
    machine = Machine(tmp_path, carrier)
    assert machine.calls == ["systemctl daemon-reload", "systemctl enable --now --no-block tgp-bootstrap.service"]
    assert machine.run() == 0 and machine.steps == STEPS
    for path in _files(machine.root).values():
        text = path.read_text()
        assert NODE_KEY not in text and NODE_TOKEN not in text and "TGP_PAYLOAD" not in text.replace("/TGP_PAYLOAD_/d", ""), path
    assert 'PATH="/usr/bin:/bin"' in machine.text("etc/environment")


def test_variables_that_stand_in_the_scripts_own_environment_alone_will_do(tmp_path):
    machine = Machine(tmp_path)
    (machine.root / "run").mkdir()
    made = pack("echo unpacked >&2\n" + "# " + "x y" * 3000, CARRIED[Carrier.ENVIRONMENT], "n")
    environment = {"PATH": os.environ["PATH"], **made.environment}
    ran = subprocess.run(
        ["/bin/bash"], input=machine.rooted(made.user_data).encode(), env=environment, timeout=60, check=True, capture_output=True
    )
    assert ran.stderr.decode().splitlines()[-1] == "unpacked"


def test_a_script_that_runs_at_every_boot_only_switches_on_what_it_wrote_before(tmp_path):
    machine = Machine(tmp_path, Carrier.SCRIPT)
    (machine.root / "etc/tgp/authkey").unlink()
    script = machine.rooted(start_script(boot(*_node())))
    environment = {"PATH": f"{machine.play / 'bin'}:{os.environ['PATH']}", "PLAY": str(machine.play)}
    subprocess.run(["/bin/bash"], input=script.encode(), env=environment, timeout=60, check=True)
    assert not (machine.root / "etc/tgp/authkey").exists()
    assert machine.calls[-1] == "systemctl enable --now --no-block tgp-bootstrap.service"


def _node():
    spec = make(lane=Lane.KUBELET)
    return spec, documents_for(spec, None)[0]


@pytest.mark.parametrize("carrier", [Carrier.SCRIPT, Carrier.ENVIRONMENT])
def test_a_damaged_payload_ends_with_an_error_and_starts_nothing(tmp_path, carrier):
    machine = Machine(tmp_path)
    (machine.root / "etc/environment").write_text("TGP_PAYLOAD_00=H4sIAAAAAAAC/w==\n")
    (machine.root / "run").mkdir()
    text = pack("echo never\n", CARRIED[carrier], "n").user_data
    cut = re.sub("\n(H4sI.{12}).*\n", r"\n\1\n", text)
    environment = {"PATH": f"{machine.play / 'bin'}:{os.environ['PATH']}", "PLAY": str(machine.play)}
    ran = subprocess.run(
        ["/bin/bash"], input=machine.rooted(cut).encode(), env=environment, timeout=60, check=False, capture_output=True
    )
    assert ran.returncode != 0 and b"never" not in ran.stdout and not (machine.root / "run/tgp-payload").exists()


def test_it_is_valid_shell():
    subprocess.run(["bash", "-n"], input=BOOTSTRAP.encode(), check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_against_it():
    found = subprocess.run(["shellcheck", "-s", "bash", "-"], input=BOOTSTRAP.encode(), capture_output=True, check=False)
    assert found.stdout.decode() == ""


def test_all_steps_in_their_order(machine):
    assert machine.run() == 0
    assert machine.steps == STEPS
    assert machine.text("run/tgp.step") == "done\n"
    assert [line.removeprefix("tgp-step ") for line in (machine.play / "console").read_text().splitlines()] == ["done"]


def test_the_console_and_the_files(machine):
    machine.run()
    unit = machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert "--hostname-override=tgp-ml-3f9a2c --node-ip=100.64.0.7" in unit and "\nExecStart=\nExecStart=/usr/bin/kubelet" in unit
    assert "--node-labels=tgp.io/nodepool=ml,tgp.io/provisioned=true" in unit
    assert "SystemdCgroup = true" in machine.text("etc/containerd/config.toml")
    assert "socket-proxyd 100.64.0.1:6443" in machine.text("etc/systemd/system/tgp-api.service")
    assert machine.text("etc/modules-load.d/tgp.conf").split() == ["overlay", "br_netfilter", "nf_conntrack", "vxlan"]
    assert "cni-tgp" in machine.text("etc/cni/net.d/05-tgp.conflist")
    assert "core:/stable:/v1.36/deb/ /" in machine.text("etc/apt/sources.list.d/tgp-kubernetes.list")
    install = next(call for call in machine.calls if call.startswith("apt-get") and "kubelet=" in call)
    assert "kubelet=1.36.3-* containerd.io=2.*" in install and "nvidia-container-toolkit" in install


def test_no_secret_is_left_or_shown(machine):
    machine.run()
    assert "tailscale up --authkey=file:" in "\n".join(machine.calls)
    for path in (path for folder in (machine.root, machine.play) for path in folder.rglob("*") if path.is_file()):
        text = path.read_text()
        assert NODE_KEY not in text and NODE_TOKEN not in text, path
    assert "--bootstrap-kubeconfig" not in machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert stat.S_IMODE((machine.root / "var/log/tgp-bootstrap.log").stat().st_mode) == 0o600


def test_a_second_run_repeats_nothing_that_counts(machine):
    assert machine.run() == 0
    before = len(machine.calls)
    assert machine.run() == 0
    assert machine.calls[before:] == ["systemctl is-active --quiet kubelet"]
    assert machine.text("run/tgp.step") == "done\n"


def test_a_run_after_a_reboot_that_came_too_early_goes_on_with_the_certificate(machine):
    assert machine.run() == 0
    (machine.root / "var/lib/tgp/done").unlink()
    before = len(machine.calls)
    (machine.play / "code").write_text("401")  # Talos's answer to strangers: there is no token any more
    assert machine.run() == 0
    again = machine.calls[before:]
    assert not [call for call in again if call.startswith(("apt-get", "tailscale up"))]
    assert "--bootstrap-kubeconfig" not in machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")


def test_a_forwarder_of_an_earlier_try_is_told_of_another_api_server(machine):
    """The endpoint was wrong, the documents were corrected, and the machine was told again."""
    (machine.play / "server").write_text("100.64.0.9:6443")
    assert machine.run() == 1 and machine.text("run/tgp.step") == "fail api\n"
    settings = machine.root / "etc/tgp/node.env"
    settings.write_text(settings.read_text().replace("100.64.0.1:6443", "100.64.0.9:6443"))
    assert machine.run() == 0 and machine.text("run/tgp.step") == "done\n"


@pytest.mark.parametrize("token", [NODE_TOKEN, "123456.1234567890123456"])
def test_every_token_reaches_the_api_server_as_it_is(tmp_path, token):
    machine = Machine(tmp_path, bootstrap_token=token)
    (machine.play / "header").touch()
    assert machine.run() == 0
    assert (machine.play / "header").read_text() == f"Authorization: Bearer {token}\n"


@pytest.mark.parametrize(
    "call, step",
    [
        ("modprobe vxlan", "kernel"),
        ("sysctl -q", "kernel"),
        ("curl -fsSL", "repositories"),
        ("apt-get", "repositories"),
        ("gpg", "repositories"),
        ("apt-cache", "repositories"),
        ("apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 install --allow-downgrades", "packages"),
        ("apt-mark hold", "packages"),
        ("kubelet --version", "packages"),
        ("containerd --version", "packages"),
        ("hostnamectl", "preflight"),
        ("swapoff", "kernel"),
        ("systemctl enable --now tailscaled", "mesh"),
        ("containerd config default", "containerd"),
        ("containerd config dump", "containerd"),
        ("ctr version", "containerd"),
        ("systemctl enable kubelet", "kubelet"),
        ("tailscale up", "mesh"),
        ("systemctl enable --now tgp-api.socket", "api"),
        ("curl -sS", "api"),
        ("nvidia-ctk", "containerd"),
        ("systemctl restart containerd", "containerd"),
        ("systemctl restart kubelet", "kubelet"),
    ],
)
def test_a_failure_is_named_and_the_next_run_goes_on(machine, call, step):
    (machine.play / "fail").write_text(call)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == f"fail {step}\n"
    assert f"fail {step}: " in machine.text("var/log/tgp-bootstrap.log")
    assert machine.run() == 0
    assert machine.text("run/tgp.step") == "done\n"
    assert sum(one.startswith("tailscale up") for one in machine.calls) == (2 if call == "tailscale up" else 1)


@pytest.mark.parametrize(
    "break_it, step, words",
    [
        (lambda machine: machine.release("debian", "12"), "preflight", "not Ubuntu"),
        (lambda machine: machine.release("ubuntu", "20.04"), "preflight", "Ubuntu 20.04 is not supported"),
        (lambda machine: (machine.play / "container").touch(), "preflight", "a container cannot be"),
        (lambda machine: (machine.root / "sys/fs/cgroup/cgroup.controllers").unlink(), "preflight", "cgroup v2"),
        (
            lambda machine: (machine.root / "sys/bus/pci/devices/0000:00:01.0/vendor").unlink(),
            "driver",
            "no NVIDIA GPU on the PCI bus",
        ),
        (lambda machine: (machine.play / "containerd").write_text("1.7.27"), "packages", "containerd 2 or newer is needed"),
        *(
            (lambda machine, line=line: (machine.play / "installed").write_text(f"{line}\n"), "packages", words)
            for line, words in (
                ("kubelet 1.36.30-1.1", "kubelet 1.36.30-1.1 was installed, and this program is for exactly 1.36.3"),
                ("containerd.io 3.0.0-1", "containerd.io 3.0.0-1 was installed, and this program is for 2.0 or newer, below 3"),
                ("kubernetes-cni 1.1.1-1.1", "this program is for 1.2 or newer, below 2"),
                ("kubernetes-cni 2.0.0-1.1", "this program is for 1.2 or newer, below 2"),
                ("tailscale 1.58.2", "this program is for 1.60 or newer, below 2"),
                ("nvidia-container-toolkit 1.16.2-1", "this program is for 1.17 or newer, below 2"),
            )
        ),
        (lambda machine: (machine.play / "no-dns").touch(), "api", "known neither to DNS nor to the mesh"),
        (lambda machine: (machine.play / "code").write_text("000"), "api", "does not answer tailscale ping either"),
        (
            lambda machine: ((machine.play / "code").write_text("000"), (machine.play / "peer").touch()),
            "api",
            "a grant for tcp:6443",
        ),
        (
            lambda machine: (
                (machine.play / "code").write_text("000"),
                (machine.play / "curl").write_text("curl: (60) SSL certificate problem: certificate is not yet valid\n"),
            ),
            "api",
            "this machine's clock is wrong: curl: (60) SSL certificate problem: certificate is not yet valid",
        ),
        (lambda machine: (machine.play / "code").write_text("401"), "api", "does not know the bootstrap token"),
        (lambda machine: (machine.root / "etc/tgp/bootstrap-kubeconfig").unlink(), "kubelet", "neither a client certificate"),
        (lambda machine: (machine.root / "etc/tgp/authkey").unlink(), "mesh", "no address in the tailnet"),
    ],
)
def test_what_cannot_become_a_node_says_why(machine, break_it, step, words):
    break_it(machine)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == f"fail {step}\n"
    assert words in machine.text("var/log/tgp-bootstrap.log")


def test_the_number_of_gpus_must_be_the_ordered_one(tmp_path):
    machine = Machine(tmp_path, gpu_count=8)
    assert machine.run() == 1
    assert "1 GPUs found, 8 ordered" in machine.text("var/log/tgp-bootstrap.log")


def test_without_gpu_and_mesh(tmp_path):
    machine = Machine(tmp_path, gpu_count=0, mesh=MeshChoice(backend="none"), auth_key="")
    assert machine.run() == 0
    assert machine.steps == [step for step in STEPS if step != "driver"]
    assert not [call for call in machine.calls if call.startswith(("tailscale", "nvidia"))]


def test_a_kubelet_that_gets_no_certificate_is_quoted(machine):
    stub = machine.play / "bin/systemctl"
    stub.unlink()
    stub.write_text("#!/bin/sh\nexit 0\n")
    stub.chmod(0o755)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail kubelet\n"
    assert "Unauthorized" in machine.text("var/log/tgp-bootstrap.log").splitlines()[-1]


def test_a_setting_that_is_missing_is_a_named_failure(machine):
    path = machine.root / "etc/tgp/node.env"
    path.write_text(re.sub("^NODE_NAME=.*\n", "", path.read_text(), flags=re.MULTILINE))
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail preflight\n"
    assert "a setting is missing" in machine.text("var/log/tgp-bootstrap.log")


def test_a_log_that_cannot_be_written_leaves_the_console_its_last_word(machine):
    (machine.root / "var/log/tgp-bootstrap.log").mkdir(parents=True)  # as on a disk that is full: nothing can be added to it
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail kernel\n"
    assert (machine.play / "console").read_text().startswith("fail kernel: ")


def test_a_run_that_is_stopped_from_outside_says_so(machine):
    shell = machine.play / "bin/hostnamectl"
    shell.unlink()
    shell.write_text('#!/bin/sh\nkill -TERM "$PPID"\n')
    shell.chmod(0o755)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail preflight\n"
    assert "stopped from outside" in machine.text("var/log/tgp-bootstrap.log")


@pytest.mark.parametrize("card, flavor", [("0x15f7", ""), ("0x1db6", ""), ("0x1eb8", "-open"), ("0x2901", "-open")])
def test_the_driver_fits_the_generation_of_the_card(machine, card, flavor):
    """P100 and V100 need the closed modules, T4 and B200 the open ones."""
    machine.bus(card)
    (machine.play / "driverless").touch()
    assert machine.run() == 0
    install = next(call for call in machine.calls if call.startswith("apt-get") and "nvidia-headless" in call)
    assert install.endswith(
        f"nvidia-headless-no-dkms-580-server{flavor} nvidia-utils-580-server linux-modules-nvidia-580-server{flavor}-6.8.0-50-generic"
    )
    assert machine.calls.index("modprobe -r nouveau") < machine.calls.index("modprobe nvidia")


def test_a_board_with_switches_gets_the_fabric_manager_of_its_driver(machine):
    machine.bus("0x22a3", kind="0x068000")
    (machine.play / "driverless").touch()
    assert machine.run() == 0
    assert any(call.endswith(" nvidia-fabricmanager-580") for call in machine.calls)
    assert "systemctl enable --now nvidia-fabricmanager" in machine.calls


def test_a_name_of_the_tailnets_own_dns_is_asked_of_tailscale(tmp_path):
    machine = Machine(tmp_path, endpoint="https://cp.tail1234.ts.net:6443")
    (machine.play / "no-dns").touch()
    (machine.play / "magic").touch()
    assert machine.run() == 0
    assert "socket-proxyd 100.64.0.1:6443" in machine.text("etc/systemd/system/tgp-api.service")


APT = shutil.which("apt-get")


@pytest.mark.skipif(APT is None, reason="apt is not installed")
def test_a_repository_that_cannot_be_reached_is_no_repository_without_the_kubelet(machine):
    """The real apt-get, in a world of its own: it ends well although nothing answers, unless it is told to be strict."""
    apt, world = machine.play / "bin/apt-get", machine.play / "apt"
    (world / "lists/partial").mkdir(parents=True)
    lists = machine.root / "etc/apt/sources.list.d"
    place = f"-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts={lists} -o Dir::State={world} -o Dir::Cache={world}"
    apt.unlink()
    apt.write_text(
        f'#!/bin/sh\ncase "$*" in *update) [ -e {lists}/tgp-docker.list ] || exit 0\n'
        f"sed -i 's,https://,http://127.0.0.1:9/,' {lists}/tgp-*.list\n"
        f'exec {APT} {place} "$@" -o Acquire::Retries=0 -o Debug::NoLocking=1;; esac\n'
    )
    apt.chmod(0o755)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail repositories\n"
    end = machine.text("var/log/tgp-bootstrap.log").splitlines()[-1]
    assert "apt-get update failed with the repositories added: E: Failed to fetch http" in end and "no kubelet" not in end


def test_what_the_image_says_of_a_repository_is_set_aside(machine):
    """apt reads no repository that two files sign with two keys."""
    folder = machine.root / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    (folder / "docker.list").write_text("deb [signed-by=/x] https://download.docker.com/linux/ubuntu noble stable\n")
    (folder / "ubuntu.sources").write_text("URIs: http://archive.ubuntu.com/ubuntu\n")
    assert machine.run() == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "docker.list.disabled", "tgp-docker.list", "tgp-kubernetes.list", "tgp-nvidia.list", "tgp-tailscale.list", "ubuntu.sources"
    ]  # fmt: skip
    for path in folder.glob("tgp-*"):
        assert re.fullmatch(r"deb \[signed-by=\S+/etc/apt/keyrings/tgp-\w+\.(asc|gpg)\] https://.+\n", path.read_text())


def test_the_kubelet_waits_for_its_address_after_a_reboot(machine):
    machine.run()
    unit = machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert "\nExecStartPre=/usr/bin/timeout 80 /bin/sh -c 'until ip -o address show to 100.64.0.7/32 | grep -q .;" in unit
    assert '"mtu": 1280' in machine.text("etc/cni/net.d/05-tgp.conflist")


def test_flannel_is_fetched_with_its_checksum(tmp_path):
    machine = Machine(tmp_path, cni="flannel", flannel_cni_url="https://example.org/flannel.tgz", flannel_cni_sha256="a" * 64)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail containerd\n"
    assert "the flannel CNI plugin has another checksum" in machine.text("var/log/tgp-bootstrap.log")
    assert not (machine.root / "opt/cni/bin/flannel").exists()


def test_flannel_with_the_right_checksum_is_installed(tmp_path):
    archive = tmp_path / "flannel.tgz"
    with tarfile.open(archive, "w:gz") as file:
        (tmp_path / "flannel-amd64").write_text("#!/bin/sh\n")
        file.add(tmp_path / "flannel-amd64", "flannel-amd64")
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    (tmp_path / "m").mkdir()
    machine = Machine(tmp_path / "m", cni="flannel", flannel_cni_url="https://example.org/flannel.tgz", flannel_cni_sha256=checksum)
    (machine.play / "archive").write_bytes(archive.read_bytes())
    assert machine.run() == 0
    assert os.access(machine.root / "opt/cni/bin/flannel", os.X_OK)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("changes", [{}, {"mesh": MeshChoice(backend="none"), "auth_key": ""}, {"mesh": WIREGUARD}])
def test_systemd_takes_every_unit(tmp_path, changes, record_property):
    machine = Machine(tmp_path, **changes)
    assert machine.run() == 0
    for path in (
        "usr/local/sbin/tgp-bootstrap",
        "usr/bin/kubelet",
        "usr/bin/timeout",
        "bin/sh",
        "lib/systemd/systemd-socket-proxyd",
    ):
        program = machine.root / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        program.chmod(0o755)
    (machine.root / "etc/systemd/system/kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
    units = ["tgp-bootstrap.service", "tgp-api.socket", "tgp-api.service", "kubelet.service"]
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"--root={machine.root}", *units]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze is too old")
    assert (found.returncode, found.stderr) == (0, "")
    record_property("checked", ("units by systemd-analyze", len(units)))


def test_its_own_work_takes_little_time(machine):
    """All but downloads and the waiting for others: at most 20 seconds of a processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert machine.run() == 0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime < 20
