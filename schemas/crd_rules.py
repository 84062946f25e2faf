# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fields of a document say of each other, as CEL rules with the sentences of the reader (documents/node_pool.py, node_class.py,
service.py). The place of a rule is the smallest part of the document that it is about: there it costs least, and there the server names
the fault.
"""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import COMMANDS, FILES, SECRETS
from ansible_collections.tgp.gpu.plugins.module_utils.documents.new_node import DIVIDED_GPUS, MPS_ALONE, NO_PROFILES, SLICED_DEVICES
from ansible_collections.tgp.gpu.plugins.module_utils.documents.node_pool import ONE_SIGN, RESERVED_LABELS, RESERVED_TAINTS
from ansible_collections.tgp.gpu.plugins.module_utils.documents.service import (
    IDLE_ONLY,
    NODES_ONLY,
    PORT_OF_NODE,
    PORT_OF_SERVICE,
    PROBE_WAYS,
)
from ansible_collections.tgp.gpu.plugins.module_utils.documents.wireguard import ENDS_IN, FROM_SECRETS, HERE, NEEDED
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import (
    GPU_MEMORY_LABEL,
    PROVIDER_LABEL,
    RELIABILITY_LABEL,
    SPOT_LABEL,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import requirements as words
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.limits import RESOURCE_OF_VENDOR

from .crd_forms import ADDRESS, CLOUD, KNOWN_CLOUDS, NETWORK, SPOT, VOLUMES, Rule, is_cloud, listed, quoted, rule

Rules = dict[str, list[Rule]]  # by place: "spec.providers[]" is each entry of the list


def has(path: str) -> str:
    """Whether a field below this place is there, with all that is around it."""
    steps = path.split(".")
    return " && ".join(f"has(self.{'.'.join(steps[: number + 1])})" for number in range(len(steps)))


def unless(condition: str, then: str) -> str:
    return f"!({condition}) || {then}"


def never_both(one: str, other: str) -> str:
    return f"!({has(one)} && {has(other)})"


def forbidden(kind: str) -> Rules:
    """What no object of this kind may say (L-28). A GPURequest has no namespace, hence no Secrets; other Secrets depend on the namespace."""
    rules: Rules = {}
    for paths in (COMMANDS, FILES, SECRETS if kind == "GPURequest" else {}):
        for path in paths.get(kind, ()):
            parent, _dot, last = path.rpartition(".")
            sentence = f"{last} cannot be set in an object of the cluster, only in a file of the operator"
            rules.setdefault(parent, []).append(rule(f"!has(self.{last})", sentence))
    return rules


# ---- parts of several kinds

_RESOURCES = listed(RESOURCE_OF_VENDOR.values())
_COUNTED = rule(
    f"self.all(name, name in {_RESOURCES})",
    f"only {' and '.join(RESOURCE_OF_VENDOR.values())} are counted, so another name would limit nothing. "
    f"Use {' or '.join(RESOURCE_OF_VENDOR.values())}.",
)
_ONE_TEMPLATE = rule(
    never_both("machineConfigTemplate", "templateRef"),
    "machineConfigTemplate and templateRef exclude each other. Keep one of them.",
)
_ONE_TAILSCALE = rule(
    never_both("tailscaleConfig", "talosConfig.tailscaleConfig"),
    "spec.tailscaleConfig and spec.talosConfig.tailscaleConfig are the same. Remove one of the two.",
)
_NAMED_TAILSCALE = f"(({has('tailscaleConfig')}) || ({has('talosConfig.tailscaleConfig')}))"
_ACCEPTANCE = [
    rule("has(self.test) != has(self.image)", "needs exactly one of test (vectoradd) and image (a test of your own)."),
    rule("!has(self.command) || has(self.image)", "is of an image of your own. Give image, or remove it.", at=".command"),
]
_TUNNEL = f"(has(self.wireguardConfig) || ({has('talosConfig.wireGuardConfig')}))"

_HUB = [
    *(
        rule(
            never_both(field, f"{field}SecretRef"),
            f"{field} and {field}SecretRef exclude each other. Keep one of them.",
            at=f".{field}SecretRef",
        )
        for field in FROM_SECRETS
    ),
    *(
        rule(
            f"has(self.{field}) || has(self.{field}SecretRef)",
            f"this field is missing. Write it, or name a key of a Secret in {field}SecretRef.",
            at=f".{field}",
        )
        for field in NEEDED
    ),
]
_MESH: Rules = {
    "spec": [
        _ONE_TAILSCALE,
        rule(
            f"!({_TUNNEL} && {_NAMED_TAILSCALE})",
            "tailscaleConfig has no effect with wireguardConfig. Remove one of the two.",
        ),
        rule(
            never_both("wireguardConfig", "talosConfig.wireGuardConfig"),
            f"{HERE} is there as well. Remove this one; tgp.gpu {ENDS_IN} does not read it.",
            at=".talosConfig.wireGuardConfig",
        ),
    ],
    "spec.talosConfig": [_ONE_TEMPLATE],
    "spec.tailscaleConfig.advertiseRoutes[]": [NETWORK],
    "spec.talosConfig.tailscaleConfig.advertiseRoutes[]": [NETWORK],
    "spec.wireguardConfig.network": [NETWORK],
    "spec.wireguardConfig.addresses": [NETWORK],
    "spec.wireguardConfig.allowedIPs[]": [NETWORK],
    "spec.wireguardConfig": _HUB,
    "spec.talosConfig.wireGuardConfig.allowedIPs[]": [NETWORK],
}

# ---- GPUNodeClass

_ENDPOINTS = ("scaleUpEndpoint", "scaleDownEndpoint", "statusEndpoint")
_OWN = is_cloud("self.name", ("webhook",))
_KNOWN_OR_SPOT = f"{is_cloud('self.name', SPOT)} || !({is_cloud('self.name')})"
_NODE_CLASS: Rules = {
    "spec": [
        *_MESH["spec"],
        rule(
            unless(f"{has('networking.backend')} && self.networking.backend != 'tailscale'", f"!{_NAMED_TAILSCALE}"),
            said="'tailscaleConfig has no effect with networking.backend ' + self.networking.backend + '. Remove one of the two.'",
        ),
        rule(
            unless(f"{has('networking.backend')} && self.networking.backend != 'wireguard'", "!has(self.wireguardConfig)"),
            said="'has no effect with networking.backend ' + self.networking.backend + '. Remove one of the two.'",
            at=".wireguardConfig",
        ),
        rule(
            unless(f"{has('networking.backend')} && self.networking.backend == 'wireguard'", _TUNNEL),
            "this field is missing; networking.backend wireguard needs it.",
            at=".wireguardConfig",
        ),
    ],
    "spec.limits.resources": [_COUNTED],
    "spec.providers": [rule("self.exists(one, !has(one.enabled) || one.enabled)", "none is enabled.")],
    "spec.providers[]": [
        rule(
            f"{_OWN} || (!has(self.machines) && !has(self.nodeGroups)) || !({is_cloud('self.name')})",
            said="'machines are for webhook only; ' + self.name + ' has its own. Remove them.'",
        ),
        *(
            rule(
                f"!has(self.{field}) || {_KNOWN_OR_SPOT}",
                said="self.name + ' rents no interruptible machines. Remove it.'",
                at=f".{field}",
            )
            for field in ("bidMargin", "spotDiscountMin")
        ),
        rule(
            f"!has(self.volumes) || {is_cloud('self.name', VOLUMES)} || !({is_cloud('self.name')})",
            said="self.name + ' mounts no existing volumes in this version. Remove it.'",
            at=".volumes",
        ),
    ],
    "spec.providers[].name": [CLOUD],
    **{f"spec.providers[].{group}[].{field}": [ADDRESS] for group in ("machines", "nodeGroups") for field in _ENDPOINTS},
}

# ---- GPUNodePool

_ABOVE = "the number is above limits.maxNodes."  # without the numbers: the server takes a text of a number for as long as a request may be
_FLOOR = "is an exact number and minNodes a floor. Use one of them."
_NUMBERS = listed(words.NUMBER_OPERATORS)
_FORM = "self.operator in {operators} || !(self.key in {keys}) || !has(self.values) || self.values.all(value, {form})"
_REQUIREMENT = [
    rule(
        "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
        said="self.operator + ' takes no values.'",
        at=".values",
    ),
    rule(
        "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        said="self.operator + ' needs at least one value.'",
        at=".values",
    ),
    rule(
        f"!(self.operator in {_NUMBERS}) || self.key in {listed(words.NUMBER_KEYS)}",
        said="self.operator + ' compares numbers; ' + self.key + ' is none. Use one of " + ", ".join(words.SET_OPERATORS) + ".'",
        at=".operator",
    ),
    rule(
        f"!(self.operator in {_NUMBERS}) || !(self.key in {listed(words.NUMBER_KEYS)}) || (has(self.values) && size(self.values) == 1)",
        said="self.operator + ' needs exactly one value.'",
        at=".values",
    ),
    rule(
        f"!(self.operator in {_NUMBERS}) || !(self.key in {listed(words.NUMBER_KEYS)}) || !has(self.values) || size(self.values) != 1 "
        f"|| self.values[0].matches(self.key == {quoted(RELIABILITY_LABEL)} ? '^([0-9]+[.]?[0-9]*|[.][0-9]+)$' : '^[0-9]+$')",
        said='"\'" + self.values[0] + "\' is not a whole number of zero or more."',
        at=".values",
    ),
    rule(
        f"!(self.operator in {_NUMBERS}) || self.key != {quoted(RELIABILITY_LABEL)} || !has(self.values) || size(self.values) != 1 "
        "|| !self.values[0].matches('^([0-9]+[.]?[0-9]*|[.][0-9]+)$') || self.values[0].matches('^(0*[.]?|0*[.][0-9]+|0*1[.]?0*)$')",
        said='"\'" + self.values[0] + "\' is not a fraction; write 95 per cent as \\"0.95\\"."',
        at=".values",
    ),
    rule(
        _FORM.format(operators=_NUMBERS, keys=listed(words.WHOLE_KEYS), form="value.matches('^[0-9]+$')"),
        said="self.key + ' is a whole number' + (self.key == "
        + quoted(GPU_MEMORY_LABEL)
        + " ? ', in MiB; write it like \"24576\".' : "
        "'; write it like \"2\".')",
        at=".values",
    ),
    rule(
        _FORM.format(operators=_NUMBERS, keys=listed([SPOT_LABEL]), form="value in ['true', 'false']"),
        f'{SPOT_LABEL} is "true" or "false".',
        at=".values",
    ),
    rule(
        _FORM.format(operators=_NUMBERS, keys=listed([PROVIDER_LABEL]), form=is_cloud("value")),
        f"one of them is not a cloud. {KNOWN_CLOUDS}",
        at=".values",
    ),
]
_KEY = "^([a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_VALUE = "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
_VALUE_TEXT = "is not a label value: at most 63 letters, digits, '-', '_' or '.', a letter or digit at both ends."
_OURS = "is set by the collection itself. Remove it."
_TAINT = [
    rule(f"!(self.key in {listed(sorted(RESERVED_TAINTS))})", said=f"self.key + {quoted(' ' + _OURS)}"),
    rule(
        f"self.key.matches({quoted(_KEY)})",
        said="\"'\" + self.key + \"' is not a key of a taint: a name of 1 to 63 letters, digits, '-', '_' or '.', "
        'after a DNS name in lower case and a slash, if it has one."',
        at=".key",
    ),
    rule(
        f"!has(self.value) || self.value.matches({quoted(_VALUE)})",
        said=f'"\'" + self.value + {quoted(chr(39) + " " + _VALUE_TEXT)}',
        at=".value",
    ),
]
_ONE_EACH = rule(
    "self.all(one, self.exists_one(other, other.key == one.key && other.effect == one.effect))",
    "there are two taints of one key and effect. Keep one.",
)
_VARIABLES = [
    rule(
        "self.all(name, name.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",
        "a name of a variable has letters, digits and _, no digit first.",
    ),
    rule(
        "self.all(name, !name.startsWith('TGP_') && !name.startsWith('TS_'))",
        "variables TGP_… and TS_… are set by the collection. Choose another name.",
    ),
]
_SERVES = f"({has('template.spec.lanes')} && 'service' in self.template.spec.lanes)"
_SERVES_INNER = "(has(self.lanes) && 'service' in self.lanes)"
_LISTS = ("template.spec.taints", "template.spec.startupTaints", "schedulers")


def _nodes_only(inner: bool) -> list[Rule]:
    """What a service has not, below ``spec.template.spec`` or elsewhere below ``spec``."""
    rules = []
    for place, why in NODES_ONLY.items():
        if place.startswith("template.spec.") != inner:
            continue
        below = place.removeprefix("template.spec.")
        given = has(below) + (f" && size(self.{below}) > 0" if place in _LISTS else "")
        serves = _SERVES_INNER if inner else _SERVES
        rules.append(rule(f"!({serves} && {given})", f"has no effect with lane service: {why}. Remove it.", at=f".{below}"))
    return rules


_UNDERUSED = "self.consolidationPolicy in ['WhenUnderutilized', 'WhenEmptyOrUnderutilized']"
_NODE_POOL: Rules = {
    "spec": [
        rule(
            unless(f"{has('limits.maxNodes')} && has(self.minNodes)", "self.minNodes <= self.limits.maxNodes"),
            _ABOVE,
            at=".minNodes",
        ),
        rule("!(has(self.replicas) && has(self.minNodes))", _FLOOR, at=".replicas"),
        rule(
            unless("has(self.replicas) && has(self.calendar)", "self.calendar.windows.all(window, !has(window.minNodes))"),
            "minNodes of a window is a floor, and spec.replicas an exact number. Use one of them.",
            at=".calendar.windows",
        ),
        rule(
            unless(f"{has('limits.maxNodes')} && has(self.replicas)", "self.replicas <= self.limits.maxNodes"),
            _ABOVE,
            at=".replicas",
        ),
        rule(
            unless(
                f"{has('limits.maxNodes')} && has(self.calendar)",
                "self.calendar.windows.all(window, !has(window.minNodes) || window.minNodes <= self.limits.maxNodes)",
            ),
            "minNodes of a window is above limits.maxNodes.",
            at=".calendar.windows",
        ),
        *_nodes_only(inner=False),
        rule("!has(self.draDriver) || !has(self.timeSlicing)", SLICED_DEVICES, at=".timeSlicing"),
        rule("!has(self.mig) || (!has(self.draDriver) && !has(self.timeSlicing))", DIVIDED_GPUS, at=".mig"),
        rule("!has(self.mps) || (!has(self.draDriver) && !has(self.timeSlicing) && !has(self.mig))", MPS_ALONE, at=".mps"),
        rule("!has(self.mig) || size(self.mig.profiles) > 0", NO_PROFILES, at=".mig.profiles"),
        rule(
            f"!({_SERVES} && {has('disruption.idleProbe.port')})",
            PORT_OF_SERVICE,
            at=".disruption.idleProbe.port",
        ),
        rule(
            f"{_SERVES} || !({has('disruption.idleProbe')}) || has(self.disruption.idleProbe.url) == has(self.disruption.idleProbe.port)",
            PORT_OF_NODE,
            at=".disruption.idleProbe.port",
        ),
        *(
            rule(
                f"!({_SERVES} && {has(f'disruption.{field}')}) || has(self.disruption.idleProbe)",
                "has no effect without idleProbe, which says when a service is idle. Give one, or remove this.",
                at=f".disruption.{field}",
            )
            for field in IDLE_ONLY
        ),
        rule(
            f"!({_SERVES} && {has('disruption.consolidationPolicy')}) || !({_UNDERUSED.replace('self.', 'self.disruption.')})",
            "a service has its machine to itself, so it is never underutilized. Use WhenIdle.",
            at=".disruption.consolidationPolicy",
        ),
    ],
    "spec.limits.resources": [_COUNTED],
    "spec.template.metadata.labels": [
        rule(f"self.all(key, !(key in {listed(sorted(RESERVED_LABELS))}))", f"one of them {_OURS}"),
        rule(f"self.all(key, self[key].matches({quoted(_VALUE)}))", f"one of the values {_VALUE_TEXT}"),
    ],
    "spec.template.spec": [
        *_nodes_only(inner=True),
        rule(
            f"!{_SERVES_INNER} || self.lanes.all(lane, lane == 'service')",
            "a pool is of nodes or of services, not of both. Keep service alone, or make a second pool for nodes.",
            at=".lanes",
        ),
        rule(
            f"{_SERVES_INNER} || !has(self.service)",
            "is for lane service only. Set lanes: [service], or remove it.",
            at=".service",
        ),
        rule(
            f"!{_SERVES_INNER} || has(self.service)",
            "is missing: lane service has to know what to run. Give image, ports and healthPath.",
            at=".service",
        ),
        rule(
            "!has(self.taints) || !has(self.startupTaints) || "
            "self.startupTaints.all(one, !self.taints.exists(other, other.key == one.key))",
            "a key is among taints, too, which stay: the node would never be complete. Keep one of the two.",
            at=".startupTaints",
        ),
    ],
    "spec.template.spec.requirements[]": _REQUIREMENT,
    "spec.template.spec.taints": [_ONE_EACH],
    "spec.template.spec.taints[]": _TAINT,
    "spec.template.spec.startupTaints": [_ONE_EACH],
    "spec.template.spec.startupTaints[]": _TAINT,
    "spec.template.spec.service": [
        rule(
            "!(has(self.args) && size(self.args) > 0) || has(self.command)",
            "has no effect without command: the image's own start takes none. Give command, too.",
            at=".args",
        ),
        rule(
            "has(self.command) || (has(self.meshClient) && self.meshClient == 'image')",
            "is missing: our start script takes the place of the image's own start and has to know what to run afterwards. "
            "Give it, or meshClient: image for an image that enters the tailnet by itself.",
            at=".command",
        ),
        rule(
            "!has(self.environment) || !has(self.environmentFrom) || self.environmentFrom.all(name, !(name in self.environment))",
            "a name stands in environment, too. Keep one of them.",
            at=".environmentFrom",
        ),
    ],
    "spec.template.spec.service.ports": [
        rule("self.all(one, self.exists_one(other, other == one))", "a port is listed twice."),
    ],
    "spec.template.spec.service.environment": _VARIABLES,
    "spec.template.spec.service.environmentFrom": _VARIABLES,
    "spec.disruption": [
        *(
            rule(
                f"!has(self.{field}) || (has(self.consolidationPolicy) && {_UNDERUSED})",
                "has no effect without consolidationPolicy: WhenUnderutilized. Remove it.",
                at=f".{field}",
            )
            for field in ("utilizationThreshold", "replaceCheaperPercent")
        ),
        rule(
            "!has(self.expireJitter) || (has(self.expireAfter) && self.expireAfter != 'Never')",
            "has no effect without expireAfter. Give expireAfter, or remove it.",
            at=".expireJitter",
        ),
        rule(
            "!has(self.idleUtilization) || (has(self.idleSignal) && self.idleSignal != 'pods')",
            "has no effect with idleSignal: pods. Set idleSignal to utilization or both, or remove it.",
            at=".idleUtilization",
        ),
    ],
    "spec.acceptance": _ACCEPTANCE,
    "spec.unhealthyConditions[]": [
        rule(
            "(has(self.type) ? 1 : 0) + (has(self.taint) ? 1 : 0) + (has(self.xids) ? 1 : 0) == 1",
            ONE_SIGN,
        ),
        *(
            rule(f"has(self.type) || !has(self.{field})", "is of a condition. Remove it.", at=f".{field}")
            for field in ("status", "contains")
        ),
        rule("has(self.taint) || !has(self.value)", "is of a taint. Remove it.", at=".value"),
    ],
    "spec.unhealthyConditions[].type": [
        rule("self != 'Ready'", "how long a node may be not Ready is spec.unhealthyTimeout. Remove this entry.")
    ],
    "spec.disruption.idleProbe": [
        rule(
            "has(self.url) != has(self.command)",
            PROBE_WAYS,
        ),
    ],
    "spec.disruption.budgets[]": [
        *(
            rule(
                f"!has(self.{given}) || has(self.{needed})",
                "is missing: a budget has both a schedule and a duration, or none of the two.",
                at=f".{needed}",
            )
            for given, needed in (("schedule", "duration"), ("duration", "schedule"))
        ),
        rule("!has(self.timeZone) || has(self.schedule)", "has no effect without a schedule. Remove it.", at=".timeZone"),
    ],
    "spec.calendar.windows[]": [
        rule(
            "self.from != self.to",
            said="self.to + ' is also when the window begins. For a whole day write from 00:00 to 24:00.'",
            at=".to",
        ),
    ],
}

# ---- GPURequest

_REQUEST: Rules = {"spec.provider": [CLOUD], "spec.acceptance": _ACCEPTANCE}

RULES: dict[str, Rules] = {
    "GPUNodeClass": {**_MESH, **_NODE_CLASS},
    "GPUNodePool": _NODE_POOL,
    "GPURequest": {**_MESH, **_REQUEST},
}

# ---- bounds that the server needs to know what a rule can cost. The reader of files has none of them

_MACHINE_LISTS = tuple(f"spec.providers[].{group}" for group in ("machines", "nodeGroups"))
BOUNDS: dict[str, dict[str, t.Any]] = {
    "spec.providers": {"maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    "spec.providers[].name": {"maxLength": 64},
    **{
        place: {"maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        for place in _MACHINE_LISTS
    },
    **{f"{place}[].{field}": {"maxLength": 768} for place in _MACHINE_LISTS for field in _ENDPOINTS},
    "spec.providers[].volumes": {"maxItems": 16},
    "spec.provider": {"maxLength": 64},
    "spec.limits.resources": {"maxProperties": 8},
    "spec.mig.profiles": {"maxProperties": 7},
    "spec.template.metadata.labels": {"maxProperties": 64},
    "spec.template.metadata.labels.*": {"maxLength": 63},
    "spec.template.spec.lanes": {"maxItems": 8},
    "spec.template.spec.requirements": {"maxItems": 64},
    "spec.template.spec.requirements[].values": {"maxItems": 128},
    "spec.template.spec.requirements[].values[]": {"maxLength": 128},
    **{
        f"spec.template.spec.{field}{more}": bound
        for field in ("taints", "startupTaints")
        for more, bound in (("", {"maxItems": 32}), ("[].key", {"maxLength": 317}), ("[].value", {"maxLength": 63}))
    },
    "spec.template.spec.service.ports": {"maxItems": 64},
    "spec.template.spec.service.environment": {"maxProperties": 256},
    "spec.template.spec.service.environmentFrom": {"maxProperties": 256},
    "spec.disruption.budgets": {"maxItems": 32},
    "spec.unhealthyConditions": {"maxItems": 64},
    "spec.unhealthyConditions[].type": {"maxLength": 316},
    "spec.unhealthyConditions[].contains": {"maxItems": 16},
    "spec.unhealthyConditions[].xids": {"maxItems": 64},
    "spec.calendar.windows": {"maxItems": 64},
    "spec.calendar.windows[].days": {"maxItems": 7},
    "spec.wireguardConfig.allowedIPs": {"maxItems": 256},
    "spec.wireguardConfig.network": {"maxLength": 64},
    "spec.wireguardConfig.addresses": {"maxLength": 64},
    "spec.wireguardConfig.allowedIPs[]": {"maxLength": 64},
    "spec.talosConfig.wireGuardConfig.allowedIPs": {"maxItems": 256},
    "spec.talosConfig.wireGuardConfig.allowedIPs[]": {"maxLength": 64},
    **{
        f"spec.{section}.{field}": bound
        for section in ("tailscaleConfig", "talosConfig.tailscaleConfig")
        for field, bound in (
            ("advertiseRoutes", {"maxItems": 256}), ("advertiseRoutes[]", {"maxLength": 64}),
            ("tags", {"maxItems": 64}), ("tags[]", {"maxLength": 128}),
        )
    },
}  # fmt: skip

# ---- what the reader takes for a field that is not there. Only where a default is the same for every document: no field that another rule
# refuses, and nothing below spec.template, of which the hash says whether a machine has drifted

DEFAULTS: dict[str, dict[str, t.Any]] = {
    "GPUNodeClass": {"spec.strategy": "weighted", "spec.providers[].priority": 0, "spec.providers[].enabled": True},
    "GPUNodePool": {
        "spec.nodeClassRef.kind": "GPUNodeClass",
        "spec.weight": 0,
        "spec.orphanedPolicy": "Drain",
        "spec.calendar.timeZone": "UTC",
        "spec.timeSlicing.renameByDefault": False,
    },
    "GPURequest": {"spec.orphanedPolicy": "Drain", "spec.spot": False},
}
for _defaults in DEFAULTS.values():
    _defaults.update({"spec.budget.timeZone": "UTC", "spec.budget.softPercent": 80, "spec.budget.action": "stop_launch"})
