# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda Cloud's API 1.10.0: which answers its OpenAPI document and the recorded ones have. Fields that are not known yet are absent,
never null."""

from __future__ import annotations

import re

from .shapes import EMPTY, IPV4, WHEN, Media, Rows, Table

ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REGION = {"name": str, "description": str}
TYPE = {
    "name": str,
    "description": str,
    "gpu_description": str,
    "price_cents_per_hour": int,
    "specs": {"vcpus": int, "memory_gib": int, "storage_gib": int, "gpus": int},
}
REASONS = {"vm-has-not-launched", "vm-is-too-old", "vm-is-terminating", "vm-action-in-progress"}
ACTION = {"available": bool, "reason_code?": REASONS, "reason_description?": str}
ACTIONS = {name: ACTION for name in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")}
INSTANCE = {
    "id": ID,
    "status": {"booting", "active", "unhealthy", "terminating", "terminated", "preempted"},
    "ssh_key_names": [str],
    "file_system_names": [str],
    "region": REGION,
    "instance_type": TYPE,
    "actions": ACTIONS,
    "name?": str,
    "ip?": IPV4,
    "private_ip?": IPV4,
    "hostname?": str,
    "file_system_mounts?": [{"mount_point": str, "file_system_id": str}],
    "jupyter_token?": str,
    "jupyter_url?": str,
    "tags?": [{"key": re.compile(r"[a-z][a-z0-9-:]+"), "value": str}],
    "firewall_rulesets?": [{"id": str}],
    "is_reserved?": bool,
}
IMAGE = {
    "id": ID,
    "created_time": WHEN,
    "updated_time": WHEN,
    "name": str,
    "description": str,
    "family": str,
    "version": str,
    "architecture": {"x86_64", "arm64"},
    "region": REGION,
}
KEY = {"id": str, "name": str, "public_key": str}
FILE_SYSTEM = {
    "id": str,
    "name": str,
    "mount_point": str,
    "created": WHEN,
    "created_by": {"id": str, "email": str, "status": str},
    "is_in_use": bool,
    "region": REGION,
    "bytes_used?": int,
}
RULE = {
    "protocol": {"tcp", "udp", "icmp", "all"},
    "port_range?": [int],
    "source_network": re.compile(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}"),
    "description": str,
}
GLOBAL = {"id": str, "name": str, "rules": [RULE]}
RULESET = {**GLOBAL, "region": REGION, "created": WHEN, "instance_ids": [str]}
EVENT = {
    "event_id": str,
    "event_time": WHEN,
    "action": str,
    "resource_name": (str, None),
    "service_name": str,
    "resource_lrns": [str],
    "actor_lrn": (str, None),
    "request_api_key_lrn": (str, None),
    "additional_details": (None, {}),
}
ERROR = {"error": {"code": re.compile(r"[a-z-]+(/[a-z-]+)+"), "message": str, "suggestion?": str}}

ROWS: Rows = {
    "GET /api/v1/instance-types": {
        200: {"data": {"*": {"instance_type": TYPE, "regions_with_capacity_available": [REGION]}}},
    },
    "GET /api/v1/regions": {200: {"data": [REGION]}},
    "GET /api/v1/images": {200: {"data": [IMAGE]}},
    "POST /api/v1/instance-operations/launch": {
        200: {"data": {"instance_ids": [ID]}},
        404: {"error": {"code": {"global/object-does-not-exist"}, "message": str, "suggestion": str}},
    },
    "POST /api/v1/instance-operations/restart": {200: {"data": {"restarted_instances": [INSTANCE]}}},
    "POST /api/v1/instance-operations/terminate": {200: {"data": {"terminated_instances": [INSTANCE]}}},
    "GET /api/v1/instances": {200: {"data": [INSTANCE]}},
    "GET /api/v1/instances/{id}": {200: {"data": INSTANCE}},
    "POST /api/v1/instances/{id}": {200: {"data": INSTANCE}},
    "GET /api/v1/ssh-keys": {200: {"data": [KEY]}},
    "POST /api/v1/ssh-keys": {200: {"data": {**KEY, "private_key?": str}}},
    "DELETE /api/v1/ssh-keys/{id}": {
        200: {"data": {}},
        404: {"error": {"code": {"global/not-found"}, "message": str, "suggestion?": str}},
    },
    "GET /api/v1/file-systems": {200: {"data": [FILE_SYSTEM]}},
    "POST /api/v1/filesystems": {200: {"data": FILE_SYSTEM}},
    "DELETE /api/v1/filesystems/{id}": {200: {"data": {"deleted_ids": [str]}}},
    "GET /api/v1/firewall-rules": {200: {"data": [RULE]}},
    "PUT /api/v1/firewall-rules": {200: {"data": [RULE]}},
    "GET /api/v1/firewall-rulesets": {200: {"data": [RULESET]}},
    "POST /api/v1/firewall-rulesets": {200: {"data": RULESET}},
    "GET /api/v1/firewall-rulesets/global": {200: {"data": GLOBAL}},
    "PATCH /api/v1/firewall-rulesets/global": {200: {"data": GLOBAL}},
    "GET /api/v1/firewall-rulesets/{id}": {200: {"data": RULESET}},
    "PATCH /api/v1/firewall-rulesets/{id}": {200: {"data": RULESET}},
    "DELETE /api/v1/firewall-rulesets/{id}": {200: {"data": {}}},
    "GET /api/v1/audit-events": {200: {"data": [EVENT], "page_token?": (str, None)}},
}

LAMBDA = Table(
    "lambda",
    ROWS,
    {
        **dict.fromkeys((400, 401, 403, 404, 409), ERROR),
        429: (ERROR, Media("text/plain"), EMPTY),
    },  # the body of a 429 is undocumented
)
