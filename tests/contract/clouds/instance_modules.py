# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance module of each stand, called for one machine."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.modules import lambda_instance, paperspace_machine, runpod_pod, vast_instance

from .stands import KEY, Stand
from .stands_runpod import IMAGE
from .test_modules import call

NAME = "tgp-demo"
MODULES: dict[str, tuple[t.Any, dict[str, t.Any]]] = {
    "lambda": (lambda_instance, {"instance_type": "gpu_1x_a10"}),
    "paperspace": (paperspace_machine, {"machine_type": "A4000"}),
    "runpod": (runpod_pod, {"gpu_type": "RTX 4090", "image": IMAGE}),
    "vast": (vast_instance, {"gpu_type": "RTX 4090"}),
}


def run(stand: Stand, **params: t.Any) -> dict[str, t.Any]:
    """The module's result; it does not wait for the machine unless told so."""
    module, usual = MODULES[stand.service]
    account = {f"{stand.service}_api_url": stand.base, f"{stand.service}_api_key": KEY}
    return call(module, stand, **{"name": NAME, "wait": False, **usual, **account, **params})


def living(stand: Stand) -> list[str]:
    """Ids of the machines that are billed."""
    return [one.id for one in stand.world.machines.values() if one.ended is None]
