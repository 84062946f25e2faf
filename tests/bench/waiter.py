# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.bench.waiter NODE ...``: runs node_wait in this process, so that its time is not hidden in Ansible's."""

from __future__ import annotations

import sys

from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import node_wait

if __name__ == "__main__":
    options = {name: one.get("default") for name, one in node_wait.SPEC["argument_spec"].items()}
    result = execute(node_wait.SPEC, node_wait.run, Task({**options, "nodes": sys.argv[1:], "timeout": 120}))
    print(result.get("msg", ""))
    sys.exit(1 if result.get("failed") else 0)
