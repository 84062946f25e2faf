# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the options of a run say, and the defaults that several rules share (L-23)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

from .labels import REQUESTER_LABEL, TEAM_LABEL
from .resources import GPU_RESOURCES
from .spec import SpendingBudget

SYSTEM_NAMESPACES = ("kube-system", "gpu-device-plugin", "gpu-operator", "tailscale", "tgp-system")
"""Pods of these are no work, whatever a run adds to them."""
MODES = ("provision", "reap", "everything", "autoscale", "destroy", "status")
LAUNCHING = ("provision", "everything", "autoscale")  # modes that may rent
REAPING = ("reap", "everything", "autoscale")  # modes that terminate what is not needed
CLOCK_TOLERANCE: t.Final = 60
"""Seconds by which a time that another host wrote may lie ahead of our clock and is still believed (L-3, L-22)."""
PRICE_TTL: t.Final = 300
"""Seconds for which a price that was read serves a launch, and offers stay in the cache (L-13)."""
TABLE_STALE_AFTER = timedelta(days=120)
"""How long a table with a date is believed without a warning (B-19): Talos has a minor release every four months."""


@dataclasses.dataclass(frozen=True, slots=True)
class Destroy:
    """What ``mode`` destroy takes down: machines by name, whole pools ("namespace/name" or name), or all. ``force`` drains by force."""

    names: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    all: bool = False
    force: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What the options of one run set; what no option sets is a constant beside its rule (docs/reference/rules.md, L-23).

    ``mode``: provision (launch what is missing), reap (take down what is idle, expired, lost, orphaned or broken), everything (provision
    and reap in one), autoscale (reap, and launch for minNodes, replicas, requests and waiting pods), destroy (take down what ``destroy``
    names), status (decide nothing, report).
    ``gpu_resources`` are counted as GPUs of a pod; pods of ``ignore_namespaces`` that ask for none are no work.
    ``orphan_policy``: destroy, or report alone. ``report_foreign``: also tell of machines whose names are not like ours.
    ``max_remove_per_run`` bounds, per pool and reason, removals that can wait; None = no bound for
    idle nodes, one for other reasons. ``team_label`` and ``requester_label`` say for whom pods and machines are, ``namespace_teams``: also on
    namespaces. ``team_budgets``: what teams may spend, by name; a team may have one for each period. ``migrate``: keys of pools whose
    machines are replaced when they are in another mesh than their class enters.
    """

    mode: str = "provision"
    destroy: Destroy = Destroy()
    # L-16
    max_nodes_total: int | None = None
    max_hourly_total: Decimal | None = None
    budget: SpendingBudget | None = None
    team_budgets: tuple[tuple[str, SpendingBudget], ...] = ()
    # L-5
    migrate: tuple[str, ...] = ()
    # L-14
    ignore_blocklist: bool = False
    # L-3, L-18
    ignore_namespaces: tuple[str, ...] = SYSTEM_NAMESPACES
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    max_remove_per_run: int | None = None
    # L-12
    allow_mass_delete: bool = False
    orphan_policy: str = "destroy"
    report_foreign: bool = False
    # L-45
    team_label: str = TEAM_LABEL
    requester_label: str = REQUESTER_LABEL
    namespace_teams: bool = False
