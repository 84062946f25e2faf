# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One own machine, on or off: what webhook_machine does."""

from __future__ import annotations

import dataclasses
import typing as t

from ...core import errors
from ...core.task import Task
from ...model import Instance, InstanceState
from ..registry import connect
from ..results import instance_result
from .cloud import WebhookCloud

_POLL = 5.0
_UP = (InstanceState.RUNNING, InstanceState.PENDING)
_DOWN = (InstanceState.TERMINATED, InstanceState.TERMINATING)


def switch(task: Task, name: str, *, on: bool, config: str | None, wait_timeout: float | None) -> dict[str, t.Any]:
    """Switch and return the module's result. ``wait_timeout`` in seconds, None = do not wait."""
    cloud = t.cast(WebhookCloud, connect("webhook", task))
    try:
        machine = cloud.machine(name)
        if wait_timeout is not None and not machine.status_endpoint:
            raise errors.InvalidInput(
                f"{name} has no status endpoint, so nobody can tell when it is {'on' if on else 'off'}.",
                remedy="Give it one, or set wait to false and wait for its node with tgp.gpu.node_wait.",
            )
        before = t.cast(Instance, cloud.instance(name))
        changed = before.state not in (_UP if on else _DOWN)
        if changed and not task.check_mode:
            changed = cloud.switch_on(machine, config) if on else cloud.switch_off(machine)
        goal = InstanceState.RUNNING if on else InstanceState.TERMINATED
        if task.check_mode:
            after = dataclasses.replace(before, state=goal, raw_state="on" if on else "off") if changed else before
        else:
            after = _settled(task, cloud, name, goal, wait_timeout)
        return _result(task, before, after, changed)
    finally:
        cloud.close()


def _settled(task: Task, cloud: WebhookCloud, name: str, goal: InstanceState, wait_timeout: float | None) -> Instance:
    """The machine as it is now, or once it has reached ``goal``."""
    started = task.clock.now()
    while True:
        seen = t.cast(Instance, cloud.instance(name))
        if wait_timeout is None or seen.state is goal:
            return seen
        passed = (task.clock.now() - started).total_seconds()
        if passed >= wait_timeout:
            shown = {"instance": instance_result(seen), "instances": [instance_result(seen)]}
            raise errors.TimedOut(f"{name} is {seen.raw_state} after {wait_timeout:g} s. {seen.problem}".strip(), result=shown)
        task.clock.sleep(min(_POLL, wait_timeout - passed))


def _result(task: Task, before: Instance, after: Instance, changed: bool) -> dict[str, t.Any]:
    shown = instance_result(after)
    result: dict[str, t.Any] = {"changed": changed, "instance": shown, "instances": [shown]}
    if task.diff_mode:
        result["diff"] = {"before": f"{before.name}: {before.raw_state}\n", "after": f"{after.name}: {after.raw_state}\n"}
        if not changed:
            result["diff"]["after"] = result["diff"]["before"]
    return result
