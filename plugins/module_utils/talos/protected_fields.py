# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a node ours, and which no patch may change: who it is, with what secrets it joins, and how it is told from others."""

from __future__ import annotations

import copy
import typing as t

from ..model import Taint
from ..model.labels import PREFIX
from ..model.wireguard import Tunnel
from .documents import Document, at, fields_at, items_at, machine_document, of_kind
from .wireguard import held_of

_FIELDS = (
    "machine.type", "machine.token", "machine.ca", "cluster.token", "cluster.ca", "cluster.id", "cluster.secret",
    "cluster.controlPlane.endpoint", "machine.network.hostname",
)  # fmt: skip
_MESH = ("TS_AUTHKEY", "TS_HOSTNAME", "TS_AUTH_ONCE")


def held(documents: t.Sequence[Document], taints: t.Sequence[Taint], tunnel: Tunnel | None = None) -> dict[str, t.Any]:
    """Field → value of all that must stay as it is; ``taints`` are those with which the node must register."""
    config = machine_document(documents)
    found: dict[str, t.Any] = {path: copy.deepcopy(at(config, path)) for path in _FIELDS}
    for key, value in fields_at(config, "machine.nodeLabels").items():
        if key.startswith(PREFIX):
            found[f"machine.nodeLabels.{key}"] = value
    host = of_kind(documents, "HostnameConfig")
    found["HostnameConfig.hostname"] = at(host, "hostname")
    service = of_kind(documents, "ExtensionServiceConfig", "tailscale")
    environment = dict(str(entry).partition("=")[::2] for entry in items_at(service, "environment"))
    found |= {f"ExtensionServiceConfig tailscale: {name}": environment.get(name) for name in _MESH}
    registered = [
        (one.get("key"), one.get("value", ""), one.get("effect"))
        for one in items_at(config, "machine.kubelet.extraConfig.registerWithTaints")
        if isinstance(one, dict)
    ]
    for taint in taints:
        where = f"machine.kubelet.extraConfig.registerWithTaints: {taint.key}"
        found[where] = (taint.key, taint.value, taint.effect) in registered
    return found if tunnel is None else found | copy.deepcopy(held_of(documents, config, tunnel))


def changed(before: t.Mapping[str, t.Any], after: t.Mapping[str, t.Any]) -> list[str]:
    """A sentence for each field that is no longer what it was. No values: some are secrets."""
    return [
        f"{field}: a patch may not change this; it makes the node what the documents say it is."
        for field in {**before, **after}
        if before.get(field) != after.get(field)
    ]
