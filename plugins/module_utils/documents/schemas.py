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

from ..model.devices import GPU_DRIVER
from ..model.labels import API_VERSION
from ..model.queues import PROVISIONING_CLASSES
from ..model.reasons import Reason
from ..planner.cost.budgets import ACTIONS
from ..planner.disruption.utilization import SIGNALS
from ..planner.offers.requirements import KEYS, OPERATORS
from ..planner.scheduling.offer_selection import PACKS
from ..units.calendar import PERIODS
from .schema_values import (
    AMOUNT,
    COUNT,
    DURATION,
    DURATION_OR_NEVER,
    GPU_COUNTS,
    MONEY,
    NAME,
    OPERATORS_WIREGUARD,
    POSITIVE,
    SECRET_REF,
    SERVER_FIELDS,
    SHARE,
    STRINGS,
    TAINT,
    TEXT,
    WIREGUARD,
    YES_NO,
    Schema,
    described,
    list_of,
    object_of,
)

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


_MACHINE = object_of(
    {
        "name": NAME,
        "gpuCount": POSITIVE,
        "gpuType": TEXT,
        "gpuMemoryMib": POSITIVE,
        "nodeName": described(TEXT, "the name of its Node, if it is not the machine's"),
        "scaleUpEndpoint": described(TEXT, "URL that switches it on"),
        "scaleDownEndpoint": described(TEXT, "URL that switches it off"),
        "statusEndpoint": described(TEXT, "URL that tells its state"),
        "hourlyCost": MONEY,
        "region": TEXT,
    },
    ("name", "gpuCount", "scaleUpEndpoint", "scaleDownEndpoint"),
    "an own machine behind power webhooks",
)
_VOLUME = object_of(
    {
        "name": described(TEXT, "name or id of a volume that the account has"),
        "mountPath": described({"type": "string", "pattern": "^/.+"}, "a folder of the machine like /data/sets"),
        "pricePerGBMonth": described(
            MONEY, "what a GB of it costs in a month, for the report; default: the published price, if known"
        ),
    },
    ("name", "mountPath"),
    "an existing volume of the account that every machine mounts; it is never deleted",
)
_PROVIDER = object_of(
    {
        "name": described(TEXT, "a cloud: lambda, webhook ...; usual other spellings are understood"),
        "priority": described(COUNT, "lower is tried first; how strictly depends on strategy"),
        "enabled": YES_NO,
        "bidMargin": described(SHARE, "by how much a bid for an interruptible machine is above the lowest that would win"),
        "spotDiscountMin": described(
            SHARE, "by how much interruptible machines must be cheaper than firm ones; before the class's"
        ),
        "credentialsRef": SECRET_REF,
        "settings": {"type": "object", "description": "the cloud's own options"},
        "machines": list_of(_MACHINE, description="own machines (webhook)"),
        "nodeGroups": list_of(_MACHINE, description="another word for machines"),
        "volumes": list_of(_VOLUME, description="existing volumes that every machine of this provider mounts (lambda, runpod)"),
    },
    ("name",),
)
_TAILSCALE = object_of(
    {
        "tags": list_of({"type": "string", "pattern": "^tag:[a-zA-Z][a-zA-Z0-9-]*$", "description": 'a tag like "tag:gpu"'}),
        "ephemeral": YES_NO,
        "acceptRoutes": YES_NO,
        "advertiseRoutes": list_of(described(TEXT, "a network like 10.0.0.0/24")),
    }
)
_TALOS = object_of(
    {
        "image": described(TEXT, "Talos installer image"),
        "machineConfigTemplate": described(TEXT, "the machine configuration as text with variables"),
        "templateRef": SECRET_REF,
        "machineConfigTemplateFile": described(TEXT, "path of a file with the template, relative to this document; files only"),
        "patches": list_of(TEXT, description="strategic merge patches as text, laid over the configuration in their order"),
        "registryMirrors": {
            "type": "object",
            "additionalProperties": list_of(TEXT, 1),
            "description": "registry (docker.io) to the URLs of its mirrors",
        },
        "tailscaleConfig": {**_TAILSCALE, "description": "the same as spec.tailscaleConfig"},
        "wireGuardConfig": OPERATORS_WIREGUARD,
        "schematic": {"type": "object", "description": "what is in the Talos image, as the Image Factory takes it"},
    }
)
_GUARD = object_of(
    {
        "silentFor": described(DURATION_OR_NEVER, "for so long the API server gave no answer, or Never; at least 1h"),
        "controllerSilentFor": described(DURATION_OR_NEVER, "for so long no run renewed the run lock, or Never; at least 1h"),
    },
    description="when machines of lane kubelet power themselves off",
)
_ORPHANED = described({"enum": list(ORPHANED_POLICIES)}, "what becomes of its machines when this document is gone")
_SPENDING = object_of(
    {
        "period": {"enum": list(PERIODS)},
        "amount": MONEY,
        "timeZone": described(TEXT, "whose days are counted, for example Europe/Berlin; UTC without it"),
        "softPercent": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "description": "from this percentage on a notice is sent; default 80",
        },
        "action": described({"enum": list(ACTIONS)}, "what is done when it is used up; stop_launch without it"),
    },
    ("period", "amount"),
    "what may be spent in a day, a week (from Monday) or a month",
)
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_PATH: Schema = {"type": "string", "pattern": "^/[!-~]*$", "description": "a path like /health"}
_SERVICE = object_of(
    {
        "image": described(TEXT, "container image"),
        "command": list_of(TEXT, 1, "what is started, as a list of words"),
        "args": list_of({"type": "string"}, description="more words after command"),
        "ports": list_of(_PORT, 1, "ports of the container, reachable inside the tailnet"),
        "environment": described(STRINGS, "variables of the container"),
        "environmentFrom": {
            "type": "object",
            "additionalProperties": SECRET_REF,
            "description": "variables whose values stand in Secrets; an object of the cluster names those of its own namespace only",
        },
        "healthPath": _PATH,
        "healthPort": described(_PORT, "where healthPath is asked; the first of ports without it"),
        "meshClient": described({"enum": list(MESH_CLIENTS)}, "who brings the tailnet client"),
    },
    ("image", "ports", "healthPath"),
    "what a machine of lane service runs",
)
_BUDGET = object_of(
    {
        "nodes": {"type": ["string", "integer"], "description": 'a number of nodes, or a share of them like "10%"'},
        "reasons": list_of({"enum": list(DISRUPTION_REASONS)}, 1, "for which reasons it holds; without it for all"),
        "schedule": described(TEXT, 'when it begins to be in force, as five cron fields: "0 9 * * 1-5"'),
        "duration": described(DURATION, "for how long it then is in force"),
        "timeZone": described(TEXT, "of the schedule, for example Europe/Berlin; UTC without it"),
    },
    ("nodes",),
    "how many nodes of the pool may be on their way out at once",
)
_IDLE_PROBE = object_of(
    {
        "url": _PATH,
        "command": list_of(
            TEXT, 1, "a program on the controller and its arguments; files only, and only if allow_commands allows it"
        ),
        "port": described({"type": "integer", "minimum": 1, "maximum": 65535}, "of nodes only: where url is asked"),
    },
    (),
    "how a service or node is asked whether it is idle",
)
_IDLE_UTILIZATION = object_of(
    {
        "below": described(SHARE, "each GPU must be used less than this"),
        "window": described(DURATION, "for so long; at least 10m"),
    },
    (),
    "when the GPUs of a node count as unused",
)
_ACCEPTANCE = object_of(
    {
        "test": described({"enum": list(ACCEPTANCE_TESTS)}, "a test that is built in: NVIDIA's CUDA sample vectorAdd"),
        "image": described(TEXT, "an image of your own whose start ends with 0 where the GPUs are good; instead of test"),
        "command": list_of(TEXT, 1, "a program of the image and its arguments, instead of the image's own start"),
        "runtimeClassName": described(NAME, "the RuntimeClass of the test's pod"),
        "timeout": described(DURATION, "for one try, the pull of the image included"),
        "gpus": described({"enum": list(ACCEPTANCE_GPUS)}, "how many of the node's GPUs are tested"),
    },
    (),
    "what a new node has to pass before pods may come",
)
_RENAME = described(YES_NO, "the device plugin offers shares of a GPU under the resource's name with .shared")
_PRE_PULL = object_of(
    {
        "images": list_of(TEXT, 1, "images as pods name them"),
        "imagePullSecrets": list_of(TEXT, 1, "Secrets of tgp-system for their registries; only the kubelet reads them"),
        "timeout": described(DURATION, "after which the node is taken without them"),
    },
    ("images",),
    "images that a new node pulls before pods may come",
)
_UNHEALTHY = object_of(
    {
        "type": described(TEXT, "a condition of the Node; instead of taint"),
        "status": described({"enum": ["True", "False"]}, 'the status that means trouble, in quotes; "True" without it'),
        "contains": list_of(TEXT, 1, "texts of which the condition's reason or message contains one; without it any will do"),
        "taint": described(TEXT, "the key of a taint of the Node, or a prefix that ends with /; instead of type"),
        "value": described(TEXT, "the taint's value; without it any will do"),
        "xids": list_of(
            {"type": "integer", "minimum": 1, "maximum": 9999}, 1, "XIDs in the metrics of dcgm-exporter; instead of type"
        ),
        "for": described(DURATION, "for how long it has to last"),
        "action": described({"enum": list(UNHEALTHY_ACTIONS)}, "what then becomes of the machine; Report without it"),
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
_WINDOW = object_of(
    {
        "days": list_of({"enum": list(DAYS)}, 1, "on which it begins; every day without it"),
        "from": _CLOCK,
        "to": described(_CLOCK_END, 'a local time of day like "18:00", on the next day if it is not after from'),
        "minNodes": described(COUNT, "nodes that are kept meanwhile; the pool's minNodes without it"),
        "hardStop": described(
            _CLOCK, 'a local time of day like "20:00", after the end, at which machines that are still there go by force'
        ),
    },
    ("from", "to"),
)
_CALENDAR = object_of(
    {"timeZone": described(TEXT, "for example Europe/Berlin; UTC without it"), "windows": list_of(_WINDOW, 1)},
    ("windows",),
    "when the pool is in use; outside of all windows nothing is launched and no node is kept",
)
_REQUIREMENT = object_of(
    {"key": {"enum": list(KEYS)}, "operator": {"enum": list(OPERATORS)}, "values": list_of({"type": "string"})}, ("key", "operator")
)


def _document(kind: str, metadata: Schema, spec: Schema, title: str) -> Schema:
    properties = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": spec,
        "status": {"type": "object", "description": "written by others; not read"},
    }
    return {"$schema": DRAFT, "title": title, **object_of(properties, ("apiVersion", "kind", "metadata", "spec"))}


def _metadata(*, namespaced: bool) -> Schema:
    scope = NAME if namespaced else described(NAME, "accepted as the API accepts it; the kind has no namespace")
    own = {"name": NAME, "labels": STRINGS, "annotations": STRINGS, **SERVER_FIELDS}
    return object_of({**own, "namespace": scope}, ("name",))


NODE_CLASS = _document(
    "GPUNodeClass",
    _metadata(namespaced=False),
    object_of(
        {
            "providers": list_of(_PROVIDER, 1),
            "talosConfig": _TALOS,
            "tailscaleConfig": _TAILSCALE,
            "wireguardConfig": WIREGUARD,
            "networking": object_of({"backend": {"enum": list(BACKENDS)}}),
            "instanceRequirements": object_of(
                {
                    "gpuTypes": list_of(TEXT),
                    "gpuCount": POSITIVE,
                    "minGpuMemory": described(AMOUNT, "per GPU: GiB, or text with a unit like 24Gi"),
                    "minVcpus": POSITIVE,
                    "minMemory": AMOUNT,
                    "minDisk": AMOUNT,
                    "regions": list_of(TEXT),
                    "spotAllowed": YES_NO,
                    "spotDiscountMin": described(SHARE, "by how much interruptible machines must be cheaper than firm ones"),
                    "minReliability": described(SHARE, 'share of time a host is there, for example "95%"'),
                    "verified": described(YES_NO, "hosts that their marketplace has verified"),
                    "minCuda": {
                        "type": "string",
                        "pattern": r"^\d+(\.\d+)?$",
                        "description": 'a CUDA version in quotes, for example "12.8"',
                    },
                    "minBandwidth": described(POSITIVE, "Mbit/s towards the machine"),
                    "staticIp": described(YES_NO, "hosts whose address stays"),
                    "minPorts": described(POSITIVE, "ports of the host that can be reached from outside"),
                    "minDuration": described(DURATION, "for so long the host must still be on offer"),
                }
            ),
            "limits": object_of({"maxNodes": COUNT, "maxHourlyCost": MONEY, "resources": GPU_COUNTS}),
            "strategy": {"enum": list(STRATEGIES)},
            "budget": _SPENDING,
            "guard": _GUARD,
            "allowedNamespaces": list_of(
                described(TEXT, "a namespace, or * for all"),
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
    object_of(
        {
            "nodeClassRef": object_of({"kind": {"const": "GPUNodeClass"}, "name": TEXT}, ("name",)),
            "template": object_of(
                {
                    "metadata": object_of({"labels": STRINGS, "annotations": STRINGS}),
                    "spec": object_of(
                        {
                            "requirements": list_of(_REQUIREMENT),
                            "taints": list_of(TAINT),
                            "startupTaints": list_of(TAINT),
                            "lanes": list_of({"enum": list(LANES)}, description="how a machine may become useful, best first"),
                            "service": _SERVICE,
                        }
                    ),
                }
            ),
            "maxHourlyPrice": described(MONEY, 'dollars per hour for one machine, in quotes, for example "2.0"'),
            "budget": _SPENDING,
            "weight": COUNT,
            "minNodes": COUNT,
            "replicas": described(COUNT, "exactly so many machines, whatever pods wait; not together with minNodes"),
            "calendar": _CALENDAR,
            "orphanedPolicy": _ORPHANED,
            "unhealthyTimeout": described(DURATION, "for how long a node may be ill before it goes"),
            "unhealthyConditions": list_of(
                _UNHEALTHY,
                description="conditions, taints and XIDs by which a node is unhealthy, in order; those that are built in come after them",
            ),
            "limits": object_of({"maxNodes": COUNT, "resources": GPU_COUNTS}),
            "disruption": object_of(
                {
                    "consolidationPolicy": {"enum": list(POLICIES)},
                    "consolidateAfter": DURATION_OR_NEVER,
                    "deleteStoppedAfter": described(
                        DURATION_OR_NEVER, "for so long an own machine is stopped before its Node is removed, or Never"
                    ),
                    "expireAfter": DURATION_OR_NEVER,
                    "expireJitter": described(SHARE, "by up to so much of expireAfter a node goes earlier"),
                    "budgets": list_of(_BUDGET),
                    "utilizationThreshold": described(SHARE, "below this share of its GPUs a node is used too little"),
                    "replaceCheaperPercent": described(
                        SHARE, "by so much an offer must be cheaper to replace a node that is used too little"
                    ),
                    "driftPolicy": described(
                        {"enum": list(DRIFT_POLICIES)}, "what becomes of machines made from an older class or pool"
                    ),
                    "surge": described(YES_NO, "whether a machine that drifted or expires is replaced before its node is drained"),
                    "gpuLossPolicy": described(
                        {"enum": list(GPU_LOSS_POLICIES)}, "what becomes of nodes that show some of their GPUs only"
                    ),
                    "minAge": DURATION,
                    "idleMode": described({"enum": list(IDLE_MODES)}, "which pods keep a node busy"),
                    "idleSignal": described(
                        {"enum": list(SIGNALS)}, "whether pods, the utilization of GPUs or both say that a node is idle"
                    ),
                    "idleUtilization": _IDLE_UTILIZATION,
                    "idleProbe": _IDLE_PROBE,
                }
            ),
            "drainTimeout": DURATION,
            "registrationTimeout": DURATION,
            "terminationGracePeriod": DURATION,
            "draDriver": described(
                {"enum": list(DRA_DRIVERS)}, "the DRA driver that offers the GPUs of these nodes, in place of a device plugin"
            ),
            "gpuWait": described({"enum": list(GPU_WAITS)}, "how many of its GPUs a node must show to be usable"),
            "acceptance": _ACCEPTANCE,
            "prePull": _PRE_PULL,
            "pack": described({"enum": list(PACKS)}, "which machine is taken for waiting pods"),
            "schedulers": list_of(TEXT, description="schedulers whose waiting pods count beside the default one's"),
            "capacityBuffers": described(YES_NO, "whether its machines hold the spare room of CapacityBuffers"),
            "provisioningClasses": list_of(
                {"enum": list(PROVISIONING_CLASSES)}, description="classes of the ProvisioningRequests that its machines serve"
            ),
            "scaleUpDelay": described(DURATION, "for so long a pod has to wait before a machine is rented for it"),
            "mig": object_of(
                {
                    "profiles": {
                        "type": "object",
                        "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 7},
                        "description": "profile (1g.10gb, 1g.10gb+me) to the number of its instances on each GPU",
                    }
                },
                ("profiles",),
                "how MIG divides each GPU of these nodes",
            ),
            "timeSlicing": object_of(
                {
                    "replicas": {"type": "integer", "minimum": 2, "description": "pods per GPU"},
                    "renameByDefault": _RENAME,
                },
                ("replicas",),
                "how the cluster's device plugin shares each GPU of these nodes",
            ),
            "mps": object_of(
                {
                    "replicas": {"type": "integer", "minimum": 2, "maximum": 48, "description": "pods per GPU"},
                    "renameByDefault": _RENAME,
                },
                ("replicas",),
                "how MPS shares each GPU of these nodes",
            ),
        },
        ("nodeClassRef",),
    ),
    "Which machines are wanted, what they may cost each, and when they go",
)

REQUEST = _document(
    "GPURequest",
    _metadata(namespaced=False),
    object_of(
        {
            "provider": described(TEXT, "one cloud; without it all that this version can rent from"),
            "credentialsRef": SECRET_REF,
            "gpuType": TEXT,
            "gpuCount": POSITIVE,
            "region": TEXT,
            "maxHourlyPrice": MONEY,
            "budget": _SPENDING,
            "maxLifetime": DURATION_OR_NEVER,
            "idleTimeout": DURATION_OR_NEVER,
            "orphanedPolicy": _ORPHANED,
            "acceptance": _ACCEPTANCE,
            "prePull": _PRE_PULL,
            "spot": YES_NO,
            "talosConfig": _TALOS,
            "tailscaleConfig": _TAILSCALE,
            "wireguardConfig": WIREGUARD,
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
