# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the policy of a tailnet has to say so that machines of the pools can be made and reach the cluster, and it them."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import typing as t

from ...units.values import Network, lies_in
from ..base import DeviceMesh, check_tags

JOIN = (6443, 50001)  # API server; trustd, without which a Talos node gets no certificate for its own API
SERVE = (10250, 50000)  # kubelet (logs, exec, metrics); Talos's API
POD_NETWORKS = {"flannel": 4789, "cilium": 8472, "kubespan": 51820, "none": 0}


"""UDP port between nodes, by what carries the pods' network. Talos's flannel uses 4789."""


@dataclasses.dataclass(frozen=True)
class PolicySpec:
    """``control_planes``: a tag, host or address as the policy writes it, "" = not said. ``join``: the ports machines need there."""

    tags: tuple[str, ...]
    control_planes: str = ""
    routes: tuple[str, ...] = ()
    pod_network: str = "flannel"
    client_tag: str = "tag:tgp"
    join: tuple[int, ...] = JOIN

    def tests(self) -> list[dict[str, t.Any]]:
        """The connections that must be possible, in the form of the policy's own tests."""
        if not self.control_planes:
            return []
        there = [f"{self.control_planes}:{port}" for port in self.join]
        tests: list[dict[str, t.Any]] = [{"src": tag, "accept": there} for tag in self.tags]
        if self.control_planes.startswith("tag:"):
            tests.append({"src": self.control_planes, "accept": [f"{tag}:{port}" for tag in self.tags for port in SERVE]})
        return tests

    def rules(self) -> list[dict[str, t.Any]]:
        """The access rules, in the form that Tailscale and every headscale read."""
        tags, rules = list(self.tags), []
        if self.control_planes:
            rules += [
                {"action": "accept", "proto": "tcp", "src": tags, "dst": [f"{self.control_planes}:{_ports(self.join)}"]},
                {
                    "action": "accept",
                    "proto": "tcp",
                    "src": [self.control_planes],
                    "dst": [f"{tag}:{_ports(SERVE)}" for tag in tags],
                },
            ]
        port = POD_NETWORKS[self.pod_network]
        if port:
            ends = [*tags, *([self.control_planes] if self.control_planes else [])]
            rules.append({"action": "accept", "proto": "udp", "src": ends, "dst": [f"{end}:{port}" for end in ends]})
        return rules

    def snippet(self) -> dict[str, t.Any]:
        """What to write into the policy, beside what is there."""
        policy: dict[str, t.Any] = {"tagOwners": owners(self.tags, self.client_tag), "acls": self.rules()}
        if self.routes:
            policy["autoApprovers"] = {"routes": {route: list(self.tags) for route in self.routes}}
        if self.tests():
            policy["tests"] = self.tests()
        return policy


def owners(tags: t.Sequence[str], client_tag: str = "tag:tgp") -> dict[str, list[str]]:
    """``tagOwners`` by which a client of ``client_tag`` may hand out ``tags``."""
    return {client_tag: [], **{tag: [client_tag] for tag in tags if tag != client_tag}}


def line_of_owners(tags: t.Sequence[str]) -> str:
    """The same as one line to be copied."""
    return f'"tagOwners": {json.dumps(owners(tags))}'


def _ports(ports: t.Iterable[int]) -> str:
    return ",".join(map(str, ports))


# ---- reads HuJSON: JSON with comments and trailing commas, the form of tailnet policies


def loads(text: str) -> t.Any:
    """The value of a HuJSON text. ValueError when it is none."""
    kept: list[str] = []
    at, end = 0, len(text)
    while at < end:
        character = text[at]
        if character == '"':
            stop = _string_end(text, at)
            kept.append(text[at:stop])
            at = stop
        elif text.startswith("//", at):
            at = _after(text, "\n", at, end)
            kept.append("\n")
        elif text.startswith("/*", at):
            at = _after(text, "*/", at + 2, None)
            kept.append(" ")
        else:
            if character in "]}":
                _drop_comma(kept)
            kept.append(character)
            at += 1
    return json.loads("".join(kept))


