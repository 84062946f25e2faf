# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages to people through the real apprise, to a service on loopback that may refuse, be slow or be away."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import notifications
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import execute

from .receiver import Receiver
from .rig import DESTROY, Rig
from .test_telling import log, orphan, reap

ROOM = "room-0123456789-secret"


class Room(Receiver):
    """A service: each message is its title."""

    @property
    def titles(self) -> list[str]:
        return [one["title"] for one in self.bodies]

    def __init__(self) -> None:
        super().__init__()
        root, self.close = self.serve()
        self.url = f"{root.replace('http', 'json', 1)}/{ROOM}"


@pytest.fixture
def told(rig: Rig) -> Rig:
    rig.call = lambda code, task: execute(code.SPEC, code.run, task)
    return rig


@pytest.fixture
def room() -> t.Iterator[Room]:
    room = Room()
    yield room
    room.close()


def test_A18_people_hear_of_an_orphan_once_and_when_it_is_over_and_the_secret_is_nowhere(told: Rig, room: Room) -> None:
    machine, wanted = orphan(told), {"notify_apprise": [room.url]}
    told.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    told.reap(**wanted)
    assert (room.titles, room.paths) == ([f"orphan_found: lambda {machine}"], [f"/{ROOM}"])
    assert "has no claim" in room.bodies[0]["message"] and room.bodies[0]["type"] == "warning"
    for _run in range(3):
        told.advance(16 * 60)
        told.reap(**wanted)
    assert sorted(title.partition(": ")[0] for title in room.titles[1:]) == ["destroy_pending", "resolved"], (
        "it has a claim since then"
    )
    told.faults.clear()
    told.reap(**wanted)
    assert told.machines() == []
    told.reap(**wanted)
    assert [one["type"] for one in room.bodies[3:]] == ["success"] and room.titles[3].startswith("resolved: destroy_pending")
    assert told.state("notices") == {}
    before, tries = told.writes(), room.tries
    told.reap(**wanted)
    assert (told.writes(), room.tries) == (before, tries), "a quiet run writes and tells nothing"
    files = [path.read_bytes() for path in (told.folder / "state").rglob("*") if path.is_file()]
    assert ROOM.encode() not in b"".join(files) and ROOM not in " ".join(told.warnings)
    assert {one["notice"] for one in log(told) if one["kind"] == "notice"} == {"orphan_found", "destroy_pending"}


def test_a_service_that_refuses_or_is_slow_fails_no_run_and_is_told_in_its_result(
    told: Rig, room: Room, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told.training["gpuCount"] = "many"  # a matter that lasts whatever the clock says
    nobody = "json://127.0.0.1:1/nobody-0123456789"
    room.answers = [500, 429, 503]
    plan = reap(told, notify_apprise=[room.url, nobody])
    assert not plan.get("failed") and room.tries == 3 and told.state("notices") == {}
    assert "json answered 503.; json did not take it, or cannot be reached." in _warning(told)
    room.answers = [403]
    reap(told, notify_apprise=[room.url])
    assert room.tries == 4 and "json answered 403." in _warning(told), "a refusal is not repeated"
    reap(told, notify_apprise=["nonsense://nobody-0123456789"])
    assert "nonsense is a service that apprise does not know" in _warning(told)
    reap(told, notify_apprise=[room.url, nobody])
    assert [one for one in told.warnings if "did not arrive everywhere: json did not take it" in one]
    (key,) = told.state("notices")
    assert key.startswith("@document_fault|"), "one service has it, so it is not sent again"
    told.kube("DELETE", "/api/v1/namespaces/tgp-system/configmaps/tgp-state-notices")
    monkeypatch.setattr(notifications, "DEADLINE", 0.5)
    room.gate.clear()
    reap(told, notify_apprise=[room.url])
    room.gate.set()
    assert "too slow" in _warning(told)
    assert "0123456789" not in " ".join([*told.warnings, *capfd.readouterr()])


def _warning(rig: Rig) -> str:
    """The last one about a notice."""
    return [one for one in rig.warnings if "could not be delivered" in one][-1]


def test_urls_of_the_common_secret_are_read_only_when_there_is_something_to_tell(told: Rig, room: Room) -> None:
    path = "/api/v1/namespaces/tgp-system/secrets"
    asked: list[str] = []
    told.watcher = lambda request: asked.append(request.url.path)
    reads = []
    for options in ({}, {}, {"notify_apprise": "secret"}):
        asked.clear()
        reap(told, **options)
        reads.append(asked.count(f"{path}/tgp-operator-secret"))
    assert reads[1] == reads[2], "the mesh is read from it as well"
    orphan(told)
    reap(told, notify_apprise="secret")
    assert "the common Secret has no key notify-apprise" in _warning(told)
    told.kube(
        "POST", path, {"metadata": {"name": "tgp-operator-secret"}, "stringData": {"notify-apprise": f"# team\n{room.url}\n"}}
    )
    reap(told, notify_apprise="secret")
    assert [title.partition(":")[0] for title in room.titles] == ["orphan_found"]


def test_the_summary_of_a_day_comes_once_with_machines_and_what_they_cost(told: Rig, room: Room) -> None:
    told.provision()
    clock = told.clock.now()
    wanted = {
        "notify_apprise": [room.url],
        "notify_summary": f"{clock:%H:%M}",
        "notify_quiet": f"{clock:%H:%M}-{(clock.hour - 1) % 24:02}:00",
    }
    for _run in range(2):
        reap(told, **wanted)
    (body,) = room.bodies
    assert body["type"] == "info" and body["title"].startswith("1 machine, $")
    assert "default/training: 1 machine," in body["message"] and "Nothing is wrong." in body["message"]
    told.advance(24 * 3600)
    reap(told, **wanted)
    assert len(room.bodies) == 2
    assert set(told.state("notices")) == {"@summary"}


def test_L08_a_lost_lock_is_told_to_people_at_any_hour(told: Rig, room: Room) -> None:
    wanted = {"notify_apprise": [room.url], "notify_quiet": "00:00-23:59"}
    plan = told.plan("provision", pools=["training"], nodes=1, **wanted)
    cluster = told.kube("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"][:8]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{cluster}"
    told.kube("PATCH", lease, {"spec": {"holderIdentity": "elsewhere/1/other-run"}})
    done = told.run("launch", plan["run_id"], **wanted)
    assert done["error"]["kind"] == "lock_lost" and json.dumps(room.titles).count(plan["run_id"]) == 1
