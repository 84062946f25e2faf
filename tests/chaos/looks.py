# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""autoscale.yml as a loop (``run loop looks=4``): each of its looks is a run of its own, so what an earlier one read proves nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.runs import loop

if t.TYPE_CHECKING:
    from .stage import Order, Outcome, Stage

INTERVAL, FULL_INTERVAL = 30, 300  # seconds


def install(stage: Stage) -> t.Callable[[], None]:
    """From now on a look begins with nothing read; what is returned undoes it."""
    plain = loop.Loop.look

    def look(self: loop.Loop) -> dict[str, t.Any]:
        run = stage.run_of.get(stage.loom.current.process)
        if run is not None:
            run.good.clear()
            run.bad.clear()
        return plain(self)

    setattr(loop.Loop, "look", look)  # noqa: B010 - a method is replaced
    return lambda: setattr(loop.Loop, "look", plain)


def play(stage: Stage, order: Order, outcome: Outcome) -> None:
    """The loop until it has looked so many times. Where the first look says that waiting mends nothing, it ends like a run that failed."""
    found = stage.run("loop", check=order.check, interval=INTERVAL, full_interval=FULL_INTERVAL, ticks=order.looks)
    outcome.said["loop"] = found
    if found.get("failed"):
        outcome.end, outcome.error = found["error"]["kind"], found["msg"].replace(str(stage.folder), "")
