# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of a pod: server-sent events that may never end, so reading ends with the lines asked for or with silence."""

from __future__ import annotations

import json
import time

from ...core import errors
from ...core.http import Api

_LINES = 200
_SILENCE = 5.0  # real seconds
_LONGEST = 15.0


def read_log(api: Api, path: str) -> str | None:
    """What the platform said (image pull, start), then what the container printed; None when the pod is not found."""
    try:
        lines = [line for source in ("system", "container") for line in _tail(api, path, source)]
    except errors.NotFound:
        return None
    return "\n".join(lines)


def _tail(api: Api, path: str, source: str) -> list[str]:
    started, lines = time.monotonic(), list[str]()
    opened = False
    try:
        with api.stream(path, params={"source": source, "tail": _LINES}, timeout=_SILENCE) as events:
            opened = True
            for event in events:
                if event.startswith("data:"):
                    lines.append(_text(event.removeprefix("data:").strip()))
                if len(lines) >= _LINES or time.monotonic() - started > _LONGEST:
                    break
    except errors.LostAnswer:
        if not opened:
            raise  # once it is open, silence is its end
    return lines


def _text(data: str) -> str:
    """``{"source", "line", "ts"}`` as a line; what is none of these stands as it is."""
    try:
        event = json.loads(data)
    except ValueError:
        return data
    if not isinstance(event, dict) or "line" not in event:
        return data
    return f"{event.get('ts') or ''} {event['line']}".strip()
