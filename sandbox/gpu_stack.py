# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with GPUs as they look when all works, and what can be wrong with them: for the diagnosis of GPUs.

The emulator runs no pods and no DaemonSet controller, so the pods of device plugin and power limits, their logs and Events are written here as
a cluster would show them. The Talos API of the nodes is ``talos_api``. Each fault changes what it would change in the real world, in all
places where it would be seen.
"""

from __future__ import annotations

import dataclasses
import typing as t

import yaml

from .kube.api import KubeApi
from .kube.daemon_sets import BY_HAND
from .talos_api import MODULES, VERSION_FILE, NodeState, TalosApi, version_text

Json = dict[str, t.Any]
NAMESPACE, PLUGIN, CONFIG, POWER = "gpu-device-plugin", "nvidia-device-plugin", "nvidia-device-plugin-config", "nvidia-powerlimit"
NODE, OTHER = "gpu-1", "gpu-2"
DRIVER = "580.126.20"
GPUS, REPLICAS = 2, 4
EXTENSIONS = {
    "nvidia-open-gpu-kernel-modules-lts": f"{DRIVER}-v1.13.9",
    "nvidia-container-toolkit-lts": f"{DRIVER}-v1.19.1",
}
_TOLERATIONS = [{"key": key, "operator": "Exists"} for key in ("nvidia.com/gpu", "tgp.io/ephemeral")]
_REGISTERED = (
    "I0820 12:00:02.100000       1 main.go:235] Starting NVIDIA Device Plugin version v0.20.0\n"
    "I0820 12:00:02.400000       1 server.go:197] Starting GRPC server for 'nvidia.com/gpu'\n"
    "I0820 12:00:02.500000       1 server.go:155] Registered device plugin for 'nvidia.com/gpu' with Kubelet\n"
)
_LIMITED = "2026-08-20T12:00:05Z 0, NVIDIA A10, 150.00 W, 150.00 W, 150.00 W, 18.20 W, 0 %\n"


@dataclasses.dataclass
class GpuStack:
    """``healthy()`` furnishes a cluster with two nodes; ``FAULTS[name](stack)`` breaks one thing."""

    api: KubeApi
    talos: TalosApi

    def healthy(self) -> GpuStack:
        self.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.post("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
        self.post(
            f"/api/v1/namespaces/{NAMESPACE}/configmaps", {"metadata": {"name": CONFIG}, "data": {"config.yaml": config_yaml()}}
        )
        for name, kind in ((PLUGIN, "k8s-device-plugin:v0.20.0"), (POWER, "cuda:12.8.1-base-ubuntu22.04")):
            self.post(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets", daemon_set(name, f"nvcr.io/nvidia/{kind}"))
        for number, name in enumerate((NODE, OTHER), 1):
            self.node(name, f"10.0.0.{number}")
            self.daemon_pod(PLUGIN, name, _REGISTERED)
            self.daemon_pod(POWER, name, _LIMITED)
        return self

    def clear(self) -> GpuStack:
        """Everything of ``healthy`` and of faults goes again."""
        self.request("DELETE", "/api/v1/nodes")
        for namespace in (NAMESPACE, "default"):
            self.request("DELETE", f"/api/v1/namespaces/{namespace}/events")
            for pod in self.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
                self.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        self.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        self.request("DELETE", "/apis/node.k8s.io/v1/runtimeclasses")
        self.api.pod_logs.clear()
        return self

    # ---- parts

    def request(self, method: str, path: str, body: t.Any = None) -> Json:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = self.api.request(method, path, body, media=media)
        if status >= 300:
            raise ValueError(f"{method} {path}: {answer}")
        return t.cast(Json, answer)

    def post(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body)

    def node(self, name: str, address: str, *, model: str = "A10") -> None:
        labels = {
            "kubernetes.io/hostname": name, "tgp.io/provisioned": "true", "tgp.io/nodepool": "training", "tgp.io/gpu-count": str(GPUS),
            "tgp.io/gpu-type": model, "nvidia.com/gpu.present": "true",
            **{f"extensions.talos.dev/{key}": value for key, value in EXTENSIONS.items()},
        }  # fmt: skip
        taints = [{"key": "tgp.io/ephemeral", "value": "true", "effect": "NoSchedule"}]
        self.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        status = {
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
            "nodeInfo": {"osImage": "Talos (v1.13.9)", "kubeletVersion": "v1.36.3"},
        }
        self.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        self.shows(name, GPUS * REPLICAS)
        self.talos.nodes[address] = NodeState()

    def shows(self, node: str, allocatable: int, capacity: int | None = None) -> None:
        """GPUs of the Node's status; the plugin keeps unhealthy ones out of what is allocatable."""
        amounts = {"capacity": allocatable if capacity is None else capacity, "allocatable": allocatable}
        status = {
            kind: {"cpu": "30", "memory": "200Gi", "pods": "110", "nvidia.com/gpu": str(amount)} for kind, amount in amounts.items()
        }
        self.request("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})

    def label(self, node: str, labels: t.Mapping[str, str | None]) -> None:
        self.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})

    def extension(self, node: str, values: t.Mapping[str, str | None]) -> None:
        self.label(node, {f"extensions.talos.dev/{key}": value for key, value in values.items()})

    def system(self, node: str = NODE) -> NodeState:
        return self.talos.nodes["10.0.0.1" if node == NODE else "10.0.0.2"]

    def daemon_pod(self, daemon: str, node: str, log: str) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon, "uid": daemon, "controller": True}
        meta = {"name": f"{daemon}-{node}", "labels": {"app.kubernetes.io/name": daemon}, "ownerReferences": [owner]}
        spec = {
            "nodeName": node,
            "containers": [{"name": "ctr", "image": "x"}],
            "tolerations": _TOLERATIONS,
            "runtimeClassName": "nvidia",
        }
        self.post(f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": meta, "spec": spec})
        self.pod_status(NAMESPACE, f"{daemon}-{node}", "Running", state={"running": {}})
        self.api.pod_logs[NAMESPACE, f"{daemon}-{node}"] = log

    def pod_status(self, namespace: str, name: str, phase: str, *, state: Json, **more: t.Any) -> None:
        running = "running" in state
        container = {"name": "ctr", "image": "x", "imageID": "", "ready": running, "restartCount": 0, "state": state}
        conditions = [{"type": "Ready", "status": "True" if running else "False"}]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": [container], **more}
        self.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    def without_plugin(self, node: str = NODE) -> None:
        self.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{PLUGIN}-{node}", {"gracePeriodSeconds": 0})
        self.shows(node, 0)

    def workload(self, *, gpus: int = 1, node: str = "", **spec: t.Any) -> None:
        """A user's pod default/job, which tolerates our taint unless ``spec`` says otherwise."""
        container = {"name": "ctr", "image": "example.com/train:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        body = {"tolerations": _TOLERATIONS, **({"nodeName": node} if node else {}), "containers": [container], **spec}
        self.post("/api/v1/namespaces/default/pods", {"metadata": {"name": "job"}, "spec": body})

    def event(self, reason: str, message: str, *, name: str = "job", namespace: str = "default") -> None:
        involved = {"kind": "Pod", "namespace": namespace, "name": name}
        body = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message,
        }
        self.post(f"/api/v1/namespaces/{namespace}/events", body)

    def run_test_pods(self, *, broken: str = "") -> int:
        """What the kubelets do with test pods that are there: those whose resource or runtime is ``broken`` fail. How many were run."""
        pods = self.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=tgp.io/gpu-test")["items"]
        waiting = [pod for pod in pods if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"]
        for pod in waiting:
            name, limits = pod["metadata"]["name"], pod["spec"]["containers"][0]["resources"]["limits"]
            bad = broken == ("CDI" if "nvidia.com/gpu" in limits else "wrapper")
            self.api.pod_logs[NAMESPACE, name] = (
                "[Vector addition of 50000 elements]\nFailed to allocate device vector A (error code no CUDA-capable device is detected)!\n"
                if bad
                else "| NVIDIA-SMI 580.126.20    Driver Version: 580.126.20    CUDA Version: 13.0 |\n"
                if pod["spec"]["containers"][0].get("command")
                else "[Vector addition of 50000 elements]\nCopy output data from the CUDA device to the host memory\nTest PASSED\nDone\n"
            )
            state = {"terminated": {"exitCode": int(bad)}}
            self.pod_status(NAMESPACE, name, "Failed" if bad else "Succeeded", state=state)
        return len(waiting)

    def log(self, text: str, daemon: str = PLUGIN) -> None:
        self.api.pod_logs[NAMESPACE, f"{daemon}-{NODE}"] = text


def config_yaml(replicas: int = REPLICAS, *, renamed: bool = False) -> str:
    slicing: Json = {"failRequestsGreaterThanOne": True, "resources": [{"name": "nvidia.com/gpu", "replicas": replicas}]}
    sharing = {"timeSlicing": {**slicing, **({"renameByDefault": True} if renamed else {})}}
    return str(yaml.safe_dump({"version": "v1", "sharing": sharing}))


def daemon_set(name: str, image: str) -> Json:
    labels = {"app.kubernetes.io/name": name}
    spec: Json = {
        "runtimeClassName": "nvidia",
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": _TOLERATIONS,
        "containers": [{"name": "ctr", "image": image}],
        "volumes": [{"name": "config", "configMap": {"name": CONFIG if name == PLUGIN else POWER}}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name, "annotations": {BY_HAND: "true"}},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


# ---- what can be wrong


def _module_not_loaded(stack: GpuStack) -> None:
    state = stack.system()
    state.modules = tuple(name for name in state.modules if name not in MODULES)
    state.files.pop(VERSION_FILE)
    state.services["ext-nvidia-persistenced"] = ("Waiting", "Waiting for file /sys/bus/pci/drivers/nvidia to exist")
    stack.log("E0820 12:00:02.1 1 factory.go:113] Incompatible platform detected: no devices found. Waiting indefinitely.\n")
    stack.shows(NODE, 0)


def _cdi_gen_failed(stack: GpuStack) -> None:
    state = stack.system()
    state.services["ext-nvidia-cdi-gen"] = ("Failed", "Failed to run service: exit code 1")
    state.logs["ext-nvidia-cdi-gen"] = (
        'time="2026-08-20T12:00:01Z" level=error msg="failed to generate CDI spec: failed to initialize NVML: ERROR_UNKNOWN"\n'
    )


def _wrong_module(stack: GpuStack) -> None:
    stack.label(NODE, {"tgp.io/gpu-type": "P4000"})
    stack.system().files.pop(VERSION_FILE)
    stack.log("E0820 12:00:02.1 1 factory.go:113] nvml init failed: no devices found\n")
    stack.shows(NODE, 0)


def _version_mismatch(stack: GpuStack) -> None:
    stack.system().files[VERSION_FILE] = version_text("570.211.01")
    stack.log(
        "E0820 12:00:02.1 1 main.go:132] error starting plugins: failed to initialize NVML: Driver/library version mismatch\n"
    )
    stack.shows(NODE, 0)


def _mixed_tracks(stack: GpuStack) -> None:
    stack.extension(NODE, {"nvidia-container-toolkit-lts": None, "nvidia-container-toolkit-production": "595.91.07-v1.19.1"})


def _no_toolkit(stack: GpuStack) -> None:
    stack.extension(NODE, {"nvidia-container-toolkit-lts": None})
    for name in ("ext-nvidia-persistenced", "ext-nvidia-cdi-gen"):
        stack.system().services.pop(name)
    why = 'failed to get sandbox runtime: no runtime for "nvidia" is configured'
    stack.pod_status(NAMESPACE, f"{PLUGIN}-{NODE}", "Pending", state={"waiting": {"reason": "ContainerCreating", "message": why}})
    stack.shows(NODE, 0)


def _no_runtime_class(stack: GpuStack) -> None:
    stack.request("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/nvidia")


def _plugin_not_tolerating(stack: GpuStack) -> None:
    taints = [{"key": "team", "value": "research", "effect": "NoSchedule"}]
    stack.request("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": taints}})
    stack.without_plugin()


def _no_nvml(stack: GpuStack) -> None:
    stack.log('E0820 12:00:02.1 1 factory.go:77] Failed to initialize NVML: could not load NVML library: "libnvidia-ml.so.1"\n')
    stack.shows(NODE, 0)


def _unhealthy_gpu(stack: GpuStack) -> None:
    stack.log(
        _REGISTERED + "I0820 13:10:00.1 1 health.go:159] XidCriticalError: Xid=79 on Device=GPU-9d8f, marking as unhealthy.\n"
    )
    stack.shows(NODE, REPLICAS, GPUS * REPLICAS)


def _slices_not_in_effect(stack: GpuStack) -> None:
    stack.shows(NODE, GPUS)


def _renamed(stack: GpuStack) -> None:
    data = {"config.yaml": config_yaml(renamed=True)}
    stack.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG}", {"data": data})
    amounts = {"nvidia.com/gpu": None, "nvidia.com/gpu.shared": str(GPUS * REPLICAS)}
    for node in (NODE, OTHER):
        stack.request("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
    stack.workload()


def _broken_config(stack: GpuStack) -> None:
    data = {"config.yaml": "version: v1\nsharing:\n  timeSlicing:\n    resources: nvidia.com/gpu\n"}
    stack.request("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{CONFIG}", {"data": data})


def _power_forbidden(stack: GpuStack) -> None:
    why = "Failed to set power management limit for GPU 00000000:00:05.0: Insufficient Permissions\n"
    stack.log(_LIMITED + why, POWER)


def _hook_path(stack: GpuStack) -> None:
    stack.workload(node=NODE)
    why = "failed to create containerd task: failed to create shim task: OCI runtime create failed: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: no such file or directory"  # noqa: E501
    stack.pod_status("default", "job", "Pending", state={"waiting": {"reason": "RunContainerError", "message": why}})


def _two_slices(stack: GpuStack) -> None:
    stack.workload(gpus=2, node=NODE)
    why = "Allocate failed due to request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1"
    stack.pod_status(
        "default", "job", "Failed", state={"terminated": {"exitCode": 1}}, reason="UnexpectedAdmissionError", message=why
    )


def _taint_not_tolerated(stack: GpuStack) -> None:
    stack.workload(tolerations=[])


def _no_node_selected(stack: GpuStack) -> None:
    stack.workload(nodeSelector={"gpu-family": "hopper"})


def _no_free_gpu(stack: GpuStack) -> None:
    for node in (NODE, OTHER):
        container = {"name": "ctr", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(GPUS * REPLICAS)}}}
        spec = {"nodeName": node, "tolerations": _TOLERATIONS, "containers": [container]}
        stack.post("/api/v1/namespaces/default/pods", {"metadata": {"name": f"busy-{node}"}, "spec": spec})
        stack.pod_status("default", f"busy-{node}", "Running", state={"running": {}})
    stack.workload()


