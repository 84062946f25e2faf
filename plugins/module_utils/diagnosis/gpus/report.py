# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why pods do not get GPUs: all checks of what was seen (S4-10 to S4-13, S4-19 to S4-23), and their rows for people."""

from __future__ import annotations

import typing as t

from .cluster_checks import cluster_checks
from .facts import NO, OK, UNKNOWN, ClusterGpus, GpuCheck
from .node_checks import node_checks
from .pod_checks import pod_checks


def diagnose_gpus(cluster: ClusterGpus) -> list[GpuCheck]:
    """From what all nodes share to single nodes and pods."""
    checks = list(cluster_checks(cluster))
    for node in cluster.nodes:
        checks += node_checks(node, cluster)
    if not cluster.nodes:
        checks.append(GpuCheck("cluster", "nodes", UNKNOWN if "nodes" in dict(cluster.unread) else OK, _no_nodes(cluster)))
    checks += pod_checks(cluster)
    if cluster.pending == ():
        checks.append(GpuCheck("cluster", "pods", OK, "none waits for GPUs"))
    return checks


def _no_nodes(cluster: ClusterGpus) -> str:
    return dict(cluster.unread).get("nodes", "no node with GPUs, and none that was rented")


def rows(checks: t.Iterable[GpuCheck]) -> list[dict[str, str]]:
    """One row for each check, the subject where it changes, and a line for each remedy."""
    found: list[dict[str, str]] = []
    last = ""
    for check in checks:
        subject = "" if check.subject == last else check.subject
        last = check.subject
        found.append({"mark": check.state, "subject": subject, "check": check.check, "seen": check.seen})
        if check.state != OK and check.remedy:
            found.append({"mark": "", "subject": "", "check": "", "seen": f"→ {check.remedy}"})
    return found


def problems(checks: t.Iterable[GpuCheck]) -> list[str]:
    """What is wrong, one sentence each."""
    return [f"{check.subject}, {check.check}: {check.seen} {check.remedy}".rstrip() for check in checks if check.state == NO]
