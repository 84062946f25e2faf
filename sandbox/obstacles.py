# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands between one machine and its cluster: a small disk, a wrong clock, a closed port, a stranger's certificate, another kubelet.

The words are those of the bootstrap program (lane kubelet) and of Talos.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import timedelta
from urllib.parse import urlsplit

from .life import Life
from .payload import Intent, Refused, kubelet_may_set

if t.TYPE_CHECKING:
    from .cluster import Cluster

TRUSTD = 50001
_YOUNGEST = timedelta(days=30)  # the age of the certificates that machines are shown
_WANTED = 20  # GiB that have to be free
_DIALS = "https://controlplane.tailscale.com/key?v=130"


class Obstacles(Life):
    """One power-on with obstacles in its way."""

    def _bent(self, intent: Intent) -> Intent:
        """The configuration as this machine's image makes it."""
        if "other_kubelet" in self._parts:
            intent = dataclasses.replace(intent, kubelet_version=self._parts["other_kubelet"].version)
        if "own_label" in self._parts:
            label = self._parts["own_label"].label
            intent = dataclasses.replace(intent, labels={**intent.labels, label: "true"})
        return intent

    def _own_label(self, intent: Intent) -> None:
        """A kubelet that is told to give itself a label it may not does not start, after everything before it went well."""
        label = self._parts["own_label"].label if "own_label" in self._parts else ""
        if label and intent.labels_at_registration and not kubelet_may_set(label):
            raise Refused("kubelet", f"kubelet: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{label}]")

    def _disk(self, intent: Intent) -> None:
        gib = self._parts["disk_too_small"].gib if "disk_too_small" in self._parts else _WANTED
        if gib >= _WANTED:
            return
        if intent.lane == "talos":
            raise Refused("install", f"volume EPHEMERAL: not enough disk space: {gib} GiB")
        raise Refused("preflight", f"{gib} GiB free on the root disk, {_WANTED} wanted")

    def _too_early(self) -> str:
        """What TLS says on a machine whose clock is far behind; empty when it is not."""
        behind = timedelta(seconds=self._parts["clock_skew"].seconds) if "clock_skew" in self._parts else timedelta()
        if behind < _YOUNGEST:
            return ""
        now = self._world.clock.now()
        times = f"current time {now - behind:%Y-%m-%dT%H:%M:%SZ} is before {now - _YOUNGEST:%Y-%m-%dT%H:%M:%SZ}"
        return f"tls: failed to verify certificate: x509: certificate has expired or is not yet valid: {times}"

    def _clock_of_the_mesh(self) -> None:
        if early := self._too_early():
            raise Refused("mesh", f'tailscale up: fetch control key: Get "{_DIALS}": {early}')

    def _way_to_the_api(self, intent: Intent) -> None:
        """The first connection to the API server: the route, then the certificate, then its time."""
        place = urlsplit(intent.server)
        host = f"{place.hostname}:{place.port or 443}"
        talos = intent.lane == "talos"
        if "blocked" in self._parts and self._parts["blocked"].port != TRUSTD:
            if talos:
                raise Refused("csr", f"kubelet: dial tcp {host}: i/o timeout")
            grant = f"its machine is in the tailnet, so a grant for tcp:{place.port or 443} is missing or nothing listens there"
            raise Refused("api", f"the API server {host} cannot be reached: {grant}")
        early = self._too_early()
        if not early and "wrong_ca" not in self._parts:
            return
        if talos:
            raise Refused(
                "csr", f"kubelet: {early or 'tls: failed to verify certificate: x509: certificate signed by unknown authority'}"
            )
        problem = "certificate is not yet valid" if early else "unable to get local issuer certificate"
        said = f"curl: (60) SSL certificate problem: {problem}"
        raise Refused("api", f"the certificate of {host} is not of the cluster's CA, or this machine's clock is wrong: {said}")

    def _way_to_trustd(self, intent: Intent) -> str:
        """Why the Talos API's certificate cannot even be asked for; empty when it can."""
        if "blocked" not in self._parts or self._parts["blocked"].port != TRUSTD:
            return ""
        host = urlsplit(intent.server).hostname
        return f'rpc error: code = Unavailable desc = connection error: desc = "transport: dial tcp {host}:{TRUSTD}: i/o timeout"'

    def _starts(self, cluster: Cluster, intent: Intent) -> bool:
        """Whether the kubelet works on after it registered: one that is newer than its API server does not."""
        if "other_kubelet" not in self._parts:
            return True
        server = str(cluster.admin().call("GET", "/version").get("gitVersion") or "")
        return _minor(intent.kubelet_version) <= _minor(server)


def _minor(version: str) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
