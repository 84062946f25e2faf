# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bodies RunPod's API v2 takes, as JSON schemas; what does not fit is a 422 that names the place."""

from __future__ import annotations

import json
import typing as t

import flask
import jsonschema

from .runpod_account import Problem, invalid

Schema = dict[str, t.Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_CUDA: Schema = {"type": "string", "pattern": r"^\d+\.\d+$"}
_PORTS: Schema = {"type": "array", "items": {"type": "string", "pattern": r"^[1-9]\d{0,4}/(tcp|http)$"}}
_ENV: Schema = {"type": "object", "additionalProperties": _TEXT}
_WORDS: Schema = {"type": "array", "items": _TEXT}
_REGISTRY: Schema = {"type": ["string", "null"]}


def _object(required: t.Sequence[str] = (), /, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_MOUNT = _object(("size", "path"), size={"type": "integer", "minimum": 10}, path=_TEXT)
_CLUSTER_CONTAINER: dict[str, Schema] = {
    "image": _TEXT,
    "args": _TEXT,
    "entrypoint": _WORDS,
    "cmd": _WORDS,
    "disk": {"type": "integer", "minimum": 1},
    "env": _ENV,
    "ports": _PORTS,
}
_CONTAINER: dict[str, Schema] = {**_CLUSTER_CONTAINER, "registry": _REGISTRY}
_STARTS: dict[str, Schema] = {"startSsh": {"type": "boolean"}, "startJupyter": {"type": "boolean"}}
_MOUNTS = _object(
    persistent=_MOUNT,
    network={"type": "array", "maxItems": 1, "items": _object(("volumeId", "path"), volumeId=_TEXT, path=_TEXT)},
)

CREATE_POD = _object(
    ("name",),
    name=_NAME,
    **_CONTAINER,
    gpu=_object(
        ("id",),
        id=_TEXT,
        count={"type": "integer", "minimum": 1},
        allowedCudaVersions={"type": "array", "items": _CUDA},
        minCudaVersion=_CUDA,
        minRamPerGpu={"type": "integer", "minimum": 1},
        minVcpuCountPerGpu={"type": "integer", "minimum": 1},
    ),
    cpu=_object(("id", "vcpuCount"), id=_NAME, vcpuCount={"type": "integer", "minimum": 2}),
    cloud={"enum": ["SECURE", "COMMUNITY"]},
    dataCenterIds={"type": "array", "items": _TEXT},
    globalNetworking={"type": "boolean"},
    mounts=_MOUNTS,
    **_STARTS,
    templateId={"type": "string", "minLength": 1},
)
CHANGE_POD = _object(
    name=_NAME,
    **{**_CONTAINER, "image": {"type": "string", "minLength": 1}},
    mounts=_MOUNTS,
    locked={"type": "boolean"},
    globalNetworking={"type": "boolean"},
    templateId={"type": "string", "minLength": 1},
)
_TEMPLATE: dict[str, Schema] = {
    "name": _NAME,
    **_CONTAINER,
    "image": {"type": "string", "minLength": 1},
    "allowedCudaVersions": {"type": "array", "items": _CUDA},
    "category": {"enum": ["CPU", "NVIDIA", "AMD"]},
    "mounts": _object(persistent=_MOUNT),
    "public": {"type": "boolean"},
    "serverless": {"type": "boolean"},
    **_STARTS,
}
CREATE_TEMPLATE = _object(("name", "image"), **_TEMPLATE)
CHANGE_TEMPLATE = _object(**_TEMPLATE)
CREATE_CLUSTER = _object(
    ("name", "type", "compute"),
    name=_NAME,
    type={"enum": ["APPLICATION", "TRAINING", "SLURM", "RAY"]},
    compute=_object(
        ("gpuTypeId", "gpuCountPerPod", "podCount"),
        gpuTypeId=_NAME,
        gpuCountPerPod={"type": "integer", "minimum": 1},
        podCount={"type": "integer", "minimum": 2, "maximum": 250},
    ),
    **_CLUSTER_CONTAINER,
    dataCenterIds={"type": "array", "items": _TEXT},
    mounts=_MOUNTS,
    **_STARTS,
)
CHANGE_CLUSTER = {**_object(name=_NAME), "minProperties": 1}
ACT = _object(("action",), action={"enum": ["start", "stop", "restart", "terminate"]})
SSH_KEYS = _object(("keys",), keys={"type": "array", "items": {"type": "string", "minLength": 1}})
CREATE_REGISTRY = _object(("name", "username", "password"), name=_NAME, username=_TEXT, password=_TEXT)
CREATE_VOLUME = _object(
    ("name", "size", "dataCenter"),
    name=_NAME,
    size={"type": "integer", "minimum": 10, "maximum": 4096},
    dataCenter=_TEXT,
    type={"enum": ["STANDARD", "HIGH_PERFORMANCE"]},
)
CHANGE_VOLUME = _object(name=_NAME, size={"type": "integer", "minimum": 10, "maximum": 4096})


def body(schema: Schema, left_out: t.Collection[str] = ()) -> dict[str, t.Any]:
    """The request's JSON, checked; properties ``left_out`` are unknown ones."""
    schema = {**schema, "properties": {name: form for name, form in schema["properties"].items() if name not in left_out}}
    if flask.request.mimetype != "application/json":
        raise Problem(422, "validation failed", ["content type should be application/json"])
    try:
        content = json.loads(flask.request.get_data() or b"")
    except ValueError:
        raise invalid("$: the body is not valid JSON") from None
    return check(content, schema)


def check(content: t.Any, schema: Schema) -> dict[str, t.Any]:
    """A body that fits its schema; 422 otherwise."""
    faults = sorted(
        jsonschema.Draft202012Validator(schema).iter_errors(content), key=lambda fault: list(map(str, fault.absolute_path))
    )
    if faults:
        raise invalid(*(text for fault in faults for text in _words(fault)))
    return t.cast("dict[str, t.Any]", content)


def _words(fault: jsonschema.ValidationError) -> list[str]:
    place = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.absolute_path)
    if fault.validator == "additionalProperties" and isinstance(fault.instance, dict) and isinstance(fault.schema, dict):
        known = fault.schema.get("properties") or {}
        return [f"{place}: additional properties '{name}' not allowed" for name in fault.instance if name not in known]
    if fault.validator == "required" and isinstance(fault.instance, dict):
        return [f"{place}: missing property '{fault.message.split(chr(39))[1]}'"]
    return [f"{place}: does not meet {fault.validator} {json.dumps(fault.validator_value)}"]  # never the value: it may be a secret
