# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai, a marketplace of other people's machines."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from ..fleet.model import Capability, Carrier, InstanceState, Lane, StateFacts
from .base import Cloud
from .entry import Entry, Wanted, text_option

URL = "https://console.vast.ai"

FACTS = Capability(
    cloud="vast",
    lanes=(Lane.KUBELET, Lane.SERVICE),  # an offer without KVM serves containers only
    spot=True,
    stop=True,
    tags=True,
    created_time=True,
    carrier=Carrier.ENVIRONMENT,
    user_data_limit=32_000,
    registration_timeout=1200,
    list_delay=60,
    bills_boot=False,  # the disk from the start, the GPUs while it runs
    states={
        "created": StateFacts(InstanceState.PENDING, True),
        "loading": StateFacts(InstanceState.PENDING, True),
        "scheduling": StateFacts(InstanceState.PENDING, True),
        "rebooting": StateFacts(InstanceState.PENDING, True),
        "running": StateFacts(InstanceState.RUNNING, True),
        "frozen": StateFacts(InstanceState.STOPPED, True),
        "stopped": StateFacts(InstanceState.STOPPED, True),
        "exited": StateFacts(InstanceState.FAILED, True),
        "offline": StateFacts(InstanceState.FAILED, True),
        "unknown": StateFacts(InstanceState.UNKNOWN, True),
    },
    credential_env=("VAST_API_KEY",),
    lane_reason="only its KVM machines (vms_enabled) can become nodes; everything else is an unprivileged container",
)


def _connect(wanted: Wanted) -> Cloud:
    raise InvalidInput("vast: this version has no client for it.", remedy="Leave it out of the class's providers.")


SETTINGS: dict[str, dict[str, t.Any]] = {}
ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "vast_api_url": text_option("VAST_URL"),
        "vast_api_key": text_option("VAST_API_KEY", no_log=True),
    },
    key="vast_api_key",
    aliases=("vastai",),
    settings=SETTINGS,
)
