# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration file of NVIDIA's device plugin v0.20: made from a number of replicas, or a user's own file that is checked.

The plugin ignores some fields with a warning in its log, and ends at others. Both are refused here, with the reason.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import typing as t

from ..core.errors import lazy
from ..model.resources import NVIDIA_GPU, SHARED_GPU
from ..planner.offers.gpu_attributes import MPS_CLIENTS, MPS_CLIENTS_BEFORE

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

Json = dict[str, t.Any]

DEFAULT_KEY = "config.yaml"
_MIG_RESOURCE = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb(\.me(\.all)?|\.gfx|-me)?")
_MIG_STRATEGIES = ("none", "single", "mixed")
_LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
_KEY = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")  # part of a DaemonSet's name, and a value of a label

_Check = t.Callable[[str, t.Any], t.Iterator[str]]


@dataclasses.dataclass(frozen=True)
class PluginConfig:
    """One configuration. ``key``: its key in the ConfigMap; ``content``: what the plugin reads.

    ``replicas`` are those of each shared resource. ``renamed``: a shared resource is offered as ``nvidia.com/gpu.shared``. ``mps``: MPS shares
    it, not time. ``mig``: MIG devices are served. ``device_specs``: device nodes are handed to the kubelet. ``cdi``: the plugin writes CDI
    specifications.
    """

    key: str
    content: Json
    replicas: t.Mapping[str, int]
    renamed: bool
    mps: bool
    mig: str
    device_specs: bool
    cdi: bool

    @property
    def text(self) -> str:
        return to_yaml(self.content)

    def advertised(self, gpus: int) -> tuple[str, int]:
        """The name and number of the resource that a node with so many whole GPUs offers."""
        replicas = self.replicas.get(NVIDIA_GPU, 1)
        return SHARED_GPU if self.renamed and replicas > 1 else NVIDIA_GPU, gpus * replicas


def to_yaml(document: Json) -> str:
    """A document that may hold Ansible's own types of text and numbers, which YAML does not know, as text."""
    return t.cast(str, yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=False))


def of_replicas(replicas: int, key: str = DEFAULT_KEY, *, renamed: bool = False, mps: bool = False) -> PluginConfig:
    """Time slicing, or MPS, with so many replicas of each GPU; 1 shares nothing.

    ``failOnInitError`` stays true: a plugin that finds no driver yet is restarted until it does. With false it would wait for ever.
    """
    content: Json = {"version": "v1", "flags": {"migStrategy": "none", "failOnInitError": True}}
    if replicas > 1:
        resources = [{"name": NVIDIA_GPU, "replicas": replicas}]
        shared = {"renameByDefault": renamed, "failRequestsGreaterThanOne": True, "resources": resources}
        content["sharing"] = {"mps" if mps else "timeSlicing": shared}
    return of_content(content, key)


def of_content(content: Json, key: str = DEFAULT_KEY) -> PluginConfig:
    """A configuration without faults (see :func:`faults`) as a record."""
    flags = content.get("flags") or {}
    plugin = flags.get("plugin") or {}
    sharing = content.get("sharing") or {}
    slicing = sharing.get("mps") or sharing.get("timeSlicing") or {}
    strategies = _listed(plugin.get("deviceListStrategy", "envvar"))
    return PluginConfig(
        key,
        content,
        {one["name"]: one["replicas"] for one in slicing.get("resources") or []},
        bool(slicing.get("renameByDefault")),
        bool(sharing.get("mps")),
        flags.get("migStrategy", "none"),
        bool(plugin.get("passDeviceSpecs")),
        any(str(one).startswith("cdi-") for one in strategies),
    )


def advice(config: PluginConfig) -> list[str]:
    """What the plugin takes and its user may not expect."""
    slicing = (config.content.get("sharing") or {}).get("timeSlicing") or {}
    if config.replicas and not config.mps and not slicing.get("failRequestsGreaterThanOne"):
        return [
            f"{config.key}: failRequestsGreaterThanOne is not true, so a pod that requests 2 replicas starts and gets no more than one that "
            "requests 1."
        ]
    return []


