# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device plugin on a machine of the stand, and pods that ask for shares of its GPUs."""

from __future__ import annotations

import pathlib
import typing as t

from tests.cluster import objects
from tests.cluster.plane import Plane

from . import image
from .machine import Machine

IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
SOCKETS = "/var/lib/kubelet/device-plugins"
# four shares of each GPU; a pod that asks for more than one is refused
CONFIG = """\
version: v1
flags:
  migStrategy: none
  failOnInitError: false
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: true
    resources:
      - {name: nvidia.com/gpu, replicas: 4}
"""


class DevicePlugin:
    """From ``__enter__`` on it runs in a pod on the node; ``__exit__`` takes it and all pods of its namespace away."""

    NAMESPACE = "gpu-device-plugin"
    _PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def __init__(self, plane: Plane, machine: Machine, node: str, program: pathlib.Path) -> None:
        self._plane, self._machine, self._node, self._program = plane, machine, node, program

    def __enter__(self) -> t.Self:
        self._tasks = self._count()
        program = {"usr/bin/nvidia-device-plugin": self._program.read_bytes()}
        archive = image.of_layers([image.layer(program, 0o755)], {"Env": ["PATH=/usr/bin"]}, IMAGE)
        self._machine.run("ctr", "--namespace=k8s.io", "images", "import", "-", given=archive)
        self._plane.create("/api/v1/namespaces", {"metadata": {"name": self.NAMESPACE}})
        self._plane.create(
            f"/api/v1/namespaces/{self.NAMESPACE}/configmaps",
            {"metadata": {"name": "nvidia-device-plugin-config"}, "data": {"config.yaml": CONFIG}},
        )
        container = {
            "name": "nvidia-device-plugin",
            "image": IMAGE,
            "command": ["nvidia-device-plugin"],
            "env": [{"name": "CONFIG_FILE", "value": "/config/config.yaml"}],
            "volumeMounts": [{"name": "sockets", "mountPath": SOCKETS}, {"name": "config", "mountPath": "/config"}],
        }
        volumes = [
            {"name": "sockets", "hostPath": {"path": SOCKETS, "type": "Directory"}},
            {"name": "config", "configMap": {"name": "nvidia-device-plugin-config"}},
        ]
        self._put("nvidia-device-plugin", container, volumes=volumes)
        return self

    def __exit__(self, *_: object) -> None:
        self.unhealthy()
        for one in self._plane.get(self._PODS)["items"]:
            self._plane.delete(f"{self._PODS}/{one['metadata']['name']}", gracePeriodSeconds=1)
        self._plane.delete(f"/api/v1/namespaces/{self.NAMESPACE}")
        self._machine.until(lambda: self._count() == self._tasks, 30, "the containers of the device plugin and its pods to end")

    def _count(self) -> int:
        return len(self._machine.run("ctr", "--namespace=k8s.io", "tasks", "list", "--quiet").split())

    def _put(self, name: str, container: dict[str, t.Any], **more: t.Any) -> None:
        spec = {
            "containers": [container],
            "nodeName": self._node,
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            **more,
        }
        objects.pod(self._plane, self.NAMESPACE, name, spec)

    def pod(self, name: str, shares: int) -> str:
        """One that asks for so many shares of a GPU; its name."""
        limits = {objects.GPU: str(shares)}
        self._put(name, {"name": "main", "image": image.NAME, "imagePullPolicy": "Never", "resources": {"limits": limits}})
        return name

    def phase(self, name: str) -> str:
        return str(self._plane.get(f"{self._PODS}/{name}")["status"].get("phase"))

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
        return self._plane.http.get(f"{self._PODS}/nvidia-device-plugin/log").text.count("Registered device plugin for")
