#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_archive
short_description: Move old lines of the ledger into a file
description:
  - Appends the closing lines of machines that ended long ago to a file, reads the file back, and only then removes them from the ledger. A run
    that is killed in between leaves a line in both places; the next one, and M(tgp.gpu.fleet_report), count it once.
  - A part of the ledger is moved as a whole, when each of its lines is old enough, none of them is torn, and no claim is left of their
    machines. The newest part stays.
  - Nothing else removes lines. A line takes about 700 bytes; a hundred machines a day are 24 MB a year in the cluster's etcd.
  - No run lock is taken. A part that another run changes meanwhile stays.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  path:
    description: The file, made with mode 0600 when it is missing. One JSON object on each line.
    type: path
    required: true
  older_than_days:
    description: How many days ago a machine has to have ended, 35 at least. Budgets need what is younger.
    type: int
    default: 400
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
- name: Keep a year in the cluster
  tgp.gpu.fleet_archive:
    path: ledger.jsonl
    older_than_days: 365

- name: What all of it cost
  tgp.gpu.fleet_report:
    archive: ledger.jsonl
"""

RETURN = r"""
lines:
  description: How many lines were moved, or would be in check mode.
  type: int
  returned: always
parts:
  description: How many ConfigMaps (or files, where the ledger is kept in a folder) they were in.
  type: int
  returned: always
path:
  description: The file.
  type: str
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.ledger_archive import archive_run

SPEC = dict(
    argument_spec=dict(
        path=dict(type="path", required=True),
        older_than_days=dict(type="int", default=400),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return archive_run(task)


if __name__ == "__main__":
    main(SPEC, run)
