# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device plugin on a machine of the stand, and pods that ask for shares or MIG instances of its GPUs."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import faults, of_content, of_replicas
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
MIXED = {"version": "v1", "flags": {"migStrategy": "mixed", "failOnInitError": True}}


class DevicePlugin:
    """From ``__enter__`` on the objects of our role are in the cluster, with four replicas of each GPU, or with MIG instances where ``divided``
    has them (profile to the number on each of two GPUs); the plugin in their image is ours. ``__exit__`` takes them and all pods of their
    namespace away."""

    _PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
    _DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{NAME}"

    def __init__(
        self,
        plane: Plane,
        kube: Kube,
        machine: Machine,
        node: str,
        program: pathlib.Path,
        divided: t.Mapping[str, int] | None = None,
    ) -> None:
        self._plane, self._kube, self._machine, self._node, self._program = plane, kube, machine, node, program
        self._divided = divided or {}

    def __enter__(self) -> t.Self:
        self._tasks = self._count()
        program = {"usr/bin/nvidia-device-plugin": self._program.read_bytes()}
        archive = image.of_layers([image.layer(program, 0o755)], {"Env": ["PATH=/usr/bin"]}, IMAGE)
        self._machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", given=archive)
        self._plane.patch(f"/api/v1/nodes/{self._node}", {"metadata": {"labels": SELECTED}})
        if self._divided:
            self._machine.write(f"{SOCKETS}/mig", " ".join(f"{name} {number}" for name, number in self._divided.items()), 0o644)
        self.apply()
        return self

    def apply(self) -> set[str]:
        """What became of the objects. Power limits are among them, and no node has their label."""
        anywhere = Toleration("", "Exists", "", "")
        assert faults(MIXED) == []
        config = of_content(MIXED) if self._divided else of_replicas(4)
        options = PluginOptions((config,), tolerations=(anywhere,), power_limits=PowerLimits())
        return {one.result for one in apply_objects(self._kube, plugin_objects(options), force=False, dry_run=False)}

    def __exit__(self, *_: object) -> None:
        self.unhealthy()
        self._plane.delete(self._DAEMON_SET, propagationPolicy="Orphan")
        for one in self._plane.get(self._PODS)["items"]:
            self._plane.delete(f"{self._PODS}/{one['metadata']['name']}", gracePeriodSeconds=1)
        self._plane.delete(f"/api/v1/namespaces/{NAMESPACE}")
        namespace = f"/api/v1/namespaces/{NAMESPACE}"
        self._plane.until(
            lambda: self._kube.find(namespace) is None, timeout=120, what="the namespace of the device plugin to be gone"
        )
        self._machine.until(lambda: self._count() == self._tasks, 120, "the containers of the device plugin and its pods to end")

    def _count(self) -> int:
        return len(self._machine.run("ctr", "--namespace=k8s.io", "tasks", "list", "--quiet").split())

    def pod(self, name: str, shares: int, resource: str = objects.GPU, *, bound: bool = True) -> str:
        """One that asks for so many shares of a GPU, or instances of a resource; its name. Not ``bound``: the scheduler has to."""
        limits = {resource: str(shares)}
        spec = {
            "containers": [{"name": "main", "image": image.NAME, "imagePullPolicy": "Never", "resources": {"limits": limits}}],
            **({"nodeName": self._node} if bound else {}),
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

    def until_shown(self, capacity: int, allocatable: int, resource: str = objects.GPU) -> None:
        """Until the Node has so many shares, or instances of a resource."""

        def shown() -> bool:
            status = (objects.node(self._plane, self._node) or {"status": {}})["status"]
            found = [status.get(key, {}).get(resource) for key in ("capacity", "allocatable")]
            return found == [str(capacity), str(allocatable)]

        self._plane.until(shown, timeout=60, what=f"the node to show {capacity} {resource}, {allocatable} of them healthy")

    def unhealthy(self, *gpus: str) -> None:
        """These GPUs or instances are from now on, and no others."""
        self._machine.write(f"{SOCKETS}/unhealthy", " ".join(gpus), 0o644)

    def visible(self) -> list[str]:
        """The GPUs or instances that each running pod may use, as its process has them."""
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
