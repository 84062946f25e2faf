# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the start script of a rented machine says in the machine's log. Only its own lines are kept; the log itself is never shown."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core import errors
from ..providers.base import Cloud
from .ask import Recording, VerifyTarget, failure_of
from .facts.fact import BootScript, Reply


@dataclasses.dataclass
class BootLog:
    """The lines of several reads together: a log is cut at its beginning, uploaded late, and perhaps empty at first. ``logs``: how many came,
    ``lines``: of the longest."""

    target: VerifyTarget
    cloud: Cloud
    recording: Recording
    script: BootScript
    markers: dict[str, str] = dataclasses.field(default_factory=dict)
    reads: int = 0
    logs: int = 0
    lines: int = 0

    @property
    def complete(self) -> bool:
        return self.script.last in self.markers

    def unread(self, why: str) -> None:
        """No log was asked for."""
        for name in (self.script.name, self.script.request.name):
            self.recording.failures[name] = why
            self.recording.unasked.add(name)

    def read(self, identity: str, seconds: float) -> None:
        """One read, ``seconds`` after the machine ran. A failure is recorded unless another read succeeds."""
        self.reads += 1
        request = self.script.request
        path = request.path.format(identity) if isinstance(request.path, str) else ""
        if request.name not in self.recording.replies:
            self.recording.add(request.name, lambda: self.target.call(request, path, {}))
        try:
            text = self.cloud.console(identity)
        except errors.ApiError as error:
            if not self.logs:
                self.recording.failures[self.script.name] = failure_of(error)
            return
        if text is not None:
            self.logs += 1
            self.lines = max(self.lines, len(text.splitlines()))
            self.markers = {**self.script.markers(text), **self.markers}
        self.recording.failures.pop(self.script.name, None)
        seen: dict[str, t.Any] = {**self.markers, "logs": self.logs, "lines": self.lines, "after": seconds}
        self.recording.replies[self.script.name] = Reply(200, seen)
