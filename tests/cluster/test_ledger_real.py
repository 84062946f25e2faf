# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What closing a thousand machines costs a real API server and its etcd."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line
from ansible_collections.tgp.gpu.plugins.module_utils.store.configmap import ConfigMapStore

from tests.unit.fleet.build import NOON, at, claim

from .plane import Plane

pytestmark = pytest.mark.cluster
CLOSINGS = 1000


class Meter:
    """Counters of the API server and of etcd; ``since()`` says by how much they grew."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        api, etcd = self._plane.http.get("/metrics").text, httpx.get(f"{self._plane.etcd}/metrics").text
        writes = re.findall(
            r'^apiserver_request_total\{[^}]*resource="configmaps"[^}]*verb="(?:POST|PATCH|PUT)"[^}]*\} (\S+)$', api, re.M
        )
        return {
            "writes": sum(map(float, writes)),
            "etcd": float(re.findall(r"^etcd_mvcc_db_total_size_in_bytes (\S+)$", etcd, re.M)[0]),
            "sent": float(re.findall(r"^etcd_network_client_grpc_received_bytes_total (\S+)$", etcd, re.M)[0]),
        }

    def since(self) -> dict[str, float]:
        return {name: value - self._before[name] for name, value in self._read().items()}


def closing(number: int) -> dict[str, t.Any]:
    """The line of a machine that was idle, as a teardown writes it."""
    one = claim(f"tgp-a1b2c3d4-training-{number:05d}", deletion=Deletion("Empty", at("11:50"), started=at("11:51")))
    return ledger_line(dataclasses.replace(one, price_paid=one.reserved_price), end=NOON)


def test_L16_a_thousand_closings_on_a_real_control_plane(plane: Plane, kube: Kube) -> None:
    """Writes and growth as a real etcd counts them: one call for a closing, in parts of a size that stay cheap."""
    store, meter = ConfigMapStore(kube), Meter(plane)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(store.ledger, map(closing, range(CLOSINGS))))
    found = meter.since()
    sent, grown = found["sent"] / 1e6, found["etcd"] / 1e6
    print(f"{CLOSINGS} closings: {found['writes']:.0f} writes, {sent:.1f} MB sent to etcd, which grew by {grown:.1f} MB")
    assert len(ConfigMapStore(kube).ledger_lines()) >= CLOSINGS
    assert CLOSINGS <= found["writes"] <= CLOSINGS * 1.1, "one call for a line; what other tests of this plane write is little"
    assert sent < 50 and grown < 60, "parts of ten times the size made it ten times as much"
    for part in kube.list("/api/v1/namespaces/tgp-system/configmaps", {"labelSelector": "tgp.io/ledger"}):
        plane.http.delete(f"/api/v1/namespaces/tgp-system/configmaps/{part['metadata']['name']}").raise_for_status()
