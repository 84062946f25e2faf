# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds the policy in force against what the pools need: what is wrong, with the lines to change, and what could not be seen."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import typing as t

from ...units.networks import Network, lies_in
from ..base import DeviceMesh, check_tags
from . import hujson
from .policy_requirements import PolicyWish


@dataclasses.dataclass
class PolicyReport:
    """``problems`` {subject, problem, remedy}; ``unseen``: sentences about what the credential or the server does not show; ``tried``: whether
    the server was asked what the policy lets through."""

    problems: list[dict[str, str]] = dataclasses.field(default_factory=list)
    unseen: list[str] = dataclasses.field(default_factory=list)
    tried: bool = False

    def add(self, subject: str, problem: str, remedy: str) -> None:
        self.problems.append({"subject": subject, "problem": problem, "remedy": remedy})


def report(mesh: DeviceMesh, wish: PolicyWish) -> PolicyReport:
    """Reads only. Raises an ApiError when the mesh cannot be read at all, InvalidInput for what is no tag."""
    check_tags(wish.tags)
    policy_report = PolicyReport()
    text = mesh.policy()
    if text is None:
        policy_report.unseen.append(
            "The policy: the credential needs the scopes policy_file:read, devices:core:read and devices:posture_attributes:read; a "
            "headscale without a policy has none and lets everything through."
        )
        return policy_report
    try:
        policy = hujson.loads(text)
    except ValueError as error:
        policy_report.add("policy", f"It is not HuJSON: {error}.", "Open it in the admin console, which points at the place.")
        return policy_report
    if not isinstance(policy, dict):
        policy_report.add("policy", "It is no object.", "Write it as { … }.")
        return policy_report
    _owners(policy_report, policy, mesh, wish)
    _routes(policy_report, policy, wish)
    _settings(policy_report, mesh)
    _connections(policy_report, mesh, wish)
    return policy_report


def _owners(policy_report: PolicyReport, policy: dict[str, t.Any], mesh: DeviceMesh, wish: PolicyWish) -> None:
    known = policy.get("tagOwners")
    owners: dict[str, t.Any] = known if isinstance(known, dict) else {}
    carried = mesh.carried_tags()
    client = sorted(carried)[0] if carried else wish.client_tag
    for tag in wish.tags:
        line = f'"{tag}": {json.dumps([] if tag == client else [client])}'
        if tag not in owners:
            policy_report.add(tag, "The policy does not define it.", f"Add to tagOwners: {line}")
        elif carried is not None and tag not in carried and not carried & set(owners[tag] or ()):
            held = ", ".join(sorted(carried)) or "no tag"
            policy_report.add(tag, f"The OAuth client carries {held}, which does not own it.", f"Change in tagOwners: {line}")


def _routes(policy_report: PolicyReport, policy: dict[str, t.Any], wish: PolicyWish) -> None:
    approvers = policy.get("autoApprovers")
    granted = approvers.get("routes") if isinstance(approvers, dict) else None
    for route in wish.routes:
        missing = [tag for tag in wish.tags if not _approved(route, tag, granted if isinstance(granted, dict) else {})]
        if missing:
            policy_report.add(
                route,
                f"Nobody approves this route of {', '.join(missing)}, so each machine's waits for a person.",
                f'Add to autoApprovers.routes: "{route}": {json.dumps(missing)}',
            )


def _approved(route: str, tag: str, granted: t.Mapping[str, t.Any]) -> bool:
    wanted = _network(route)
    for prefix, who in granted.items():
        net = _network(prefix)
        if wanted and net and lies_in(wanted, net) and tag in (who or ()):
            return True
    return False


def _network(text: str) -> Network | None:
    """None for what is no network, such as a name that the policy gives to several."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _settings(policy_report: PolicyReport, mesh: DeviceMesh) -> None:
    settings = mesh.settings()
    if settings and settings.get("aclsExternallyManagedOn"):
        link = settings.get("aclsExternalLink")
        policy_report.unseen.append(f"The policy is kept elsewhere ({link or 'see the admin console'}): change it there.")


def _connections(policy_report: PolicyReport, mesh: DeviceMesh, wish: PolicyWish) -> None:
    tests = wish.tests()
    if not tests:
        return
    failed = mesh.failed_policy_tests(tests)
    if failed is None:
        policy_report.unseen.append(
            "Whether the rules let machines and control planes reach each other: the server does not try it out."
        )
        return
    policy_report.tried = True
    for text in failed:
        policy_report.add("rules", text, "Add the acls of policy_snippet, or grants that say the same.")
