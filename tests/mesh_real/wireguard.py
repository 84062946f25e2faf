# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with real WireGuard: each a network namespace with a /run of its own, cabled to the hub. Nothing leaves this machine."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.conf import generate

from tests.cluster.processes import Child, Installation

INTERFACE = "wg-tgp"
HUB_ADDRESS, PORT = "10.77.0.1", 51820
PROGRAMS = ("curl", "ip", "mount", "nsenter", "unshare")
_BEGIN = "mount -t tmpfs tmpfs /run && ip link set lo up && touch /run/begun && exec sleep infinity"
# "/": one line. "/stream": a line every 50 ms, for as long as the caller stays.
SERVER = f"""
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from the hub\\n")
        while self.path == "/stream":
            self.wfile.write(b"still here\\n")
            self.wfile.flush()
            time.sleep(0.05)
http.server.ThreadingHTTPServer(("{HUB_ADDRESS}", 8080), Handler).serve_forever()
"""


def why_not() -> str:
    """What this machine lacks, in one line; empty when it can."""
    if os.geteuid() != 0:
        return "wireguard: not run, it needs root for network namespaces of its own"
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        return f"wireguard: not run, it needs {', '.join(missing)}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "wireguard: not run, there is no /dev/net/tun"
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", "mount -t tmpfs tmpfs /run && ip link set lo up"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"wireguard: not run, namespaces are refused here ({tried.stderr.strip()[-120:]})" if tried.returncode else ""


class Host:
    """A machine with namespaces of its own and a key pair."""

    def __init__(self, laboratory: Laboratory, name: str, address: str) -> None:
        self.name, self.address, self.folder, self.outside = name, address, laboratory.folder / name, ""
        self.folder.mkdir()
        self.private_key, self.public_key = generate()
        self._laboratory = laboratory
        unshared = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", _BEGIN]
        self.first = laboratory.family.start(name, unshared, self.folder / "log")
        laboratory.until(lambda: pathlib.Path(f"/proc/{self.first.pid}/root/run/begun").exists(), f"{name} to begin")

    def enter(self, *words: str) -> list[str]:
        """The command line that runs ``words`` in this machine."""
        return ["nsenter", f"--target={self.first.pid}", "--mount", "--net", *words]

    def run(self, *words: str, check: bool = True, given: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.enter(*words),
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self._laboratory.environment,
        )
        if check and done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {done.stdout}{done.stderr}")
        return done

    def start(self, name: str, *words: str) -> Child:
        return self._laboratory.family.start(f"{self.name}-{name}", self.enter(*words), self.folder / f"{name}.log")

    def tunnel(self, conf: pathlib.Path) -> Child:
        """Start the interface from a file of wg-quick, as ``wg-quick up`` would, but with the program that is here."""
        child = self.start("wireguard", str(self._laboratory.tree / "usr/bin/wireguard-go"), "-f", INTERFACE)
        self._laboratory.until(
            lambda: self.run("wg", "show", INTERFACE, check=False).returncode == 0, f"{self.name}'s interface", child
        )
        self.run("wg", "setconf", INTERFACE, "/dev/stdin", given=self.run("wg-quick", "strip", str(conf)).stdout)
        self.run("ip", "address", "add", f"{self.address}/24", "dev", INTERFACE)
        self.run("ip", "link", "set", INTERFACE, "mtu", "1420", "up")
        return child

    def reaches_the_hub(self, seconds: int = 20) -> bool:
        """Whether HTTP passes the tunnel."""
        words = ["curl", "-s", "--noproxy", "*", "--max-time", str(seconds), f"http://{HUB_ADDRESS}:8080/"]
        return self.run(*words, check=False).stdout == "hello from the hub\n"


class Laboratory(Installation):
    """A hub with a web server, reached through the tunnel only, and machines around it."""

    def __init__(self, tree: pathlib.Path) -> None:
        super().__init__("tgp-wg-")
        self.tree = tree
        self.environment = {**os.environ, "PATH": f"{tree}/usr/bin:{os.environ['PATH']}"}
        self._nodes = 0

    def _start(self) -> None:
        self.hub = Host(self, "hub", HUB_ADDRESS)

    def open_hub(self, conf: str) -> pathlib.Path:
        """Start the hub's interface and its server; the path of its file."""
        path = self.hub.folder / f"{INTERFACE}.conf"
        path.write_text(conf)
        path.chmod(0o600)
        self.wireguard = self.hub.tunnel(path)
        server = self.hub.start("server", sys.executable, "-c", SERVER)
        self.until(lambda: self.hub.reaches_the_hub(2), "the server", server)
        return path

    def node(self, name: str) -> Host:
        """A machine whose tunnel is set up for the hub, whether or not the hub lets it in."""
        self._nodes += 1
        node = Host(self, name, f"10.77.0.{10 + self._nodes}")
        cable, ours, its = f"cable{self._nodes}", f"198.51.100.{4 * self._nodes + 1}", f"198.51.100.{4 * self._nodes + 2}"
        self.hub.run("ip", "link", "add", cable, "type", "veth", "peer", "name", "out", "netns", str(node.first.pid))
        self.hub.run("ip", "address", "add", f"{ours}/30", "dev", cable)
        self.hub.run("ip", "link", "set", cable, "up")
        node.run("ip", "address", "add", f"{its}/30", "dev", "out")
        node.run("ip", "link", "set", "out", "up")
        path = node.folder / f"{INTERFACE}.conf"
        path.write_text(
            f"[Interface]\nPrivateKey = {node.private_key}\n\n[Peer]\nPublicKey = {self.hub.public_key}\n"
            f"Endpoint = {ours}:{PORT}\nAllowedIPs = 10.77.0.0/24\nPersistentKeepalive = 25\n"
        )
        node.tunnel(path)
        node.outside = its
        return node

    def handshake(self, node: Host) -> int:
        """When the hub heard of the machine's session last; 0 = never."""
        lines = self.hub.run("wg", "show", INTERFACE, "latest-handshakes").stdout.splitlines()
        return int(dict(line.split("\t") for line in lines).get(node.public_key, 0))

    def until(self, there: t.Callable[[], t.Any], what: str, child: Child | None = None, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not there():
            if time.monotonic() > end or (child is not None and not child.alive):
                raise RuntimeError(f"waited for {what}: {child.last_words() if child else ''}")
            time.sleep(0.05)
