# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods print, as the API server passes it on. Nothing runs here: whoever furnishes the world writes ``KubeApi.pod_logs``."""

from __future__ import annotations

import typing as t

from .request import Request
from .status import bad_request

Json = dict[str, t.Any]


def pod_log(logs: t.Mapping[tuple[str, str], str], pod: Json, request: Request) -> str:
    """The text of GET pods/NAME/log. A pod of several containers has to be asked for one; one that has not started prints nothing."""
    meta, names = pod["metadata"], [container["name"] for container in pod["spec"]["containers"]]
    wanted = request.query.get("container", "")
    if not wanted and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {meta['name']}, choose one of: [{' '.join(names)}]")
    if wanted and wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {meta['name']}")
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    waiting = next((entry["state"]["waiting"] for entry in statuses if (entry.get("state") or {}).get("waiting")), None)
    if waiting is not None:
        raise bad_request(
            f'container "{wanted or names[0]}" in pod "{meta["name"]}" is waiting to start: {waiting.get("reason") or "ContainerCreating"}'
        )
    lines = logs.get((meta["namespace"], meta["name"]), "").splitlines(keepends=True)
    tail = request.number("tailLines")
    return "".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :])
