# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's REST API 2.0.0: which answers its description, its pages and current clients have. Of a pod every field is there."""

from __future__ import annotations

import re

from .shapes import EMPTY, IPV4, WHEN, Media, Rows, Table

LEVEL = {"NONE", "LOW", "MEDIUM", "HIGH"}
PLACE = re.compile(r"[A-Z]+(-[A-Z0-9]+)+")
CUDA = re.compile(r"\d+\.\d+")
PORT = re.compile(r"\d{1,5}/(tcp|http)")
GPU = {
    "id": str,
    "name": str,
    "pool": (str, None),
    "manufacturer": {"NVIDIA", "AMD", "UNKNOWN"},
    "memory": int,
    "secure": bool,
    "community": bool,
    "price": {"secure?": float, "community?": float, "serverless?": (float, None)},
    "maxCount": {"secure": int, "community": int},
    "availability?": LEVEL,
    "dataCenters?": [{"id": PLACE, "name": str, "availability?": LEVEL}],
    "cudaVersions?": [{"version": CUDA, "available": bool}],
}
CPU = {
    "id": str,
    "name": str,
    "group": str,
    "vcpu": object,
    "ramGbPerVcpu": float,
    "price": {"securePerVcpu": float, "serverlessPerVcpu": (float, None)},
}
DATA_CENTER = {
    "id": PLACE,
    "name": str,
    "region": {
        "NORTH_AMERICA",
        "SOUTH_AMERICA",
        "EUROPE",
        "ASIA",
        "MIDDLE_EAST",
        "AFRICA",
        "OCEANIA",
        "ANTARCTICA",
        "UNKNOWN",
    },
    "globalNetwork": bool,
    "networkVolumeTypes": [{"STANDARD", "HIGH_PERFORMANCE"}],
    "compliance": [str],
    "gpuAvailability?": [{"id": str, "name": str, "availability": LEVEL}],
}
LOGIN = {"host": str, "port": int, "username": str, "command": str}
RUNTIME = {
    "uptime": int,
    "gpus": [{"util": float, "memoryUtil": float}],
    "cpu": {"util": float},
    "memory": {"util": float},
    "ports": (None, [{"private": int, "public": (int, None), "type": {"tcp", "http"}, "ip": (IPV4, None)}]),
}
_POD = {
    "id": str,
    "name": str,
    "status": {"PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"},
    "actions": [{"start", "stop", "restart", "terminate"}],
    "image": str,
    "args": str,
    "entrypoint?": (None, [str]),
    "cmd?": (None, [str]),
    "disk": int,
    "mounts": {"persistent?": {"size": int, "path": str}, "network?": [{"volumeId": str, "path": str}]},
    "ports": [PORT],
    "env": {"*": str},
    "registry": (str, None),
    "cloud": {"SECURE", "COMMUNITY"},
    "dataCenterId": (PLACE, None),
    "cudaVersion": (CUDA, None),
    "ssh": {"proxy": LOGIN, "direct": (None, LOGIN)},
    "template": object,
    "cost": float,
    "locked": bool,
    "globalNetworking": {"enabled": bool, "ip?": IPV4, "internalDns?": str},
    "runtime": (None, RUNTIME),
    "createdAt": WHEN,
    "startedAt": (WHEN, None),
    "cluster?": object,
}
POD = (
    {**_POD, "gpu": {"id": str, "count": int, "memory?": float, "vcpuCount?": int}},
    {**_POD, "cpu": {"id": str, "vcpuCount": int, "memory?": float}},
)
PAGED = {"pagination?": {"hasNextPage": bool, "nextCursor": (str, None)}}
NAMED = {"id": str, "name": str}
VOLUME = {**NAMED, "size": int, "dataCenter": object, "type": {"STANDARD", "HIGH_PERFORMANCE"}}
TEMPLATE = {**NAMED, "image": str}
CLUSTER = {**NAMED, "type": {"TRAINING", "SLURM", "RAY", "APPLICATION"}}
AMOUNTS = {"totalAmount": float, "gpuAmount": float, "diskAmount": float}
PROBLEM = {"title": str, "status": int, "detail": str, "errors?": [str]}

