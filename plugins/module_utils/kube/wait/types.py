# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a node that is waited for: what is expected, what others say of it, and how the wait ended."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...model import Node

STEPS = ("launched", "instance", "device", "csr", "node", "ready", "complete")


def _nothing_wrong(_node: Node) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What others say of a machine that is not a node yet. Empty text = nothing is known. ``hopeless`` ends the wait with its reason."""

    instance: str = ""
    running: bool = False
    device: str = ""
    device_online: bool | None = None
    uses_mesh: bool = False
    token_id: str = ""
    hopeless: str = ""


@dataclasses.dataclass(frozen=True)
class Expected:
    """A node to wait for. ``claim`` is the name it is reported under, ``name`` that of its Node.

    ``missing`` says what a Node still lacks (empty = complete). ``launched`` None: a Node of any age is right; ``returns``: the machine
    keeps its Node while it is off, so an old Node is right once it is Ready. ``wrong`` says why a Node will never do (empty = it may);
    that ends the wait for it. ``token`` is the id of the bootstrap token whose certificate request the wait answers, "" where the cluster
    does: approved for ``name``, denied for anything else, which ends the wait, too.
    """

    name: str
    claim: str
    deadline: datetime
    missing: t.Callable[[Node], t.Sequence[str]]
    launched: datetime | None = None
    returns: bool = False
    wrong: t.Callable[[Node], str] = _nothing_wrong
    token: str = ""


@dataclasses.dataclass
class Outcome:
    """How a wait ended: ``step`` is the last one reached, ``seen`` when each was first seen, ``message`` why it is not further,
    ``hopeless`` why it was given up before its time."""

    ready: bool = False
    step: str = "launched"
    message: str = "nothing was seen of it"
    seconds: float = 0.0
    seen: dict[str, datetime] = dataclasses.field(default_factory=dict)
    node: Node | None = None
    hopeless: str = ""
