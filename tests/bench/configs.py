# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P10: rendering and checking the configurations of a thousand nodes, as a launch does it, for each lane."""

from __future__ import annotations

import dataclasses
import time

from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane

from sandbox.running import ROOT
from tests.fixtures.talos_nodes import make

COUNT = 1000
PATCH = "machine: {sysctls: {vm.max_map_count: '262144'}, nodeLabels: {example.test/name: '{{ NodeName }}'}}"
MIRRORS = {"docker.io": ("https://mirror.example.test",)}


def rows() -> list[tuple[str, str]]:
    """One row for each lane, in a process in which nothing was rendered before."""
    template = (ROOT / "examples" / "templates" / "worker.yaml").read_text(encoding="utf-8")
    base = make(patches=(PATCH,), registry_mirrors=MIRRORS)
    found = []
    for lane in (Lane.TALOS, Lane.KUBELET):
        started, spent, size = time.monotonic(), time.process_time(), 0
        for number in range(COUNT):
            node = dataclasses.replace(base, name=f"tgp-ml-{number:06d}", index=number, lane=lane)
            size += len(payload(node, template).text)
        wall, cpu = time.monotonic() - started, time.process_time() - spent
        found.append((f"P10 {COUNT} nodes of lane {lane.value}, rendered and checked: wall seconds", f"{wall:.2f}"))
        found.append((f"  CPU seconds; {size / COUNT / 1000:.1f} kB each", f"{cpu:.2f}"))
    return found


if __name__ == "__main__":
    for what, value in rows():
        print(f"  {what:<78} {value}")
