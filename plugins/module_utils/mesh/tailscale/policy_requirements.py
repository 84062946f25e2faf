# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the policy of a tailnet has to say so that machines of the pools can be made and reach the cluster, and it them."""

from __future__ import annotations

import dataclasses
import json
import typing as t

JOIN = (6443, 50001)  # API server; trustd, without which a Talos node gets no certificate for its own API
SERVE = (10250, 50000)  # kubelet (logs, exec, metrics); Talos's API
POD_NETWORKS = {"flannel": 4789, "cilium": 8472, "kubespan": 51820, "none": 0}
"""UDP port between nodes, by what carries the pods' network. Talos's flannel uses 4789."""


@dataclasses.dataclass(frozen=True)
class PolicyWish:
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
