# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else advertises NVIDIA GPUs in the cluster (S4-27). Two device plugins of one resource on a node replace each other's registration at the
kubelet, so that the number of GPUs changes with whoever started last."""

from __future__ import annotations

import typing as t

from ..core.errors import NotFound
from ..kube.client import Json, Kube
from ..model.labels import APP_NAME_LABEL, MANAGED_BY_LABEL
from .manifests import MANAGER, NAME, RUNTIME_CLASS
from .power_limits import NAME as POWER_LIMITS
from .power_limits import NAMESPACE

_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_NOT_ADVERTISING = ("feature-discovery", "mps-control", "config-manager")


class Neighbour(t.NamedTuple):
    """``what`` advertises GPUs, too; ``move`` is what removes it."""

    what: str
    move: str


def neighbours_of(kube: Kube, daemon_sets: t.Sequence[Json]) -> list[Neighbour]:
    """Those of the stand-alone plugin: GPU Operators with their device plugin on, and DaemonSets that are not ours."""
    try:
        policies = kube.list(_POLICIES)
    except NotFound:  # no GPU Operator: the kind is not served
        policies = []
    return [*_operators(policies), *_daemon_sets(daemon_sets)]


def others_than_operator(daemon_sets: t.Sequence[Json]) -> list[Neighbour]:
    """Those of a GPU Operator: our stand-alone plugin, and DaemonSets of others."""
    own = [one for one in daemon_sets if is_standalone(one)]
    return [*([_STANDALONE] if own else []), *_daemon_sets(daemon_sets)]


def is_standalone(daemon_set: Json) -> bool:
    """Whether it is a DaemonSet of the stand-alone plugin that we install."""
    return _is_ours(daemon_set) and str(daemon_set["metadata"]["name"]).startswith(NAME)


def is_power_limit(daemon_set: Json) -> bool:
    """Whether it is the DaemonSet of the power limits that we install."""
    return bool(_is_ours(daemon_set) and daemon_set["metadata"]["name"] == POWER_LIMITS)


def _is_ours(daemon_set: Json) -> bool:
    meta = daemon_set["metadata"]
    return bool((meta.get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGER and meta["namespace"] == NAMESPACE)


_STANDALONE = Neighbour(
    f"the stand-alone device plugin in namespace {NAMESPACE}",
    f"kubectl delete daemonset,configmap,service --namespace {NAMESPACE} --selector {APP_NAME_LABEL}={NAME} && "
    f"kubectl delete runtimeclass {RUNTIME_CLASS}",
)


def _operators(policies: t.Iterable[Json]) -> t.Iterator[Neighbour]:
    for policy in policies:
        enabled = ((policy.get("spec") or {}).get("devicePlugin") or {}).get("enabled")
        if enabled is not False:  # the operator's default is true
            name = policy["metadata"]["name"]
            patch = '{"spec":{"devicePlugin":{"enabled":false}}}'
            yield Neighbour(
                f"the GPU Operator (ClusterPolicy {name}) with its own device plugin",
                f"kubectl patch clusterpolicy {name} --type merge --patch '{patch}'",
            )


def _daemon_sets(listed: t.Iterable[Json]) -> t.Iterator[Neighbour]:
    for one in listed:
        meta = one["metadata"]
        owned_by_operator = any(owner.get("kind") == "ClusterPolicy" for owner in meta.get("ownerReferences") or [])
        if owned_by_operator or _is_ours(one):
            continue
        if _advertises(one):
            release = (meta.get("annotations") or {}).get("meta.helm.sh/release-name")
            move = f"helm uninstall {release}" if release else f"kubectl delete daemonset {meta['name']}"
            yield Neighbour(f"DaemonSet {meta['namespace']}/{meta['name']}", f"{move} --namespace {meta['namespace']}")


def _advertises(daemon_set: Json) -> bool:
    """Whether it is NVIDIA's device plugin, by its image or, with an image of a user's own, by its name."""
    name = daemon_set["metadata"]["name"]
    if any(word in name for word in _NOT_ADVERTISING):
        return False
    containers = daemon_set["spec"]["template"]["spec"].get("containers") or []
    images = [str(one.get("image") or "") for one in containers]
    return NAME in name or any("k8s-device-plugin" in image and "rocm/" not in image for image in images)
