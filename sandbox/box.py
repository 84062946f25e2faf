# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One whole sandbox: a world, its emulators behind faults and counters, its Kubernetes and its machines.

Tests mount ``box.apps[...]`` in process; server.py puts the same apps on sockets.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
import string
import typing as t

import httpx
import yaml

from . import (
    device_plugin,
    gcp_cloud,
    image_factory,
    lambda_cloud,
    mesh_proxy,
    paperspace_cloud,
    runpod_cloud,
    strangers,
    tailscale,
    vast_cloud,
    vultr_cloud,
    webhook,
)
from .clock import SimClock
from .cluster import Cluster
from .dcgm_exporter import DcgmExporters
from .faults import Faults, FaultyApp
from .hub import Hub
from .kube import KubeApi, KubeServer, serve
from .kube.server import dated
from .kubelets import Kubelets
from .machine import Machines
from .node_ports import NodePorts
from .payload import Intent
from .scenario import Scenario, ScenarioError
from .tailnet import Tailnet
from .tailnet_policy import Policy
from .talos_secrets import TalosSecrets
from .world import Machine, World
from .wsgi import MACHINE_AGENT, App, CountingApp

EMULATORS: dict[str, t.Callable[[World], t.Any]] = {
    "gcp": gcp_cloud.app,
    "lambda": lambda_cloud.app,
    "vast": vast_cloud.app,
    "runpod": runpod_cloud.app,
    "paperspace": paperspace_cloud.app,
    "vultr": vultr_cloud.app,
    "tailscale": tailscale.app,
    "image_factory": image_factory.app,
    "webhook": webhook.app,
    "mesh_proxy": mesh_proxy.app,
}
KUBERNETES = "kubernetes"
IN_PROCESS = "https://sandbox.invalid:6443"


def random_secret(prefix: str = "", length: int = 40) -> str:
    """Not from the world's seed: whoever knows the seed must not know the credentials."""
    return prefix + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


