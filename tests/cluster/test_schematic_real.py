# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ids and texts of schematics are those of the Image Factory's own code."""

from __future__ import annotations

import json
import random
import subprocess
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.factory import computed
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.schematic import canonical_text

from sandbox.image_factory import written
from tests import build as programs

from .conftest import built

pytestmark = pytest.mark.cluster
_ODD = [
    "true",
    "no",
    "on",
    "y",
    "null",
    "~",
    "0x10",
    "1.5",
    "1e3",
    "2024-01-01",
    "12:30",
    "a:",
    "#x",
    "-",
    "=",
    "<<",
    "---",
    "...",
    "?",
    ":",
]
_ODD += [
    "0b1",
    ".5",
    "+1",
    "-1",
    "=x",
    "?a",
    "it's",
    "a,b",
    "-console",
    "noapic",
    "",
    "a: b",
    "x #y",
    "x ",
    "[x]",
    "{}",
    "- a",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    '"x',
    "a\\b",
    "yes/no",
    "console=ttyS0,115200",
]
_SIGNS = "abcxyzABnoyefNtr0123456789:-_.=/ #'\"{}[],&*!|>%@`?~$\\()<^;"


@pytest.fixture(name="real", scope="module")
def _real(request: pytest.FixtureRequest) -> t.Callable[[list[t.Any]], list[dict[str, str]]]:
    program = built("schematic", request)

    def ask(bodies: list[t.Any]) -> list[dict[str, str]]:
        lines = "".join(json.dumps(json.dumps(one)) + "\n" for one in bodies)
        done = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def _bodies(values: list[str]) -> list[dict[str, t.Any]]:
    extensions = {"officialExtensions": ["siderolabs/gvisor", "siderolabs/tailscale"]}
    return [
        {
            "overlay": {"name": "rpi_generic", "image": "siderolabs/sbc-raspberrypi", "options": {"zone": True, "area": 7}},
            "customization": {
                "systemExtensions": extensions,
                "extraKernelArgs": [value],
                "meta": [{"key": 10, "value": value}],
                "bootloader": "sd-boot",
                "secureboot": {"includeWellKnownCertificates": True},
            },
        }
        for value in values
    ]


def test_an_id_that_is_computed_is_the_factorys_own(real: t.Any) -> None:
    chance = random.Random(1)
    values = [*_ODD, *("".join(chance.choices(_SIGNS, k=chance.randint(1, 9))) for _ in range(3000))]
    values += ["/".join("".join(chance.choices("abcXYZ0189_.,=${}&?:+-", k=4)) for _ in range(3)) for _ in range(1000)]
    bodies = _bodies(values)
    certain = 0
    for value, body, answer in zip(values, bodies, real(bodies), strict=True):
        number = computed(body)
        certain += number is not None
        assert number in (None, answer["id"]), value
    assert certain > 500


def test_options_of_an_overlay_stand_in_the_factorys_order(real: t.Any) -> None:
    chance = random.Random(3)
    bodies = []
    for _ in range(500):
        names = {"".join(chance.choices("abBC_-019", k=chance.randint(3, 5))) for _ in range(3)}
        options = dict.fromkeys(names, True)
        bodies.append({"overlay": {"name": "rpi_generic", "image": "siderolabs/sbc-raspberrypi", "options": options}})
    bodies += [{"overlay": {**body["overlay"], "options": {"zone": 1, "Area": 2, "areas": 3}}} for body in bodies[:1]]
    numbers = [computed(body) for body in bodies]
    assert any(numbers) and None in numbers
    for body, number, answer in zip(bodies, numbers, real(bodies), strict=True):
        assert number in (None, answer["id"]), body


def test_the_sandbox_writes_as_the_factory_does(real: t.Any) -> None:
    chance = random.Random(2)
    values = [*_ODD, *("".join(chance.choices("abyno019:-=/ #'[,", k=chance.randint(1, 6))) for _ in range(2000))]
    bodies = _bodies(values)
    for value, body, answer in zip(values, bodies, real(bodies), strict=True):
        assert canonical_text(body, written) == answer["schematic"], value


def test_what_the_factory_does_not_know_is_refused_here_too(real: t.Any) -> None:
    bodies: list[t.Any] = [
        {"customisation": {}},
        {"customization": {"extensions": ["a"]}},
        {"customization": {"systemExtensions": {"official": ["a"]}}},
        {"overlay": {"name": "a", "image": "b", "kind": "c"}},
        {"customization": {"extraKernelArgs": "noapic"}},
        {"customization": {"meta": [{"key": 300, "value": "a"}]}},
        {"customization": {"bootloader": "lilo"}},
    ]
    assert all("error" in answer for answer in real(bodies))
    for body in bodies:
        with pytest.raises(InvalidInput):
            computed(body)


def test_both_programs_are_built_from_what_is_here() -> None:
    assert {"schematic", "machinery", "machinery-1.14"} <= set(programs.PROGRAMS)
