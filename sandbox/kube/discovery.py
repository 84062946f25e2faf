# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API says about itself."""

from __future__ import annotations

import typing as t

from .resources import Registry

Json = dict[str, t.Any]

_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
            "application/apply-patch+yaml")  # fmt: skip


def version(text: str) -> Json:
    major, minor, _patch = text.lstrip("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": text, "gitCommit": "0" * 40, "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none (emulator)", "compiler": "none", "platform": "linux/amd64"}  # fmt: skip


def core_versions(host: str) -> Json:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(registry: Registry) -> Json:
    groups = [group(registry, name) for name in registry.groups() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> Json:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in registry.groups()[name]]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: Registry, group_name: str, version_name: str) -> Json:
    entries: list[Json] = []
    for resource in registry.in_group(group_name, version_name):
        common = {"namespaced": resource.namespaced, "kind": resource.kind}
        entry: Json = {"name": resource.plural, "singularName": resource.kind.lower(), **common, "verbs": list(resource.verbs)}
        if resource.short:
            entry["shortNames"] = list(resource.short)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        subresources = (["status"] if resource.status else []) + list(resource.subresources)
        for sub in subresources:
            below: Json = {"name": f"{resource.plural}/{sub}", "singularName": "", **common, "verbs": ["get", "patch", "update"]}
            if sub == "eviction":
                below.update(group="policy", version="v1", kind="Eviction", verbs=["create"])
            elif sub == "scale":
                below.update(group="autoscaling", version="v1", kind="Scale")
            elif sub == "binding":
                below.update(kind="Binding", verbs=["create"])
            entries.append(below)
    version_text = f"{group_name}/{version_name}" if group_name else version_name
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_text, "resources": entries}


def openapi_index(registry: Registry) -> Json:
    paths = {}
    for name, versions in registry.groups().items():
        for version_name in versions:
            path = f"apis/{name}/{version_name}" if name else f"api/{version_name}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(registry: Registry, group_name: str, version_name: str) -> Json:
    """Just enough for clients that look up whether a kind's PATCH knows a query parameter; no schemas of built-in kinds."""
    base = f"/apis/{group_name}/{version_name}" if group_name else f"/api/{version_name}"
    parameters = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                  for name in ("dryRun", "fieldManager", "fieldValidation", "force")]  # fmt: skip
    paths: Json = {}
    for resource in registry.in_group(group_name, version_name):
        if not resource.stored:
            continue
        middle = "/namespaces/{namespace}" if resource.namespaced else ""
        kind = {"group": group_name, "version": version_name, "kind": resource.kind}
        operation = {
            "x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": kind, "parameters": parameters,
            "requestBody": {"content": {media: {"schema": {"type": "object"}} for media in _PATCHES}},
            "responses": {"200": {"description": "OK"}},
        }  # fmt: skip
        paths[f"{base}{middle}/{resource.plural}/{{name}}"] = {"patch": operation}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "emulator"},
        "paths": paths,
        "components": {"schemas": {}},
    }
