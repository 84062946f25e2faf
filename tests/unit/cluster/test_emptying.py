# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain touches only the pods and the Node that it was begun for, and believes nobody but the API server (L-9)."""

from __future__ import annotations

import dataclasses
import math
import queue
import types
import typing as t
from datetime import datetime, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import NotFound
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain import node_drain
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.drain import _Loop
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.eviction import Answer, Eviction, evict
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.node_drain import DrainOptions, Emptying, Ports, Target
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node, Pod

from ..fleet.build import pod as make_pod

NODE = Node("n", "uid-of-n", datetime(2026, 1, 1, tzinfo=timezone.utc), ready=True)
Calls = list[tuple[str, dict[str, t.Any]]]


@pytest.fixture
def calls() -> Calls:
    """What was deleted or changed, with its options."""
    return []


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, calls: Calls) -> t.Callable[..., Emptying]:
    """``empty(reason, node=NODE, pods=[…])``: the drain of Node n as it is there."""

    def make(reason: str, *, node: Node | None = NODE, pods: t.Sequence[Pod] = ()) -> Emptying:
        def delete(path: str, **options: t.Any) -> None:
            calls.append((path, options))

        monkeypatch.setattr(node_drain, "get_node", lambda _kube, _name: node)
        monkeypatch.setattr(node_drain, "pods", lambda _kube, **_options: list(pods))
        monkeypatch.setattr(node_drain, "change", lambda _kube, name, **options: calls.append((name, options)) or True)
        kube = types.SimpleNamespace(delete=delete)
        ports = Ports(submit=lambda _work, _done: None, say=lambda _node, _text: None, on_refusal=lambda: None)
        return Emptying(kube, SystemClock(), Target("n", NODE.uid, reason), DrainOptions(timeout=60, parallel=1), ports)  # type: ignore[arg-type]

    return make


def test_L09_pods_of_a_machine_that_is_gone_are_deleted_by_uid(empty: t.Callable[..., Emptying], calls: Calls) -> None:
    """A StatefulSet may have made the pod of that name anew, elsewhere."""
    drain = empty("InstanceGone", node=dataclasses.replace(NODE, ready=None), pods=[make_pod("db-0", owner_kind="StatefulSet")])
    drain._prepared(drain._prepare())
    assert drain.result is not None and drain.result.outcome == "lost"
    (deleted,) = [options for path, options in calls if path.endswith("/pods/db-0")]
    assert deleted == {"uid": make_pod("db-0").uid, "grace": 0}


def test_L09_pods_of_a_ready_node_are_not_deleted_as_if_its_machine_were_gone(
    empty: t.Callable[..., Emptying], calls: Calls
) -> None:
    drain = empty("InstanceGone", pods=[make_pod("db-0")])
    drain._prepared(drain._prepare())
    assert drain.result is not None and (drain.result.outcome, drain.result.drained, calls) == ("ready", False, [])


def test_L09_a_pod_that_was_bound_just_before_the_cordon_is_seen_in_the_end(empty: t.Callable[..., Emptying]) -> None:
    drain = empty("Drifted")
    pod = make_pod("late")
    drain._confirmed([pod])
    assert drain.result is None and drain._pods == {pod.uid: pod}
    drain._confirmed([])
    assert drain.result is not None and drain.result.outcome == "drained"


def test_L09_a_drain_that_is_held_up_opens_only_its_own_node(empty: t.Callable[..., Emptying], calls: Calls) -> None:
    empty("Drifted", node=dataclasses.replace(NODE, uid="another"))._restore()
    assert calls == []
    empty("Drifted")._restore()
    assert [name for name, _options in calls] == ["n"]


@pytest.mark.parametrize(
    ("body", "kind"), [({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}, "gone"), (None, "silent")]
)
def test_L09_only_the_api_server_says_that_a_pod_is_gone(body: dict[str, t.Any] | None, kind: str) -> None:
    def call(*_words: str, **_options: t.Any) -> None:
        raise NotFound("404", status=404, body=body)

    assert evict(types.SimpleNamespace(call=call), make_pod("web")).kind == kind  # type: ignore[arg-type]


def test_L09_an_eviction_is_of_this_very_pod() -> None:
    sent: list[dict[str, t.Any]] = []
    pod = make_pod("web")
    kube = types.SimpleNamespace(call=lambda _method, _path, **options: sent.append(options["json"]))
    assert evict(kube, pod).kind == "evicted"  # type: ignore[arg-type]
    assert [one["deleteOptions"] for one in sent] == [{"preconditions": {"uid": pod.uid}}]


def test_L09_evictions_are_tried_again_when_a_budget_opens_and_not_when_it_closes() -> None:
    opened: list[str] = []
    loop = _Loop(None, SystemClock(), queue.SimpleQueue(), ())  # type: ignore[arg-type]
    loop._nodes = {"n": types.SimpleNamespace(budget_opened=opened.append)}  # type: ignore[dict-item]
    loop._budgets = {}
    for allowed in (0, 0, 1, 2, 0):
        loop._budget("set", "uid", ("web", allowed))
    assert opened == ["web"]
    loop._budget("all", "", {"uid": ("web", 1), "other": ("db", 0)})
    assert opened == ["web", "web"]


@pytest.mark.parametrize(
    ("answer", "pause", "by"),
    [
        (Answer("refused", "web"), 5.0, "web"),
        (Answer("refused", "web", 12.0), 12.0, "web"),
        (Answer("terminating", "namespace is terminating"), 5.0, "namespace is terminating"),
        (Answer("silent", "no answer"), 1.0, "no answer"),
        (Answer("forbidden", "forbidden"), math.inf, "forbidden"),
    ],
)
def test_L09_when_an_eviction_is_sent_again_is_said_by_its_answer(answer: Answer, pause: float, by: str) -> None:
    eviction = Eviction(flying=True)
    eviction.take(answer, 1000.0)
    assert (eviction.can_be_sent, eviction.not_before, eviction.by) == (True, 1000.0 + pause, by)
    eviction.budget_opened()
    assert eviction.not_before == (0.0 if answer.kind == "refused" else 1000.0 + pause)


def test_L09_an_eviction_that_was_done_is_not_sent_again() -> None:
    eviction = Eviction(flying=True)
    assert not eviction.can_be_sent
    eviction.take(Answer("evicted"), 1000.0)
    assert not eviction.can_be_sent


def test_L09_missing_answers_count_in_a_row() -> None:
    eviction = Eviction()
    for kind, pause in (("silent", 1.0), ("silent", 2.0), ("silent", 4.0), ("refused", 5.0), ("silent", 1.0)):
        eviction.take(Answer(kind), 1000.0)
        assert eviction.not_before == 1000.0 + pause
