# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module talos_image against the emulators of both providers: an image is made once, found again, made anew where it failed, and told
where it cannot be made."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.operations import talos_image as operation

from .images import BUCKET, SCHEMATIC, VERSION, Stand

NAMES = {"vultr": "tgp-talos-v1.13.9-376567988ad3", "gcp": "tgp-talos-v1-13-9-376567988ad3"}
SETTINGS = {"vultr": "snapshotId", "gcp": "talosImage"}


@pytest.fixture(autouse=True)
def _own_pace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(name="stand", params=["vultr", "gcp"])
def _stand(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Stand:
    return Stand(request.param, tmp_path / "state")


def records(stand: Stand) -> list[dict[str, str]]:
    return [json.loads(path.read_text()) for path in (stand.state / "images").glob("*.json")]


def test_an_image_is_made_once_and_found_afterwards(stand: Stand) -> None:
    first = stand.call(diff=True)
    assert (first["changed"], first["action"], first["name"]) == (True, "made", NAMES[stand.provider]), first
    (link,) = first["setting"].values()
    assert list(first["setting"]) == [SETTINGS[stand.provider]] and link == first["image"]["link"]
    assert first["diff"] == {"before": "", "after": f"{first['name']}\n"}
    assert first["image"]["state"] == "ready" and first["image"]["talos_version"] == VERSION
    assert SCHEMATIC.startswith(first["image"]["schematic"])
    assert stand.gcp.buckets[BUCKET] == {} and records(stand) == [], "what was only needed to make it is gone"
    again = stand.call(diff=True)
    assert (again["changed"], again["action"], stand.writes) == (False, "found", [])
    assert again["diff"]["before"] == again["diff"]["after"] and again["setting"] == first["setting"]
    assert not [call for call in stand.calls if "/image/" in call], "the factory is not asked"


def test_what_an_image_costs_is_told_and_how_sure_that_is(stand: Stand) -> None:
    made = stand.call()
    size = {"vultr": 8 * 1024**3, "gcp": 1024 * 1024 + 4321}[stand.provider]
    assert made["image"]["size"] == size
    assert made["month_cost"] == made["image"]["month_cost"] == {"vultr": "0.4295", "gcp": "0.0001"}[stand.provider]
    assert made["price"]["basis"] == {"vultr": "list price of November 2026", "gcp": "unverified"}[stand.provider]
    assert any("$/month" in line for line in stand.lines) and any(made["name"] in line for line in stand.lines)


def test_check_mode_makes_nothing_and_says_what_would_be(stand: Stand) -> None:
    planned = stand.call(check=True, diff=True)
    assert (planned["changed"], planned["name"], planned["image"], stand.writes) == (True, NAMES[stand.provider], {}, [])
    assert planned["diff"]["after"] == f"{planned['name']}\n" and records(stand) == []
    assert planned["images"][0]["note"] == "would be made"
    stand.call()
    assert not stand.call(check=True)["changed"]


def test_an_import_that_fails_is_begun_again_and_told(stand: Stand) -> None:
    """A snapshot vanishes; an image's operation is DONE and failed."""
    stand.account.turn({"failing_imports": 1})
    made = stand.call()
    assert made["action"] == "made" and made["image"]["state"] == "ready" and len(stand.names) == 1
    (warning,) = stand.warnings
    assert ("is gone" if stand.provider == "vultr" else "INVALID_IMAGE") in warning
    assert not stand.call()["changed"]


def test_an_import_that_fails_each_time_is_an_error(stand: Stand) -> None:
    stand.account.turn({"failing_imports": 9})
    failed = stand.call()
    assert failed["failed"] and failed["error"]["kind"] == "never_ready" and "was begun 2 times" in failed["msg"]
    assert len(stand.warnings) == 2 and stand.gcp.buckets[BUCKET] == {} and records(stand) == []
    assert len([call for call in stand.writes if "create-from-url" in call or call.endswith("/global/images")]) == 2


def test_an_image_that_never_completes_is_told_and_waited_for_by_the_next_run(stand: Stand) -> None:
    stand.account.turn({"stuck_imports": True})
    late = stand.call(timeout="10m")
    assert late["failed"] and late["error"]["kind"] == "timeout" and "not complete after 10m" in late["msg"]
    assert any("in the making for" in line for line in stand.lines)
    again = stand.call(timeout="1m")
    assert again["error"]["kind"] == "timeout" and stand.writes == [] and len(stand.names) == 1, "no second one is begun"
    for one in (*stand.vultr.snapshots.values(), *stand.gcp.own_images.values()):
        one.ready = stand.world.clock.seconds() + 5000
    for begun in stand.gcp.operations.values():
        begun.done = stand.world.clock.seconds() + 5000
    done = stand.call(timeout="20h")
    assert (done["action"], done["image"]["state"], done["changed"]) == ("waited", "ready", True) and records(stand) == []
    assert not stand.call()["changed"] and stand.gcp.buckets[BUCKET] == {}


def test_a_lost_answer_is_looked_up_and_nothing_is_begun_twice(stand: Stand) -> None:
    path = "create-from-url" if stand.provider == "vultr" else "/global/images(\\?|$)"
    stand.faults.add({"kind": "lost_after", "service": stand.provider, "method": "POST", "path": path})
    made = stand.call()
    assert made["image"]["state"] == "ready" and len(stand.names) == 1, made
    assert len([call for call in stand.writes if "create-from-url" in call or call.endswith("/global/images")]) == 1


def test_an_unknown_release_or_schematic_is_refused_before_anything_is_made(stand: Stand) -> None:
    release = stand.call(talos_version="1.13.99")
    assert release["error"]["kind"] == "invalid_input" and "v1.13.9" in release["msg"] and stand.writes == []
    half = stand.call(talos_version="1.13")
    assert "whole version" in half["msg"] and stand.calls == []
    schematic = stand.call(schematic_id="ab" * 32)
    assert "knows no schematic" in schematic["msg"] and "talos_schematic" in schematic["msg"] and stand.writes == []
    assert "64 hex digits" in stand.call(schematic_id="nothing")["msg"]
    assert stand.call(check=True, schematic_id="ab" * 32)["failed"], "check mode says it, too"


@pytest.mark.parametrize(("params", "words"), [
    ({"keep": 0}, "keep must be 1"), ({"timeout": "soon"}, "not a duration"), ({"min_age": "3d"}, "not a duration"),
])  # fmt: skip
def test_what_is_refused_without_a_call(stand: Stand, params: dict[str, t.Any], words: str) -> None:
    refused = stand.call(**params)
    assert refused["error"]["kind"] == "invalid_input" and words in refused["msg"] and stand.calls == []


def test_the_policy_never_makes_none(stand: Stand) -> None:
    refused = stand.call(image_policy="Never")
    assert refused["error"]["kind"] == "never_ready" and "images.yml" in refused["msg"] and stand.writes == []
    stand.call()
    assert stand.call(image_policy="Never")["action"] == "found"


def test_the_policy_always_makes_another_one_and_the_newest_is_used(stand: Stand) -> None:
    stand.call()
    stand.world.clock.advance(60)
    second = stand.call(image_policy="Always")
    assert second["name"] == f"{NAMES[stand.provider]}-2" and sorted(stand.names) == [NAMES[stand.provider], second["name"]]
    assert stand.call()["name"] == second["name"]


def test_a_call_that_was_never_answered_nor_carried_out_is_sent_by_the_next_run(stand: Stand) -> None:
    path = "create-from-url" if stand.provider == "vultr" else "/global/images(\\?|$)"
    stand.faults.add({"kind": "lost_before", "service": stand.provider, "method": "POST", "path": path})
    lost = stand.call()
    assert lost["error"]["kind"] == "lost" and "is unknown" in lost["msg"] and stand.names == []
    assert [record["name"] for record in records(stand)] == [NAMES[stand.provider]]
    assert stand.call()["image"]["state"] == "ready" and len(stand.names) == 1


@pytest.mark.parametrize("moment", [1, 2])
def test_a_run_that_is_killed_is_gone_on_with(stand: Stand, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its call, or before it could write down what the call has begun, which is not even listed yet."""
    stand.vultr.turn({"list_after": 30.0})
    write, written = operation._Record.write, []

    def killed(record: t.Any, **facts: str) -> None:
        written.append(facts)
        if len(written) == moment:
            raise KeyboardInterrupt
        write(record, **facts)

    monkeypatch.setattr(operation._Record, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        stand.call()
    monkeypatch.setattr(operation._Record, "write", write)
    assert len(stand.names) == moment - 1
    done = stand.call()
    assert done["image"]["state"] == "ready" and len(stand.names) == 1, stand.names
    assert stand.gcp.buckets[BUCKET] == {} and records(stand) == [] and not stand.call()["changed"]
