# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud or a power service says in the body of an error is shown, and not stored."""

from __future__ import annotations

import json
import typing as t

import pytest

from .rig import CREATE, Rig

MARKER = "words-of-the-service-0815"
CODE = "global/invalid-parameters"


def records(rig: Rig) -> dict[str, str]:
    """Everything that outlives a run, as text by its place."""
    found = {f"configmap {one['metadata']['name']}": json.dumps(one) for one in rig.kube("GET", "/api/v1/configmaps")["items"]}
    for path in ("/api/v1/nodes", "/api/v1/events", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases"):
        found[path] = json.dumps(rig.kube("GET", path))
    for file in (rig.folder / "state").rglob("*"):
        if file.is_file():
            found[str(file)] = file.read_text(errors="replace")
    return found


def holding(rig: Rig, word: str) -> list[str]:
    return [place for place, text in records(rig).items() if word in text]


def shown(rig: Rig, *results: t.Any) -> str:
    return json.dumps([rig.lines, rig.warnings, *results], default=str)


@pytest.mark.parametrize(("status", "result"), [(400, "failed"), (500, "unknown")])
def test_words_of_a_create_call_are_shown_and_not_stored(rig: Rig, status: int, result: str) -> None:
    body = {"error": {"code": CODE, "message": f'user_data holds {MARKER} "quoted"\n and more.'}}
    rig.fault("status", "lambda", "POST", CREATE, status=status, body=body, times=None)
    done = rig.rent()
    assert MARKER in shown(rig, done)
    assert holding(rig, MARKER) == []
    attempt = rig.claim()["attempts"][-1]
    assert f"was answered {status} {CODE}" in attempt["message"]
    if status == 400:
        assert done["machines"][0]["result"] == result and MARKER in done["problems"][0]
    rig.reap()
    assert holding(rig, MARKER) == []


def test_words_of_a_destroy_call_are_shown_and_not_stored(rig: Rig) -> None:
    rig.rent()
    rig.join()
    rig.fault("status", "lambda", "POST", "terminate", status=500, body={"error": {"code": "x/y", "message": MARKER}}, times=None)
    done = rig.destroy()
    assert MARKER in shown(rig, done)
    assert holding(rig, MARKER) == []


def test_words_of_a_power_service_are_shown_and_not_stored(rig: Rig) -> None:
    rig.fault("status", "webhook", "POST", "start", status=400, body={"error": MARKER}, times=None)
    done = rig.rent(pool="own")
    assert MARKER in shown(rig, done)
    assert holding(rig, MARKER) == []
    assert "was answered 400" in rig.claim()["attempts"][-1]["message"]
