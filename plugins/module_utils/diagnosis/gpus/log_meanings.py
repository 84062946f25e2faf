# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lines of device plugins, of Talos's NVIDIA services and of power limit pods mean (one table each)."""

from __future__ import annotations

import dataclasses
import re
import typing as t


@dataclasses.dataclass(frozen=True, slots=True)
class LogMeaning:
    """What a line means. ``quote`` is the line."""

    code: str
    text: str
    remedy: str
    quote: str = ""


Pattern = tuple[str, str, str, str]  # pattern, code, what it means, what to do
REGISTERED = r"(?i)registered device plugin for '?[^']*'? with kubelet"

PLUGIN: tuple[Pattern, ...] = (
    (
        r"(?i)driver/library version mismatch",
        "version_mismatch",
        "The kernel module and the libraries are of two driver versions.",
        "Make the image anew with all NVIDIA extensions of one track, and reboot the node from it.",
    ),
    (
        r"(?i)could not load NVML library|libnvidia-ml\.so[.\d]*: cannot open|ERROR_LIBRARY_NOT_FOUND",
        "no_nvml",
        "The plugin does not see NVIDIA's libraries: its pod does not run with the runtime nvidia, or the image has no toolkit extension.",
        "Set runtimeClassName: nvidia in the plugin's DaemonSet, and see that the image has nvidia-container-toolkit of the driver's track.",
    ),
    (
        r"(?i)fork/exec \S*nvidia-(ctk|cdi-hook)|nvidia-(ctk|cdi-hook): no such file",
        "hook_path",
        "The plugin names a CDI hook at a path that the node does not have.",
        "Set NVIDIA_CDI_HOOK_PATH=/usr/local/bin/nvidia-cdi-hook in the plugin's DaemonSet (Talos keeps it there), or update Talos.",
    ),
    (
        r"(?i)unable to (load|parse|finalize) config|error (parsing|loading) config|invalid (config|sharing)",
        "config_refused",
        "The plugin refuses its configuration.",
        "Correct the ConfigMap of the plugin; its pods must be restarted to read it.",
    ),
    (
        r"(?i)no devices found\b|detected non-NVML platform|incompatible (platform|strategy) detected",
        "no_devices",
        "The plugin runs and finds no GPU: the driver is not loaded, or it is one that does not drive this GPU.",
        "See the checks driver and extensions of this node.",
    ),
    (
        r"(?i)XID.{0,60}?\b(79|119|120)\b|XidCriticalError|fallen off the bus",
        "xid",
        "A GPU reported a fatal error (XID), and the plugin calls it unhealthy.",
        "Cordon the node and replace the machine; a reboot helps only sometimes.",
    ),
)
CDI: tuple[Pattern, ...] = (
    (
        r"(?i)failed to (generate|create|save|initialize)|level=fatal|\berror\b.*(nvml|cdi)",
        "cdi_failed",
        "nvidia-ctk cdi generate failed, so no container gets a GPU by CDI.",
        "Read the log of ext-nvidia-cdi-gen; it fails where the driver is not loaded or is of another version than the toolkit.",
    ),
)
POWER: tuple[Pattern, ...] = (
    (
        r"(?i)insufficient permissions",
        "power_forbidden",
        "The host does not let this machine set power limits, as most rented machines do not.",
        "Take the node out of the power limits (its opt-in label), or run the pod privileged on a machine of your own.",
    ),
    (
        r"(?i)not a valid power limit|out of range|should be between",
        "power_out_of_range",
        "The configured limit is outside of what this GPU takes.",
        "Set a limit between the minimum and the maximum that nvidia-smi -q -d POWER shows.",
    ),
    (
        r"(?i)not supported",
        "power_unsupported",
        "This GPU cannot be limited.",
        "Take its model out of the power limits.",
    ),
    (
        r"(?i)nvidia-smi: (command )?not found|couldn't communicate with the NVIDIA driver",
        "power_no_driver",
        "nvidia-smi does not work in the pod.",
        "Set runtimeClassName: nvidia in its DaemonSet; see the check driver of this node.",
    ),
)


def meaning_of(lines: t.Sequence[str], patterns: t.Sequence[Pattern]) -> LogMeaning | None:
    """The newest line with a known meaning; of one line the first pattern counts. None when none is known."""
    for line in reversed(lines):
        for pattern, code, text, remedy in patterns:
            if re.search(pattern, line):
                return LogMeaning(code, text, remedy, " ".join(line.split())[:300])
    return None


def says(lines: t.Sequence[str], pattern: str) -> int:
    """The number of the newest line that has the pattern, from 1; 0 when none has."""
    return next((at for at in range(len(lines), 0, -1) if re.search(pattern, lines[at - 1])), 0)
