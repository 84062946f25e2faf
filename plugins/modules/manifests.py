#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: manifests
short_description: Print, write or apply the manifests, schemas and examples that are installed with the collection
description:
  - Prints the files of O(manifests), writes them into the folder O(path), or applies them to the cluster with O(apply=true).
  - The apply is a server-side apply with the field manager C(tgp.gpu). Use the kubeconfig of an administrator for V(rbac),
    V(admission_policy), V(guard) and V(crds).
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  manifests:
    description:
      - V(rbac), V(admission_policy), V(guard), V(crds), V(prometheus_rules), V(dashboards), V(requirements), V(requirements-controller), or
        the path of a file or folder below C(examples), C(files), C(monitoring) or C(schemas) of the collection, for example
        V(examples/lambda.yml) or V(examples/systemd).
      - An unknown name is refused with the list of all names.
    type: list
    elements: str
    default: [rbac]
  apply:
    description: Apply the manifests to the cluster.
    type: bool
    default: false
  path:
    description:
      - Write the files into this folder. C(examples/templates/worker.yaml) becomes C(templates/worker.yaml) in it.
      - A file that exists with another content is not replaced unless O(force=true).
    type: path
  force:
    description: Replace files of O(path) that differ, or take over fields of objects that another field manager owns.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Grant what the playbooks need
  tgp.gpu.manifests:
    apply: true

- name: Get a document to start from
  tgp.gpu.manifests:
    manifests: [examples/lambda.yml, examples/templates]
    path: my
"""

RETURN = r"""
files:
  description: The chosen files.
  type: list
  elements: dict
  returned: always
  contains:
    source:
      description: Path below the folder of the collection.
      type: str
    content:
      description: The text of the file.
      type: str
    path:
      description: Where it was written. Only with O(path).
      type: str
objects:
  description: The Kubernetes objects of the chosen files. Empty without O(apply=true).
  type: list
  elements: dict
  returned: always
  contains:
    kind:
      description: Kind of the object.
      type: str
    namespace:
      description: Namespace of the object, empty for one without.
      type: str
    name:
      description: Name of the object.
      type: str
    result:
      description: V(created), V(changed) or V(unchanged); in check mode what the apply would do.
      type: str
available:
  description: Every name that O(manifests) takes.
  type: list
  elements: str
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC
from ..module_utils.runs.manifests import DEFAULT, manifests_run

SPEC = dict(
    argument_spec=dict(
        manifests=dict(type="list", elements="str", default=DEFAULT),
        apply=dict(type="bool", default=False),
        path=dict(type="path"),
        force=dict(type="bool", default=False),
        **CLUSTER_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return manifests_run(task)


if __name__ == "__main__":
    main(SPEC, run)
