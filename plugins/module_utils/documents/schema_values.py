# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What values in documents look like, as JSON Schemas: durations, money, names, references. ``schemas`` makes the kinds of them."""

from __future__ import annotations

import typing as t

Schema = dict[str, t.Any]


def object_of(properties: Schema, required: t.Sequence[str] = (), description: str = "") -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "description": description} if description else schema


def list_of(items: Schema, at_least: int = 0, description: str = "") -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if at_least:
        schema["minItems"] = at_least
    return {**schema, "description": description} if description else schema


def described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


TEXT: Schema = {"type": "string", "minLength": 1}
YES_NO: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
MONEY: Schema = {"type": ["string", "integer"], "description": 'dollars in quotes, for example "2.0"'}
DURATION: Schema = {"type": ["string", "integer"], "description": "a duration like 90s, 10m or 1h30m, or seconds"}
DURATION_OR_NEVER: Schema = {
    "type": ["string", "integer"],
    "description": 'a duration like 90s, 10m or 1h30m, seconds, or "Never"',
}
AMOUNT: Schema = {"type": ["string", "integer"], "description": "GiB, or text with a unit like 24Gi or 24576Mi"}
SHARE: Schema = {"type": ["string", "integer"], "minimum": 0, "description": 'a share like "10%", or a whole number of per cent'}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "description": "at most 63 lower-case letters, digits and dashes, a letter or digit at both ends",
}
GPU_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
SERVER_FIELDS: Schema = {  # written by the Kubernetes API; they say nothing to us, but exported objects carry them
    "uid": {"type": "string"},
    "resourceVersion": {"type": "string"},
    "generation": {"type": "integer"},
    "creationTimestamp": {},
    "managedFields": {"type": "array"},
}
SECRET_REF = object_of(
    {
        "name": TEXT,
        "key": TEXT,
        "namespace": described(TEXT, "without it tgp-system; the pool's own in a GPUNodePool object of the cluster"),
    },
    ("name", "key"),
    "a key of a Kubernetes Secret",
)
TAINT = object_of(
    {"key": TEXT, "value": {"type": "string"}, "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}},
    ("key", "effect"),
)
WIREGUARD = object_of(
    {
        "endpoint": described(TEXT, "IP:port of the hub, for example 203.0.113.10:51820"),
        "endpointSecretRef": described(SECRET_REF, "instead: a key of a Secret with it"),
        "publicKey": described(TEXT, "the hub's public key"),
        "publicKeySecretRef": described(SECRET_REF, "instead: a key of a Secret with it"),
        "network": described(TEXT, "the network of hub and nodes, for example 10.77.0.0/24"),
        "networkSecretRef": described(SECRET_REF, "instead: a key of a Secret with it, or with an address in it like 10.77.0.2/24"),
        "hubAddress": described(TEXT, "the hub's own address there; the first one without it"),
        "addresses": described(TEXT, "the part of the network that nodes get their addresses from; all of it without it"),
        "allowedIPs": list_of(described(TEXT, "a network behind the hub like 192.168.10.0/24")),
        "allowedIPsSecretRef": described(SECRET_REF, "instead: a key of a Secret with these networks, separated by commas"),
        "hub": described(TEXT, "the hub's name in the inventory; without it you keep its peers yourself"),
        "interface": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,15}$", "description": "the name of an interface like wg-tgp"},
        "mtu": {"type": "integer", "minimum": 1280, "maximum": 9000},
        "persistentKeepalive": DURATION,
    }
)
OPERATORS_WIREGUARD = object_of(
    {
        "privateKey": described(TEXT, "of one node; it is compared with publicKey and given to no machine"),
        "privateKeySecretRef": SECRET_REF,
        "publicKey": described(TEXT, "the hub's public key"),
        "publicKeySecretRef": SECRET_REF,
        "serverEndpoint": described(TEXT, "IP:port of the hub"),
        "serverEndpointSecretRef": SECRET_REF,
        "allowedIPs": list_of(described(TEXT, "a network behind the hub like 192.168.10.0/24")),
        "allowedIPsSecretRef": SECRET_REF,
        "address": described(TEXT, "an address in the network of hub and nodes, with its length like 10.0.0.2/24"),
        "addressSecretRef": SECRET_REF,
    },
    description="of tgp-operator, deprecated: write spec.wireguardConfig",
)
