# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How late each cloud's list shows a new machine; its look by id shows it at once."""

from __future__ import annotations

import typing as t

from .gcp_account import Account as GcpAccount
from .lambda_account import Account as LambdaAccount
from .paperspace_account import Account as PaperspaceAccount
from .runpod_account import Account as RunpodAccount
from .vast_account import Account as VastAccount
from .vultr_account import Account as VultrAccount
from .world import World


def list_after(world: World, cloud: str) -> float:
    """Seconds until the cloud's list shows a new machine."""
    return float(_holder(world, cloud).list_after)


def set_list_after(world: World, cloud: str, seconds: float) -> None:
    """From now on the cloud's list shows a new machine so many seconds late."""
    with world.lock:
        _holder(world, cloud).list_after = seconds


def _holder(world: World, cloud: str) -> t.Any:
    match cloud:
        case "gcp":
            return GcpAccount.of(world)
        case "lambda":
            return LambdaAccount.of(world)
        case "paperspace":
            return PaperspaceAccount.of(world).switches
        case "runpod":
            return RunpodAccount.of(world)
        case "vast":
            return VastAccount.of(world).switches
        case "vultr":
            return VultrAccount.of(world)
    raise ValueError(f"{cloud} has no list that could lag")
