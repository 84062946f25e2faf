#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_diagnose
short_description: Say why pods do not get GPUs
description:
  - Looks at nodes, drivers, device plugins, RuntimeClass, GPUs that are shown, power limits, and at the pods that wait for GPUs. Prints one
    table with a remedy for everything that is wrong.
  - Without O(node), O(pool) and O(pod) it looks at all nodes with GPUs and all pods that wait for them.
  - What cannot be read is C(unknown), with the reason, and stops nothing else. So are services and modules of Talos without O(talosconfig),
    and of other nodes without O(ssh_user).
  - Changes nothing, but for the pods of O(gpu_test), which come and go. Fails with everything that is wrong, one sentence each.
version_added: 0.3.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  node:
    description: Look at this Node alone, and at the pods on it.
    type: str
  pool:
    description: Look at the nodes of this pool alone, by name or namespace/name, and at pods that they could take.
    type: str
  pod:
    description: Say of this pod alone, as namespace/name, why it does not run.
    type: str
  deep:
    description:
      - Also list the objects in the namespaces of the device plugins, and the sockets of device plugins on nodes that run Talos (for this
        the talosconfig needs role C(os:admin)). With O(gpu_test) a fifth pod runs C(nvidia-smi).
    type: bool
    default: false
  ssh_user:
    description:
      - Also ask nodes that do not run Talos, by SSH as this user, for kernel modules, driver, C(nvidia-smi), container toolkit and the XIDs in
        the kernel's log. The user needs no rights of root; one who may not read the kernel's log (group C(adm)) leaves that check unknown.
      - The program C(ssh) is used with its own configuration, which also says how host keys are checked. It asks nothing at the terminal.
    type: str
    version_added: 0.4.0
  ssh_private_key:
    description: Path of the private key for O(ssh_user). Default is what C(ssh) finds (agent, C(~/.ssh/config)).
    type: path
    version_added: 0.4.0
  ssh_config:
    description: Path of a configuration for C(ssh), such as one with C(ProxyJump) or C(UserKnownHostsFile). Default is the user's own.
    type: path
    version_added: 0.4.0
  ssh_port:
    description: Port for O(ssh_user).
    type: int
    default: 22
    version_added: 0.4.0
  bundle:
    description:
      - Write everything that was seen to this file, a C(tar.gz) for a bug report. Secrets are masked, annotations left out, and only you can
        read it. Not in check mode.
    type: path
  gpu_test:
    description:
      - Also run four pods that add vectors on the GPUs of one node, two by a limit of C(nvidia.com/gpu) and two by the runtime C(nvidia)
        alone. They are removed in any case, and each ends by itself after O(gpu_test_timeout) seconds.
      - Needs the right to create and delete pods in the namespace of the device plugin (files/rbac.yml does not give it). Not in check mode.
    type: bool
    default: false
  gpu_test_timeout:
    description: Seconds for the test pods, the pull of their image included; 30 to 3600.
    type: int
    default: 300
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
- name: Why do pods not get GPUs?
  tgp.gpu.fleet_diagnose:
    documents: [examples/lambda.yml]
  register: diagnosis
  failed_when: false

- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ diagnosis.checks | selectattr('state', 'equalto', 'NO') }}"
"""

RETURN = r"""
bundle:
  description: The file of O(bundle).
  type: str
  returned: when it was written
  sample: gpus.tar.gz
checks:
  description: One entry per check, also when the module fails.
  type: list
  elements: dict
  returned: always
  contains:
    subject: {description: "What was looked at: C(cluster), a node or a pod.", type: str, returned: always, sample: node gpu-1}
    check: {description: What was checked., type: str, returned: always, sample: driver}
    state: {description: "V(ok), V(warn), V(NO) or V(unknown).", type: str, returned: always, sample: "NO"}
    seen: {description: What was seen., type: str, returned: always, sample: "kernel modules are not loaded: nvidia_uvm"}
    remedy: {description: What to do. Empty where nothing is to be done., type: str, returned: always, sample: Add it.}
    code: {description: One word for programs. Empty where all is well., type: str, returned: always, sample: no_toolkit}
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.diagnose_gpus import diagnose_run

SPEC = dict(
    argument_spec=dict(
        node=dict(type="str"),
        pool=dict(type="str"),
        pod=dict(type="str"),
        deep=dict(type="bool", default=False),
        ssh_user=dict(type="str"),
        ssh_private_key=dict(type="path", no_log=False),
        ssh_config=dict(type="path"),
        ssh_port=dict(type="int", default=22),
        bundle=dict(type="path"),
        gpu_test=dict(type="bool", default=False),
        gpu_test_timeout=dict(type="int", default=300),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="none",
)


def run(task: Task) -> dict:
    return diagnose_run(task)


if __name__ == "__main__":
    main(SPEC, run)
