# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the stand-alone device plugin (S4-01): namespace, RuntimeClass, configurations, DaemonSets, Service.

Each configuration has a DaemonSet of its own. A node chooses one by the label nvidia.com/device-plugin.config; a node without the label, or
with a value that names none, gets the default. NVIDIA's chart lets a side car choose, which needs a service account that may read nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import typing as t

from ..kube.client import Json
from ..kube.server_side_apply import with_hash
from ..model import Placement, Toleration
from ..model.labels import (
    APP_NAME_LABEL,
    CONFIG_CHECKSUM_ANNOTATION,
    DEVICE_PLUGIN_CONFIG_LABEL,
    DISRUPTED_TAINT,
    EPHEMERAL_TAINT,
    GPU_LOST_TAINT,
    GPU_PRESENT_LABEL,
    INITIALIZING_TAINT,
    MANAGED_BY_LABEL,
    PLUGIN_CONFIG_LABEL,
    POD_SECURITY_LABELS,
)
from ..model.resources import NVIDIA_GPU
from .config import DEFAULT_KEY, PluginConfig
from .power_limits import NAMESPACE, PowerLimits, power_limit_objects

NAME = "nvidia-device-plugin"
CONFIG_MAP = f"{NAME}-config"
METRICS_SERVICE = f"{NAME}-metrics"
RUNTIME_CLASS = "nvidia"
MANAGER = "tgp.gpu"
IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
METRICS_PORT = 2112
SELECTED = {GPU_PRESENT_LABEL: "true"}
TOLERATED = tuple(
    Toleration(key, "Exists", "", "") for key in (NVIDIA_GPU, EPHEMERAL_TAINT, INITIALIZING_TAINT, DISRUPTED_TAINT, GPU_LOST_TAINT)
)
_SOCKETS = "/var/lib/kubelet/device-plugins"
_CONFIG_FOLDER = "/etc/nvidia-device-plugin"
_HOOK = "/usr/local/bin/nvidia-cdi-hook"  # of Talos's extension; the plugin's default is /usr/bin/nvidia-cdi-hook


@dataclasses.dataclass(frozen=True)
class PluginOptions:
    """What to install. ``configs``: the default one first. ``talos``: its release as it was given, None = it was
    not. ``talos_seen``: the oldest one on the cluster's nodes, where all have one. ``power_limits``: None = no GPU is limited."""

    configs: tuple[PluginConfig, ...]
    image: str = IMAGE
    selector: t.Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(SELECTED))
    tolerations: tuple[Toleration, ...] = TOLERATED
    talos: tuple[int, int] | None = None
    talos_seen: tuple[int, int] | None = None
    metrics: bool = True
    power_limits: PowerLimits | None = None

    @property
    def placement(self) -> Placement:
        return Placement(tolerations=self.tolerations)


def plugin_objects(options: PluginOptions) -> list[Json]:
    """All objects, in an order in which they can be applied."""
    objects = [_namespace(), _runtime_class(), _config_map(options.configs)]
    objects += [_daemon_set(options, config) for config in options.configs]
    if options.metrics:
        objects.append(_service())
    if options.power_limits is not None:
        objects += power_limit_objects(options.power_limits)
    return [with_hash(one) for one in objects]


def power_objects(options: PluginOptions) -> list[Json]:
    """The same for the power limits alone, where another plugin serves the nodes; empty without limits."""
    if options.power_limits is None:
        return []
    return [with_hash(one) for one in (_namespace(), *power_limit_objects(options.power_limits))]


def tolerations_of(options: PluginOptions) -> list[Json]:
    return [toleration_object(one) for one in options.tolerations]


def daemon_set_name(key: str) -> str:
    return NAME if key == DEFAULT_KEY else f"{NAME}-{key}"


def checksum(config: PluginConfig) -> str:
    """Changes with the configuration, so that a change of it replaces the pods that read it at their start, and no others."""
    return hashlib.sha256(config.text.encode()).hexdigest()


def _meta(name: str, **more: t.Any) -> Json:
    return {"name": name, "namespace": NAMESPACE, "labels": {APP_NAME_LABEL: NAME, MANAGED_BY_LABEL: MANAGER}, **more}


