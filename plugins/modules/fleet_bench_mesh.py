#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_bench_mesh
short_description: Measure round trip and throughput between pods of two nodes
description:
  - Runs C(iperf3) between two pods on two nodes, through the pods' network and so through the mesh of the machines. One pair of nodes after
    the other, each with one server pod and one client pod. The client runs three times, O(seconds) each - almost idle for the round trip, then
    at full speed in both directions.
  - O(from_node) and O(to_node) are these two nodes. O(from_node) alone is measured with a node of the cluster that is not ours.
  - O(pool) and O(to_node) are each node of the pool with that one. O(pool) alone is each of its nodes with the next, in the order of their
    names, or its only node with one that is not ours.
  - The pods meet the Pod Security Standard C(restricted), tolerate exactly the taints of their node, have requests and limits, and end by
    themselves. They are removed in any case; what a killed run left is removed by the next one. Two measurements at once are refused.
  - A node that is missing, not Ready, cordoned or being drained is refused. In a pool it is left out, with a warning.
  - Fails with the reason when a pair could not be measured. What was measured is in the result all the same.
version_added: 0.4.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  image:
    description:
      - Image that contains C(iperf3) 3.1 or newer in its C(PATH). Required; this collection publishes no image. It runs as user 65534 with a
        read-only file system.
      - Pin it by its digest (C(@sha256:...)); an image without one causes a warning.
    type: str
  pool:
    description: Measure between nodes of this pool, by name or namespace/name.
    type: str
  from_node:
    description: Name of the Node on which the client runs.
    type: str
  to_node:
    description: Name of the Node on which the server runs. Taints of a Node that is named are tolerated.
    type: str
  seconds:
    description: Seconds of each of the three runs; 1 to 60.
    type: int
    default: 10
  port:
    description: TCP port of the server; 1024 to 65535. A NetworkPolicy of O(namespace) has to let it in.
    type: int
    default: 5201
  max_pairs:
    description: Most pairs of nodes that a run measures; 1 to 20.
    type: int
    default: 3
  start_timeout:
    description: Seconds within which a pod has to start, the pull of its image included; 10 to 1800.
    type: int
    default: 120
  namespace:
    description: Namespace of the pods. files/rbac.yml has the rights for V(tgp-system) alone.
    type: str
    default: tgp-system
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
- name: What would be measured between a pool and one node?
  tgp.gpu.fleet_bench_mesh:
    documents: [examples/lambda.yml]
    pool: a10
    to_node: rack-1
    image: registry.example.org/tools/iperf3@sha256:0000000000000000000000000000000000000000000000000000000000000000
  check_mode: true
  register: planned

- name: Measure between two nodes
  tgp.gpu.fleet_bench_mesh:
    from_node: "{{ planned.pairs[0].from_node }}"
    to_node: "{{ planned.pairs[0].to_node }}"
    image: registry.example.org/tools/iperf3@sha256:0000000000000000000000000000000000000000000000000000000000000000
    seconds: 5
  register: measured
"""

RETURN = r"""
pairs:
  description: One entry per pair of nodes, also when the module fails.
  type: list
  elements: dict
  returned: always
  contains:
    from_node: {description: Where the client ran., type: str, returned: always, sample: gpu-1}
    to_node: {description: Where the server ran., type: str, returned: always, sample: gpu-2}
    state: {description: "V(planned) in check mode, V(measured) or V(failed).", type: str, returned: always, sample: measured}
    problem: {description: Why it could not be measured., type: str, returned: always, sample: ""}
    round_trip_ms:
      description: "Round trips of the almost idle connection in milliseconds, as the client's kernel saw them: C(mean) and C(min). Null where
        C(iperf3) does not report them."
      type: dict
      returned: always
      sample: {mean: 21.4, min: 20.1}
    forward:
      description: "From O(from_node) to O(to_node): C(mbit_per_s) that arrived, and C(retransmits) of the sender (null where it does not report
        them)."
      type: dict
      returned: always
      sample: {mbit_per_s: 941.2, retransmits: 12}
    reverse: {description: The same in the other direction., type: dict, returned: always, sample: {mbit_per_s: 876.0, retransmits: 3}}
    mesh:
      description: The mesh of the machines, by their claims. Empty where no claim says it.
      type: str
      returned: always
      sample: tailscale
    path:
      description: "V(relayed) between two peers of a WireGuard hub. V(unknown) otherwise."
      type: str
      returned: always
      sample: unknown
    path_reason:
      description: How that is known, or why not.
      type: str
      returned: always
      sample: no claim says how the two nodes reach each other
    iperf3: {description: The version that ran., type: str, returned: always, sample: iperf 3.16}
writes:
  description: Calls that created or deleted a pod.
  type: int
  returned: always
  sample: 4
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.bench_mesh import bench_run

SPEC = dict(
    argument_spec=dict(
        image=dict(type="str"),
        pool=dict(type="str"),
        from_node=dict(type="str"),
        to_node=dict(type="str"),
        seconds=dict(type="int", default=10),
        port=dict(type="int", default=5201),
        max_pairs=dict(type="int", default=3),
        start_timeout=dict(type="int", default=120),
        namespace=dict(type="str", default="tgp-system"),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="none",
)


def run(task: Task) -> dict:
    return bench_run(task)


if __name__ == "__main__":
    main(SPEC, run)
