# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device plugin on a machine of the stand, and pods that ask for shares of its GPUs."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import of_replicas
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.manifests import (
    IMAGE,
    NAME,
    NAMESPACE,
    SELECTED,
    PluginOptions,
    plugin_objects,
)
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.power_limits import PowerLimits
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.server_side_apply import apply_objects
from ansible_collections.tgp.gpu.plugins.module_utils.model import Toleration

from tests.cluster import objects
from tests.cluster.plane import Plane

from . import image
from .machine import Machine

SOCKETS = "/var/lib/kubelet/device-plugins"


class DevicePlugin:
    """From ``__enter__`` on the objects of our role are in the cluster, with four replicas of each GPU; the plugin in their image is ours.
    ``__exit__`` takes them and all pods of their namespace away."""

    _PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
    _DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAME}"

    def __init__(self, plane: Plane, kube: Kube, machine: Machine, node: str, program: pathlib.Path) -> None:
        self._plane, self._kube, self._machine, self._node, self._program = plane, kube, machine, node, program

    def __enter__(self) -> t.Self:
        self._tasks = self._count()
        program = {"usr/bin/nvidia-device-plugin": self._program.read_bytes()}
        archive = image.of_layers([image.layer(program, 0o755)], {"Env": ["PATH=/usr/bin"]}, IMAGE)
        self._machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", given=archive)
        self._plane.patch(f"/api/v1/nodes/{self._node}", {"metadata": {"labels": SELECTED}})
        self.apply()
        return self

    def apply(self) -> set[str]:
        """What became of the objects. Power limits are among them, and no node has their label."""
        anywhere = Toleration("", "Exists", "", "")
        options = PluginOptions((of_replicas(4),), tolerations=(anywhere,), power_limits=PowerLimits())
        return {one.result for one in apply_objects(self._kube, plugin_objects(options), force=False, dry_run=False)}

    def __exit__(self, *_: object) -> None:
        self.unhealthy()
        self._plane.delete(self._DAEMON_SET, propagationPolicy="Orphan")
        for one in self._plane.get(self._PODS)["items"]:
            self._plane.delete(f"{self._PODS}/{one['metadata']['name']}", gracePeriodSeconds=1)
        self._plane.delete(f"/api/v1/namespaces/{NAMESPACE}")
        self._machine.until(lambda: self._count() == self._tasks, 120, "the containers of the device plugin and its pods to end")

    def _count(self) -> int:
        return len(self._machine.run("ctr", "--namespace=k8s.io", "tasks", "list", "--quiet").split())

    def pod(self, name: str, shares: int) -> str:
        """One that asks for so many shares of a GPU; its name."""
        limits = {objects.GPU: str(shares)}
        spec = {
            "containers": [{"name": "main", "image": image.NAME, "imagePullPolicy": "Never", "resources": {"limits": limits}}],
            "nodeName": self._node,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        }
        objects.pod(self._plane, NAMESPACE, name, spec)
        return name

    def status(self, name: str) -> dict[str, t.Any]:
        """Of a pod."""
        return t.cast("dict[str, t.Any]", self._plane.get(f"{self._PODS}/{name}")["status"])

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase"))

    def until_shown(self, capacity: int, allocatable: int) -> None:
        """Until the Node has so many shares."""

        def shown() -> bool:
            status = (objects.node(self._plane, self._node) or {"status": {}})["status"]
            found = [status.get(key, {}).get(objects.GPU) for key in ("capacity", "allocatable")]
            return found == [str(capacity), str(allocatable)]

        self._plane.until(shown, timeout=60, what=f"the node to show {capacity} shares, {allocatable} of them healthy")

    def unhealthy(self, *gpus: str) -> None:
        """These are from now on, and no others."""
        self._machine.write(f"{SOCKETS}/unhealthy", " ".join(gpus), 0o644)

    def visible(self) -> list[str]:
        """The GPUs that each running pod may use, as its process has them."""
        found = []
        for process in (self._machine.root / "proc").glob("[0-9]*"):
            if (process / "cmdline").read_bytes().startswith(b"/idle\0"):
                words = (process / "environ").read_text().split("\0")
                found += [word.partition("=")[2] for word in words if word.startswith("NVIDIA_VISIBLE_DEVICES=")]
        return sorted(found)

    def registrations(self) -> int:
        """How often the plugin says that a kubelet took it."""
        (pod,) = self._plane.get(self._PODS, labelSelector=f"app.kubernetes.io/name={NAME}")["items"]
        return self._plane.http.get(f"{self._PODS}/{pod['metadata']['name']}/log").text.count("Registered device plugin for")
