# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bootstrap program of the kubelet lane writes on the console of its machine, by its own text.

The program is not run. Its functions ``step`` and ``die``, and the one that it traps its end with, are read, and what they send to the
console is what the machine shows: a program without these lines shows none.
"""

from __future__ import annotations

import re
import typing as t

from .container_script import Script
from .container_words import ShellFault

STEPS = re.compile(r"^\s*step \"?([a-z][a-z-]*)\"?$", re.MULTILINE)
ONCE = ("repositories", "packages")  # steps that a later start leaves out
_CONSOLE = frozenset({"/dev/console"})  # its output goes to the journal: systemd starts it
_SETTING = re.compile(r"^[A-Z_]+=\S*$", re.MULTILINE)
_LOGIN = "tailscale up: "  # how the client's own words begin here
_LOGIN_FAILED = re.compile(r'^\s*die "(tailscale up [^"$]*)\$\(said \.\)"$', re.MULTILINE)
_TRAP = re.compile(r"^trap (\w+) EXIT$", re.MULTILINE)


class BootstrapWords:
    """One start of the program. ``skips`` are steps that its settings leave out."""

    def __init__(self, program: str, skips: t.Collection[str] = ()) -> None:
        self._steps = [step for step in STEPS.findall(program) if step not in skips]
        self._next = 0
        self._script = Script({}, screens=_CONSOLE)
        self._script.learn(program)
        for setting in _SETTING.findall(program.partition("\nstep ")[0]):
            self._script.read(setting)
        trapped = _TRAP.search(program)
        self._last = trapped[1] if trapped else ""
        login = _LOGIN_FAILED.search(program)
        self._login = login[1] if login else _LOGIN

    @property
    def at(self) -> str:
        """The step it is in; empty before the first."""
        return self._steps[self._next - 1] if self._next else ""

    def reach(self, step: str) -> list[str]:
        """Its lines up to the beginning of ``step``; nothing when it is past it or has no such step."""
        if step not in self._steps[self._next :]:
            return []
        until = self._steps.index(step, self._next) + 1
        lines = [line for one in self._steps[self._next : until] for line in self._call("step", one)]
        self._next = until
        return lines

    def fail(self, step: str, why: str) -> list[str]:
        """Its lines up to its end in ``step``. Whoever starts it again, starts with the first step."""
        if why.startswith(_LOGIN):
            why = self._login + why.removeprefix(_LOGIN)
        lines = [*self.reach(step), *self._call("die", why), *self._call(self._last)]
        if ONCE[-1] in self._steps[: self._next - 1]:
            self._steps = [one for one in self._steps if one not in ONCE]
        self._next = 0
        return lines

    def _call(self, *words: str) -> list[str]:
        try:
            return self._script.call(words)
        except ShellFault:
            return []
