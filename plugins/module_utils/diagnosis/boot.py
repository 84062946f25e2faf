# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for a machine that its cloud gave up, and for one whose own system stopped it before it could join."""

from __future__ import annotations

import re
import typing as t

from ..model import InstanceState
from .facts import Findings, ProbableCause, quoted

_CAPACITY = (
    "capacity",
    "out of stock",
    "no longer available",
    "no available",
    "resources are unavailable",
    "resources_unavailable",
)
_OVER = (InstanceState.TERMINATED, InstanceState.TERMINATING, InstanceState.FAILED, InstanceState.STOPPED)
_PULL = (
    r"(?i)pull access denied|error pulling image|failed to (pull|resolve|copy)|manifest( for \S+)? (unknown|not found)|toomanyrequests|"
    r"(unauthorized|authentication required).*(pull|image|registry)|(pull|image|registry).*(unauthorized|authentication required)|"
    r"no space left on device"
)
_RAN = r"(?i)\bstart container|container exited"  # of a container that starts again and again, as well
_DISK = r"(?i)GiB free on the root disk|no space left on device|not enough disk space|disk is too small|insufficient disk"
_NOT_VALID_NOW = r"(?i)not yet valid|certificate has expired|certificate is expired|expired or is not yet"
_UNSYNCHRONISED = r"(?i)clock is not synchroni[sz]ed|waiting for time sync|time (is )?not (in )?sync"
_NO_PACKAGE = (
    r"(?i)has no kubelet|the kubelet is not \S+ but|kubelet version .* (range|newer)|Version '.*' for 'kubelet' was not found"
)
_KEY = r"the signing key of \S+ is not the pinned one"
_NO_HANDSHAKE = r"no handshake with the hub at "
_NO_TUNNEL = r"the tunnel \S+ does not come up|/etc/wireguard/\S+ is missing|the kernel has no module wireguard"
_GPU = (
    r"(?i)GPUs found, \d+ ordered|no NVIDIA GPU on the PCI|nvidia-smi sees no GPU|RmInitAdapter failed|"
    r"NVIDIA driver .* (does not load|cannot be)"
)
_GAVE_UP, _LOGIN = r"tgp-fail ", "tgp-fail login: "
_LABEL = (
    r"(?i)unknown '?kubernetes\.io'? or '?k8s\.io'? labels|is not allowed to modify labels|"
    r"NodeApplyController:? .*(forbidden|not allowed)"
)


def _lost_capacity(findings: Findings) -> ProbableCause | None:
    instance = findings.instance
    text = " ".join(filter(None, (instance.problem if instance else "", findings.hopeless))).strip()
    if not any(word in text.lower() for word in _CAPACITY):
        return None
    return ProbableCause(
        "no_capacity",
        f"{findings.cloud} took the order and then had no machine for it.",
        "Nothing of yours is wrong: the offer is backed off for an hour; allow more types, regions or clouds in the pool.",
        (f"{findings.cloud}: {text}",),
    )


def _gone(findings: Findings) -> ProbableCause | None:
    instance = findings.instance
    if instance is None:
        if not (findings.instance_listed and findings.instance_id):
            return None
        problem = findings.hopeless or f"{findings.cloud} does not list the machine {findings.instance_id} any more"
    elif instance.interrupted or instance.state in _OVER:
        problem = f"{findings.cloud} calls the machine {instance.state_word} {instance.problem}".rstrip()
    else:
        return None
    return ProbableCause(
        "machine_gone",
        f"{findings.cloud} took the machine away, or it ended by itself, before it was usable.",
        "Rent again; if it is a spot offer that is lost often, raise bidMargin of its provider or set spotAllowed: false in the class.",
        (problem, f"instance {findings.instance_id}"),
    )


def _broken(findings: Findings) -> ProbableCause | None:
    instance = findings.instance
    if not findings.hopeless or instance is None or not instance.problem:
        return None
    return ProbableCause(
        "machine_broken",
        f"{findings.cloud} calls the machine broken, and nothing was heard of it for minutes.",
        "Rent again: the offer and its host are backed off for an hour.",
        (findings.hopeless, f"{findings.cloud}: {instance.problem}"),
    )


def _never_booted(findings: Findings) -> ProbableCause | None:
    instance = findings.instance
    if instance is None or instance.state is not InstanceState.PENDING or findings.says(_RAN):
        return None
    return ProbableCause(
        "never_booted",
        f"{findings.cloud} never said that the machine runs.",
        "Rent again elsewhere; if machines of this type are always slow to boot, raise registrationTimeout of the pool.",
        (
            f"{findings.cloud} calls it {instance.state_word} {instance.problem}".rstrip(),
            quoted(_last(findings)),
        ),
    )


def pull_error(lines: t.Sequence[str]) -> str:
    """The last line of a log that says why an image could not be pulled; empty without."""
    return next((line.strip() for line in reversed(lines) if re.search(_PULL, line)), "")


def _not_pulled(findings: Findings) -> ProbableCause | None:
    instance, line = findings.instance, pull_error(findings.console or ())
    if instance is None or instance.state is not InstanceState.PENDING or not line or findings.says(_RAN):
        return None
    return ProbableCause(
        "image_not_pulled",
        f"{findings.cloud} could not pull the container's image.",
        "Correct the image's name and tag, give the class a registry credential for a private image, or ask for a larger disk.",
        (quoted(line), f"{findings.cloud} calls it {instance.state_word}"),
    )


def _last(findings: Findings) -> str:
    return findings.console[-1] if findings.console else ""


