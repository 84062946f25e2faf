# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a service shows in the cluster: its Service, by which the Tailscale operator builds a way to it, and its line in the list of
endpoints (S3-35)."""

from __future__ import annotations

import json
import typing as t

from ...model import Claim, Device, Pool
from ...model.labels import CLAIM_LABEL, MANAGED_BY_LABEL, PREFIX, TAILNET_FQDN_ANNOTATION, TAILNET_IP_ANNOTATION
from ..scheduling import capacity

Json = dict[str, t.Any]
ENDPOINTS = "endpoints.json"
_PLACEHOLDER = "placeholder"  # the operator writes the name of its own proxy there


def namespace_of(claim: Claim) -> str:
    return claim.pool.partition("/")[0]


def endpoints_name(claim: Claim) -> str:
    """Name of the ConfigMap with the endpoints of the claim's pool."""
    return list_name(claim.pool.partition("/")[2])


def list_name(pool: str) -> str:
    """The same for a pool's name without its namespace."""
    return f"tgp-endpoints-{pool}"


def service_object(claim: Claim, pool: Pool | None, device: Device, cluster_id: str) -> Json:
    """The Service of one machine. Where the mesh gives no full name (headscale), its address stands in the annotation."""
    own = dict(pool.labels) if pool else {}
    labels = {
        key: value for key, value in capacity.node_labels(claim, pool, cluster_id).items() if key.startswith(PREFIX) or key in own
    }
    way = {TAILNET_FQDN_ANNOTATION: device.name} if "." in device.name else {TAILNET_IP_ANNOTATION: address_of(device)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": claim.name,
            "namespace": namespace_of(claim),
            "labels": {**labels, CLAIM_LABEL: claim.name, MANAGED_BY_LABEL: "tgp.gpu"},
            "annotations": {**(dict(pool.annotations) if pool else {}), **way},
        },
        "spec": {
            "type": "ExternalName",
            "externalName": _PLACEHOLDER,
            "ports": [{"name": f"port-{port}", "port": port, "protocol": "TCP"} for port in ports_of(pool)],
        },
    }


def endpoint(claim: Claim, pool: Pool | None, device: Device) -> Json:
    """One line of the list of endpoints."""
    return {
        "name": claim.name,
        "fqdn": device.name if "." in device.name else "",
        "address": address_of(device),
        "ports": list(ports_of(pool)),
        "cloud": claim.cloud,
        "model": claim.offer.model,
    }


def with_endpoint(text: str | None, name: str, line: Json | None) -> str:
    """The list with the line of ``name`` set, or removed (None); ordered by name. A list that cannot be read is begun anew."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        entries = []
    lines = (
        {entry["name"]: entry for entry in entries if isinstance(entry, dict) and "name" in entry}
        if isinstance(entries, list)
        else {}
    )
    lines.pop(name, None)
    if line is not None:
        lines[name] = line
    return json.dumps([lines[key] for key in sorted(lines)], sort_keys=True)


def address_of(device: Device) -> str:
    """The address by which it is reached, IPv4 first; empty when it has none yet."""
    return next((address for address in device.addresses if ":" not in address), next(iter(device.addresses), ""))


def ports_of(pool: Pool | None) -> tuple[int, ...]:
    return pool.service.ports if pool is not None and pool.service is not None else ()
