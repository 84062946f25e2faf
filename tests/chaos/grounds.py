# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clouds that campaigns are played on."""

from __future__ import annotations

from .campaign import Ground

LAMBDA = Ground(
    cloud="lambda",
    create=("POST", "/instance-operations/launch$"),
    destroy=("POST", "/instance-operations/terminate$"),
    lists="/api/v1/instances$",
    offers="/instance-types$",
    scenario={
        "lambda": [
            {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 2, "boot": 20},
            {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 4, "boot": 20},
        ]
    },
    settings={"sshKey": "tgp"},
)

GROUNDS = {one.cloud: one for one in (LAMBDA,)}
