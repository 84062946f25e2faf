# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels, annotations and taints as Kubernetes takes them from a node (L-19)."""

from __future__ import annotations

import re

from ...model.labels import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    HOSTNAME_LABEL,
    OS_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
)

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ALLOWED = frozenset({
    HOSTNAME_LABEL,
    ARCH_LABEL,
    OS_LABEL,
    BETA_ARCH_LABEL,
    BETA_OS_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
})  # fmt: skip
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def may_set(key: str) -> bool:
    """True when a kubelet may put this label on its own Node (NodeRestriction admission)."""
    domain, slash, _name = key.rpartition("/")
    if not slash or not re.search(r"(^|\.)(kubernetes|k8s)\.io$", domain):
        return True
    if domain == "node-restriction.kubernetes.io" or domain.endswith(".node-restriction.kubernetes.io"):
        return False
    return key in _ALLOWED or any(domain == allowed or domain.endswith("." + allowed) for allowed in _ALLOWED_DOMAINS)


def key_problem(key: str) -> str:
    """Why this is no qualified name, "" when it is one."""
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return f"{key!r} is no label key: the part after the slash is 1 to 63 letters, digits, '-', '_' or '.', ends included."
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return f"{key!r} is no label key: the part before the slash must be a DNS name in lower case."
    return ""


def value_problem(value: str) -> str:
    """Why this is no label value, "" when it is one."""
    if value and not _NAME.fullmatch(value):
        return f"{value!r} is no label value: at most 63 letters, digits, '-', '_' or '.', a letter or digit at both ends."
    return ""
