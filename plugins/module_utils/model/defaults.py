# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every default of the rules in one place (L-23). Documents override per pool or class, playbook variables per run."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from .resources import GPU_RESOURCES
from .spec import SpendingBudget

SYSTEM_NAMESPACES = ("kube-system", "gpu-device-plugin", "gpu-operator", "tailscale", "tgp-system")
"""Pods of these are no work, whatever a run adds to them."""
MODES = ("provision", "reap", "everything", "autoscale", "destroy", "status")
LAUNCHING = ("provision", "everything", "autoscale")  # modes that may rent
REAPING = ("reap", "everything", "autoscale")  # modes that give back what is not needed


@dataclasses.dataclass(frozen=True, slots=True)
class Destroy:
    """What ``mode`` destroy takes down: machines by name, whole pools ("namespace/name" or name), or all. ``force`` drains by force."""

    names: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    all: bool = False
    force: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The numbers and switches of one run. Durations in seconds.

    ``mode``: provision (launch what is missing), reap (take down what is idle, expired, lost, orphaned or broken), everything (provision
    and reap in one), autoscale (reap, and launch for minNodes, replicas, requests and waiting pods), destroy (take down what ``destroy``
    names), status (decide nothing, report). ``strategy`` None = the class's.
    ``max_launch_per_run`` bounds, per pool, launches that nobody asked for by number (minNodes); an explicit number of nodes is bounded by
    the limits alone.
    ``gpu_resources`` are counted as GPUs of a pod; pods of ``ignore_namespaces`` that ask for none are no work.
    ``orphan_policy``: destroy, or report alone. ``report_foreign``: also tell of machines whose names are not like ours.
    ``max_remove_per_run`` bounds, per pool and reason, removals that can wait; None = no bound for
    idle nodes, one for other reasons.
    """

    mode: str = "provision"
    destroy: Destroy = Destroy()
    # L-16, L-17
    max_launch_per_run: int | None = 5
    max_nodes_total: int | None = None
    max_hourly_total: Decimal | None = None
    budget: SpendingBudget | None = None
    capacity_reserve: Decimal = Decimal("0.1")
    lowest_priority: int = -10
    unsatisfiable_for: int = 1800
    # L-13, L-14
    strategy: str | None = None
    price_ttl: int = 300
    price_tolerance: Decimal = Decimal("0.05")
    spot_discount_min: Decimal = Decimal(0)
    offers_per_claim: int = 25
    ignore_blocklist: bool = False
    # L-2
    unknown_window: int = 600
    # L-3, L-18
    ignore_namespaces: tuple[str, ...] = SYSTEM_NAMESPACES
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    terminating_grace: int = 60
    clock_tolerance: int = 60
    scale_down_delay_after_add: int = 600
    scale_down_delay_after_failure: int = 180
    max_remove_per_run: int | None = None
    # L-9
    drain_timeout: int = 600
    # L-10, L-12
    orphan_age: int = 600
    second_run_after: int = 60
    confirm_empty: int = 30
    node_not_ready: int = 300
    missing_runs: int = 3
    mass_floor: int = 3
    mass_floor_alive: int = 1
    mass_share: Decimal = Decimal("0.5")
    allow_mass_delete: bool = False
    orphan_policy: str = "destroy"
    report_foreign: bool = False
    # L-20
    unhealthy_timeout: int = 1200
    unhealthy_share: Decimal = Decimal("0.4")
    # L-25
    document_gone_after: int = 600
    # L-22
    plan_max_age: int = 1800
