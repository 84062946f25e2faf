# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod pods, REST API v2."""

from __future__ import annotations

import typing as t

from ..errors import InvalidInput
from ..fleet.model import Capability, InstanceState, Lane, StateFacts
from .base import Cloud
from .entry import Entry, Wanted, text_option

URL = "https://api.runpod.io"

FACTS = Capability(
    cloud="runpod",
    lanes=(Lane.SERVICE,),
    stop=True,
    created_time=True,
    registration_timeout=1200,
    list_delay=120,
    states={
        "PROVISIONING": StateFacts(InstanceState.PENDING, True),
        "STARTING": StateFacts(InstanceState.PENDING, True),
        "RUNNING": StateFacts(InstanceState.RUNNING, True),
        "EXITED": StateFacts(InstanceState.STOPPED, True),
        "ERROR": StateFacts(InstanceState.FAILED, True),
        "TERMINATED": StateFacts(InstanceState.TERMINATED, False),
    },
    credential_env=("RUNPOD_API_KEY",),
    lane_reason="pods are unprivileged containers and cannot be Kubernetes nodes",
)


def _connect(wanted: Wanted) -> Cloud:
    raise InvalidInput("runpod: this version has no client for it.", remedy="Leave it out of the class's providers.")


SETTINGS: dict[str, dict[str, t.Any]] = {}
ENTRY = Entry(
    facts=FACTS,
    connect=_connect,
    spec={
        "runpod_api_url": text_option("RUNPOD_API_URL"),
        "runpod_api_key": text_option("RUNPOD_API_KEY", no_log=True),
    },
    key="runpod_api_key",
    aliases=("runpodio",),
    settings=SETTINGS,
)
