# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the ConfigMap of the device plugin as the plugin would read it."""

from __future__ import annotations

import typing as t

from ...core.errors import lazy
from ...kube.client import Json, Kube
from ...model.resources import NVIDIA_GPU
from ..gpus.facts import GpuDaemon, PluginConfigMap, SharingConfig

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

_DEFAULT = "config.yaml"


def read_config(kube: Kube, daemons: t.Iterable[GpuDaemon]) -> PluginConfigMap | None:
    """That of the first plugin that names one; None when no plugin does, or it does not exist."""
    for daemon in daemons:
        if daemon.kind == "plugin" and daemon.config_map:
            raw = kube.find(f"/api/v1/namespaces/{daemon.namespace}/configmaps/{daemon.config_map}")
            return None if raw is None else config_of(f"{daemon.namespace}/{daemon.config_map}", raw)
    return None


def config_of(name: str, raw: Json) -> PluginConfigMap:
    """All keys; the default is config.yaml, or the only one there is."""
    data: dict[str, str] = raw.get("data") or {}
    keys = {key: sharing_of(text) for key, text in data.items()}
    default = _DEFAULT if _DEFAULT in keys else "default" if "default" in keys else next(iter(keys), "")
    return PluginConfigMap(name, keys, default)


def sharing_of(text: str) -> SharingConfig:
    """What one key says of sharing; a format that the plugin refuses is named."""
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return SharingConfig(problem=f"it is not YAML (line {mark.line + 1})" if mark else "it is not YAML")
    if not isinstance(config, dict):
        return SharingConfig(problem="it is not a mapping")
    if config.get("version") != "v1":
        return SharingConfig(problem=f"version is {config.get('version')!r}, and the plugin knows v1 alone")
    sharing = config.get("sharing") or {}
    kind = sharing.get("mps") or sharing.get("timeSlicing") if isinstance(sharing, dict) else None
    if kind is None:
        return SharingConfig()
    resources = kind.get("resources") if isinstance(kind, dict) else None
    if not isinstance(resources, list) or not resources or not all(isinstance(entry, dict) for entry in resources):
        return SharingConfig(problem="sharing.timeSlicing.resources is not a list of name and replicas")
    replicas = next((entry.get("replicas") for entry in resources if entry.get("name") == NVIDIA_GPU), 1)
    if not isinstance(replicas, int) or replicas < 1:
        return SharingConfig(problem=f"its number of replicas is {replicas!r}; it must be a whole number from 2")
    return SharingConfig(replicas, bool(kind.get("failRequestsGreaterThanOne")))
