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
    text = logs.get((meta["namespace"], meta["name"]))
    lines = (_of_its_end(statuses) if text is None else text).splitlines(keepends=True)
    tail = request.number("tailLines")
    return "".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :])


def _of_its_end(statuses: t.Sequence[Json]) -> str:
    ends = [one["state"]["terminated"]["exitCode"] for one in statuses if "terminated" in (one.get("state") or {})]
    return "" if not ends else _LOG_BAD if any(ends) else _LOG_GOOD
