# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one rule of a diagnosis says."""

from __future__ import annotations

import dataclasses
import typing as t

from .facts import Findings


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A cause in one sentence, what to do about it, and the lines that show it. Empty lines of ``evidence`` are dropped."""

    code: str
    cause: str
    remedy: str
    evidence: tuple[str, ...] = ()
    certain: bool = True


Rule = t.Callable[[Findings], "Verdict | None"]


def quoted(line: str) -> str:
    """A line of the machine's console as evidence; empty stays empty."""
    return f"console: {line[:300]}" if line else ""
