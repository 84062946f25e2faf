# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class and the pool by which the benchmarks rent, and the worlds in which they do."""

from __future__ import annotations

import typing as t

from sandbox.running import ROOT

RENTED: dict[str, t.Any] = {"name": "lambda", "settings": {"sshKey": "tgp"}}
"""A provider that rents."""
QUICK = {"packages": 0, "mesh": 2, "csr": 1, "ready": 1, "gpu": 1}
"""Seconds of each step of a machine that is up, where the boot is what takes time."""


def own(count: int) -> dict[str, t.Any]:
    """A provider of so many own machines."""
    machines = [
        {
            "name": f"own-{number}",
            "gpuCount": 1,
            "gpuType": "RTX3090",
            "scaleUpEndpoint": f"/own-{number}/start",
            "scaleDownEndpoint": f"/own-{number}/stop",
            "statusEndpoint": f"/own-{number}/status",
        }
        for number in range(count)
    ]
    return {"name": "webhook", "settings": {"payload": "body"}, "machines": machines}


def own_world(count: int, boot: float) -> dict[str, t.Any]:
    """The scenario of so many own machines that boot in ``boot`` seconds."""
    entry = {"gpus": 1, "model": "RTX3090", "memory_gib": 24, "boot": boot}
    return {"machines": [{"name": f"own-{number}", **entry} for number in range(count)], "timings": QUICK}


def rented_world(count: int, **more: t.Any) -> dict[str, t.Any]:
    """The scenario of a cloud that has so many machines of one kind."""
    return {"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": count}], **more}


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
