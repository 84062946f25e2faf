# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each cloud can do, as data, so that decisions can be made (and explained) without its client."""

from __future__ import annotations

from ..fleet.model import Capability, Lane

CAPABILITIES: dict[str, Capability] = {
    # Virtual machines with stock Ubuntu and cloud-init; no image, ISO or network boot of one's own, so no Talos by itself.
    "lambda": Capability(
        cloud="lambda",
        lanes=(Lane.KUBELET,),
        tags=True,
        created_time=True,  # our own tag
        user_data_limit=1_000_000,
        registration_timeout=1800,
        billing_granularity=60,
        billed_until_gone=False,  # "until terminate"
        terminal=frozenset({"terminated"}),
        credential_env=("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY"),
    ),
    # Own machines: whatever is installed on them, or whatever their boot service hands out.
    "webhook": Capability(
        cloud="webhook",
        lanes=(Lane.TALOS, Lane.KUBELET),
        stop=True,
        user_data_limit=1_000_000,
        registration_timeout=900,
        billed_until_gone=False,
        terminal=frozenset({"off"}),
        credential_env=("WEBHOOK_AUTH_VALUE",),
        rented=False,
    ),
    # Known, but without a client in this version: the plan says so instead of passing them over in silence.
    "vast": Capability(
        cloud="vast",
        lanes=(Lane.KUBELET, Lane.SERVICE),
        spot=True,
        stop=True,
        tags=True,
        created_time=True,
        registration_timeout=1200,
        credential_env=("VAST_API_KEY",),
    ),
    "runpod": Capability(
        cloud="runpod",
        lanes=(Lane.SERVICE,),  # pods are unprivileged containers and cannot be nodes
        stop=True,
        created_time=True,
        registration_timeout=1200,
        credential_env=("RUNPOD_API_KEY",),
    ),
    "paperspace": Capability(
        cloud="paperspace",
        lanes=(Lane.KUBELET,),
        stop=True,
        created_time=True,
        user_data_limit=16_000,  # a startup script
        registration_timeout=1200,
        credential_env=("PAPERSPACE_API_KEY",),
    ),
}
