#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_validate
short_description: Check documents, credentials, rights and templates before anything is rented
description:
  - Checks the documents and the Talos templates, proves each cloud's and the mesh's credential by cheap reads, looks at balance, quota and
    SSH keys as far as the cloud's API tells, and asks the cluster whether the rights are there.
  - Checked are the clouds that the documents name, and those whose key is given by option or environment. A GPURequest without provider
    names none; of all clouds those with a credential are checked.
  - Prints one table. What will hurt later (a low balance, say) is a warning and does not fail. Changes nothing. Fails with everything
    that is wrong, one sentence each. When the cluster does not answer, mesh and clouds are checked all the same.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  only:
    description:
      - Make this check alone. V(device plugin) says whether nodes of the pools would show their GPUs, and if not, what to install.
      - Documents are not required then. Without pools the check is made for nodes with the taints of every machine, V(tgp.io/ephemeral) and
        V(tgp.io/initializing).
    type: str
    choices: [device plugin]
    version_added: 0.2.0
  rights_of:
    description:
      - Ask the cluster for the rights that these playbooks need, for example V(reap) where machines are only terminated. By default for
        those of V(provision), which are all that a machine's whole life takes.
      - Rights that only machines with a bootstrap token need are asked for only if the documents can lead to one.
    type: list
    elements: str
    choices:
      [adopt, apply, archive, autoscale, bench_mesh, destroy, diagnose, join_kubelet, move_claims, pause, plan, prices, provision, reap,
       release, report, resume, status, validate]
    version_added: 0.2.0
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Is everything in place?
  tgp.gpu.fleet_validate:
    documents: [examples/lambda.yml]

- name: Would nodes show their GPUs?
  tgp.gpu.fleet_validate:
    only: device plugin
"""

RETURN = r"""
checks:
  description: One entry per check, also when the module fails.
  type: list
  elements: dict
  returned: always
  contains:
    what: {description: What was checked., type: str, returned: always, sample: cloud lambda}
    ok: {description: Whether machines can be rented with it., type: bool, returned: always, sample: true}
    status: {description: "V(ok), V(warn) or V(NO).", type: str, returned: always, sample: ok}
    message: {description: What was found., type: str, returned: always, sample: "lambda: the API key is accepted"}
    warnings: {description: What will hurt later., type: list, elements: str, returned: always, sample: []}
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.needed_rights import NEEDS
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.validate import DEVICE_PLUGIN, validate

SPEC = dict(
    argument_spec=dict(
        only=dict(type="str", choices=[DEVICE_PLUGIN]),
        rights_of=dict(type="list", elements="str", choices=sorted(NEEDS)),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="none",
)


def run(task: Task) -> dict:
    return validate(task)


if __name__ == "__main__":
    main(SPEC, run)
