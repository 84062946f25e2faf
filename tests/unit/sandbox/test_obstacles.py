# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that something stands in the way of, and the control plane's way to their ports."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import MeshChoice

from sandbox.behaviour import Behaviour

PORT = "/api/v1/nodes/https:{}:{}/proxy/"


def obstruct(hand: t.Any, kind: str, **more: t.Any) -> None:
    hand.box.machines.behaviours.add(Behaviour.parse({"kind": kind, **more}))


@pytest.mark.parametrize(
    "behaviour, step, words",
    [
        ({"kind": "disk_too_small", "gib": 7}, "preflight", "7 GiB free on the root disk, 20 wanted"),
        ({"kind": "clock_skew", "seconds": 40 * 86400}, "mesh", "certificate has expired or is not yet valid: current time"),
        ({"kind": "blocked"}, "api", "cannot be reached"),
        ({"kind": "wrong_ca"}, "api", "unable to get local issuer certificate"),
        ({"kind": "own_label"}, "kubelet", "labels specified with --node-labels: [node-role.kubernetes.io/gpu]"),
        ({"kind": "other_kubelet", "version": "v1.99.0"}, "ready", "the server does not know the requested resource"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_an_obstacle_is_the_last_step_and_is_told(make: t.Any, behaviour: dict[str, t.Any], step: str, words: str) -> None:
    hand = make()
    obstruct(hand, **behaviour)
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1"))
    assert words in hand.story(machine, step)
    if step == "ready":  # the program had ended well, and the kubelet's words go to the journal
        assert machine.console[-1] == "tgp-step done"
    else:
        assert machine.console[-2] == f"tgp-step {step}" and machine.console[-1].startswith(f"fail {step}: ")


@pytest.mark.parametrize(
    "behaviour", [{"kind": "clock_skew", "seconds": 3600}, {"kind": "disk_too_small", "gib": 20}, {"kind": "own_label", "label": "team/a"}],
    ids=lambda value: value["kind"],
)  # fmt: skip
def test_what_is_no_obstacle_stops_nothing(make: t.Any, behaviour: dict[str, t.Any]) -> None:
    hand = make()
    obstruct(hand, **behaviour)
    hand.story(hand.rent("tgp-a-1", hand.payload("tgp-a-1")), "done")


@pytest.mark.parametrize(
    "rule, words",
    [
        ({"kind": "blocked", "port": 80}, "port should be 6443 or 50001"),
        ({"kind": "other_kubelet"}, "needs a `version`"),
        ({"kind": "other_kubelet", "version": "1.37"}, "needs a `version`"),
        ({"kind": "clock_skew"}, "needs `seconds`"),
        ({"kind": "disk_too_small", "gib": 1.5}, "gib should be a whole number"),
        ({"kind": "own_label", "label": 3}, "label should be text"),
    ],
)
def test_what_a_behaviour_cannot_be_is_refused(rule: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("`", ".")):
        Behaviour.parse(rule)


def talos(hand: t.Any) -> t.Any:
    power = hand.client("webhook")
    config = hand.payload(
        "rack-1", "talos", gpu_count=2, mesh=MeshChoice(tags=("tag:gpu",), ephemeral=False), key=hand.key(ephemeral=False)
    )
    assert power.post("/rack-1/start", json={"machineConfig": config}).status_code == 202
    machine = hand.box.world.machines["rack-1"]
    hand.story(machine, "done")
    return machine


def knock(hand: t.Any, name: str, port: int, token: str | None = None) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {hand.box.kube.admin_token if token is None else token}"}
    answer = hand.client("kubernetes").get(PORT.format(name, port), headers=headers)
    return answer.status_code, answer.json()["message"]


def test_the_control_plane_sees_whether_the_talos_api_listens(make: t.Any) -> None:
    hand = make()
    talos(hand)
    assert knock(hand, "rack-1", 50000) == (503, "error trying to reach service: remote error: tls: certificate required")
    assert "connection refused" in knock(hand, "rack-1", 50001)[1]
    assert knock(hand, "nobody", 50000)[0] == 404
    assert knock(hand, "rack-1", 50000, "nobody-0123456789abcdef")[0] == 401


def test_without_a_way_to_trustd_nothing_listens_there(make: t.Any) -> None:
    hand = make()
    obstruct(hand, "blocked", port=50001)
    machine = talos(hand)
    assert any(step == "apid" and ":50001: i/o timeout" in text for _when, step, text in machine.steps)
    assert knock(hand, "rack-1", 50000) == (
        503,
        "error trying to reach service: dial tcp rack-1:50000: connect: connection refused",
    )
