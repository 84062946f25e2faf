# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of a Node and of its pods in trouble: which are asked for, in which form of either API, and how many are kept."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.evidence.node import KEPT, PODS_WITH_EVENTS, events_of
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import EventSeen, Findings, PodSeen
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import diagnose

from .conftest import Cluster

NOW = datetime(2026, 8, 21, 12, 0, tzinfo=timezone.utc)


@pytest.fixture
def note(cluster: Cluster) -> t.Callable[..., None]:
    """Write an Event; ``at`` seconds after NOW, ``new`` in the form that events.k8s.io's clients leave behind."""

    def write(
        name: str, about: str, *, at: float = 0, namespace: str = "default", kind: str = "Node", new: bool = False, **more: t.Any
    ) -> None:
        moment = NOW + timedelta(seconds=at)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        times: dict[str, t.Any] = {"lastTimestamp": stamp, "count": 2}
        if new:
            micro = moment.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
            times = {"eventTime": micro, "series": {"count": 7, "lastObservedTime": micro}, "reportingComponent": "kubelet"}
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": kind, "name": about, "namespace": namespace if kind == "Pod" else ""},
            **{"type": "Warning", "reason": "Rebooted", "message": "it was rebooted", **times, **more},
        }
        cluster.client().create(f"/api/v1/namespaces/{namespace}/events", body)

    return write


def test_L11_events_of_the_node_and_its_pods_the_newest_first(cluster: Cluster, note: t.Any) -> None:
    note("one", "a", at=10)
    note("two", "a", at=30, new=True)
    note("three", "dns-1", at=20, namespace="kube-system", kind="Pod", reason="BackOff", message="restarting\n failed")
    note("other", "b")
    note("pod-of-the-name", "a", kind="Pod")
    note("elsewhere", "dns-1", namespace="default", kind="Pod")
    found = events_of(cluster.client(), "a", [PodSeen("kube-system/dns-1", "Pending")], NOW)
    assert [(one.about, one.reason, one.count, one.last) for one in found] == [
        ("Node/a", "Rebooted", 7, NOW + timedelta(seconds=30)),
        ("kube-system/dns-1", "BackOff", 2, NOW + timedelta(seconds=20)),
        ("Node/a", "Rebooted", 2, NOW + timedelta(seconds=10)),
    ]
    assert found[1].message == "restarting failed"


def test_L11_what_is_older_than_the_machine_is_of_another(cluster: Cluster, note: t.Any) -> None:
    note("before", "a", at=-61)
    note("clocks-differ", "a", at=-60)
    assert len(events_of(cluster.client(), "a", [], NOW)) == 1
    assert len(events_of(cluster.client(), "a", [], None)) == 2


def test_S1_46_events_are_bounded_and_without_secrets(cluster: Cluster, note: t.Any) -> None:
    secret = "abc123.0123456789abcdef"
    for number in range(KEPT + 5):
        note(f"e{number}", "a", at=number, message=f"{number} token {secret} " + "word " * 200)
    asked: list[str] = []
    kube, inner = cluster.client(), cluster.client().call
    kube.call = lambda method, path, **more: asked.append(path) or inner(method, path, **more)  # type: ignore[method-assign,func-returns-value]
    found = events_of(kube, "a", [PodSeen(f"kube-system/p{number}", "Pending") for number in range(PODS_WITH_EVENTS + 3)], None)
    assert len(found) == KEPT and found[0].message.startswith(f"{KEPT + 4} token ") and len(asked) == 1 + PODS_WITH_EVENTS
    assert all(len(one.message) <= 300 and secret not in one.message for one in found)


def test_L11_without_the_right_to_read_events_that_is_said(cluster: Cluster) -> None:
    cluster.faults.add(
        {"kind": "status", "service": "kubernetes", "method": "GET", "path": "/events", "status": 403, "times": None}
    )
    with pytest.raises(Forbidden):
        events_of(cluster.client(), "a", [], NOW)
    told = diagnose(Findings("a", NOW, unread=(("events", "could not be read: forbidden"),)))
    assert "events: could not be read: forbidden" in told.looked_at


def test_L11_events_are_told_and_noise_is_not() -> None:
    noise = EventSeen("Node/a", "Warning", "InvalidDiskCapacity", "invalid capacity 0")
    normal = EventSeen("Node/a", "Normal", "Starting")
    bad = EventSeen("Node/a", "Warning", "Rebooted", "it was rebooted", 2)
    for events, says in (
        ((), "events: none"),
        ((noise, normal), "events: 2, no warning among them"),
        ((noise, bad), "events: event of Node/a: Rebooted (2 times): it was rebooted"),
    ):
        assert says in diagnose(Findings("a", NOW, events=events, events_read=True)).looked_at