def key_fault(key: str) -> str:
    """What is wrong with the name of a further configuration; empty when it is right."""
    if _KEY.fullmatch(key):
        return ""
    return f"{key!r} is not a name for a configuration: use lower-case letters, digits and hyphens, at most 40 characters."


def faults(content: t.Any) -> list[str]:
    """Every fault of a configuration, one sentence each with its place."""
    found = list(_object("", content, _TOP, required=("version",)))
    return found or [*_across(content)]


def _across(content: Json) -> t.Iterator[str]:
    """Rules between fields, for a content whose single fields are right."""
    sharing = content.get("sharing") or {}
    slicing, mps = sharing.get("timeSlicing") or {}, sharing.get("mps")
    mig = (content.get("flags") or {}).get("migStrategy", "none")
    if mps and slicing:
        yield "sharing: mps and timeSlicing exclude each other. Keep one of them."
    if mps and mig != "none":
        yield f"sharing.mps: the device plugin has no MPS with MIG, and flags.migStrategy is {mig}."
    names = [one["name"] for one in slicing.get("resources") or []]
    for place, name in enumerate(names):
        path = f"sharing.timeSlicing.resources[{place}].name"
        if name in names[:place]:
            yield f"{path}: {name} is listed twice."
        if name != NVIDIA_GPU and mig != "mixed":
            yield f"{path}: {name} exists only with flags.migStrategy: mixed, and it is {mig}."


# ---- single fields


def _listed(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else [value]


def _shown(value: t.Any) -> str:
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return kinds.get(type(value), repr(value))


def _bool(path: str, value: t.Any) -> t.Iterator[str]:
    if not isinstance(value, bool):
        yield f"{path}: true or false is needed, not {_shown(value)}."


def _text(path: str, value: t.Any) -> t.Iterator[str]:
    if not isinstance(value, str) or not value:
        yield f"{path}: text is needed, not {_shown(value)}."


def _one_of(*choices: str) -> _Check:
    def check(path: str, value: t.Any) -> t.Iterator[str]:
        if value not in choices:
            near = difflib.get_close_matches(str(value), choices, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Use {'one of ' if len(choices) > 1 else ''}{', '.join(choices)}."
            yield f"{path}: {_shown(value)} is not possible here. {hint}"

    return check


def _strategies(path: str, value: t.Any) -> t.Iterator[str]:
    if value == []:
        yield f"{path}: it must not be empty."
    for one in _listed(value):
        yield from _one_of(*_LIST_STRATEGIES)(path, one)


def _refused(reason: str) -> _Check:
    def check(path: str, _value: t.Any) -> t.Iterator[str]:
        yield f"{path}: {reason}"

    return check


def _inside(fields: t.Mapping[str, _Check], required: tuple[str, ...] = ()) -> _Check:
    return lambda path, value: _object(path, value, fields, required)


def _object(path: str, value: t.Any, fields: t.Mapping[str, _Check], required: tuple[str, ...] = ()) -> t.Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path or 'the configuration'}: a mapping is needed, not {_shown(value)}."
        return
    for name in required:
        if name not in value:
            yield f"{_at(path, name)}: this field is missing."
    for name, inner in value.items():
        if name in fields:
            yield from fields[name](_at(path, name), inner)
        else:
            yield _unknown(path, name, fields)


def _unknown(path: str, name: t.Any, fields: t.Mapping[str, _Check]) -> str:
    near = difflib.get_close_matches(str(name), fields, 1)
    elsewhere = sorted(place for place in _PLACES if place.rpartition(".")[2] == name)
    if elsewhere:
        hint = f"Did you mean {elsewhere[0]}?"
    else:
        hint = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(fields))}."
    return f"{_at(path, name)}: unknown field. {hint}"


