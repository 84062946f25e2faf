# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy file and the settings of the tailnet in the Tailscale API."""

from __future__ import annotations

import base64
import json
import typing as t

import flask

from .tailnet_policy import Policy, PolicyError, parse, without_comments
from .tailscale_access import Endpoints, Refused, Route

_ROLES = ("none", "admin", "member")
_KEY_DAYS = range(1, 181)


class PolicyAndSettings(Endpoints):
    """Everything below /acl and /settings."""

    def routes(self) -> t.Iterator[Route]:
        yield "GET", "/tailnet/<tailnet>/acl", self.acl
        yield "POST", "/tailnet/<tailnet>/acl", self.set_acl
        yield "POST", "/tailnet/<tailnet>/acl/validate", self.validate
        yield "GET", "/tailnet/<tailnet>/settings", self.settings
        yield "PATCH", "/tailnet/<tailnet>/settings", self.change_settings

    def _may_read_policy(self) -> None:
        also = () if self.headscale else ("devices:core:read", "devices:posture_attributes:read")
        self.actor("policy_file:read", *also)

    def acl(self) -> t.Any:
        self._may_read_policy()
        policy = self.tailnet.policy
        accept = flask.request.headers.get("accept", "")
        if flask.request.args.get("details") == "true" and not self.headscale:
            encoded = base64.b64encode(policy.text.encode()).decode()
            return {"acl": encoded, "warnings": [], "errors": None}
        if self.headscale:
            text, kind = without_comments(policy.text), "application/json"
        elif "application/json" in accept:
            text, kind = json.dumps(policy.content), "application/json"
        else:
            text, kind = policy.text, "application/hujson"
        return flask.Response(text, content_type=kind, headers={"ETag": policy.etag})

    def set_acl(self) -> t.Any:
        self.actor("policy_file")
        wanted = flask.request.headers.get("if-match", "")
        if wanted and wanted not in (self.tailnet.policy.etag, '"ts-default"'):
            raise Refused(412, "precondition failed, invalid old hash")
        try:
            self.tailnet.policy = Policy(flask.request.get_data(as_text=True))
        except PolicyError as error:
            raise Refused(400, f"cannot parse policy: {error}") from error
        return self.acl()

    def validate(self) -> t.Any:
        self.saas_only()
        self._may_read_policy()
        text = flask.request.get_data(as_text=True)
        try:
            body = parse(text)
            policy = self.tailnet.policy if isinstance(body, list) else Policy(text)
        except PolicyError as error:
            raise Refused(400, f"cannot parse policy: {error}") from error
        tests = body if isinstance(body, list) else policy.content.get("tests") or []
        if unknown := policy.undefined_tags():
            return {"message": f'tag not found: "{unknown[0]}"'}
        devices = self.tailnet.devices()
        if failed := policy.failures(tests, lambda address: next((one.tags for one in devices if address == one.ipv4), ())):
            return {"message": "test(s) failed", "data": failed}
        return {}

    def settings(self) -> t.Any:
        self.actor("feature_settings:read")
        return dict(self.tailnet.settings)

    def change_settings(self) -> t.Any:
        self.actor("feature_settings")
        if self.headscale:
            raise Refused(501, "the sandbox has no such endpoint")
        wanted, known = self.body(), self.tailnet.settings
        for name, value in wanted.items():
            if name not in known or type(value) is not type(known[name]):
                raise Refused(400, f"invalid setting {name}")
        if wanted.get("usersRoleAllowedToJoinExternalTailnets", "none") not in _ROLES:
            raise Refused(400, "invalid setting usersRoleAllowedToJoinExternalTailnets")
        if wanted.get("devicesKeyDurationDays", 1) not in _KEY_DAYS:
            raise Refused(400, "invalid setting devicesKeyDurationDays")
        known.update(wanted)
        return dict(known)
