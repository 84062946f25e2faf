# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods print, as the API server passes it on. Nothing runs here: whoever furnishes the world writes ``KubeApi.pod_logs``."""

from __future__ import annotations

import typing as t

from .request import Request
from .status import bad_request

Json = dict[str, t.Any]

#: what NVIDIA's sample vectorAdd writes: every container that has ended, and for which nobody wrote a log, wrote one of these
_LOG_GOOD = "[Vector addition of 50000 elements]\nCopy input data from the host memory to the CUDA device\nTest PASSED\nDone\n"
_LOG_BAD = "[Vector addition of 50000 elements]\nFailed to allocate device vector A (error code unknown error)!\n"


def pod_log(logs: t.Mapping[tuple[str, str], str], pod: Json, request: Request) -> str:
    """The text of GET pods/NAME/log. A pod of several containers has to be asked for one; one that has not started prints nothing."""
    meta, names = pod["metadata"], [container["name"] for container in pod["spec"]["containers"]]
    others = [container["name"] for container in pod["spec"].get("initContainers") or ()]
    wanted = request.query.get("container", "")
    if not wanted and len(names) > 1:
        raise bad_request(f"a container name must be specified for pod {meta['name']}, choose one of: [{' '.join(names)}]")
    if wanted and wanted not in (*names, *others):
        raise bad_request(f"container {wanted} is not valid for pod {meta['name']}")
    status = pod.get("status") or {}
    statuses = [one for kind in ("containerStatuses", "initContainerStatuses") for one in status.get(kind) or ()]
    statuses = [one for one in statuses if one.get("name") == (wanted or names[0])] or (status.get("containerStatuses") or [])
    waiting = next((entry["state"]["waiting"] for entry in statuses if _has_not_run(entry)), None)
    if waiting is not None:
        raise bad_request(
            f'container "{wanted or names[0]}" in pod "{meta["name"]}" is waiting to start: {waiting.get("reason") or "ContainerCreating"}'
        )
    own = logs.get((meta["namespace"], f"{meta['name']}/{wanted or names[0]}"))
    text = own if own is not None else logs.get((meta["namespace"], meta["name"]))
    lines = (_of_its_end(statuses) if text is None else text).splitlines(keepends=True)
    tail = request.number("tailLines")
    return "".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :])


def _has_not_run(entry: Json) -> bool:
    """It waits for its first start. The log of one that waits for its next one is that of its last run."""
    return bool((entry.get("state") or {}).get("waiting")) and not (entry.get("lastState") or {}).get("terminated")


def _of_its_end(statuses: t.Sequence[Json]) -> str:
    ends = [one["state"]["terminated"]["exitCode"] for one in statuses if "terminated" in (one.get("state") or {})]
    return "" if not ends else _LOG_BAD if any(ends) else _LOG_GOOD
