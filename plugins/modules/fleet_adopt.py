#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_adopt
short_description: Take over the machines of a record store that is lost
description:
  - Each record store has a generation, a UUID that its machines are stamped with. Machines of this cluster that carry another generation are
    reported and never changed, because another cluster with the same id may run them.
  - Without O(generation) this module lists such machines.
  - With O(generation) the record store goes on with that generation. It changes this one record and no machine. The next C(reap.yml) adopts
    the machines that show signs of life, and terminates the others as orphans.
  - Use it after the records of a cluster were lost. Do not use it in a copy of a cluster that still runs.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  generation:
    description: Generation of the machines to take over.
    type: str
  lock_wait:
    description: Seconds to wait for another run to finish.
    type: int
    default: 0
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
- name: Which machines carry another generation?
  tgp.gpu.fleet_adopt:
    documents: [examples/lambda.yml]
"""

RETURN = r"""
generation:
  description: Generation that new machines are stamped with; empty if none was drawn yet.
  type: str
  returned: always
earlier:
  description: Other generations whose machines belong to this store.
  type: list
  elements: str
  returned: always
machines:
  description:
    - Machines that carried another generation before this call.
    - Each has C(generation), C(name), C(cloud), C(id), C(price_hour) and C(mesh_online).
  type: list
  elements: dict
  returned: always
adopted:
  description: Names of those that belong to this store now.
  type: list
  elements: str
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.adopt import adopt_generation

SPEC = dict(
    argument_spec=dict(
        generation=dict(type="str"),
        lock_wait=dict(type="int", default=0),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return adopt_generation(task)


if __name__ == "__main__":
    main(SPEC, run)
