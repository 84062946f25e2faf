# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's machines refuse the configurations that Talos's own code refuses, and take those that it takes."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from sandbox.payload import TALOS, Refused
from sandbox.payload_reader import read
from tests.fixtures.tunnels import WIREGUARD, tunnel
from tests.unit.sandbox.test_payload import HOST, MESH, REFUSED, talos

from .machinery import Question, ask
from .test_machinery import INSTALLER, _damaged, build, make

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("machinery")]

# The sandbox has workers only, and never a machine without a configuration of its own.
TUNNELLED: dict[str, t.Any] = {"mesh": WIREGUARD, "tunnel": tunnel(), "auth_key": ""}
OUR_OWN = ("no worker", "maintenance mode")


def verdict(text: str) -> str:
    """What a machine of the sandbox says at validation; later steps of its boot are not Talos's validator's business."""
    try:
        read(text, TALOS)
    except Refused as refused:
        return f"refuses: {refused}" if refused.step == "config" else "takes"
    return "takes"


def test_every_refusal_of_the_sandbox_is_one_of_talos() -> None:
    table = [(text, says) for text, step, says in REFUSED if step == "config" and says not in OUR_OWN]
    answers = ask([Question(text, "cloud", strict=False) for text, _says in table])
    assert [says for (_text, says), answer in zip(table, answers, strict=True) if answer.ok] == []


def test_what_stops_the_boot_later_passes_validation() -> None:
    table = [text for text, step, says in REFUSED if step != "config"]
    answers = ask([Question(text, "cloud", strict=False) for text in table])
    assert [answer.errors for answer in answers if not answer.ok] == []


def damaged() -> list[tuple[str, str]]:
    """The good configuration with one leaf or branch at a time removed, or of another kind."""
    whole = list(yaml.safe_load_all(talos(HOST, MESH)))
    found = []

    def walk(number: int, path: tuple[str | int, ...]) -> None:
        node = whole[number]
        for part in path:
            node = node[part]
        children = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        for child in children:
            for what, change in (("without", None), ("number", 7), ("text", "x"), ("list", ["x"]), ("map", {"x": "y"})):
                copy = list(yaml.safe_load_all(yaml.safe_dump_all(whole)))
                place = copy[number]
                for part in path:
                    place = place[part]
                if what == "without":
                    del place[child]
                else:
                    place[child] = change
                found.append((f"{what} {number}:{'.'.join(map(str, (*path, child)))}", yaml.safe_dump_all(copy)))
            walk(number, (*path, child))

    for number in range(len(whole)):
        walk(number, ())
    return found


def differences(table: list[tuple[str, str]]) -> list[str]:
    """Where the sandbox's machine and Talos disagree."""
    answers = ask([Question(text, "cloud", strict=False) for _what, text in table])
    found = []
    for (what, text), answer in zip(table, answers, strict=True):
        said = verdict(text)
        if (said == "takes") is not answer.ok:
            found.append(f"{what}: the sandbox {said}; Talos: {' '.join(answer.errors)[:160] or 'takes it'}")
    return found


def test_damaged_configurations_fare_as_with_talos() -> None:
    assert differences(damaged()) == []


@pytest.mark.parametrize("mesh", [{}, TUNNELLED], ids=["tailscale", "wireguard"])
def test_damage_to_what_the_collection_renders_is_judged_as_by_talos(mesh: dict[str, t.Any]) -> None:
    documents = build(make(install_disk="/dev/vda", installer_image=INSTALLER, **mesh), None)
    assert differences(list(_damaged(documents))) == []