# ---- what its own system says, in whichever step


def _disk(findings: Findings) -> ProbableCause | None:
    line, pressure = findings.says(_DISK), findings.condition("DiskPressure")
    under = pressure is not None and pressure.status == "True"
    if not line and not under:
        return None
    return ProbableCause(
        "disk_too_small",
        "The machine's disk is too small for a node: packages, container images and pods do not fit.",
        "Ask for more disk in the class's settings of this cloud: 20 GiB must be free before anything is installed.",
        (quoted(line), f"Node condition DiskPressure: {pressure.message or pressure.reason}" if under and pressure else ""),
    )


def _clock(findings: Findings) -> ProbableCause | None:
    line, weak = findings.says(_NOT_VALID_NOW), findings.says(_UNSYNCHRONISED)
    ahead = max(
        ((condition.heartbeat - findings.now).total_seconds() for condition in findings.conditions if condition.heartbeat),
        default=0.0,
    )
    if not line and ahead < 120:
        return None
    return ProbableCause(
        "clock_skew",
        "The machine's clock is wrong, so certificates count as expired or not yet valid and no TLS connection is made.",
        "Let it reach a time server (123/udp; Talos asks time.cloudflare.com, see machine.time.servers), or leave this host alone.",
        (quoted(line), quoted(weak), f"its clock is {ahead:.0f} s ahead, by the heartbeats of its Node" if ahead >= 120 else ""),
    )


def _kubelet_package(findings: Findings) -> ProbableCause | None:
    line = findings.says(_NO_PACKAGE)
    if not line:
        return None
    return ProbableCause(
        "wrong_kubelet_version",
        "The machine could not get a kubelet of the version that was ordered.",
        "Set kubernetes_version to one that pkgs.k8s.io (lane kubelet) or the Talos release has, not newer than the API server.",
        (quoted(line), f"the API server is {findings.server_version}" if findings.server_version else ""),
    )


def _repository_key(findings: Findings) -> ProbableCause | None:
    line = findings.says(_KEY)
    if not line:
        return None
    return ProbableCause(
        "repository_key",
        "A repository of packages handed the machine another signing key than the pinned one, so nothing was installed from it.",
        "See whether its owner announced a new key: then take a newer version of this collection, or pin it by KEY_<NAME> in the template "
        "(docs/how_to/kubelet_lane.md). If not, the connection to the repository is intercepted: do not rent this host again.",
        (quoted(line),),
    )


def _tunnel(findings: Findings) -> ProbableCause | None:
    line = findings.says(_NO_HANDSHAKE)
    if line:
        return ProbableCause(
            "hub_unreachable",
            "The machine runs and its WireGuard tunnel to the hub never stood: no handshake.",
            "On the hub: does `wg show` list the machine's public key with its address, does the UDP port answer from outside, does it match "
            "the class's endpoint? A cloud that lets no UDP out cannot be used with WireGuard.",
            (quoted(line),),
        )
    line = findings.says(_NO_TUNNEL)
    if not line:
        return None
    return ProbableCause(
        "no_mesh_client",
        "The machine could not make its WireGuard tunnel.",
        "Read /var/log/tgp-bootstrap.log on it: a kernel without the module wireguard (containers, some images) cannot be used with this mesh.",
        (quoted(line),),
    )


def _gpus_of_the_machine(findings: Findings) -> ProbableCause | None:
    line = findings.says(_GPU)
    if not line:
        return None
    return ProbableCause(
        "gpu_missing",
        "The machine does not have the GPUs that were ordered, or its driver does not find them.",
        "Rent again: the host is backed off for an hour. If all machines of a type do so, set another driver branch or image in the class.",
        (quoted(line), f"{findings.gpus_expected} {findings.gpu_resource} expected"),
    )


def _label(findings: Findings) -> ProbableCause | None:
    line = findings.says(_LABEL)
    if not line:
        return None
    return ProbableCause(
        "forbidden_label",
        "The kubelet gives itself a label that NodeRestriction keeps for administrators, and is refused because of it.",
        "Take the label out of the template's nodeLabels and kubelet arguments; the pool's labels are set with admin rights after the join.",
        (quoted(line),),
    )


def _container(findings: Findings) -> ProbableCause | None:
    """A failed login is first looked at by the rules of the mesh, which know more of it."""
    return None if _LOGIN in findings.says(_GAVE_UP) else _start_script(findings)


def _start_script(findings: Findings) -> ProbableCause | None:
    line = findings.says(_GAVE_UP)
    if not line:
        return None
    return ProbableCause(
        "start_script_failed",
        f"The container's start script gave up: {line.partition('tgp-fail ')[2][:200]}.",
        "Correct what it names (docs/how_to/service_lane.md), or choose an image that has what the script needs.",
        (quoted(line),),
    )


def _unhealthy(findings: Findings) -> ProbableCause | None:
    if findings.device is None or not findings.device.online or not findings.message:
        return None
    return ProbableCause(
        "unhealthy",
        "The container is in the mesh and its health path never answered well.",
        "See what the image's command logs; check healthPath and ports of the pool; a model that loads slowly needs more registrationTimeout.",
        (findings.message[:300], quoted(_last(findings))),
    )


GONE = (_lost_capacity, _gone, _broken, _not_pulled, _never_booted)
BOOTSTRAP = (_disk, _clock, _label, _repository_key, _kubelet_package, _gpus_of_the_machine, _tunnel)
CONTAINER = (_container,)
CONTAINER_IN_MESH = (_start_script, _unhealthy)
