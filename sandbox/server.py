# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox on loopback: one port per service, and a file of NAME=value lines that tells where they are."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import threading
import time
import traceback
import typing as t

from cheroot import wsgi

from . import control, mesh_proxy
from .box import KUBERNETES, Box
from .clock import SimClock
from .cluster import Cluster
from .kube import KubeServer
from .kube.server import KEPT_OPEN
from .scenario import Scenario
from .wsgi import App

_THREADS = 24
# asked once for each machine: a delayed answer holds a thread, and those of a real service hold up no other
_OF_MANY = {"webhook": 128, "tailscale": 128}
_CREDENTIALS = (
    "GCP_SERVICE_ACCOUNT_CONTENTS",
    "LAMBDA_API_KEY",
    "VAST_API_KEY",
    "RUNPOD_API_KEY",
    "PAPERSPACE_API_KEY",
    "VULTR_API_KEY",
    "TS_OAUTH_CLIENT_ID",
    "TS_OAUTH_CLIENT_SECRET",
)
_ADDRESSES = {
    "gcp": "GCP_API_URL",
    "lambda": "LAMBDA_API_URL",
    "vast": "VAST_URL",
    "runpod": "RUNPOD_API_URL",
    "paperspace": "PAPERSPACE_API_URL",
    "vultr": "VULTR_API_URL",
    "tailscale": "TAILSCALE_API_URL",
    "image_factory": "IMAGE_FACTORY_URL",
    "webhook": "WEBHOOK_URL",
    "mesh_proxy": "TGP_MESH_PROXY",
    "control": "SANDBOX_URL",
}


class Port:
    """One app on one port of 127.0.0.1."""

    def __init__(self, name: str, app: App, threads: int = _THREADS) -> None:
        self._server = wsgi.Server(
            ("127.0.0.1", 0), app, numthreads=threads, request_queue_size=256, timeout=30, shutdown_timeout=1
        )
        self._server.keep_alive_conn_limit = KEPT_OPEN
        if name == "mesh_proxy":
            self._server.ConnectionClass = mesh_proxy.ProxyConnection
        self._server.error_log = _log  # type: ignore[method-assign, assignment]
        self._server.prepare()
        self.url = f"http://127.0.0.1:{self._server.bind_addr[1]}"
        self._thread = threading.Thread(target=self._server.serve, name=f"serve-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(5)


def _log(message: str = "", level: int = 20, traceback_wanted: bool = False, **more: t.Any) -> None:
    """What a server has to say about itself; a client that hung up is not worth a word."""
    if level >= logging.ERROR:
        print(f"sandbox: {message}", file=sys.stderr)
        if traceback_wanted or more.get("traceback"):
            traceback.print_exc()


class Served:
    """A running sandbox. ``environment`` are the NAME=value pairs; :meth:`stop` ends it and removes what it wrote."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        speed: float = 1.0,
        behind: float = 0.0,
        seed: int = 0,
        kubeconfig: str | None = None,
        state_dir: str | None = None,
        env_file: str | None = None,
    ) -> None:
        self._env_file = pathlib.Path(env_file).resolve() if env_file else None
        if self._env_file is not None and self._env_file.is_dir():
            raise IsADirectoryError(f"{env_file} is a folder; the environment goes to a file")
        cluster = Cluster.of_kubeconfig(kubeconfig) if kubeconfig else None  # first: it may refuse
        if cluster is not None:
            cluster.answer(kubeconfig or "")
        self._own_folder = state_dir is None
        self.folder = pathlib.Path(state_dir or tempfile.mkdtemp(prefix="tgp-sandbox-")).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._written = ""  # what the environment's file says since it is ours
        self._ports: dict[str, Port] = {}
        self._kube_server: KubeServer | None = None
        clock_file = str(self.folder / "clock.json")
        try:
            self.box = Box(scenario, clock=SimClock(speed, clock_file, time.time() - behind), seed=seed, cluster=cluster)
        except BaseException:
            self._leave_folder()
            raise
        self.environment: dict[str, str] = {}
        try:
            if self._env_file is not None:  # one that was killed leaves its own: nobody may begin by that
                self._env_file.unlink(missing_ok=True)
            self._serve(kubeconfig)
            if self._env_file is not None:
                self._write_environment(self._env_file)
        except BaseException:
            self.stop()
            raise

    def _serve(self, kubeconfig: str | None) -> None:
        box, environment = self.box, self.environment
        if box.kube is not None:
            self._kube_server = KubeServer(box.kube, app=t.cast(t.Any, box.apps[KUBERNETES])).start()
            box.cluster.move(self._kube_server.url)
            kubeconfig = str(self.folder / "kubeconfig")
            box.kube.write_kubeconfig(kubeconfig, self._kube_server.url)
        apps: dict[str, App] = {**box.apps, "control": control.app(box)}
        for name, app in apps.items():
            if name != KUBERNETES:
                self._ports[name] = Port(name, app, _OF_MANY.get(name, _THREADS))
                environment[_ADDRESSES[name]] = self._ports[name].url
        box.machines.login_servers.add(environment["TAILSCALE_API_URL"])
        secrets_file = str(self.folder / "talos-secrets.yaml")
        box.talos.write(secrets_file)
        state = self.folder / "tgp"
        state.mkdir(mode=0o700, exist_ok=True)
        environment.update({name: box.world.secrets[name] for name in _credentials(box)})
        environment.update(
            KUBECONFIG=str(pathlib.Path(str(kubeconfig)).resolve()),
            TGP_CLOCK_FILE=str(self.folder / "clock.json"),
            TGP_STATE_DIR=str(state),
            TGP_TALOS_SECRETS=secrets_file,
            TGP_CONTROL_PLANE_ENDPOINT=box.cluster.endpoint,
        )
        box.start()

    def _write_environment(self, path: pathlib.Path) -> None:
        """At once or not at all: whoever sees the file sees all of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(self.environment.items()))
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        self._written = text

    def table(self) -> list[tuple[str, str]]:
        """What runs where, for people."""
        rows = [(name.replace("_", " "), port.url) for name, port in self._ports.items()]
        rows.append(("kubernetes" if self._kube_server else "kubernetes (yours)", self.box.cluster.endpoint))
        return rows

    def stop(self) -> None:
        self._remove_environment()
        self.box.stop()
        stoppers = [threading.Thread(target=port.stop) for port in self._ports.values()]
        if self._kube_server is not None:
            stoppers.append(threading.Thread(target=self._kube_server.stop))
        for thread in stoppers:
            thread.start()
        for thread in stoppers:
            thread.join()
        self._leave_folder()

    def _remove_environment(self) -> None:
        """Another sandbox may have been told the same file since: then it is that one's."""
        if self._env_file is None or not self._written:
            return
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self._env_file.read_text(encoding="utf-8") == self._written:
                self._env_file.unlink()

    def _leave_folder(self) -> None:
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _credentials(box: Box) -> tuple[str, ...]:
    """Names of the credentials that clients are given: a headscale before 0.30 has API keys and no OAuth clients."""
    if not box.world.tailnet.v1_only:
        return _CREDENTIALS
    return (*(name for name in _CREDENTIALS if not name.startswith("TS_OAUTH_")), "TAILSCALE_API_KEY")
