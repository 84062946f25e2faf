# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three kinds of documents as JSON Schemas (draft 2020-12): what may stand where, and of which form.

They are the one description: input is validated by them, ``schemas/*.schema.json`` are written from them (:func:`write`). Meaning (known
models, prices that fit, references) is checked afterwards by ``parse``.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ..model.devices import GPU_DRIVER
from ..model.labels import API_VERSION
from ..model.queues import PROVISIONING_CLASSES
from ..model.reasons import Reason
from ..planner.cost.budgets import ACTIONS
from ..planner.disruption.utilization import SIGNALS
from ..planner.offers.requirements import KEYS, OPERATORS
from ..planner.scheduling.offer_selection import PACKS
from ..units.calendar import PERIODS

Schema = dict[str, t.Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
LANES = ("talos", "kubelet", "service")
STRATEGIES = ("weighted", "cheapest", "priority")
POLICIES = ("WhenIdle", "WhenEmpty", "WhenUnderutilized", "WhenEmptyOrUnderutilized", "Never")
BACKENDS = ("tailscale", "wireguard", "none")
IDLE_MODES = ("workload", "gpu", "all")
GPU_WAITS = ("all", "any", "none")
DRA_DRIVERS = (GPU_DRIVER,)
ACCEPTANCE_TESTS = ("vectoradd",)
ACCEPTANCE_GPUS = ("all", "one")
ORPHANED_POLICIES = ("Drain", "Keep")
DRIFT_POLICIES = ("Report", "Replace")
GPU_LOSS_POLICIES = ("Keep", "Replace")
UNHEALTHY_ACTIONS = ("Replace", "ReplaceWhenEmpty", "Report", "Ignore")
DISRUPTION_REASONS = (Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED)
MESH_CLIENTS = ("inject", "image")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _object(properties: Schema, required: t.Sequence[str] = (), description: str = "") -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "description": description} if description else schema


def _list(items: Schema, at_least: int = 0, description: str = "") -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if at_least:
        schema["minItems"] = at_least
    return {**schema, "description": description} if description else schema


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


_TEXT: Schema = {"type": "string", "minLength": 1}
_YES_NO: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_POSITIVE: Schema = {"type": "integer", "minimum": 1}
_MONEY: Schema = {"type": ["string", "integer"], "description": 'dollars in quotes, for example "2.0"'}
_DURATION: Schema = {"type": ["string", "integer"], "description": "a duration like 90s, 10m or 1h30m, or seconds"}
_DURATION_OR_NEVER: Schema = {
    "type": ["string", "integer"],
    "description": 'a duration like 90s, 10m or 1h30m, seconds, or "Never"',
}
_AMOUNT: Schema = {"type": ["string", "integer"], "description": "GiB, or text with a unit like 24Gi or 24576Mi"}
_SHARE: Schema = {"type": ["string", "integer"], "minimum": 0, "description": 'a share like "10%", or a whole number of per cent'}
_STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "description": "at most 63 lower-case letters, digits and dashes, a letter or digit at both ends",
}
_GPU_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_SERVER_FIELDS: Schema = {  # written by the Kubernetes API; they say nothing to us, but exported objects carry them
    "uid": {"type": "string"},
    "resourceVersion": {"type": "string"},
    "generation": {"type": "integer"},
    "creationTimestamp": {},
    "managedFields": {"type": "array"},
}
_SECRET_REF = _object(
    {
        "name": _TEXT,
        "key": _TEXT,
        "namespace": _said(_TEXT, "without it tgp-system; the pool's own in a GPUNodePool object of the cluster"),
    },
    ("name", "key"),
    "a key of a Kubernetes Secret",
)
_TAINT = _object(
    {"key": _TEXT, "value": {"type": "string"}, "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}},
    ("key", "effect"),
)
_MACHINE = _object(
    {
        "name": _NAME,
        "gpuCount": _POSITIVE,
        "gpuType": _TEXT,
        "gpuMemoryMib": _POSITIVE,
        "nodeName": _said(_TEXT, "the name of its Node, if it is not the machine's"),
        "scaleUpEndpoint": _said(_TEXT, "URL that switches it on"),
        "scaleDownEndpoint": _said(_TEXT, "URL that switches it off"),
        "statusEndpoint": _said(_TEXT, "URL that tells its state"),
        "hourlyCost": _MONEY,
        "region": _TEXT,
    },
    ("name", "gpuCount", "scaleUpEndpoint", "scaleDownEndpoint"),
    "an own machine behind power webhooks",
)
_PROVIDER = _object(
    {
        "name": _said(_TEXT, "a cloud: lambda, webhook ...; usual other spellings are understood"),
        "priority": _said(_COUNT, "lower is tried first; how strictly depends on strategy"),
        "enabled": _YES_NO,
        "bidMargin": _said(_SHARE, "by how much a bid for an interruptible machine is above the lowest that would win"),
        "spotDiscountMin": _said(_SHARE, "by how much interruptible machines must be cheaper than firm ones; before the class's"),
        "credentialsRef": _SECRET_REF,
        "settings": {"type": "object", "description": "the cloud's own options"},
        "machines": _list(_MACHINE, description="own machines (webhook)"),
        "nodeGroups": _list(_MACHINE, description="another word for machines"),
    },
    ("name",),
)
_TAILSCALE = _object(
    {
        "tags": _list({"type": "string", "pattern": "^tag:[a-zA-Z][a-zA-Z0-9-]*$", "description": 'a tag like "tag:gpu"'}),
        "ephemeral": _YES_NO,
        "acceptRoutes": _YES_NO,
        "advertiseRoutes": _list(_said(_TEXT, "a network like 10.0.0.0/24")),
    }
)
_TALOS = _object(
    {
        "image": _said(_TEXT, "Talos installer image"),
        "machineConfigTemplate": _said(_TEXT, "the machine configuration as text with variables"),
        "templateRef": _SECRET_REF,
        "machineConfigTemplateFile": _said(_TEXT, "path of a file with the template, relative to this document; files only"),
        "patches": _list(_TEXT, description="strategic merge patches as text, laid over the configuration in their order"),
        "registryMirrors": {
            "type": "object",
            "additionalProperties": _list(_TEXT, 1),
            "description": "registry (docker.io) to the URLs of its mirrors",
        },
        "tailscaleConfig": {**_TAILSCALE, "description": "the same as spec.tailscaleConfig"},
        "schematic": {"type": "object", "description": "what is in the Talos image, as the Image Factory takes it"},
    }
)
_WIREGUARD = _object(
    {
        "endpoint": _said(_TEXT, "IP:port of the hub, for example 203.0.113.10:51820"),
        "publicKey": _said(_TEXT, "the hub's public key"),
        "network": _said(_TEXT, "the network of hub and nodes, for example 10.77.0.0/24"),
        "hubAddress": _said(_TEXT, "the hub's own address there; the first one without it"),
        "addresses": _said(_TEXT, "the part of the network that nodes get their addresses from; all of it without it"),
        "allowedIPs": _list(_said(_TEXT, "a network behind the hub like 192.168.10.0/24")),
        "hub": _said(_TEXT, "the hub's name in the inventory; without it you keep its peers yourself"),
        "interface": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,15}$", "description": "the name of an interface like wg-tgp"},
        "mtu": {"type": "integer", "minimum": 1280, "maximum": 9000},
        "persistentKeepalive": _DURATION,
    },
    ("endpoint", "publicKey", "network"),
)
_GUARD = _object(
    {
        "silentFor": _said(_DURATION_OR_NEVER, "for so long the API server gave no answer, or Never; at least 1h"),
        "controllerSilentFor": _said(_DURATION_OR_NEVER, "for so long no run renewed the run lock, or Never; at least 1h"),
    },
    description="when machines of lane kubelet power themselves off",
)
_ORPHANED = _said({"enum": list(ORPHANED_POLICIES)}, "what becomes of its machines when this document is gone")
_SPENDING = _object(
    {
        "period": {"enum": list(PERIODS)},
        "amount": _MONEY,
        "timeZone": _said(_TEXT, "whose days are counted, for example Europe/Berlin; UTC without it"),
        "softPercent": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "description": "from this percentage on a notice is sent; default 80",
        },
        "action": _said({"enum": list(ACTIONS)}, "what is done when it is used up; stop_launch without it"),
    },
    ("period", "amount"),
    "what may be spent in a day, a week (from Monday) or a month",
)
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_PATH: Schema = {"type": "string", "pattern": "^/[!-~]*$", "description": "a path like /health"}
_SERVICE = _object(
    {
        "image": _said(_TEXT, "container image"),
        "command": _list(_TEXT, 1, "what is started, as a list of words"),
        "args": _list({"type": "string"}, description="more words after command"),
        "ports": _list(_PORT, 1, "ports of the container, reachable inside the tailnet"),
        "environment": _said(_STRINGS, "variables of the container"),
        "environmentFrom": {
            "type": "object",
            "additionalProperties": _SECRET_REF,
            "description": "variables whose values stand in Secrets; an object of the cluster names those of its own namespace only",
        },
        "healthPath": _PATH,
        "healthPort": _said(_PORT, "where healthPath is asked; the first of ports without it"),
        "meshClient": _said({"enum": list(MESH_CLIENTS)}, "who brings the tailnet client"),
    },
    ("image", "ports", "healthPath"),
    "what a machine of lane service runs",
)
_BUDGET = _object(
    {
        "nodes": {"type": ["string", "integer"], "description": 'a number of nodes, or a share of them like "10%"'},
        "reasons": _list({"enum": list(DISRUPTION_REASONS)}, 1, "for which reasons it holds; without it for all"),
        "schedule": _said(_TEXT, 'when it begins to be in force, as five cron fields: "0 9 * * 1-5"'),
        "duration": _said(_DURATION, "for how long it then is in force"),
        "timeZone": _said(_TEXT, "of the schedule, for example Europe/Berlin; UTC without it"),
    },
    ("nodes",),
    "how many nodes of the pool may be on their way out at once",
)
_IDLE_PROBE = _object(
    {
        "url": _PATH,
        "command": _list(
            _TEXT, 1, "a program on the controller and its arguments; files only, and only if allow_commands allows it"
        ),
        "port": _said({"type": "integer", "minimum": 1, "maximum": 65535}, "of nodes only: where url is asked"),
    },
    (),
    "how a service or node is asked whether it is idle",
)
_IDLE_UTILIZATION = _object(
    {
        "below": _said(_SHARE, "each GPU must be used less than this"),
        "window": _said(_DURATION, "for so long; at least 10m"),
    },
    (),
    "when the GPUs of a node count as unused",
)
_ACCEPTANCE = _object(
    {
        "test": _said({"enum": list(ACCEPTANCE_TESTS)}, "a test that is built in: NVIDIA's CUDA sample vectorAdd"),
        "image": _said(_TEXT, "an image of your own whose start ends with 0 where the GPUs are good; instead of test"),
        "command": _list(_TEXT, 1, "a program of the image and its arguments, instead of the image's own start"),
        "runtimeClassName": _said(_NAME, "the RuntimeClass of the test's pod"),
        "timeout": _said(_DURATION, "for one try, the pull of the image included"),
        "gpus": _said({"enum": list(ACCEPTANCE_GPUS)}, "how many of the node's GPUs are tested"),
    },
    (),
    "what a new node has to pass before pods may come",
)
_PRE_PULL = _object(
    {
        "images": _list(_TEXT, 1, "images as pods name them"),
        "imagePullSecrets": _list(_TEXT, 1, "Secrets of tgp-system for their registries; only the kubelet reads them"),
        "timeout": _said(_DURATION, "after which the node is taken without them"),
    },
    ("images",),
    "images that a new node pulls before pods may come",
)
_UNHEALTHY = _object(
    {
        "type": _said(_TEXT, "a condition of the Node; instead of taint"),
        "status": _said({"enum": ["True", "False"]}, 'the status that means trouble, in quotes; "True" without it'),
        "contains": _list(_TEXT, 1, "texts of which the condition's reason or message contains one; without it any will do"),
        "taint": _said(_TEXT, "the key of a taint of the Node, or a prefix that ends with /; instead of type"),
        "value": _said(_TEXT, "the taint's value; without it any will do"),
        "for": _said(_DURATION, "for how long it has to last"),
        "action": _said({"enum": list(UNHEALTHY_ACTIONS)}, "what then becomes of the machine; Report without it"),
    },
    (),
    "a sign by which a node is unhealthy",
)
_CLOCK: Schema = {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$", "description": 'a local time of day like "08:00"'}
_CLOCK_END: Schema = {
    "type": "string",
    "pattern": "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
    "description": 'a local time of day like "18:00"',
}
_WINDOW = _object(
    {
        "days": _list({"enum": list(DAYS)}, 1, "on which it begins; every day without it"),
        "from": _CLOCK,
        "to": _said(_CLOCK_END, 'a local time of day like "18:00", on the next day if it is not after from'),
        "minNodes": _said(_COUNT, "nodes that are kept meanwhile; the pool's minNodes without it"),
        "hardStop": _said(
            _CLOCK, 'a local time of day like "20:00", after the end, at which machines that are still there go by force'
        ),
    },
    ("from", "to"),
)
_CALENDAR = _object(
    {"timeZone": _said(_TEXT, "for example Europe/Berlin; UTC without it"), "windows": _list(_WINDOW, 1)},
    ("windows",),
    "when the pool is in use; outside of all windows nothing is launched and no node is kept",
)
_REQUIREMENT = _object(
    {"key": {"enum": list(KEYS)}, "operator": {"enum": list(OPERATORS)}, "values": _list({"type": "string"})}, ("key", "operator")
)


def _document(kind: str, metadata: Schema, spec: Schema, title: str) -> Schema:
    properties = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": spec,
        "status": {"type": "object", "description": "written by others; not read"},
    }
    return {"$schema": DRAFT, "title": title, **_object(properties, ("apiVersion", "kind", "metadata", "spec"))}


def _metadata(*, namespaced: bool) -> Schema:
    scope = _NAME if namespaced else _said(_NAME, "accepted as the API accepts it; the kind has no namespace")
    own = {"name": _NAME, "labels": _STRINGS, "annotations": _STRINGS, **_SERVER_FIELDS}
    return _object({**own, "namespace": scope}, ("name",))


NODE_CLASS = _document(
    "GPUNodeClass",
    _metadata(namespaced=False),
    _object(
        {
            "providers": _list(_PROVIDER, 1),
            "talosConfig": _TALOS,
            "tailscaleConfig": _TAILSCALE,
            "wireguardConfig": _WIREGUARD,
            "networking": _object({"backend": {"enum": list(BACKENDS)}}),
            "instanceRequirements": _object(
                {
                    "gpuTypes": _list(_TEXT),
                    "gpuCount": _POSITIVE,
                    "minGpuMemory": _said(_AMOUNT, "per GPU: GiB, or text with a unit like 24Gi"),
                    "minVcpus": _POSITIVE,
                    "minMemory": _AMOUNT,
                    "minDisk": _AMOUNT,
                    "regions": _list(_TEXT),
                    "spotAllowed": _YES_NO,
                    "spotDiscountMin": _said(_SHARE, "by how much interruptible machines must be cheaper than firm ones"),
                    "minReliability": _said(_SHARE, 'share of time a host is there, for example "95%"'),
                    "verified": _said(_YES_NO, "hosts that their marketplace has verified"),
                    "minCuda": {
                        "type": "string",
                        "pattern": r"^\d+(\.\d+)?$",
                        "description": 'a CUDA version in quotes, for example "12.8"',
                    },
                    "minBandwidth": _said(_POSITIVE, "Mbit/s towards the machine"),
                    "staticIp": _said(_YES_NO, "hosts whose address stays"),
                    "minPorts": _said(_POSITIVE, "ports of the host that can be reached from outside"),
                    "minDuration": _said(_DURATION, "for so long the host must still be on offer"),
                }
            ),
            "limits": _object({"maxNodes": _COUNT, "maxHourlyCost": _MONEY, "resources": _GPU_COUNTS}),
            "strategy": {"enum": list(STRATEGIES)},
            "budget": _SPENDING,
            "guard": _GUARD,
            "allowedNamespaces": _list(
                _said(_TEXT, "a namespace, or * for all"),
                description="namespaces whose GPUNodePool objects may use this class. Without it all may, unless the class names a Secret "
                "or a registry credential; then none may",
            ),
        },
        ("providers",),
    ),
    "Where GPU machines come from, with which credentials, within which limits",
)

NODE_POOL = _document(
    "GPUNodePool",
    _metadata(namespaced=True),
    _object(
        {
            "nodeClassRef": _object({"kind": {"const": "GPUNodeClass"}, "name": _TEXT}, ("name",)),
            "template": _object(
                {
                    "metadata": _object({"labels": _STRINGS, "annotations": _STRINGS}),
                    "spec": _object(
                        {
                            "requirements": _list(_REQUIREMENT),
                            "taints": _list(_TAINT),
                            "startupTaints": _list(_TAINT),
                            "lanes": _list({"enum": list(LANES)}, description="how a machine may become useful, best first"),
                            "service": _SERVICE,
                        }
                    ),
                }
            ),
            "maxHourlyPrice": _said(_MONEY, 'dollars per hour for one machine, in quotes, for example "2.0"'),
            "budget": _SPENDING,
            "weight": _COUNT,
            "minNodes": _COUNT,
            "replicas": _said(_COUNT, "exactly so many machines, whatever pods wait; not together with minNodes"),
            "calendar": _CALENDAR,
            "orphanedPolicy": _ORPHANED,
            "unhealthyTimeout": _said(_DURATION, "for how long a node may be ill before it goes"),
            "unhealthyConditions": _list(
                _UNHEALTHY,
                description="conditions and taints by which a node is unhealthy, in order; those that are built in come after them",
            ),
            "limits": _object({"maxNodes": _COUNT, "resources": _GPU_COUNTS}),
            "disruption": _object(
                {
                    "consolidationPolicy": {"enum": list(POLICIES)},
                    "consolidateAfter": _DURATION_OR_NEVER,
                    "expireAfter": _DURATION_OR_NEVER,
                    "expireJitter": _said(_SHARE, "by up to so much of expireAfter a node goes earlier"),
                    "budgets": _list(_BUDGET),
                    "utilizationThreshold": _said(_SHARE, "below this share of its GPUs a node is used too little"),
                    "replaceCheaperPercent": _said(
                        _SHARE, "by so much an offer must be cheaper to replace a node that is used too little"
                    ),
                    "driftPolicy": _said(
                        {"enum": list(DRIFT_POLICIES)}, "what becomes of machines made from an older class or pool"
                    ),
                    "surge": _said(_YES_NO, "whether a machine that drifted or expires is replaced before its node is drained"),
                    "gpuLossPolicy": _said(
                        {"enum": list(GPU_LOSS_POLICIES)}, "what becomes of nodes that show some of their GPUs only"
                    ),
                    "minAge": _DURATION,
                    "idleMode": _said({"enum": list(IDLE_MODES)}, "which pods keep a node busy"),
                    "idleSignal": _said(
                        {"enum": list(SIGNALS)}, "whether pods, the utilization of GPUs or both say that a node is idle"
                    ),
                    "idleUtilization": _IDLE_UTILIZATION,
                    "idleProbe": _IDLE_PROBE,
                }
            ),
            "drainTimeout": _DURATION,
            "registrationTimeout": _DURATION,
            "terminationGracePeriod": _DURATION,
            "draDriver": _said(
                {"enum": list(DRA_DRIVERS)}, "the DRA driver that offers the GPUs of these nodes, in place of a device plugin"
            ),
            "gpuWait": _said({"enum": list(GPU_WAITS)}, "how many of its GPUs a node must show to be usable"),
            "acceptance": _ACCEPTANCE,
            "prePull": _PRE_PULL,
            "pack": _said({"enum": list(PACKS)}, "which machine is taken for waiting pods"),
            "schedulers": _list(_TEXT, description="schedulers whose waiting pods count beside the default one's"),
            "capacityBuffers": _said(_YES_NO, "whether its machines hold the spare room of CapacityBuffers"),
            "provisioningClasses": _list(
                {"enum": list(PROVISIONING_CLASSES)}, description="classes of the ProvisioningRequests that its machines serve"
            ),
            "scaleUpDelay": _said(_DURATION, "for so long a pod has to wait before a machine is rented for it"),
            "timeSlicing": _object(
                {
                    "replicas": {"type": "integer", "minimum": 2, "description": "pods per GPU"},
                    "renameByDefault": _said(_YES_NO, "the device plugin offers slices under the resource's name with .shared"),
                },
                ("replicas",),
                "how the cluster's device plugin shares each GPU of these nodes",
            ),
        },
        ("nodeClassRef",),
    ),
    "Which machines are wanted, what they may cost each, and when they go",
)

REQUEST = _document(
    "GPURequest",
    _metadata(namespaced=False),
    _object(
        {
            "provider": _said(_TEXT, "one cloud; without it all that this version can rent from"),
            "credentialsRef": _SECRET_REF,
            "gpuType": _TEXT,
            "gpuCount": _POSITIVE,
            "region": _TEXT,
            "maxHourlyPrice": _MONEY,
            "budget": _SPENDING,
            "maxLifetime": _DURATION_OR_NEVER,
            "idleTimeout": _DURATION_OR_NEVER,
            "orphanedPolicy": _ORPHANED,
            "acceptance": _ACCEPTANCE,
            "prePull": _PRE_PULL,
            "spot": _YES_NO,
            "talosConfig": _TALOS,
            "tailscaleConfig": _TAILSCALE,
            "wireguardConfig": _WIREGUARD,
        },
        ("gpuType",),
    ),
    "One machine",
)

KINDS: dict[str, Schema] = {"GPUNodeClass": NODE_CLASS, "GPUNodePool": NODE_POOL, "GPURequest": REQUEST}


def text(kind: str) -> str:
    """The schema of a kind as it is shipped."""
    return json.dumps(KINDS[kind], indent=2, ensure_ascii=False) + "\n"


def write(folder: str | pathlib.Path) -> list[pathlib.Path]:
    """Write all schemas to ``folder`` and return the files."""
    written = []
    for kind in KINDS:
        path = pathlib.Path(folder) / f"{kind.lower()}.schema.json"
        path.write_text(text(kind), encoding="utf-8")
        written.append(path)
    return written
