# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source, run as ansible-rulebook runs it, against a cluster on a socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import runpy
import time
import typing as t
from datetime import datetime
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr

from sandbox.kube import pki

from .conftest import Cluster

SOURCE = Path(__file__).resolve().parents[3] / "extensions" / "eda" / "plugins" / "event_source" / "cluster_events.py"
NODE = "tgp-a1b2c3d4-pool-00001"
Event = dict[str, t.Any]


class Told:
    """The events that came, and when (seconds since the start)."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        self.events: list[Event] = []

    async def next(self, kind: str, seconds: float = 60.0) -> Event:
        """The next event of a kind; others are kept aside."""
        end = time.monotonic() + seconds
        while True:
            event = await asyncio.wait_for(self.queue.get(), max(0.01, end - time.monotonic()))
            self.events.append(event)
            if event["kind"] == kind:
                return event

    async def quiet(self, seconds: float) -> None:
        """Nothing comes for so long."""
        with contextlib.suppress(asyncio.TimeoutError):
            raise AssertionError(await asyncio.wait_for(self.queue.get(), seconds))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def watch(kubeconfig: Path, story: t.Callable[[Told], t.Awaitable[None]], **args: t.Any) -> Told:
    """Run the source until the story is over."""
    source = runpy.run_path(str(SOURCE))["main"]
    told = Told()

    async def both() -> None:
        running = asyncio.create_task(source(told.queue, {"kubeconfig": str(kubeconfig), **args}))
        telling = asyncio.ensure_future(story(told))
        done, _pending = await asyncio.wait({running, telling}, return_when=asyncio.FIRST_COMPLETED)
        if running in done:
            telling.cancel()
            await running
            raise AssertionError("the source ended by itself")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await telling

    asyncio.run(both())
    return told


def ask(cluster: Cluster, name: str, gpus: int = 1) -> None:
    """A pod that no node can take."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"containers": [{"name": "c", "image": "x", "resources": limits}]}
    cluster.must("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})


def test_the_pods_of_one_job_are_one_event_within_two_seconds(cluster: Cluster, served: Path) -> None:
    async def story(told: Told) -> None:
        await told.quiet(1.0)
        for number in range(20):
            await asyncio.to_thread(ask, cluster, f"job-{number:02d}")
        first = await told.next("pods_waiting")
        while first["count"] < 20:
            first = await told.next("pods_waiting")
        assert first["gpus"] == 20
        assert 0.2 <= (moment(first["told"]) - moment(first["seen"])).total_seconds() < 10, "it waited until it was quiet"
        await told.quiet(1.0)

    told = watch(served, story)
    assert len(told.events) <= 3, "a busy machine may see them in parts"


def test_nodes_that_become_idle_or_vanish_are_told(cluster: Cluster, served: Path) -> None:
    cluster.node(NODE, labels={"tgp.io/provisioned": "true"})
    cluster.node("worker-1")

    async def story(told: Told) -> None:
        assert (await told.next("nodes_idle"))["names"] == [NODE]
        await told.quiet(0.5)
        assert (await told.next("nodes_idle"))["names"] == [NODE], "and again when it may go"
        await asyncio.to_thread(cluster.must, "DELETE", f"/api/v1/nodes/{NODE}")
        assert (await told.next("nodes_lost"))["names"] == [NODE]
        await asyncio.to_thread(cluster.must, "DELETE", "/api/v1/nodes/worker-1")
        await told.quiet(0.5)

    watch(served, story, idle_after=2)


def test_L11_a_machine_that_asks_for_its_certificate_is_told(cluster: Cluster, served: Path) -> None:
    rules = [("create", "certificates.k8s.io", "certificatesigningrequests")]
    cluster.api.add_token("token-of-a-machine-0123456789", "system:bootstrap:abcdef", rules=rules)
    _key, text = pki.new_request("system:node:a", ["system:nodes"])
    spec = {"request": base64.b64encode(text.encode()).decode(), "signerName": csr.SIGNER, "usages": ["client auth"]}
    body = {"metadata": {"name": "csr-a"}, "spec": spec}

    async def story(told: Told) -> None:
        await told.quiet(1.0)
        status, made = await asyncio.to_thread(cluster.api.request, "POST", csr.PATH, body, token="token-of-a-machine-0123456789")
        assert status == 201, made
        assert (await told.next("nodes_asking"))["names"] == ["csr-a"]
        assert (await told.next("nodes_asking"))["names"] == ["csr-a"], "again while nobody answers"
        now = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "lastUpdateTime": now}]}
        await asyncio.to_thread(cluster.must, "PUT", f"{csr.PATH}/csr-a/approval", made)
        await told.quiet(3.0)

    watch(served, story, repeat=2)


def test_who_may_not_see_certificate_requests_is_told_of_pods_all_the_same(cluster: Cluster, served: Path) -> None:
    body = {"kind": "Status", "code": 403, "message": "certificatesigningrequests is forbidden", "reason": "Forbidden"}
    cluster.faults.add({"kind": "status", "service": "kubernetes", "path": csr.PATH, "status": 403, "body": body, "times": None})

    async def story(told: Told) -> None:
        await told.quiet(1.0)
        await asyncio.to_thread(ask, cluster, "want")
        assert (await told.next("pods_waiting"))["names"] == ["default/want"]

    watch(served, story)


def test_a_right_that_is_missing_ends_the_source_with_its_name(cluster: Cluster, served: Path) -> None:
    body = {"kind": "Status", "code": 403, "message": 'pods is forbidden: cannot list resource "pods"', "reason": "Forbidden"}
    cluster.faults.add(
        {"kind": "status", "service": "kubernetes", "path": "/api/v1/pods", "status": 403, "body": body, "times": None}
    )

    async def story(told: Told) -> None:
        await told.quiet(20)

    with pytest.raises(Forbidden, match="pods is forbidden"):
        watch(served, story)


def test_a_cluster_that_cannot_be_read_is_told_with_since_when_and_nothing_else(cluster: Cluster, served: Path) -> None:
    cluster.faults.add({"kind": "status", "service": "kubernetes", "path": "/api/v1/(pods|nodes)", "status": 503, "times": None})

    async def story(told: Told) -> None:
        event = await told.next("cluster_unreachable")
        assert event["since"].endswith("Z") and "503" in event["message"]
        cluster.faults.clear()
        await asyncio.to_thread(ask, cluster, "meanwhile")
        assert (await told.next("pods_waiting"))["names"] == ["default/meanwhile"]
        assert {one["kind"] for one in told.events} == {"cluster_unreachable", "pods_waiting"}

    watch(served, story, unreachable_after=1)


@pytest.mark.parametrize(
    ("args", "words"),
    [({"idle_mode": "some"}, "idle_mode is 'some'"), ({"repeat": "often"}, "repeat is 'often'"), ({"idle": 3}, "no option idle")],
)
def test_odd_options_are_refused_by_name(served: Path, args: Event, words: str) -> None:
    async def story(told: Told) -> None:
        await told.quiet(5)

    with pytest.raises(ValueError, match=words):
        watch(served, story, **args)
