# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source for ansible-rulebook: what in a cluster deserves a run of a playbook now, told within a second.

One event for pods that wait for GPUs, for machines that ask for a node's certificate, for nodes of ours that came up, are idle or are lost,
and when the cluster cannot be read. Each is told again after a while as long as it lasts, so that a run that failed is not the last one.
"""

from __future__ import annotations

import asyncio
import logging
import pathlib
import sys
from typing import Any

DOCUMENTATION = r"""
short_description: Watch a cluster for waiting GPU pods, and for GPU nodes that come, idle or are lost
description:
  - Follows pods, Nodes and certificate requests by a watch each and puts an event when something deserves a run.
  - "C(event.kind) is V(pods_waiting) (with C(gpus)), V(nodes_asking) (C(names) are certificate requests), V(nodes_ready), V(nodes_idle),
    V(nodes_lost) or V(cluster_unreachable) (with C(message)); C(names), C(count) and C(since) say what it is about, C(seen) when the first
    change of it came in and C(told) when it was handed over, both with milliseconds."
  - It needs the rights to list and watch pods and Nodes. Without the same rights to certificate requests it tells nothing of those, and a
    machine of lane C(kubelet) waits for its certificate until something else is told.
options:
  kubeconfig:
    description: The cluster. E(KUBECONFIG) or the pod's own service account without it.
    type: str
  context:
    description: Context of the kubeconfig. Its current one without it.
    type: str
  idle_after:
    description: Seconds after which an idle node is told the second time; set it to the pools' consolidateAfter.
    type: int
    default: 600
  idle_mode:
    description: Which pods keep a node busy, as C(disruption.idleMode) of a pool.
    type: str
    choices: [workload, gpu, all]
    default: workload
  lost_after:
    description: Seconds for which a Node may be not Ready. One that vanishes is told at once.
    type: int
    default: 300
  unreachable_after:
    description: Seconds after which it is told that the cluster cannot be read.
    type: int
    default: 60
  repeat:
    description: Seconds after which the same is told again.
    type: int
    default: 300
  quiet:
    description: Seconds without a change before changes are told, so that the pods of one job are one event.
    type: float
    default: 0.2
  most:
    description: Seconds after which they are told although there are more changes.
    type: float
    default: 2
"""

EXAMPLES = r"""
- tgp.gpu.cluster_events:
    idle_after: 600
"""

_LOG = logging.getLogger(__name__)
_NUMBERS = {"idle_after": 600.0, "lost_after": 300.0, "unreachable_after": 60.0, "repeat": 300.0, "quiet": 0.2, "most": 2.0}
_MODES = ("workload", "gpu", "all")


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """What ansible-rulebook calls. Ends when it is cancelled; an error that does not pass ends it, too."""
    attention, close = _attention(queue, args, asyncio.get_running_loop())
    try:
        await asyncio.to_thread(attention.run)
    finally:
        attention.stop()
        close()


def _attention(queue: asyncio.Queue, args: dict[str, Any], loop: asyncio.AbstractEventLoop) -> tuple[Any, Any]:
    """What watches, and what closes its connections."""
    _find_collection()
    from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
    from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
    from ansible_collections.tgp.gpu.plugins.module_utils.observe.cluster_watch import Attention
    from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.triggers import TriggerDelays, Watcher

    numbers = {name: _number(name, args.get(name, default)) for name, default in _NUMBERS.items()}
    mode = args.get("idle_mode") or _MODES[0]
    unknown = sorted(set(args) - {*_NUMBERS, "idle_mode", "kubeconfig", "context", "name"})
    if unknown or mode not in _MODES:
        what = f"there is no option {', '.join(unknown)}" if unknown else f"idle_mode is {mode!r}; it is one of {', '.join(_MODES)}"
        raise ValueError(f"tgp.gpu.cluster_events: {what}")
    task = Task({"kubeconfig": args.get("kubeconfig") or None, "context": args.get("context") or None}, warn=_LOG.warning)
    kube = connect(task)

    def tell(event: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, event)

    delays = TriggerDelays(numbers["idle_after"], numbers["lost_after"], numbers["repeat"])
    watcher = Watcher(delays, idle_mode=mode)
    times = {"quiet": numbers["quiet"], "most": numbers["most"], "unreadable_after": numbers["unreachable_after"]}
    return Attention(kube, watcher, tell, task.clock, **times), kube.close


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"tgp.gpu.cluster_events: {name} is {value!r}; it is a number of seconds")
    return number


def _find_collection() -> None:
    """A source is run by its path, so the folder of its collection may be nowhere that Python looks."""
    parents = pathlib.Path(__file__).resolve().parents
    root = next((one.parent for one in parents if one.name == "ansible_collections"), None)
    if root is not None and str(root) not in sys.path:
        sys.path.append(str(root))


if __name__ == "__main__":

    class _Printer:
        """Shows events instead of handing them on: python cluster_events.py."""

        def put_nowait(self, event: dict[str, Any]) -> None:
            print(event, flush=True)

    asyncio.run(main(_Printer(), {}))  # type: ignore[arg-type]
