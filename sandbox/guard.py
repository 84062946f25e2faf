# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timer of an Ubuntu machine that powers it off when it hears nothing of its cluster (rule L-46), as its own files set it up."""

from __future__ import annotations

import dataclasses
import typing as t

from .cluster import MERGE, Client, KubeError

EVERY = 600.0
_PROGRAM, _TIMER = "/usr/local/sbin/tgp-guard", "/etc/systemd/system/tgp-guard.timer"


@dataclasses.dataclass(frozen=True)
class Guard:
    """Its settings in seconds, None = never, and the path of the Lease that it reads."""

    silent_for: float | None
    controller_silent_for: float | None
    lease: str


def guard_of(files: t.Mapping[str, tuple[str, int]], commands: t.Sequence[str], settings: t.Mapping[str, str]) -> Guard | None:
    """The guard that these files and commands install; None when a part of it is missing, as the machine then has none."""
    program, mode = files.get(_PROGRAM, ("", 0))
    runs = program.startswith("#!") and mode & 0o100 and f"ExecStart={_PROGRAM}" in files.get(_TIMER[:-5] + "service", ("", 0))[0]
    if not runs or _TIMER not in files or not any("enable" in one and "tgp-guard.timer" in one for one in commands):
        return None
    numbers = [settings.get(name, "") for name in ("GUARD_SILENT_FOR", "GUARD_CONTROLLER_SILENT_FOR")]
    silent, controller = (float(text) if text.isdigit() else None for text in numbers)
    return Guard(silent, controller, settings.get("GUARD_LEASE", ""))


class Watch:
    """A guard at work on a machine that became a node. :meth:`check` is one firing of its timer."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._api: float | None = None
        self._controller = 0.0
        self._renewed = ""

    def check(self, client: Client, *, away: bool) -> str:
        """Who was silent for too long, "api" or "controller"; empty = the machine stays on. ``away``: nothing reaches the API server."""
        passed = 0.0 if self._api is None else EVERY
        self._api = self._api or 0.0
        if away:
            self._api += passed
            limit, silence, who = self._guard.silent_for, self._api, "api"
        else:
            self._api = 0.0
            renewed = self._read(client)
            if not renewed:
                return ""
            self._controller = self._controller + passed if renewed == self._renewed else 0.0
            self._renewed = renewed
            limit, silence, who = self._guard.controller_silent_for, self._controller, "controller"
        return who if limit is not None and silence >= limit else ""

    def _read(self, client: Client) -> str:
        try:
            return str((client.call("GET", self._guard.lease).get("spec") or {}).get("renewTime") or "")
        except KubeError:
            return ""


def cordon(client: Client, node: str) -> None:
    """What it writes before it goes because of a silent controller."""
    body = {"metadata": {"annotations": {"tgp.io/powered-off": "controller-silent"}}, "spec": {"unschedulable": True}}
    client.call("PATCH", f"/api/v1/nodes/{node}", body, kind=MERGE)
