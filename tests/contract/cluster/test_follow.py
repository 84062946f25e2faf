# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection that is followed: trouble that passes, an end that everybody learns of, also those who come later."""

from __future__ import annotations

import queue
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.informer import Follow
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import PATH

from .conftest import Cluster

REFUSED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no right"}
Told = tuple[str, str, t.Any]


class Listener:
    """Keeps what it was told until somebody asks."""

    def __init__(self) -> None:
        self.told: queue.Queue[Told] = queue.Queue()

    def __call__(self, kind: str, key: str, item: t.Any) -> None:
        self.told.put((kind, key, item))

    def next(self) -> Told:
        return self.told.get(timeout=60)


def name_of(raw: dict[str, t.Any]) -> str:
    return str(raw["metadata"]["name"])


def test_trouble_that_is_over_is_told_although_nothing_changes(cluster: Cluster, kube: Kube) -> None:
    """Certificate requests may not change for days: whoever was told of trouble would believe in it for as long."""
    cluster.faults.add({"kind": "status", "status": 503, "path": "certificatesigningrequests.*watch=true", "times": 1})
    heard: Follow[str] = Follow(kube, csr.PATH, name_of)
    listener = Listener()
    heard.add(listener)
    try:
        assert [listener.next()[0] for _ in range(3)] == ["all", "trouble", "all"]
    finally:
        heard.remove(listener)


def test_who_comes_after_the_end_is_told_of_it(cluster: Cluster, kube: Kube) -> None:
    """Several drains share what they follow. The right to see disruption budgets may be missing."""
    cluster.faults.add({"kind": "status", "status": 403, "path": "nodes", "times": None, "body": REFUSED})
    first, second = Listener(), Listener()
    end = kube.follows.open("nodes", lambda: Follow(kube, PATH, name_of), first)
    assert first.next()[0] == "failed"
    kube.follows._open["nodes"]._thread.join(60)
    other = kube.follows.open("nodes", lambda: Follow(kube, PATH, name_of), second)
    assert second.next()[0] == "failed"
    end()
    other()
    assert kube.follows.count("nodes") == 0


def test_an_end_that_nobody_expected_is_told_too(cluster: Cluster, kube: Kube, monkeypatch: t.Any) -> None:
    """A thread that ends without a word would be waited for for ever."""
    monkeypatch.setattr("threading.excepthook", lambda _args: None)
    cluster.node("n")
    heard: Follow[str] = Follow(kube, PATH, lambda raw: str(raw["none"]))
    listener = Listener()
    heard.add(listener)
    kind, _key, error = listener.next()
    assert kind == "failed" and "KeyError" in str(error)
    heard.remove(listener)
