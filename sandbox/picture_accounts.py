# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the accounts of the clouds hold besides machines, as JSON data without secrets; some of it costs money of its own."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from . import paperspace_forms as forms
from .gcp_account import Account as GcpAccount
from .gcp_images import living
from .lambda_account import Account as LambdaAccount
from .paperspace_account import Account as PaperspaceAccount
from .runpod_account import Account as RunpodAccount
from .vast_account import Account as VastAccount
from .vultr_account import Account as VultrAccount
from .world import World


def account_pictures(world: World) -> dict[str, dict[str, t.Any]]:
    """Cloud to what its account holds. The caller holds the world's lock."""
    return {
        "gcp": _gcp(world),
        "lambda": _lambda(world),
        "vast": _vast(world),
        "runpod": _runpod(world),
        "paperspace": _paperspace(world),
        "vultr": _vultr(world),
    }


def paperspace_extras(world: World, now: datetime) -> tuple[Decimal, Decimal]:
    """What static addresses and templates of one's own have cost so far, and cost per hour."""
    account = PaperspaceAccount.of(world)
    return account.extras_cost(now), account.extras_hour()


def _gcp(world: World) -> dict[str, t.Any]:
    account = GcpAccount.of(world)
    return {
        "disks": [f"{one.zone}/{one.name}" for one in account.disks.values()],
        "addresses": [f"{one.region}/{one.name}" for one in account.addresses],
        "images": sorted({*account.images, *living(world, account)}),
        "objects": [f"{bucket}/{name}" for bucket, held in account.buckets.items() for name in held],
    }


def _lambda(world: World) -> dict[str, t.Any]:
    account = LambdaAccount.of(world)
    return {
        "ssh_keys": [key["name"] for key in account.ssh_keys],
        "file_systems": [one["name"] for one in account.file_systems],
        "file_systems_cost": str(round(account.storage.cost(world.clock.now()), 6)),
        "firewall_rulesets": [one["name"] for one in account.rulesets],
    }


def _vast(world: World) -> dict[str, t.Any]:
    account = VastAccount.of(world)
    return {
        "ssh_keys": [key["id"] for key in account.keys()],
        "variables": sorted(account.variables),
        "credit_left": str(round(account.left(world), 6)),
    }


def _runpod(world: World) -> dict[str, t.Any]:
    account = RunpodAccount.of(world)
    return {
        "ssh_keys": len(account.ssh_keys),
        "registries": sorted(account.registries),
        "volumes": sorted(account.volumes),
        "volumes_cost": str(round(account.storage.cost(world.clock.now()), 6)),
        "templates": sorted(account.templates),
        "clusters": sorted(account.clusters),
    }


def _paperspace(world: World) -> dict[str, t.Any]:
    account = PaperspaceAccount.of(world)
    return {
        "startup_scripts": [forms.script(one) for one in account.scripts.values() if one.deleted is None],
        "private_networks": [forms.network(one) for one in account.networks.values() if one.deleted is None],
        "static_ips": [forms.static_ip(one) for one in account.static_ips if one.released is None],
        "custom_templates": [forms.template(one) for one in account.custom.values() if one.deleted is None],
        "password_mails": list(account.password_mails),
    }


def _vultr(world: World) -> dict[str, t.Any]:
    account = VultrAccount.of(world)
    return {
        "firewall_groups": [one.description for one in account.groups.values()],
        "snapshots": [one.description for one in account.snapshots.values() if account.snapshot_state(one, world.clock.seconds())],
    }
