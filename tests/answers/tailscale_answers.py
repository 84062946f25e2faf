# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tailscale's API, version 2: which answers its description, its official client and measurements have. What is empty or unknown is
absent, never null."""

from __future__ import annotations

import re

from .shapes import EMPTY, WHEN, Media, Rows, Table

ADDRESS = re.compile(r"100\.\d+\.\d+\.\d+|fd7a:115c:a1e0:[0-9a-f:]+")
TAG = re.compile(r"tag:[A-Za-z][A-Za-z0-9-]*")
MOMENT = re.compile(rf"({WHEN.pattern})?")  # of a device that is shared in, "" is all there is
DEVICE = {
    "id": re.compile(r"\d+"),
    "nodeId": re.compile(r"n[A-Za-z0-9]+CNTRL"),
    "hostname": str,
    "name": str,
    "addresses": [ADDRESS],
    "user": str,
    "os": str,
    "clientVersion": str,
    "created": MOMENT,
    "machineKey": str,
    "authorized": bool,
    "isExternal": bool,
    "connectedToControl?": bool,
    "lastSeen?": WHEN,
    "tags?": [TAG],
    "nodeKey?": str,
    "keyExpiryDisabled?": bool,
    "expires?": WHEN,
    "isEphemeral?": bool,
    "multipleConnections?": bool,
    "updateAvailable?": bool,
    "blocksIncomingConnections?": bool,
    "tailnetLockError?": str,
    "tailnetLockKey?": str,
    "oauthClientId?": str,
    # with fields=all
    "advertisedRoutes?": [str],
    "enabledRoutes?": [str],
    "clientConnectivity?": {"endpoints": [str], "latency?": {}, "clientSupports": {}, "mappingVariesByDestIP?": (bool, None)},
    "distro?": {},
    "sshEnabled?": bool,
    "postureIdentity?": {},
}
CAPABILITIES = {"devices": {"create": {"reusable": bool, "ephemeral": bool, "preauthorized": bool, "tags?": [TAG]}}}
_KEY = {
    "id": str,
    "description?": str,
    "expirySeconds?": int,
    "created": WHEN,
    "updated?": WHEN,
    "expires?": WHEN,
    "revoked?": WHEN,
    "userId?": str,
    "scopes?": [str],
    "tags?": [TAG],
}
AUTH_KEY = {**_KEY, "keyType": {"auth"}, "expires": WHEN, "invalid": bool, "capabilities": CAPABILITIES}
KEY = (AUTH_KEY, {**_KEY, "keyType": {"api", "client", "federated"}, "invalid?": bool})
MADE = (
    {**AUTH_KEY, "key": re.compile(r"tskey-auth-[A-Za-z0-9]+-\S+"), "expirySeconds": int},
    {**_KEY, "keyType": {"client"}, "key": re.compile(r"tskey-client-\S+")},
)
ROUTES = {"advertisedRoutes": [str], "enabledRoutes": [str]}
SETTINGS = {"devicesApprovalOn": bool, "devicesKeyDurationDays": int}
DONE = (EMPTY, {})
POLICY = (Media("application/hujson"), {})
TESTED = {"message?": str, "data?": [{"user": str, "errors?": [str], "warnings?": [str]}]}
ERROR = {"message": str, "data?": [{}]}
OAUTH_ERROR = {"error": str, "error_description?": str}

ROWS: Rows = {
    "POST /api/v2/oauth/token": {
        200: {"access_token": str, "token_type": {"Bearer"}, "expires_in": int, "scope": str},
        400: (ERROR, OAUTH_ERROR),
    },
    "GET /api/v2/tailnet/{tailnet}/keys": {200: {"keys": [(*KEY, {"id": str})]}},
    "POST /api/v2/tailnet/{tailnet}/keys": {200: MADE},
    "GET /api/v2/tailnet/{tailnet}/keys/{id}": {200: KEY},
    "DELETE /api/v2/tailnet/{tailnet}/keys/{id}": {200: DONE},
    "GET /api/v2/tailnet/{tailnet}/devices": {200: {"devices": [DEVICE]}},
    "GET /api/v2/device/{id}": {200: DEVICE},
    "DELETE /api/v2/device/{id}": {200: DONE},
    **{f"POST /api/v2/device/{{id}}/{what}": {200: DONE} for what in ("authorized", "tags", "key", "expire", "name", "ip")},
    "GET /api/v2/device/{id}/routes": {200: ROUTES},
    "POST /api/v2/device/{id}/routes": {200: ROUTES},
    "GET /api/v2/tailnet/{tailnet}/acl": {200: (*POLICY, {"acl": str, "warnings": [str], "errors": object})},
    "POST /api/v2/tailnet/{tailnet}/acl": {200: POLICY},
    "POST /api/v2/tailnet/{tailnet}/acl/validate": {200: TESTED},
    "GET /api/v2/tailnet/{tailnet}/settings": {200: SETTINGS},
    "PATCH /api/v2/tailnet/{tailnet}/settings": {200: SETTINGS},
}

TAILSCALE = Table(
    "tailscale",
    ROWS,
    dict.fromkeys((400, 401, 402, 403, 404, 412, 429, 500, 501, 504), ERROR),
    headers=(("/api/v2/", "x-tailscale-request-id"),),
)
