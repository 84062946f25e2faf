# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a run may say that all is well (I-23): at its last moment, before it frees the lock, what it was asked for is true in the world."""

from __future__ import annotations

import typing as t
from datetime import timedelta

from . import switches
from .sight import Run, Sight, pool_in

if t.TYPE_CHECKING:
    from .stage import Order

_UNSEEN = timedelta(seconds=120)  # what ended so short a time ago no run can know
_CLOUDS = ("gcp", "lambda", "paperspace", "runpod", "vast", "vultr")


def is_clean(said: t.Mapping[str, t.Any]) -> bool:
    """Whether the playbook would end with exit status 0: no step has a problem (the task "Say what went wrong")."""
    return not any(step.get("problems") for step in said.values())


def I23_success_is_true(sight: Sight, run: Run, order: Order, said: t.Mapping[str, t.Any]) -> str:
    """What is wrong with the exit status 0 of this run."""
    if not is_clean(said):
        return ""
    if (said.get("plan") or {}).get("outcome") == "lock_busy":
        asks = run.mode in ("provision", "apply", "destroy")
        return f"{run.mode} did nothing, as another run is at work" if asks and switches.on("I-23 lock") else ""
    blind = [cloud for cloud in _CLOUDS if cloud in run.bad - run.good]
    if blind:
        return f"the machines of {', '.join(blind)} could not be listed" if switches.on("I-23 lists") else ""
    if run.mode == "provision":
        there = [one for one in sight.made() if pool_in(one.name) == order.pool and _is_there(sight, one)]
        return f"{len(there)} of {order.nodes} machines are there" if len(there) < order.nodes else ""
    if run.mode == "destroy":
        left = [one.name for one in sight.living() if one.name in sight.claims()]
        return f"{', '.join(left)} still exist" if left else ""
    return ""


def _is_there(sight: Sight, machine: t.Any) -> bool:
    """It lives and is a whole node, or one that lost some GPUs (only the pool's policy replaces it, L-20a), or ended or fell silent a
    moment ago."""
    if machine.ended is not None:
        return bool(sight.now - machine.ended < _UNSEEN)
    since, lost = sight.not_ready_since(machine.name), sight.gpus_lost.get(machine.name)
    if lost is not None and since is None and (sight.gpus(machine.name) or sight.now - lost < _UNSEEN):
        return True
    return not sight.is_node(machine) or sight.is_complete(machine) or (since is not None and sight.now - since < _UNSEEN)