def _at(path: str, name: t.Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _resource_name(path: str, value: t.Any) -> t.Iterator[str]:
    if not isinstance(value, str) or not (value == NVIDIA_GPU or _MIG_RESOURCE.fullmatch(value)):
        yield f"{path}: {_shown(value)} cannot be shared; only {NVIDIA_GPU}, and nvidia.com/mig-1g.10gb and the like."


def _whole_gpu(path: str, value: t.Any) -> t.Iterator[str]:
    if value != NVIDIA_GPU:
        yield f"{path}: {_shown(value)} cannot be shared by MPS; only {NVIDIA_GPU}."


def _clients(path: str, value: t.Any) -> t.Iterator[str]:
    yield from _replicas(path, value)
    if isinstance(value, int) and value > MPS_CLIENTS:
        yield f"{path}: {value} is more than MPS serves; it must be at most {MPS_CLIENTS}, and {MPS_CLIENTS_BEFORE} on a GPU before Turing."


def _one_each(path: str, value: t.Any) -> t.Iterator[str]:
    if value is not True:
        yield f"{path}: {_shown(value)} is not possible; MPS gives a request one share, whatever this says. Remove it."


def _replicas(path: str, value: t.Any) -> t.Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield f"{path}: a whole number is needed, not {_shown(value)}."
    elif value < 2:
        yield f"{path}: {value} shares nothing; it must be at least 2. For whole GPUs leave sharing out."


_PATTERN = (
    "the device plugin selects no GPUs by a pattern: this block is ignored. Use a configuration of its own for each kind of node."
)
_RESOURCE: dict[str, _Check] = {
    "name": _resource_name,
    "replicas": _replicas,
    "rename": _refused("the device plugin ignores it. renameByDefault: true offers nvidia.com/gpu.shared."),
    "devices": _refused("the device plugin ignores it and shares all GPUs of the node."),
    "pattern": _refused(_PATTERN),
}


def _resources(entry: t.Mapping[str, _Check]) -> _Check:
    return lambda path, value: _entries(path, value, entry)


def _entries(path: str, value: t.Any, entry: t.Mapping[str, _Check]) -> t.Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: a list is needed, not {_shown(value)}."
    elif not value:
        yield f"{path}: it must not be empty. For whole GPUs leave sharing out."
    else:
        for place, one in enumerate(value):
            yield from _object(f"{path}[{place}]", one, entry, required=("name", "replicas"))


_SLICING: dict[str, _Check] = {
    "renameByDefault": _bool,
    "failRequestsGreaterThanOne": _bool,
    "resources": _resources(_RESOURCE),
}
_MPS: dict[str, _Check] = {
    "renameByDefault": _bool,
    "failRequestsGreaterThanOne": _one_each,
    "resources": _resources({**_RESOURCE, "name": _whole_gpu, "replicas": _clients}),
}
_SHARING: dict[str, _Check] = {
    "timeSlicing": _inside(_SLICING, required=("resources",)),
    "mps": _inside(_MPS, required=("resources",)),
}
_PLUGIN: dict[str, _Check] = {
    "passDeviceSpecs": _bool,
    "deviceListStrategy": _strategies,
    "deviceIDStrategy": _one_of("uuid", "index"),
    "sharedDevicesAllocationPolicy": _one_of("distributed", "packed"),
    "cdiAnnotationPrefix": _text,
    "nvidiaCTKPath": _text,
    "containerDriverRoot": _text,
}
_FLAGS: dict[str, _Check] = {
    "migStrategy": _one_of(*_MIG_STRATEGIES),
    "failOnInitError": _bool,
    "nvidiaDriverRoot": _text,
    "deviceDiscoveryStrategy": _one_of("auto", "nvml", "tegra"),
    "gdsEnabled": _bool,
    "mofedEnabled": _bool,
    "plugin": _inside(_PLUGIN),
    "gfd": _refused("GPU Feature Discovery does not run in this DaemonSet."),
}
_TOP: dict[str, _Check] = {
    "version": _one_of("v1"),
    "flags": _inside(_FLAGS),
    "sharing": _inside(_SHARING),
    "resources": _refused(f"the device plugin ignores it (resources cannot be renamed); {_PATTERN}"),
}
_PLACES = (
    *_TOP,
    *(f"flags.{name}" for name in _FLAGS),
    *(f"flags.plugin.{name}" for name in _PLUGIN),
    *(f"sharing.{name}" for name in _SHARING),
    *(f"sharing.timeSlicing.{name}" for name in _SLICING),
)
