# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile operator: values of NVIDIA's GPU Operator chart for Talos, whose image has driver and container toolkit; and the same for Flux."""

from __future__ import annotations

import typing as t

from ..kube.client import Json
from ..kube.server_side_apply import with_hash
from ..model.labels import MANAGED_BY_LABEL, POD_SECURITY_LABELS
from .config import DEFAULT_KEY
from .manifests import CONFIG_MAP, MANAGER, PluginOptions, power_objects, tolerations_of

OPERATOR_NAMESPACE = RELEASE = "gpu-operator"
CHART, REPOSITORY, VERSION = "gpu-operator", "https://helm.ngc.nvidia.com/nvidia", "v26.7.0"
STANDALONE, OPERATOR, AUTO = "standalone", "operator", "auto"
FIRST_TALOS = (1, 13)
"""The first release of Talos on which the operator is supported."""


class Chart(t.NamedTuple):
    """Where the chart is. ``repository`` is empty for a chart in a folder or in an OCI registry."""

    name: str = CHART
    repository: str = REPOSITORY
    version: str = VERSION


def chosen_profile(given: str, talos: tuple[int, int] | None, *, standalone_there: bool) -> str:
    """auto keeps a stand-alone plugin that is installed; without one the release of Talos decides."""
    if given != AUTO:
        return given
    return OPERATOR if not standalone_there and talos is not None and talos >= FIRST_TALOS else STANDALONE


def operator_values(options: PluginOptions, own: t.Mapping[str, t.Any]) -> Json:
    """The chart's values; ``own`` are the user's and win."""
    tolerations = tolerations_of(options)
    values: Json = {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "hostPaths": {"driverInstallDir": "/usr/local"},
        "migManager": {"enabled": False},
        "daemonsets": {"tolerations": tolerations},
        # its workers label the nodes by which the operator finds GPUs
        "node-feature-discovery": {"worker": {"tolerations": tolerations}},
        "devicePlugin": {"config": {"name": CONFIG_MAP, "default": DEFAULT_KEY}},
    }
    return _merged(values, own)


def _merged(below: t.Mapping[str, t.Any], above: t.Mapping[str, t.Any]) -> Json:
    both = {
        key: _merged(below[key], above[key]) for key in below if isinstance(below[key], dict) and isinstance(above.get(key), dict)
    }
    return {**below, **above, **both}


def operator_objects(options: PluginOptions) -> list[Json]:
    """What the chart needs: its namespace, and the configurations of its device plugin. Power limits are no part of the operator: they are
    the same objects with both profiles."""
    labels = {**dict.fromkeys(POD_SECURITY_LABELS, "privileged"), MANAGED_BY_LABEL: MANAGER}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR_NAMESPACE, "labels": labels}}
    data = {config.key: config.text for config in options.configs}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(CONFIG_MAP), "data": data}
    return [with_hash(namespace), with_hash(config_map), *power_objects(options)]


def flux_objects(options: PluginOptions, chart: Chart, own: t.Mapping[str, t.Any]) -> list[Json]:
    """The same for Flux: the objects above, the chart's repository, and the release."""
    repository = {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmRepository",
        "metadata": _meta("nvidia"),
        "spec": {"interval": "24h", "url": chart.repository},
    }
    source = {"kind": "HelmRepository", "name": "nvidia"}
    release = {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": _meta(RELEASE),
        "spec": {
            "interval": "1h",
            "chart": {"spec": {"chart": chart.name, "version": chart.version, "sourceRef": source}},
            "values": operator_values(options, own),
        },
    }
    return [*operator_objects(options), with_hash(repository), with_hash(release)]


def _meta(name: str) -> Json:
    return {"name": name, "namespace": OPERATOR_NAMESPACE, "labels": {MANAGED_BY_LABEL: MANAGER}}
