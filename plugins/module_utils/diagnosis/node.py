# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for a machine whose Node exists and is not complete, or is another machine's."""

from __future__ import annotations

import dataclasses
import re

from .facts import Findings, ProbableCause, quoted

_OLDEST = 3  # minor versions a kubelet may be behind its API server
_NO_NETWORK = r"(?i)cni plugin not initialized|NetworkPluginNotReady|NetworkReady=false|cni config uninitialized|no networks found"
_NO_TRUSTD = r"(?i):50001\b.*(timeout|refused|unreachable|no route)|failed to sign API server CSR"
_NETWORK_PODS = r"flannel|cilium|calico|kube-proxy|weave|antrea|cni"
_DEVICE_PODS = r"nvidia|gpu|device-plugin"


def _stale(findings: Findings) -> ProbableCause | None:
    if not findings.stale or findings.node is None:
        return None
    came = findings.device is not None or bool(findings.requests)
    return ProbableCause(
        "stale_node",
        f"A Node named {findings.name} existed before this machine, so its registration cannot be distinguished from the old one.",
        f"Make sure that no machine of that name lives, then `kubectl delete node {findings.name}` and rent again.",
        (
            f"Node {findings.name} uid {findings.node.uid} made {findings.node.created:%Y-%m-%d %H:%M:%SZ}",
            f"the machine was ordered at {findings.launched:%Y-%m-%d %H:%M:%SZ}" if findings.launched else "",
            "the machine itself came as far as asking for a certificate" if came and findings.requests else "",
        ),
    )


def wrong_version(kubelet: str, server: str) -> str:
    """Why a kubelet of this version does not fit the API server; empty when it does, or when a version cannot be read."""
    ours, theirs = _minor(kubelet), _minor(server)
    if ours is None or theirs is None:
        return ""
    if ours > theirs:
        return f"the kubelet {kubelet} is newer than the API server {server}"
    if ours[0] == theirs[0] and theirs[1] - ours[1] > _OLDEST:
        return f"the kubelet {kubelet} is more than {_OLDEST} minor versions older than the API server {server}"
    return ""


def wrong_image(annotations: dict[str, str], schematic: str) -> str:
    """Why the Node runs another Talos image than ordered; empty when it does not, or does not say."""
    actual = annotations.get("extensions.talos.dev/schematic", "")
    return (
        f"its image is of schematic {actual[:12]}…, ordered was {schematic[:12]}…"
        if actual and schematic and actual != schematic
        else ""
    )


def _minor(version: str) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _version(findings: Findings) -> ProbableCause | None:
    node = findings.node
    why = wrong_version(node.kubelet_version, findings.server_version) if node is not None else ""
    if not why or node is None:
        return None
    return ProbableCause(
        "wrong_kubelet_version",
        f"The machine came with a kubelet that does not fit the cluster: {why}.",
        "Set kubernetes_version (lane kubelet) or the class's Talos image to one whose kubelet is not newer than the API server.",
        (f"Node: kubelet {node.kubelet_version}, {node.os_image or 'system unknown'}", f"API server: {findings.server_version}"),
    )


def _image(findings: Findings) -> ProbableCause | None:
    why = wrong_image(dict(findings.node.annotations), findings.schematic) if findings.node is not None else ""
    if not why:
        return None
    return ProbableCause(
        "wrong_image",
        f"The machine runs another Talos image than was ordered: {why}.",
        "Boot the machine from the image of the class, or correct talosConfig.image.",
        (why,),
    )


def _network(findings: Findings) -> ProbableCause | None:
    node = findings.node
    if node is None or node.ready:
        return None
    match = re.search(_NO_NETWORK, node.ready_message)
    if not match and not findings.says(_NO_NETWORK):
        return None
    pods = [f"{pod.name}: {pod.state or pod.phase}" for pod in findings.pods if re.search(_NETWORK_PODS, pod.name)]
    none = "no pod of a network plugin is in trouble on it" if findings.pods_read and not pods else ""
    return ProbableCause(
        "cni_not_ready",
        "The Node registered and its pod network never came up.",
        "See why the network plugin's pod does not run here: its tolerations must cover the pool's taints, its image must be reachable, and in "
        "lane kubelet with cni: flannel the plugin's binary has to be in /opt/cni/bin.",
        (f"Node: {node.ready_message[:300]}", *pods[:2], *findings.warned(), none),
    )


def _not_ready(findings: Findings) -> ProbableCause | None:
    """Of a Talos machine that is not managed either that is the cause: its boot never ends, and Talos begins it anew after 70 minutes."""
    node = findings.node
    if node is None or node.ready:
        return None
    if (unmanaged := _trustd(findings)) is not None:
        return dataclasses.replace(
            unmanaged, evidence=(*unmanaged.evidence, f"Node: {node.ready_message[:300]}", *findings.warned())
        )
    silent = node.ready is None
    others = (
        f"{condition.type}: {condition.message}"
        for condition in findings.conditions
        if condition.type != "Ready" and condition.status == "True"
    )
    return ProbableCause(
        "node_silent" if silent else "node_not_ready",
        "The Node registered and its kubelet fell silent." if silent else f"The Node registered and is not Ready: {node.ready_message[:200]}.",
        "Rent again; if it repeats, the machine's network or memory fails." if silent else
        "Read the message of the condition Ready; the kubelet's log on the machine says more.",
        (f"Node: {node.ready_message[:300]}", *others, *findings.warned()),
    )  # fmt: skip


