# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real headscale on loopback, and real Tailscale clients without root: nothing leaves this machine."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time
import typing as t

import httpx
import yaml

from tests.cluster.processes import Child, Installation, free_ports

POLICY = """{
  // machines are made by the keys of this collection
  "tagOwners": {"tag:gpu": ["owner@"], "tag:k8s-cp": ["owner@"]},
  "acls": [{"action": "accept", "src": ["*"], "dst": ["*:*"]}],
}
"""
# Whatever a client would ask of the world goes to a closed port of this machine.
NOWHERE = {name: "http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
SHORT = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "TS_NO_LOGS_NO_SUPPORT": "true", "TS_DISABLE_PORTMAPPER": "true"}


class MeshFailed(Exception):
    """A program ended, or something did not happen in time. The message carries the last lines of its log."""


class Server(Installation):
    """A headscale from ``__enter__`` to ``__exit__``; ``url`` for API and clients, ``api_key`` for the API."""

    def __init__(self, headscale: pathlib.Path, tailscale: pathlib.Path, *, ephemeral: str = "30m") -> None:
        super().__init__("tgp-mesh-")
        self._headscale, self._tailscale, self._ephemeral = headscale, tailscale, ephemeral
        self._nodes = 0

    def _start(self) -> None:
        port, metrics, grpc, stun = free_ports(4)
        self.url = f"http://127.0.0.1:{port}"
        relay = {"name": "1a", "regionid": 1, "hostname": "127.0.0.1", "ipv4": "127.0.0.1", "stunport": stun, "stunonly": True}
        (self.folder / "derp.yaml").write_text(
            yaml.safe_dump({"regions": {1: {"regionid": 1, "regioncode": "here", "regionname": "here", "nodes": [relay]}}})
        )
        config = {
            "server_url": self.url,
            "listen_addr": f"127.0.0.1:{port}",
            "metrics_listen_addr": f"127.0.0.1:{metrics}",
            "grpc_listen_addr": f"127.0.0.1:{grpc}",
            "noise": {"private_key_path": str(self.folder / "noise.key")},
            "prefixes": {"v4": "100.64.0.0/10", "v6": "fd7a:115c:a1e0::/48"},
            "derp": {
                "server": {"enabled": False},
                "urls": [],
                "paths": [str(self.folder / "derp.yaml")],
                "auto_update_enabled": False,
            },
            "disable_check_updates": True,
            "ephemeral_node_inactivity_timeout": self._ephemeral,
            "database": {"type": "sqlite", "sqlite": {"path": str(self.folder / "db.sqlite")}},
            "policy": {"mode": "database"},
            "dns": {"magic_dns": False, "override_local_dns": False, "base_domain": "mesh.example"},
            "unix_socket": str(self.folder / "hs.sock"),
            "log": {"level": "info"},
        }
        (self.folder / "config.yaml").write_text(json.dumps(config))
        child = self.family.start(
            "headscale",
            [str(self._headscale), "serve", "--config", str(self.folder / "config.yaml")],
            self.folder / "headscale.log",
        )
        self.until(self._healthy, "headscale to answer", child)
        self.command("users", "create", "owner")
        self.api_key = self.command("apikeys", "create", "--expiration", "1h").strip().splitlines()[-1]
        (self.folder / "policy.hujson").write_text(POLICY)
        self.command("policy", "set", "--file", str(self.folder / "policy.hujson"))

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def command(self, *words: str) -> str:
        """A command of headscale's own, as its administrator would type it."""
        done = subprocess.run(
            [str(self._headscale), *words, "--config", str(self.folder / "config.yaml")], capture_output=True, text=True, timeout=30
        )
        if done.returncode:
            raise MeshFailed(f"headscale {words[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def node(self) -> Node:
        """A fresh machine with a Tailscale client that has never logged in."""
        self._nodes += 1
        folder = self.folder / f"n{self._nodes}"
        folder.mkdir()
        (folder / "tailscale").symlink_to(self._tailscale)
        (folder / "tailscaled").symlink_to(self._tailscale)
        child = self.family.start(
            "env",
            [
                "/usr/bin/env", *(f"{name}={value}" for name, value in (NOWHERE | SHORT).items()),
                str(folder / "tailscaled"), "--tun=userspace-networking", "--state=mem:", f"--statedir={folder}",
                f"--socket={folder / 's'}", "--port=0", "--no-logs-no-support",
            ],
            folder / "log",
        )  # fmt: skip
        self.until((folder / "s").exists, "tailscaled to listen", child)
        return Node(folder, self.url, child)

    def until(self, there: t.Callable[[], t.Any], what: str, child: Child | None = None, timeout: float = 60) -> t.Any:
        """The first true answer."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if found := there():
                return found
            if child is not None and not child.alive:
                raise MeshFailed(f"{child.name} ended: {child.last_words()}")
            time.sleep(0.1)
        raise MeshFailed(f"waited {timeout:.0f} s for {what}: {child.last_words() if child else ''}")


class Node:
    """One Tailscale client."""

    def __init__(self, folder: pathlib.Path, server: str, child: Child) -> None:
        self.folder, self.server, self.child = folder, server, child

    def run(self, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A command of the client."""
        return subprocess.run(
            [str(self.folder / "tailscale"), f"--socket={self.folder / 's'}", *words],
            capture_output=True, text=True, timeout=timeout, env={**os.environ, **NOWHERE, **SHORT},
        )  # fmt: skip

    def up(self, key: str, hostname: str, *flags: str, seconds: int = 30) -> str:
        """Log in as the collection's lanes do. "" when it worked, else what the client said."""
        secret = self.folder / "authkey"
        secret.write_text(key)
        done = self.run(
            "up", f"--authkey=file:{secret}", f"--hostname={hostname}", "--accept-dns=false", f"--timeout={seconds}s",
            f"--login-server={self.server}", *flags, timeout=seconds + 30,
        )  # fmt: skip
        return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or "no words"

    def address(self) -> str:
        return self.run("ip", "-4").stdout.strip()

    def state(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.run("status", "--json").stdout))

    def logout(self) -> None:
        self.run("logout")
