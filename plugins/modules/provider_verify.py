#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: provider_verify
short_description: Check what the collection expects of a provider against the real service
description:
  - Asks a provider, a mesh or the Image Factory by calls that change nothing, and compares the answers with everything that the collection
    depends on - fields and their types, statuses, error bodies, paging, limits and filters.
  - With O(rent) it also rents the cheapest machine, watches it until it runs, and terminates it. The cost is checked before and during that.
    The machine is terminated in any case. If the call is killed, the next one terminates it first.
  - The report says for each fact what was expected, what was seen, and what goes wrong when the fact is false. It holds no secret, address or
    id, so that it can be attached to an issue.
  - The module fails unless everything that was checked is as expected.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  provider:
    description:
      - V(gcp), V(lambda), V(paperspace), V(runpod), V(vast), V(vultr), V(webhook), V(tailscale), V(headscale) or V(image_factory).
      - Of V(tailscale) and V(headscale), what the server at O(tailscale_api_url) speaks is checked.
      - Of V(webhook), the status endpoint of each own machine is checked. No machine is switched on or off.
    type: str
    required: true
  documents:
    description:
      - Documents whose classes list the own machines, for O(provider=webhook). Each entry is a file, a folder, a glob pattern, or a document
        written inline. Without it the machines are those of O(webhook_machines), or of the environment.
      - No Secret is read, so the key of C(credentialsRef) has to be in O(webhook_auth_value).
    type: list
    elements: raw
    default: []
  rent:
    description: Also rent the cheapest machine for some minutes. Not possible with O(provider=webhook).
    type: bool
    default: false
  lane:
    description:
      - What to rent with O(rent=true), by what it is used for - V(kubelet) is a machine that can become a node, V(service) a container.
      - Default is V(service) where O(provider) has containers (V(runpod), V(vast)), else V(kubelet).
      - A virtual machine of V(vast) (V(kubelet)) also runs a start script, which says in the machine's log what lane V(kubelet) needs.
    type: str
    choices: [kubelet, service]
  max_cost:
    description: Dollars, as text, that the machine may cost. Needed with O(rent=true).
    type: str
  path:
    description: File for the report in Markdown. The same as JSON is written beside it. Without it the report is only returned.
    type: path
  image_factory_url:
    description:
      - Root of the Image Factory. Default is V(https://factory.talos.dev).
      - If not set, the environment variable E(IMAGE_FACTORY_URL) is used.
    type: str
requirements:
  - PyYAML >= 6.0
  - cronsim >= 2.6 (for documents)
  - jsonschema >= 4.20 (for documents)
  - tzdata >= 2024.1 (where the system has no time zones)
  - cryptography >= 42 (for Google Cloud)
extends_documentation_fragment:
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.offer_info
  - module: tgp.gpu.instance_info
"""

EXAMPLES = r"""
- name: Show what would be asked
  tgp.gpu.provider_verify:
    provider: lambda
  check_mode: true

- name: Check the facts and write the report
  tgp.gpu.provider_verify:
    provider: lambda
    path: lambda.md

- name: Also rent the cheapest machine for at most one dollar
  tgp.gpu.provider_verify:
    provider: lambda
    rent: true
    max_cost: "1.00"
    path: lambda.md

- name: Check whether a power service of one's own keeps its contract
  tgp.gpu.provider_verify:
    provider: webhook
    webhook_machines:
      - name: rack-1
        gpu_count: 1
        scale_up_endpoint: /rack-1/start
        scale_down_endpoint: /rack-1/stop
        status_endpoint: /rack-1/status

- name: Find out whether virtual machines of Vast.ai can become nodes
  tgp.gpu.provider_verify:
    provider: vast
    rent: true
    lane: kubelet
    max_cost: "1.00"
    path: vast-vm.md
"""

RETURN = r"""
report:
  description:
    - C(service), C(when), C(rented), C(lane) (of the rented machine), C(left_behind) (machines that could not be terminated), C(problem),
      C(cost), C(counts) by outcome, C(all_match) and C(facts).
    - Each fact has C(id), C(statement), C(expected), C(seen), C(outcome) (matches, differs, not seen, no answer, not checked), C(consequence),
      C(source) and C(basis) (documented, recorded, unverified). Empty in check mode.
  returned: always
  type: dict
markdown:
  description: The same as text; in check mode what would be done.
  returned: always
  type: str
calls:
  description: The calls that were made, or would be made.
  returned: always
  type: list
  elements: str
  sample: ["GET /api/v1/instance-types"]
cost:
  description: The machine, its price, and what was or would be spent. Empty without O(rent).
  returned: always
  type: dict
paths:
  description: Files that were written.
  returned: always
  type: list
  elements: str
  sample: [lambda.md, lambda.json]
"""

from ansible.module_utils.basic import env_fallback

from ..module_utils.core.task import Task, main
from ..module_utils.mesh.connect import MESH_SPEC
from ..module_utils.providers.registry import CLOUDS_SPEC
from ..module_utils.verify.verify import verify_run

SPEC = dict(
    argument_spec=dict(
        provider=dict(type="str", required=True),
        documents=dict(type="list", elements="raw", default=[]),
        rent=dict(type="bool", default=False),
        lane=dict(type="str", choices=["kubelet", "service"]),
        max_cost=dict(type="str"),
        path=dict(type="path"),
        image_factory_url=dict(type="str", fallback=(env_fallback, ["IMAGE_FACTORY_URL"])),
        **CLOUDS_SPEC,
        **MESH_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    return verify_run(task)


if __name__ == "__main__":
    main(SPEC, run)
