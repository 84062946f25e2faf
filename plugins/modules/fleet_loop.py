#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_loop
short_description: Rent for waiting pods and terminate, again and again until stopped
description:
  - Does over and over what M(tgp.gpu.fleet_plan) in mode V(autoscale), M(tgp.gpu.fleet_scale), M(tgp.gpu.fleet_join) without waiting, and
    M(tgp.gpu.fleet_unlock) do one after the other. Each time is a run of its own, with its own lock and report. While another run holds the
    lock, it skips.
  - Two watches tell when something deserves a look, so that nothing is asked while nothing happens.
  - The first SIGTERM or SIGINT lets it finish the look it is at, which may mean a drain, and end with success. The second one ends it at
    once.
  - While the cluster cannot be reached, nothing is done, which is said at once and then every five minutes.
  - In check mode it looks once and writes nothing.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  interval:
    description: Seconds between two looks while pods wait or machines are on their way.
    type: int
    default: 10
  full_interval:
    description: Seconds after which there is a look although nothing happened. Not less than O(interval).
    type: int
    default: 60
  ticks:
    description: End after so many looks. Without it only a signal ends it.
    type: int
  metrics_listen:
    description:
      - A port, or host:port, where C(GET /metrics) answers with the metrics as of the last look (docs/how_to/metrics.md). Without a host it is
        loopback. There is no encryption and no authentication.
      - Taken from E(TGP_METRICS_LISTEN) when not given.
    type: str
    version_added: 0.3.0
attributes:
  diff_mode:
    support: partial
    details: In check mode only.
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Look twice, a second apart, and do what is to be done
  tgp.gpu.fleet_loop:
    documents: [examples/lambda.yml]
    interval: 1
    full_interval: 1
    ticks: 2
"""

RETURN = r"""
looks:
  description: How often it looked.
  type: int
  returned: outside check mode
skipped_looks:
  description: In how many of them another run held the lock.
  type: int
  returned: outside check mode
failed_looks:
  description: In how many of them something could not be read, so that nothing was done.
  type: int
  returned: outside check mode
launched:
  description: How many machines were rented or switched on.
  type: int
  returned: outside check mode
gone:
  description: How many machines were terminated or switched off.
  type: int
  returned: outside check mode
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.loop import loop_run

SPEC = dict(
    argument_spec=dict(
        interval=dict(type="int", default=10),
        full_interval=dict(type="int", default=60),
        ticks=dict(type="int"),
        metrics_listen=dict(type="str", fallback=(env_fallback, ["TGP_METRICS_LISTEN"])),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="runs",
)


def run(task: Task) -> dict:
    return loop_run(task)


if __name__ == "__main__":
    main(SPEC, run)
