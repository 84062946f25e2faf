# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What health agents write to a Node, and what becomes of it when a GPU fails: conditions as node-problem-detector and NVSentinel have them,
a cordon, fewer GPUs."""

from __future__ import annotations

import typing as t
from datetime import datetime

from .cluster import MERGE, STRATEGIC, Client
from .kubelet import GPU, time_text


def report(client: Client, node: str, kind: str, status: str, now: datetime, reason: str = "", message: str = "") -> None:
    """A condition, as node-problem-detector writes it: with a heartbeat each time, and a transition where its status changes."""
    path, stamp = f"/api/v1/nodes/{node}", time_text(now)
    listed: list[dict[str, t.Any]] = client.call("GET", path).get("status", {}).get("conditions") or []
    before = next((one for one in listed if one["type"] == kind), {})
    since = before["lastTransitionTime"] if before.get("status") == status else stamp
    condition = {
        "type": kind,
        "status": status,
        "reason": reason or ("No" if status == "False" else "") + kind,
        "message": message or f"{kind} is {status}",
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": since,
    }
    client.call("PATCH", f"{path}/status", {"status": {"conditions": [condition]}}, kind=STRATEGIC)


def quarantine(client: Client, node: str, kind: str, code: str, action: str, now: datetime) -> None:
    """NVSentinel has found a fatal fault: the condition with what it recommends, and a cordon."""
    report(client, node, kind, "True", now, kind, f"[{code}] fault found by {kind} - RecommendedAction: {action}")
    client.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, kind=MERGE)


def show_gpus(client: Client, node: str, left: int, capacity: int | None = None) -> None:
    """A GPU has fallen off the bus: the device plugin calls it unhealthy, so that ``left`` are allocatable. The capacity stays (``capacity``)
    until the plugin starts again; then it is ``left``, too."""
    amounts = {"allocatable": left, "capacity": left if capacity is None else capacity}
    status = {key: {GPU: str(amount)} for key, amount in amounts.items()}
    client.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, kind=MERGE)
