# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options that describe own machines (ENTRY of module_utils/providers/webhook/cloud.py)."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  webhook_machines:
    description:
      - Own machines that are switched on and off by HTTP calls.
      - Without it, each environment variable C(P_GPU_COUNT) begins a machine that also needs C(P_NAME), C(P_SCALE_UP_ENDPOINT) and
        C(P_SCALE_DOWN_ENDPOINT), as for k8s-gpu-autoprovision. An incomplete group is left out with a warning.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the machine.
        type: str
        required: true
      gpu_count:
        description: Number of its GPUs.
        type: int
        required: true
      scale_up_endpoint:
        description: >-
          Address that switches it on. It gets a POST with a JSON object; a 2xx answer or 409 (it is on already) is success, and
          the call may be repeated. A path that begins with C(/) is below O(webhook_url). A link-local address
          (169.254.0.0/16, fe80::/10), or a name that resolves to one, is refused.
        type: str
        required: true
      scale_down_endpoint:
        description: Address that switches it off, with the same contract.
        type: str
        required: true
      status_endpoint:
        description: Address that answers a GET with C({"state" - "off"|"starting"|"on"|"stopping"}) as JSON.
        type: str
      gpu_type:
        description: Model of its GPUs.
        type: str
      gpu_memory_mib:
        description: Memory per GPU in MiB, where the model does not say it.
        type: int
      node_name:
        description: Name of its Kubernetes node. Default is its own name.
        type: str
      hourly_cost:
        description: What an hour costs in dollars, as text. It counts against limits.
        type: str
      region:
        description: Where it stands.
        type: str
  webhook_url:
    description: Root for endpoints that are only paths. Taken from E(WEBHOOK_URL) when not given.
    type: str
  webhook_hosts:
    description:
      - Further hosts that get O(webhook_auth_value) and calls signed with O(webhook_signing_secret), as C(host), C(host:port) or
        C([address]:port); without a port those of http and https are meant.
      - The host of O(webhook_url) gets them anyhow, and so do machines of O(webhook_machines) and of the environment.
      - A machine of a document whose address leads to any other host is refused before any call, because who may write a document
        need not know the key. A key of C(credentialsRef) also goes to the machines beside it, if the document is not an object of the cluster.
      - Taken from E(WEBHOOK_HOSTS), separated by commas, when not given.
    type: list
    elements: str
  webhook_auth_header:
    description:
      - Name of the header that carries O(webhook_auth_value), V(Authorization) unless said otherwise.
      - Taken from E(WEBHOOK_AUTH_HEADER) when not given.
    type: str
  webhook_auth_value:
    description:
      - Value of that header. It is sent to the hosts of O(webhook_url), O(webhook_hosts) and O(webhook_machines) only, and over plain http
        to loopback only.
      - Taken from E(WEBHOOK_AUTH_VALUE) when not given.
    type: str
  webhook_signing_secret:
    description:
      - Signs each POST. Header C(X-Tgp-Timestamp) holds unix seconds, header C(X-Tgp-Signature) holds C(sha256=) and
        the HMAC-SHA256 of timestamp, a dot and the body.
      - Taken from E(WEBHOOK_SIGNING_SECRET) when not given.
    type: str
  webhook_payload:
    description:
      - V(none) posts an empty object. V(body) posts C(name) and C(machineConfig), so that a boot service can hand the config out.
      - Taken from E(WEBHOOK_PAYLOAD) when not given; else V(none).
    type: str
    choices: [none, body]
  webhook_timeout:
    description: Seconds to wait for the answer to one call.
    type: float
    default: 5.0
"""