class Box:
    """Everything of one sandbox. ``apps`` maps service to its WSGI app, faults and counting included.

    Without ``cluster`` there is a built-in Kubernetes (``kube``). ``start()`` begins its life, ``stop()`` ends it.
    """

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        clock: SimClock | None = None,
        seed: int = 0,
        cluster: Cluster | None = None,
    ) -> None:
        self.scenario, self.seed = scenario or Scenario(), seed
        self.world = World(clock, seed)
        # rules are counted down while they strike: the scenario itself stays as it is, for another box
        self.faults = Faults(dataclasses.replace(fault) for fault in self.scenario.faults)
        if unknown := {fault.service for fault in self.faults.all()} - {"", *EMULATORS, KUBERNETES}:
            raise ScenarioError(f"{self.scenario.name}.faults: there is no service {', '.join(sorted(unknown))}")
        self.world.secrets.update(
            LAMBDA_API_KEY=random_secret("secret_tgp-sandbox_"),
            VAST_API_KEY=random_secret(length=64).lower(),
            RUNPOD_API_KEY=random_secret("rpa_"),
            PAPERSPACE_API_KEY=random_secret(length=32).lower(),
            VULTR_API_KEY=random_secret(length=36).upper(),
            TS_OAUTH_CLIENT_ID=random_secret("k", 16) + "CNTRL",
            TS_OAUTH_CLIENT_SECRET=random_secret("tskey-client-"),
            TAILSCALE_API_KEY=random_secret("tskey-api-"),
        )
        policy = Policy(self.scenario.policy)
        self.tailnet = Tailnet(
            self.world.clock,
            self.world.random,
            policy,
            lock=self.world.lock,
            profile=self.scenario.profile,
            ephemeral_seconds=self.scenario.ephemeral_seconds,
            last_seen=self.scenario.last_seen,
            node_keys=self.scenario.node_keys,
        )
        self.world.tailnet = self.tailnet
        self.apps: dict[str, App] = {name: self._wrap(make(self.world), name) for name, make in EMULATORS.items()}
        self.kube: KubeApi | None = None
        self.exporters: DcgmExporters | None = None
        if cluster is None:
            # nodes are declared lost by the world itself: after a leap of the clock no heartbeat could be in time
            self.kube = KubeApi(self.world.clock, seed=seed, node_grace=None)
            self.exporters = DcgmExporters(self.kube)
            self.apps[KUBERNETES] = self._wrap(NodePorts(self.kube.app, self.world), KUBERNETES)
            cluster = self._in_process(self.kube)
        self.cluster = cluster
        if cluster.foreign:
            self.world.clock.live_apart(KUBERNETES)
        self.talos = TalosSecrets(cluster.ca_pem)
        self.hub = Hub(self.scenario.hub_config, self.scenario.hub_key)
        self._twins: list[tuple[KubeApi, KubeServer]] = []
        self.kubelets: Kubelets | None = None
        self.machines = self._machines()
        self.scenario.furnish(self.world)

    def _wrap(self, app: App, service: str) -> App:
        counted = CountingApp(FaultyApp(app, self.faults, service, self.world.clock), self.world, service)
        return dated(counted, self.world.clock.now)

    def _in_process(self, kube: KubeApi) -> Cluster:
        return Cluster(IN_PROCESS, kube.authority.pem, app=kube.app, token=kube.admin_token)

    def _machines(self) -> Machines:
        self.kubelets = Kubelets(self.world, self.cluster, self.kube.pod_logs if self.kube is not None else None)
        return Machines(
            self.world,
            self.tailnet,
            self.cluster,
            self.kubelets,
            timings=self.scenario.timings,
            behaviours=self.scenario.behaviours,
            installed=self._installed,
            schematics=self._extensions,
            trustd=(self.talos.trustd_token, self.talos.os_ca),
            hub=self.hub,
        )

    # ---- life

    def start(self) -> Box:
        if self.kube is not None:
            self.kube.start()
            if self.scenario.device_plugin:
                device_plugin.install(self.cluster.admin())
        if self.kubelets is not None:
            self.kubelets.start()
        for machine in list(self.world.machines.values()):
            if machine.details.pop("start_on", False):
                self.world.power_on(machine)
        return self

    def stop(self) -> None:
        """Machines, kubelets and controllers end; no thread of the world is left waiting."""
        self.world.clock.close()
        with self.world.lock:
            threads = [machine.thread for machine in self.world.machines.values() if machine.thread is not None]
        for api, server in self._twins:
            server.stop()
            api.stop()
        self.cluster.leave()
        if self.kube is not None:
            with self.kube.store.lock:  # whoever waits for a change looks up
                self.kube.store.changed.notify_all()
        if self.kubelets is not None:
            self.kubelets.stop()
        if self.kube is not None:
            self.kube.stop()
        for thread in threads:
            thread.join(2)
        self.cluster.close()

    def __enter__(self) -> Box:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def twin(self, *, restored: bool) -> str:
        """The kubeconfig of a second cluster with the same id (strangers.py), which is served until this world ends."""
        assert self.kube is not None
        api = (strangers.restored if restored else strangers.twin)(self.kube, seed=self.seed + 1 + len(self._twins))
        api.start()
        server = serve(api)
        self._twins.append((api, server))
        return server.kubeconfig()

    # ---- views

    def nodes(self) -> list[dict[str, t.Any]]:
        """All Nodes of the cluster; of a foreign one only those that machines of this world became. KubeError when it does not answer."""
        found = self.cluster.admin().call("GET", "/api/v1/nodes")["items"]
        if not self.cluster.foreign:
            return list(found)
        with self.world.lock:
            ours = {machine.details.get("node") for machine in self.world.machines.values()}
        return [node for node in found if node["metadata"]["name"] in ours]

    # ---- what machines ask

    def _installed(self, machine: Machine) -> Intent:
        """The configuration of a machine that was made a node before this world began, with a token of its own."""
        token_id, secret = (random_secret(length=length).lower() for length in (6, 16))
        end = datetime.datetime.now(datetime.timezone.utc) if self.cluster.foreign else self.world.clock.now()
        data = {
            "token-id": token_id,
            "token-secret": secret,
            "expiration": (end + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:nodes",
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{token_id}"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": data,
        }
        if "certificate" not in machine.details:
            self.cluster.admin().call("POST", "/api/v1/namespaces/kube-system/secrets", body)
        return Intent(
            lane="talos",
            node_name=machine.name,
            server=self.cluster.endpoint,
            ca_pem=self.cluster.ca_pem,
            token=f"{token_id}.{secret}",
            kubelet_version="v1.36.3",
            os_image="Talos (v1.13.9)",
        )

    def _extensions(self, schematic: str) -> t.Sequence[str] | None:
        """The official extensions of a schematic of the Image Factory; None when it knows no such id."""
        transport = httpx.WSGITransport(app=self.apps["image_factory"])
        with httpx.Client(transport=transport, base_url="http://factory", headers={"user-agent": f"{MACHINE_AGENT}/1"}) as client:
            answer = client.get(f"/schematics/{schematic}")
        if answer.status_code != 200:
            return None
        customization = (yaml.safe_load(answer.text) or {}).get("customization") or {}
        return list((customization.get("systemExtensions") or {}).get("officialExtensions") or [])
