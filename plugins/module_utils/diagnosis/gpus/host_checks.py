# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a node that does not run Talos, from what its system said by SSH: driver, nvidia-smi, container toolkit, kernel log."""

from __future__ import annotations

import re
import typing as t

from ...planner.xids import BROKEN, XidKind, XidMeaning, meaning
from .facts import NO, OK, UNKNOWN, WARN, GpuCheck, GpuNodeFacts, HostSystem, node_check, version_check

NEEDED = ("nvidia", "nvidia_uvm")  # nvidia_drm and nvidia_modeset are for displays
_KERNEL_MODULES = re.compile(r"linux-modules-nvidia-\S+?-(\d+\.\d+\.\d+-\S+)")
_DRIVER = re.compile(r"(?:nvidia-(?:headless|driver|dkms|kernel|utils|compute-utils)|linux-modules-nvidia)-")
_XID = re.compile(r"Xid \([^)]*\): (\d+)")
_UNKNOWN_XID = XidMeaning(XidKind.UNKNOWN, "")
_BY_POOL = "unhealthyConditions of its pool replace machines by themselves (docs/how_to/node_health.md)."
_REPLACE = f"Replace the machine. {_BY_POOL}"
_INSTALL = (
    "Rent an image that has the driver, or let the start script install it (docs/how_to/kubelet_lane.md); on a machine of your own "
    "install nvidia-headless-<branch>-server and nvidia-utils-<branch>-server, and reboot."
)


def host_checks(node: GpuNodeFacts, host: HostSystem) -> t.Iterator[GpuCheck]:
    """The rows of one node, in the order in which one depends on the other."""
    for rule in (_driver, _smi, _toolkit, _kernel_log):
        yield rule(node, host)


def _driver(node: GpuNodeFacts, host: HostSystem) -> GpuCheck:
    if host.modules is None:
        return node_check(node, "driver", UNKNOWN, host.why_unread("modules"))
    missing = [name for name in NEEDED if name not in host.modules]
    if missing:
        return _not_loaded(node, host, missing)
    read_log = "read the kernel's log on it (journalctl -k -g NVRM)."
    if (check := version_check(node, host.driver, host.why_unread("driver"), read_log)) is not None:
        return check
    return node_check(node, "driver", OK, f"{host.driver} for kernel {host.kernel}, {' and '.join(NEEDED)} loaded")


def _not_loaded(node: GpuNodeFacts, host: HostSystem, missing: t.Sequence[str]) -> GpuCheck:
    if "nouveau" in (host.modules or ()) and "nvidia" in missing:
        return node_check(
            node, "driver", NO, "the kernel's own driver nouveau holds the GPUs, and NVIDIA's is not loaded",
            "Install NVIDIA's driver, whose package blacklists nouveau, and reboot. " + _INSTALL, "nouveau_loaded",
        )  # fmt: skip
    packages = [one for one in host.packages or () if _DRIVER.match(one)]
    if host.packages is not None and not packages:
        return node_check(
            node, "driver", NO, f"no driver package of NVIDIA is installed, and {', '.join(missing)} are not loaded",
            _INSTALL, "no_driver_package",
        )  # fmt: skip
    kernels = sorted({match[1] for one in packages if (match := _KERNEL_MODULES.match(one))})
    dkms = any(one.startswith("nvidia-dkms-") for one in packages)
    if kernels and host.kernel and host.kernel not in kernels and not dkms:
        return node_check(
            node, "driver", NO, f"kernel {host.kernel} runs, and the modules are installed for {', '.join(kernels)}",
            f"Reboot into that kernel, or install the package linux-modules-nvidia-… for {host.kernel}.", "module_of_other_kernel",
        )  # fmt: skip
    return node_check(
        node, "driver", NO, f"kernel modules are not loaded: {', '.join(missing)}",
        f"On the node: sudo modprobe {' '.join(missing)}. If that fails, the machine has no GPU, Secure Boot refuses the module, or DKMS "
        "could not build it for this kernel (journalctl -k, dkms status).",
        "modules_not_loaded",
    )  # fmt: skip


def _smi(node: GpuNodeFacts, host: HostSystem) -> GpuCheck:
    if host.smi is None:
        return node_check(node, "nvidia-smi", UNKNOWN, host.why_unread("nvidia-smi"))
    if re.search(r"version mismatch", host.smi):
        return node_check(
            node, "nvidia-smi", NO, host.smi,
            "The package was upgraded under the loaded module: drain the node and reboot it. The start script holds the packages back.",
            "version_mismatch",
        )  # fmt: skip
    if host.smi:
        return node_check(
            node,
            "nvidia-smi",
            NO,
            host.smi,
            "See the check driver. A GPU that gives no answer is lost: replace the machine.",
            "smi_failed",
        )
    if node.gpus is not None and host.gpus is not None and host.gpus < node.gpus:
        return node_check(
            node,
            "nvidia-smi",
            NO,
            f"{host.gpus} of {node.gpus} GPUs are listed: the driver does not see the others",
            _REPLACE,
            "gpus_missing",
        )
    return node_check(node, "nvidia-smi", OK, f"{host.gpus} GPUs")


def _toolkit(node: GpuNodeFacts, host: HostSystem) -> GpuCheck:
    if host.toolkit is None or host.runtime is None:
        return node_check(node, "container toolkit", UNKNOWN, host.why_unread("toolkit"))
    if not host.toolkit:
        return node_check(
            node, "container toolkit", NO, "nvidia-ctk is not installed, so containers get no GPU",
            "Install nvidia-container-toolkit (1.17 or newer) on it, or join it again (playbook join_kubelet).", "no_toolkit",
        )  # fmt: skip
    if not host.runtime:
        return node_check(
            node, "container toolkit", NO, f"{host.toolkit} is installed, and containerd's configuration names no runtime nvidia",
            "On the node: sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default && sudo systemctl restart containerd.",
            "no_runtime",
        )  # fmt: skip
    return node_check(node, "container toolkit", OK, f"{host.toolkit}, containerd has the runtime nvidia")


def _kernel_log(node: GpuNodeFacts, host: HostSystem) -> GpuCheck:
    if host.xids is None:
        return node_check(node, "kernel log", UNKNOWN, host.why_unread("kernel log"))
    if not host.xids:
        return node_check(node, "kernel log", OK, "no XID since boot")
    lines = [(int(match[1]), line) for line in host.xids if (match := _XID.search(line))]
    found = {xid: meaning(xid) for xid, _line in lines}
    broken = [xid for xid in sorted(found) if found[xid].kind in BROKEN]
    named = broken or sorted(found)
    last = next((line for xid, line in reversed(lines) if xid in named), host.xids[-1])
    told = "; ".join(f"XID {xid}: {found[xid].text}" for xid in named) or "an XID of unknown form"
    seen = f"{told}; {len(host.xids)} XIDs since boot, of these the last: {last}"
    remedy = " ".join(dict.fromkeys(found[xid].remedy for xid in named)) or _UNKNOWN_XID.remedy
    if broken:
        return node_check(node, "kernel log", NO, seen, f"{remedy} The log keeps it until the next boot. {_BY_POOL}", "xid")
    return node_check(node, "kernel log", WARN, seen, remedy, "xid")
