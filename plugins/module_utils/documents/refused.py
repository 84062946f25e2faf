# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields and values that people may expect and that are not honoured. They are refused by name, never accepted and ignored.

``REFUSED``: the same wish has another name here, or another place; the sentence says which.
"""

from __future__ import annotations

from ..model.labels import EPHEMERAL_TAINT

REFUSED: dict[str, str] = {
    "spec.calendar": "hours are those of a pool; write spec.calendar in each GPUNodePool",
    "spec.schedule": "write the hours of a pool as spec.calendar, and when its nodes may go as schedule in spec.disruption.budgets",
    "spec.nodes": "write spec.replicas for an exact number or spec.minNodes for a floor in a GPUNodePool; provision.yml "
    "-e tgp_nodes= asks for more, autoscale.yml follows the pods",
    "spec.service": "what a container runs stands in template.spec.service of a GPUNodePool that accepts lane service; a request is a node",
    "spec.networking.tailscale": "networking.backend tailscale is the whole switch, and tags and routes are spec.tailscaleConfig. "
    "The cluster's Tailscale operator (operatorEnabled) is set up by prereqs.yml, and no document switches it",
    "spec.networking.wireguard": "write it as spec.wireguardConfig",
    "spec.talosConfig.wireGuardConfig": "write it as spec.wireguardConfig; each node gets a key and an address of its own",
    "spec.wireguardConfig.privateKey": "each node gets a key of its own, and the hub's stays on the hub",
    "spec.wireguardConfig.address": "each node gets an address of its own from spec.wireguardConfig.addresses",
    "spec.template.spec.timeSlicing": "write it as spec.timeSlicing",
    "spec.limits.budget": "write it as spec.budget",
    "spec.tailscaleConfig.hostname": "the host name of a machine is always its own name; leave this out",
    "spec.talosConfig.tailscaleConfig.hostname": "the host name of a machine is always its own name; leave this out",
    "spec.template.spec.ephemeralTaint": f"name the taint {EPHEMERAL_TAINT} in template.spec.taints to choose its effect yourself",
}
REFUSED_VALUES: dict[str, dict[str, str]] = {
    "spec.networking.backend": {
        "kubespan": "KubeSpan is a matter of the Talos configuration alone; write it into the template or the patches of talosConfig, "
        "and networking.backend none",
    },
    "spec.template.spec.lanes": {
        "takeover": "no pool rents by it; it is an experimental role for machines that exist already (docs/takeover.md)",
    },
}
