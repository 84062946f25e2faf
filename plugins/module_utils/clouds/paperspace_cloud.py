# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace machines (DigitalOcean), API v1."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from ..fleet.model import Capability, Carrier, InstanceState, Lane, StateFacts
from .base import Cloud
from .entry import Entry, Wanted, text_option

URL = "https://api.paperspace.com"
REGIONS = {
    "ny2": "us-east",
    "east coast (ny2)": "us-east",
    "ca1": "us-west",
    "west coast (ca1)": "us-west",
    "ams1": "eu-west",
    "europe (ams1)": "eu-west",
}

FACTS = Capability(
    cloud="paperspace",
    lanes=(Lane.KUBELET,),
    stop=True,
    created_time=True,
    carrier=Carrier.SCRIPT,
    user_data_limit=16_000,
    registration_timeout=1200,
    states={
        "provisioning": StateFacts(InstanceState.PENDING, True),
        "starting": StateFacts(InstanceState.PENDING, True),
        "restarting": StateFacts(InstanceState.PENDING, True),
        "upgrading": StateFacts(InstanceState.PENDING, True),
        "serviceready": StateFacts(InstanceState.RUNNING, True),
        "ready": StateFacts(InstanceState.RUNNING, True),
        "stopping": StateFacts(InstanceState.STOPPED, True),
        "off": StateFacts(InstanceState.STOPPED, True),  # the disk is billed on
    },
    credential_env=("PAPERSPACE_API_KEY",),
    lane_reason="its machines boot stock templates and run a startup script; no image or network boot of one's own",
)


def _connect(wanted: Wanted) -> Cloud:
    raise InvalidInput("paperspace: this version has no client for it.", remedy="Leave it out of the class's providers.")


SETTINGS: dict[str, dict[str, t.Any]] = {}
ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "paperspace_api_url": text_option("PAPERSPACE_API_URL"),
        "paperspace_api_key": text_option("PAPERSPACE_API_KEY", no_log=True),
    },
    key="paperspace_api_key",
    aliases=("digitaloceanpaperspace", "paperspacecom"),
    settings=SETTINGS,
    regions=REGIONS,
)
