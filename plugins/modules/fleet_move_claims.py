#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_move_claims
short_description: Move all claims of a cluster to another store
description:
  - Copies every claim to the store O(to_store), reads them back, and only then removes them from O(from_store). No machine is touched.
  - Both stores are marked meanwhile, so that no other run takes a part of the claims for all of them. A call that is killed is finished by the
    same call.
  - Findings, pauses and the ledger are the same for V(cluster) and V(crd). To and from V(directory) they are copied, the ledger only where it
    is kept with the claims.
  - Waits for the run in progress. Afterwards set O(claim_store) to the new store in every run of the cluster; a run with the old one is
    refused.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  to_store:
    description: The store that the claims go to, in the words of O(claim_store).
    type: str
    choices: [cluster, crd, directory]
    required: true
  from_store:
    description: The store that they are in. Needed with V(directory); else it is the other one of V(cluster) and V(crd).
    type: str
    choices: [cluster, crd, directory]
  lock_wait:
    description: Seconds to wait for another run to finish.
    type: int
    default: 900
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
- name: Install the kind
  tgp.gpu.manifests:
    manifests: [crds]
    apply: true

- name: Show claims with kubectl from now on
  tgp.gpu.fleet_move_claims:
    to_store: crd

- name: Go back to ConfigMaps
  tgp.gpu.fleet_move_claims:
    to_store: cluster
"""

RETURN = r"""
claims:
  description: Names of the machines whose claims were moved, or would be in check mode.
  type: list
  elements: str
  returned: success
from_store:
  description: Where they were.
  type: str
  returned: success
to_store:
  description: Where they are.
  type: str
  returned: success
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.move_claims import move_run
from ..module_utils.store.open_store import STORES

SPEC = dict(
    argument_spec=dict(
        to_store=dict(type="str", choices=list(STORES), required=True),
        from_store=dict(type="str", choices=list(STORES)),
        lock_wait=dict(type="int", default=900),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return move_run(task)


if __name__ == "__main__":
    main(SPEC, run)
