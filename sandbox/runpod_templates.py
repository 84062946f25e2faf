# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's templates: those of the account, the public ones, and what a pod takes from one."""

from __future__ import annotations

import typing as t

import flask

from . import runpod_bodies as bodies
from .runpod_account import Account, Problem, invalid, new_id
from .runpod_command import FIELDS, merged, parts
from .runpod_pages import page
from .world import World

_SOURCES = ("official", "verified", "community")
_DEFAULTS: dict[str, t.Any] = {
    "args": "",
    "disk": 20,
    "mounts": {},
    "ports": [],
    "env": {},
    "registry": None,
    "serverless": False,
    "public": False,
    "category": "NVIDIA",
    "startSsh": True,
    "startJupyter": True,
    "allowedCudaVersions": [],
}
OFFICIAL: dict[str, dict[str, t.Any]] = {
    "runpod-torch-v280": {
        **_DEFAULTS,
        "name": "Runpod Pytorch 2.8.0",
        "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        "ports": ["8888/http", "22/tcp"],
        "public": True,
    },
}
"""Templates that everybody may use; the real catalogue has many more."""
_COPIED = ("image", "disk", "ports", "registry")
_FLAGS = ("startSsh", "startJupyter")


def routes(service: flask.Flask, world: World, account: Account) -> None:
    def own(identity: str) -> dict[str, t.Any]:
        if identity not in account.templates:
            raise Problem(404, "template not found")
        return account.templates[identity]

    def form(identity: str) -> dict[str, t.Any]:
        template = find(account, identity)
        return {"id": identity, **template, **(parts(template["args"]) if account.exec_form else {})}

    def check(template: dict[str, t.Any]) -> None:
        if template["registry"] is not None and template["registry"] not in account.registries:
            raise Problem(404, "registry not found")

    @service.get("/v2/templates")
    def templates() -> t.Any:
        with world.lock:
            shown, pagination = page(account, list(account.templates), str)
            return flask.jsonify({"templates": [form(identity) for identity in shown], **pagination})

    @service.post("/v2/templates")
    def new_template() -> t.Any:
        request = bodies.body(bodies.CREATE_TEMPLATE, account.unknown_fields())
        template = _with({**_DEFAULTS}, request)
        check(template)
        with world.lock:
            identity = new_id(world)[:10]
            account.templates[identity] = template
            return flask.jsonify(form(identity)), 201

    @service.get("/v2/templates/<identity>")
    def one_template(identity: str) -> t.Any:
        return flask.jsonify(form(identity))

    @service.patch("/v2/templates/<identity>")
    def change_template(identity: str) -> t.Any:
        request = bodies.body(bodies.CHANGE_TEMPLATE, account.unknown_fields())
        with world.lock:
            template = _with(own(identity), request)
            check(template)
            account.templates[identity] = template
            return flask.jsonify(form(identity))

    @service.delete("/v2/templates/<identity>")
    def drop_template(identity: str) -> t.Any:
        with world.lock:
            own(identity)
            del account.templates[identity]
        return "", 204

    @service.get("/v2/catalog/templates")
    def public_templates() -> t.Any:
        source = flask.request.args.get("source", _SOURCES[0])
        if source not in _SOURCES:
            raise invalid(f"query.source: should be one of {', '.join(_SOURCES)}")
        return flask.jsonify({"templates": [form(identity) for identity in OFFICIAL] if source == _SOURCES[0] else []})


def find(account: Account, identity: str) -> dict[str, t.Any]:
    """A template of the account or a public one; 404 for any other."""
    template = account.templates.get(identity) or OFFICIAL.get(identity)
    if template is None:
        raise Problem(404, "template not found")
    return template


def _with(template: dict[str, t.Any], request: dict[str, t.Any]) -> dict[str, t.Any]:
    """The template after a request; ``mounts: {}`` changes nothing."""
    changes = {key: value for key, value in request.items() if key not in FIELDS and (key != "mounts" or value)}
    return {**template, **changes, "args": merged(template["args"], request)}


def spread(account: Account, request: dict[str, t.Any]) -> dict[str, t.Any]:
    """A body with the settings of the template it names, copied once: the body wins, variables are merged. The command is in ``args`` then,
    in whatever form it came."""
    if "templateId" not in request:
        return request
    template = _of_pods(account, request["templateId"])
    own = {key: value for key, value in request.items() if key not in (*FIELDS, "templateId")}
    env = {**template["env"], **request.get("env", {})}
    return {**{key: template[key] for key in _COPIED}, **own, "env": env, "args": merged(template["args"], request)}


def applied(account: Account, request: dict[str, t.Any]) -> dict[str, t.Any]:
    """The same for a new pod, which takes the mount, the flags and the CUDA versions as well, a CPU pod neither mount nor versions. Any CUDA
    field of the body replaces the template's."""
    found = spread(account, request)
    if "templateId" not in request:
        return {**{key: value for key, value in found.items() if key not in FIELDS}, "args": merged("", request)}
    template, gpu = _of_pods(account, request["templateId"]), request.get("gpu")
    if gpu is not None and "mounts" not in request:
        found["mounts"] = template["mounts"]
    if gpu is not None and not {"allowedCudaVersions", "minCudaVersion"} & set(gpu):
        found["gpu"] = {**gpu, "allowedCudaVersions": template["allowedCudaVersions"]}
    return {**{key: template[key] for key in _FLAGS}, **found}


def _of_pods(account: Account, identity: str) -> dict[str, t.Any]:
    template = find(account, identity)
    if template["serverless"]:
        raise invalid("$.templateId: is a serverless template")
    return template