def _gpus(findings: Findings) -> ProbableCause | None:
    node, resource = findings.node, findings.gpu_resource
    if node is None or not resource or not findings.gpus_expected:
        return None
    gpus = node.offered(resource)
    if gpus >= findings.gpus_expected:
        return None
    pods = [f"{pod.name}: {pod.state or pod.phase}" for pod in findings.pods if re.search(_DEVICE_PODS, pod.name)]
    return ProbableCause(
        "gpu_missing",
        f"The Node is Ready and only {gpus} of {findings.gpus_expected} {resource} became allocatable.",
        "See that the device plugin runs on it (its tolerations must cover the pool's taints), then that the driver sees the GPUs.",
        (
            f"allocatable {resource}: {gpus}",
            *pods[:2],
            *findings.warned(),
            "no device plugin pod is in trouble on it" if findings.pods_read and not pods else "",
            quoted(findings.says(r"(?i)NVRM|nvidia")),
        ),
    )


def _trustd(findings: Findings) -> ProbableCause | None:
    """Its Talos side: who cannot be managed reboots, because Talos's boot waits for all services."""
    if findings.node is None:
        return None
    line = findings.says(_NO_TRUSTD)
    if not line and not findings.talos_api:
        return None
    if re.search(r"(?i)invalid token|Unauthenticated", line):
        code, cause = (
            "wrong_token",
            "The control plane does not accept the machine's Talos token (machine.token), so its Talos API has no certificate.",
        )
    elif re.search(r"(?i)x509|authority", line):
        code, cause = (
            "wrong_ca",
            "The machine's Talos CA (machine.ca) is not the control plane's, so its Talos API has no certificate.",
        )
    else:
        code, cause = (
            "blocked_50001",
            "The machine cannot reach trustd (port 50001 of the control plane), so its Talos API never starts.",
        )
    return ProbableCause(
        code,
        cause,
        "Open tcp:50001 to every control plane address beside 6443 (mesh policy, firewall); a Talos node without it reboots after 70 minutes."
        if code == "blocked_50001" else "Give talos_secrets of this very cluster.",
        (quoted(line), findings.talos_api, "the Node itself is Ready" if findings.node.ready else ""),
        certain=bool(line),
    )  # fmt: skip


def _taints(findings: Findings) -> ProbableCause | None:
    named = re.findall(r"taint (\S+?)(?:;|$)", findings.message)
    left = [str(taint) for taint in findings.node.taints if taint.key in named] if findings.node is not None else []
    if not left:
        return None
    return ProbableCause(
        "startup_taint",
        f"The Node is Ready and keeps the taint {', '.join(left)}, which another controller has to remove.",
        "See why the controller that owns this taint does not remove it, or take it out of the pool's startupTaints.",
        tuple(f"taint {taint}" for taint in left),
    )


def _labels(findings: Findings) -> ProbableCause | None:
    if findings.node is None or not findings.missing_labels or "label" not in findings.message:
        return None
    return ProbableCause(
        "labels_missing",
        f"The Node is Ready and its labels could not be set: {findings.message[:200]}.",
        "Grant patch on nodes (files/rbac.yml), and see whether an admission policy refuses these labels.",
        tuple(f"label {key} is missing" for key in findings.missing_labels[:5]),
    )


def _rejected(findings: Findings) -> ProbableCause | None:
    if findings.test_log is None:
        return None
    return ProbableCause(
        "acceptance_failed",
        f"The node is Ready and does not pass: {findings.hopeless or findings.message}.".replace("..", "."),
        "Nothing is to be done: its host is not rented again for a while (status.yml says until when). If machines of other hosts fail, too, "
        "run the test's image by hand: it may not fit their driver or their GPUs.",
        tuple(f"log: {line[:300]}" for line in findings.test_log[-5:]) or ("its log could not be read, or is empty",),
    )


def _untested(findings: Findings) -> ProbableCause | None:
    if not findings.untested or findings.node is None or not findings.node.ready:
        return None
    return ProbableCause(
        "acceptance_unknown",
        f"The node is Ready and its acceptance test gave no result in time: {findings.untested[:300]}.".replace("..", "."),
        "This says nothing of its GPUs. Correct the image, the registry or the RuntimeClass of spec.acceptance, or raise its timeout; "
        "where other pods hold the GPUs (a DaemonSet that tolerates everything), test one: gpus: one.",
        (f"its pod: {findings.untested[:300]}", *findings.warned()),
    )


TESTED = (_rejected,)
WRONG_NODE = (_stale, _version, _image)
RULES = (_untested, _network, _not_ready, _gpus, _trustd, _taints, _labels)
