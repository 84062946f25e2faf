# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One class and one pool, as the benchmarks rent by them."""

from __future__ import annotations

import typing as t

from sandbox.running import ROOT


def class_and_pool(provider: dict[str, t.Any], nodes: int) -> list[dict[str, t.Any]]:
    """The documents for ``nodes`` machines of this one provider."""
    node_class = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "bench"},
        "spec": {
            "providers": [provider],
            "talosConfig": {"machineConfigTemplateFile": str(ROOT / "examples" / "templates" / "worker.yaml")},
            "tailscaleConfig": {"tags": ["tag:gpu"]},
            "limits": {"maxNodes": nodes, "maxHourlyCost": "1000"},
        },
    }
    pool = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodePool",
        "metadata": {"name": "bench", "namespace": "default"},
        "spec": {"nodeClassRef": {"name": "bench"}},
    }
    return [node_class, pool]