def _string_end(text: str, start: int) -> int:
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == '"':
            return at + 1
        else:
            at += 1
    raise ValueError(f"the string that begins at character {start} does not end")


def _after(text: str, mark: str, start: int, default: int | None) -> int:
    position = text.find(mark, start)
    if position >= 0:
        return position + len(mark)
    if default is None:
        raise ValueError(f"the comment that begins at character {start - 2} does not end")
    return default


def _drop_comma(kept: list[str]) -> None:
    """Remove a comma that only white space separates from the closing bracket."""
    for index in range(len(kept) - 1, -1, -1):
        if kept[index] == ",":
            del kept[index]
            return
        if kept[index].strip():
            return


# ---- holds the policy in force against what the pools need: what is wrong, with the lines to change, and what could not be seen


@dataclasses.dataclass
class PolicyReport:
    """``problems`` {subject, problem, remedy}; ``unseen``: sentences about what the credential or the server does not show; ``tried``: whether
    the server was asked what the policy lets through."""

    problems: list[dict[str, str]] = dataclasses.field(default_factory=list)
    unseen: list[str] = dataclasses.field(default_factory=list)
    tried: bool = False

    def add(self, subject: str, problem: str, remedy: str) -> None:
        self.problems.append({"subject": subject, "problem": problem, "remedy": remedy})


def report(mesh: DeviceMesh, spec: PolicySpec) -> PolicyReport:
    """Reads only. Raises an ApiError when the mesh cannot be read at all, InvalidInput for a name that is not a tag."""
    check_tags(spec.tags)
    policy_report = PolicyReport()
    text = mesh.policy()
    if text is None:
        policy_report.unseen.append(
            "The policy: the credential needs the scopes policy_file:read, devices:core:read and devices:posture_attributes:read; a "
            "headscale without a policy has none and lets everything through."
        )
        return policy_report
    try:
        policy = loads(text)
    except ValueError as error:
        policy_report.add("policy", f"It is not HuJSON: {error}.", "Open it in the admin console, which points at the place.")
        return policy_report
    if not isinstance(policy, dict):
        policy_report.add("policy", "It is not an object.", "Write it as { … }.")
        return policy_report
    _owners(policy_report, policy, mesh, spec)
    _routes(policy_report, policy, spec)
    _settings(policy_report, mesh)
    _connections(policy_report, mesh, spec)
    return policy_report


def _owners(policy_report: PolicyReport, policy: dict[str, t.Any], mesh: DeviceMesh, spec: PolicySpec) -> None:
    given = policy.get("tagOwners")
    owners: dict[str, t.Any] = given if isinstance(given, dict) else {}
    carried = mesh.carried_tags()
    client = sorted(carried)[0] if carried else spec.client_tag
    for tag in spec.tags:
        line = f'"{tag}": {json.dumps([] if tag == client else [client])}'
        if tag not in owners:
            policy_report.add(tag, "The policy does not define it.", f"Add to tagOwners: {line}")
        elif carried is not None and tag not in carried and not carried & set(owners[tag] or ()):
            held = ", ".join(sorted(carried)) or "no tag"
            policy_report.add(tag, f"The OAuth client carries {held}, which does not own it.", f"Change in tagOwners: {line}")


def _routes(policy_report: PolicyReport, policy: dict[str, t.Any], spec: PolicySpec) -> None:
    approvers = policy.get("autoApprovers")
    granted = approvers.get("routes") if isinstance(approvers, dict) else None
    for route in spec.routes:
        missing = [tag for tag in spec.tags if not _approved(route, tag, granted if isinstance(granted, dict) else {})]
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
    """None for what is not a network, such as a name that the policy gives to several."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _settings(policy_report: PolicyReport, mesh: DeviceMesh) -> None:
    settings = mesh.settings()
    if settings and settings.get("aclsExternallyManagedOn"):
        link = settings.get("aclsExternalLink")
        policy_report.unseen.append(f"The policy is kept elsewhere ({link or 'see the admin console'}): change it there.")


def _connections(policy_report: PolicyReport, mesh: DeviceMesh, spec: PolicySpec) -> None:
    tests = spec.tests()
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
