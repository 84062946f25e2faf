#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_unlock
short_description: Let go of the run lock
description:
  - Ends what M(tgp.gpu.fleet_plan) began. Belongs into the C(always) section of a play. Releases only the lock of this very run.
  - Closes the report of the run (docs/reference/events.md) and returns it. It also goes into the play's custom stats as C(tgp_run), which AWX
    keeps as an artifact of the job.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options: {}
requirements:
  - h2 >= 4.1 (for O(talosconfig))
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Let others run
  tgp.gpu.fleet_unlock:
    run_id: "{{ plan_result.run_id }}"
"""

RETURN = r"""
released:
  description: Whether this run held the lock.
  type: bool
  returned: always
report:
  description: The run's report, as schemas/run-report.schema.json describes it; C(outcome) is the one word for how it ended.
  type: dict
  returned: when a step of the run has left one
report_file:
  description: Where the report lies, C(<state_dir>/runs/<run id>.json).
  type: str
  returned: when a step of the run has left one
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.machines import unlock_step

SPEC = dict(argument_spec=dict(**FLEET_SPEC), supports_check_mode=True, run_report="close")


def run(task: Task) -> dict:
    return unlock_step(task)


if __name__ == "__main__":
    main(SPEC, run)