ROWS: Rows = {
    "GET /v2/catalog/gpus": {200: {"gpus": [GPU]}},
    "GET /v2/catalog/gpus/{id}": {200: GPU},
    "GET /v2/catalog/cpus": {200: {"cpus": [CPU]}},
    "GET /v2/catalog/cpus/{id}": {200: CPU},
    "GET /v2/catalog/datacenters": {200: {"dataCenters": [DATA_CENTER]}},
    "GET /v2/catalog/datacenters/{id}": {200: DATA_CENTER},
    "GET /v2/pods": {200: {"pods": [POD], **PAGED}},
    "POST /v2/pods": {201: POD},
    "GET /v2/pods/{id}": {200: POD},
    "PATCH /v2/pods/{id}": {200: POD},
    "DELETE /v2/pods/{id}": {204: EMPTY},
    "POST /v2/pods/{id}/action": {200: POD, 204: EMPTY},
    "GET /v2/pods/{id}/logs": {200: (Media("text/event-stream"), EMPTY)},
    "GET /v2/account/ssh-keys": {200: {"keys": [str]}},
    "PUT /v2/account/ssh-keys": {200: {"keys": [str]}},
    "GET /v2/network-volumes": {200: {"networkVolumes": [VOLUME], **PAGED}},
    "POST /v2/network-volumes": {201: VOLUME},
    "GET /v2/network-volumes/{id}": {200: VOLUME},
    "PATCH /v2/network-volumes/{id}": {200: VOLUME},
    "DELETE /v2/network-volumes/{id}": {204: EMPTY},
    "GET /v2/registries": {200: {"registries": [NAMED], **PAGED}},
    "POST /v2/registries": {201: NAMED},
    "GET /v2/registries/{id}": {200: NAMED},
    "DELETE /v2/registries/{id}": {204: EMPTY},
    "GET /v2/templates": {200: {"templates": [TEMPLATE], **PAGED}},
    "POST /v2/templates": {201: TEMPLATE},
    "GET /v2/templates/{id}": {200: TEMPLATE},
    "PATCH /v2/templates/{id}": {200: TEMPLATE},
    "DELETE /v2/templates/{id}": {204: EMPTY},
    "GET /v2/clusters": {200: {"clusters": [CLUSTER], **PAGED}},
    "POST /v2/clusters": {201: CLUSTER},
    "GET /v2/clusters/{id}": {200: CLUSTER},
    "PATCH /v2/clusters/{id}": {200: CLUSTER},
    "DELETE /v2/clusters/{id}": {204: EMPTY},
    "GET /v2/clusters/{id}/pods": {200: {"pods": [POD], **PAGED}},
    "GET /v2/catalog/templates": {200: {"templates": [TEMPLATE], **PAGED}},
    "GET /v2/billing/pods": {200: {"records": [{**AMOUNTS, "podId": str, "cpuAmount": float}], "metadata": {}}},
    "GET /v2/billing/clusters": {200: {"records": [{**AMOUNTS, "clusterId": str, "networkingAmount": float}], "metadata": {}}},
    "GET /v2/openapi.json": {200: {"openapi": str, "info": {"title": str, "version": {"2.0.0"}}, "paths": {"*": {}}}},
    # until early 2027; what the caller did wrong is said with status 200
    "POST /graphql": {200: ({"data": ({}, None)}, {"errors": [{"message": str}]})},
}

RUNPOD = Table(
    "runpod",
    ROWS,
    dict.fromkeys((400, 401, 402, 403, 404, 405, 409, 410, 422, 429), PROBLEM),
    refusal_type="application/problem+json",
    headers=(("/v2/", "RateLimit"), ("/v2/", "RateLimit-Policy")),
)