def _namespace() -> Json:
    labels = {**dict.fromkeys(POD_SECURITY_LABELS, "privileged"), MANAGED_BY_LABEL: MANAGER}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _runtime_class() -> Json:
    meta = {"name": RUNTIME_CLASS, "labels": {MANAGED_BY_LABEL: MANAGER}}
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": meta, "handler": "nvidia"}


def _config_map(configs: t.Iterable[PluginConfig]) -> Json:
    data = {config.key: config.text for config in configs}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(CONFIG_MAP), "data": data}


def _service() -> Json:
    spec = {
        "clusterIP": "None",
        "selector": {APP_NAME_LABEL: NAME},
        "ports": [{"name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": METRICS_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(METRICS_SERVICE), "spec": spec}


def _daemon_set(options: PluginOptions, config: PluginConfig) -> Json:
    chosen = {APP_NAME_LABEL: NAME, PLUGIN_CONFIG_LABEL: "default" if config.key == DEFAULT_KEY else config.key}
    pod = {
        "metadata": {
            "labels": {**chosen, MANAGED_BY_LABEL: MANAGER},
            "annotations": {CONFIG_CHECKSUM_ANNOTATION: checksum(config)},
        },
        "spec": _pod(options, config),
    }
    spec = {
        "selector": {"matchLabels": chosen},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
        "template": pod,
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": _meta(daemon_set_name(config.key)), "spec": spec}


def _pod(options: PluginOptions, config: PluginConfig) -> Json:
    volumes: list[Json] = [
        {"name": "device-plugins", "hostPath": {"path": _SOCKETS, "type": "Directory"}},
        {"name": "config", "configMap": {"name": CONFIG_MAP, "items": [{"key": config.key, "path": DEFAULT_KEY}]}},
    ]
    mounts: list[Json] = [
        {"name": "device-plugins", "mountPath": _SOCKETS},
        {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
    ]
    if config.cdi:
        root = (config.content.get("flags") or {}).get("nvidiaDriverRoot", "/")
        volumes += [
            {"name": "cdi", "hostPath": {"path": "/run/cdi", "type": "DirectoryOrCreate"}},
            {"name": "driver-root", "hostPath": {"path": root, "type": "Directory"}},
        ]
        mounts += [
            {"name": "cdi", "mountPath": "/var/run/cdi"},
            {"name": "driver-root", "mountPath": "/driver-root", "readOnly": True},
        ]
    container = {
        "name": NAME,
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["nvidia-device-plugin"],
        "env": [{"name": name, "value": value} for name, value in _environment(options, config).items()],
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "securityContext": _security(config),
        "volumeMounts": mounts,
    }
    return {
        "priorityClassName": "system-node-critical",
        "runtimeClassName": RUNTIME_CLASS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _nodes(options, config)}},
        "tolerations": tolerations_of(options),
        "containers": [container],
        "volumes": volumes,
    }


def _nodes(options: PluginOptions, config: PluginConfig) -> Json:
    """The nodes of a configuration: those of the selector whose label names it, or names none of the others."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(options.selector.items())]
    others = sorted(one.key for one in options.configs if one.key != DEFAULT_KEY)
    if config.key != DEFAULT_KEY:
        expressions.append({"key": DEVICE_PLUGIN_CONFIG_LABEL, "operator": "In", "values": [config.key]})
    elif others:
        expressions.append({"key": DEVICE_PLUGIN_CONFIG_LABEL, "operator": "NotIn", "values": others})
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


def toleration_object(one: Toleration) -> Json:
    entry = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in entry.items() if value}


def _environment(options: PluginOptions, config: PluginConfig) -> dict[str, str]:
    found = {
        "CONFIG_FILE": f"{_CONFIG_FOLDER}/{DEFAULT_KEY}",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    # what the first nodes run, which may join later, must not change a plugin that does not use the hook
    talos = options.talos or (options.talos_seen if config.cdi else None)
    if talos is not None and talos >= (1, 13):
        found["NVIDIA_CDI_HOOK_PATH"] = _HOOK
    if config.mig != "none":
        found["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    return found


def _security(config: PluginConfig) -> Json:
    """What an option needs beyond the least is listed, with the reason, in docs/how_to/gpus.md."""
    if config.device_specs:
        return {"privileged": True, "readOnlyRootFilesystem": True}
    capabilities: Json = {"drop": ["ALL"]}
    if config.mig != "none":
        capabilities["add"] = ["SYS_ADMIN"]
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": capabilities}
