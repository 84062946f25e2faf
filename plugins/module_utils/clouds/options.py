# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options by which a module is told where clouds are and who is asking (documentation fragments lambda_cloud and webhook)."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import env_fallback

from ..task import Task

ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "lambda_api_url": ("LAMBDA_API_URL",),
    "lambda_api_key": ("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY"),
    "webhook_url": ("WEBHOOK_URL",),
    "webhook_auth_header": ("WEBHOOK_AUTH_HEADER",),
    "webhook_auth_value": ("WEBHOOK_AUTH_VALUE",),
    "webhook_signing_secret": ("WEBHOOK_SIGNING_SECRET",),
    "webhook_payload": ("WEBHOOK_PAYLOAD",),
}


def _text(name: str, **more: t.Any) -> dict[str, t.Any]:
    return {"type": "str", "fallback": (env_fallback, list(ENVIRONMENT[name])), **more}


LAMBDA_SPEC: dict[str, t.Any] = {
    "lambda_api_url": _text("lambda_api_url"),
    "lambda_api_key": _text("lambda_api_key", no_log=True),
}
WEBHOOK_SPEC: dict[str, t.Any] = {
    "webhook_url": _text("webhook_url"),
    "webhook_machines": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "gpu_count": {"type": "int", "required": True},
            "scale_up_endpoint": {"type": "str", "required": True},
            "scale_down_endpoint": {"type": "str", "required": True},
            "status_endpoint": {"type": "str"},
            "gpu_type": {"type": "str"},
            "gpu_memory_mib": {"type": "int"},
            "node_name": {"type": "str"},
            "hourly_cost": {"type": "str"},
            "region": {"type": "str"},
        },
    },
    "webhook_auth_header": _text("webhook_auth_header"),
    "webhook_auth_value": _text("webhook_auth_value", no_log=True),
    "webhook_signing_secret": _text("webhook_signing_secret", no_log=True),
    "webhook_payload": _text("webhook_payload", choices=["none", "body"]),
    "webhook_timeout": {"type": "float", "default": 5.0},
}
CLOUDS_SPEC: dict[str, t.Any] = {**LAMBDA_SPEC, **WEBHOOK_SPEC}


def option(task: Task, name: str) -> str | None:
    """An option's value, else that of its environment variables (callers outside a module have no fallback of their own)."""
    value = task.params.get(name)
    if value:
        return str(value)
    return next((found for variable in ENVIRONMENT[name] if (found := os.environ.get(variable))), None)
