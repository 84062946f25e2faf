#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: tailscale_expose
short_description: Bring the Kubernetes API into the tailnet by the Tailscale operator
description:
  - Sets the annotations C(tailscale.com/expose), C(tailscale.com/hostname), C(tailscale.com/tags) and C(tailscale.com/proxy-class) of a
    Service, for which the operator then starts a proxy in the tailnet. Other annotations stay.
  - Machines of lane C(kubelet) can join through it. Talos machines cannot, since it forwards the API server alone and not trustd
    (tcp 50001), and logs and C(exec) of no machine work through it, since the API server must reach the kubelet in the tailnet.
    See docs/how_to/mesh.md.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description: Whether the Service shall be in the tailnet. V(absent) takes the four annotations away.
    type: str
    choices: [present, absent]
    default: present
  hostname:
    description: Name of the proxy in the tailnet, one label. Needed with O(state=present).
    type: str
  tags:
    description: Tags of the proxy. Without them the operator's own default.
    type: list
    elements: str
    default: []
  proxy_class:
    description: Name of a ProxyClass for the pods of the proxy, see M(tgp.gpu.tailscale_operator_object).
    type: str
    default: ""
  namespace:
    description: Namespace of the Service.
    type: str
    default: default
  service:
    description: Name of the Service.
    type: str
    default: kubernetes
extends_documentation_fragment:
  - tgp.gpu.kubernetes
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
seealso:
  - module: tgp.gpu.control_plane_info
  - module: tgp.gpu.tailscale_operator_object
"""

EXAMPLES = r"""
- name: The API server as k8s-api in the tailnet
  tgp.gpu.tailscale_expose:
    hostname: k8s-api
"""

RETURN = r"""
annotations:
  description: The annotations of ours that the Service has afterwards.
  type: dict
  returned: always
endpoints:
  description: URLs at which it is reached in the tailnet, with the port of the Service (443) and not of the API server (6443).
  type: list
  elements: str
  returned: always
cert_sans:
  description: Names that the API server's certificate must have for it (C(cluster.apiServer.certSANs) of the control planes).
  type: list
  elements: str
  returned: always
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.kube.auth.credentials import CLUSTER_SPEC, connect
from ..module_utils.kube.services import expose, for_operator
from ..module_utils.mesh.base import check_tags

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["present", "absent"], default="present"),
        hostname=dict(type="str"),
        tags=dict(type="list", elements="str", default=[]),
        proxy_class=dict(type="str", default=""),
        namespace=dict(type="str", default="default"),
        service=dict(type="str", default="kubernetes"),
        **CLUSTER_SPEC,
    ),
    required_if=[("state", "present", ["hostname"])],
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    params = task.params
    present = params["state"] == "present"
    if present and not params["hostname"]:
        raise InvalidInput("There is no hostname.", remedy="Give hostname, for example k8s-api.", field="hostname")
    check_tags(params["tags"])
    wanted = for_operator(params["hostname"], params["tags"], params["proxy_class"]) if present else {}
    kube = connect(task)
    try:
        exposed = expose(kube, params["namespace"], params["service"], wanted, dry=task.check_mode)
    finally:
        kube.close()
    result = dict(
        changed=exposed.changed,
        annotations=exposed.after,
        endpoints=[f"https://{params['hostname']}:{port}" for port in exposed.ports] if present else [],
        cert_sans=[params["hostname"]] if present else [],
    )
    if task.diff_mode:
        result["diff"] = {"before": {"annotations": exposed.before}, "after": {"annotations": exposed.after}}
    return result


if __name__ == "__main__":
    main(SPEC, run)