def _image_pull(stack: GpuStack) -> None:
    stack.workload(node=NODE)
    why = 'Back-off pulling image "example.com/train:1"'
    stack.pod_status("default", "job", "Pending", state={"waiting": {"reason": "ImagePullBackOff", "message": why}})
    stack.event("Failed", 'Failed to pull image "example.com/train:1": rpc error: code = NotFound: not found')


FAULTS: dict[str, t.Callable[[GpuStack], None]] = {
    "module not loaded": _module_not_loaded,
    "cdi-gen failed": _cdi_gen_failed,
    "wrong module for the GPU": _wrong_module,
    "driver and library mismatch": _version_mismatch,
    "mixed extension tracks": _mixed_tracks,
    "toolkit extension missing": _no_toolkit,
    "RuntimeClass missing": _no_runtime_class,
    "plugin does not tolerate a taint": _plugin_not_tolerating,
    "plugin without NVML": _no_nvml,
    "unhealthy GPU": _unhealthy_gpu,
    "slices not in effect": _slices_not_in_effect,
    "broken plugin configuration": _broken_config,
    "power limit forbidden": _power_forbidden,
    "CDI hook at a wrong path": _hook_path,
    "two slices for one pod": _two_slices,
    "taint not tolerated": _taint_not_tolerated,
    "selector matches no node": _no_node_selected,
    "no free GPU": _no_free_gpu,
    "image cannot be pulled": _image_pull,
    "resource has another name": _renamed,
}
