# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's words: types, regions, disks, templates, names of things, and what events mean."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import gpu_models
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.api import explain
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.launch import choose_template, network_name, script_name
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.records import (
    Event,
    Template,
    machine_of,
    machine_status,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.types import (
    TYPES,
    disk_step,
    machine_type,
    regions_of,
    short_region,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
NODE = "tgp-a1b2c3d4-train-0k3zq"


def test_every_type_names_a_model_that_is_known() -> None:
    for label, kind in TYPES.items():
        assert bool(kind.model) == bool(kind.number) == bool(kind.memory_mib), label
        if kind.model:
            assert kind.model in gpu_models.known() and kind.memory_mib in gpu_models.memory_sizes_mib(kind.model), label


@pytest.mark.parametrize(
    ("label", "model", "number", "gib"),
    [
        ("A6000x4", "A6000", 4, 48),
        ("A100-40Gx2", "A100", 2, 40),
        ("L40Sx2", "L40S", 2, 48),
        ("C12", "", 0, 0),
        ("L4x8", "L4", 8, 24),
        ("Z9", None, 0, None),
    ],
)
def test_new_types_are_read_by_their_pattern(label: str, model: str | None, number: int, gib: int | None) -> None:
    kind = machine_type(label)
    if model is None:
        assert kind is None
    else:
        assert kind is not None and (kind.model, kind.number, kind.price) == (model, number, None)
        assert kind.memory_mib == ((gib or 0) * 1024 or None)


@pytest.mark.parametrize(
    ("label", "regions"),
    [
        ("P4000", ("ny2", "ca1", "ams1")),
        ("A5000", ("ny2", "ca1")),
        ("V100", ("ny2", "ams1")),
        ("H100x8", ("ny2",)),
        ("A4000x2", ("ny2",)),
    ],
)
def test_regions_of_types(label: str, regions: tuple[str, ...]) -> None:
    assert regions_of(label) == regions


@pytest.mark.parametrize(
    ("text", "short"), [("ny2", "ny2"), ("East Coast (NY2)", "ny2"), ("Europe (AMS1) ", "ams1"), ("NY2", "ny2")]
)
def test_both_forms_of_a_region(text: str, short: str) -> None:
    assert short_region(text) == short


@pytest.mark.parametrize(("wanted", "sold"), [(1, 50), (50, 50), (51, 100), (101, 250), (16000, 16000), (16001, None)])
def test_disk_steps(wanted: int, sold: int | None) -> None:
    assert disk_step(wanted) == sold


def template(name: str, *fits: str, agent: str = "LinuxHeadless", system: str = "") -> Template:
    return Template(name, name, agent, system, frozenset(fits), fits)


def test_the_template_for_a_type() -> None:
    old, new = template("ML-in-a-Box", "A4000", system="Ubuntu 20.04"), template("Ubuntu 24.04", "A4000", "H100")
    plain, special = template("Ubuntu 22.04", "A4000", "A5000", "H100"), template("Ubuntu 22.04 H100", "H100")
    windows, desktop = template("Windows", "A4000", agent="WindowsDesktop"), template("Desktop", "C1", agent="LinuxDesktop")
    everything = [old, new, plain, special, windows, desktop, Template("x", "x", "LinuxHeadless", "", None, ())]
    assert choose_template(everything, "A4000") is plain
    assert choose_template(everything, "H100") is special
    assert choose_template([old, new], "A4000") is new
    assert choose_template([old], "A4000") is old
    assert choose_template(everything, "C1") is None


def test_names_lead_back_to_the_machine() -> None:
    assert script_name(NODE, "a") != script_name(NODE, "b")
    for name in (script_name(NODE, "a"), network_name(NODE), NODE):
        assert machine_of(name) == NODE
    assert machine_of(script_name("tgp-demo", "a")) == "tgp-demo"
    for name in ("mine", "example.net", "Tgp.tgp", f"{NODE}.tgp-xyz", ""):
        assert machine_of(name) == ""


def events(*said: tuple[str, str]) -> list[Event]:
    return [
        Event(name, state, "why" if state == "error" else "", NOW + timedelta(minutes=n)) for n, (name, state) in enumerate(said)
    ]


@pytest.mark.parametrize(
    ("word", "said", "off_before", "state", "problem"),
    [
        ("provisioning", [], False, None, ""),
        ("provisioning", [("create", "in progress")], False, None, ""),
        ("provisioning", [("create", "error")], False, InstanceState.FAILED, "its create failed: why"),
        ("off", [("create", "cancelled")], False, InstanceState.FAILED, "its create failed: cancelled"),
        ("off", [("create", "done"), ("stop", "done")], True, None, ""),
        ("off", [("create", "cancelled"), ("stop", "done")], True, None, ""),
        ("off", [("create", "done"), ("stop", "done"), ("start", "error")], False, InstanceState.FAILED, "its start failed: why"),
        ("off", [("create", "done"), ("vm-shutdown-force", "done")], True, None, ""),
        ("off", [("create", "done")], False, None, ""),
        ("off", [("create", "done")], True, InstanceState.FAILED, "it went off and nobody switched it off; its disk is billed on"),
        ("off", [("create", "in progress")], True, None, ""),
        ("starting", [("create", "done")], True, None, ""),
        ("stopping", [("create", "done"), ("deactivate", "new")], False, InstanceState.TERMINATING, ""),
        ("off", [("create", "error"), ("deactivate", "in progress")], False, InstanceState.TERMINATING, ""),
        ("off", [("create", "done"), ("deactivate", "done")], True, InstanceState.TERMINATING, ""),  # read before it went
        ("off", [("create", "done"), ("stop", "done"), ("deactivate", "error")], True, None, "its deletion failed: why"),
    ],
)
def test_what_events_say(
    word: str, said: list[tuple[str, str]], off_before: bool, state: InstanceState | None, problem: str
) -> None:
    found = events(*said)
    assert machine_status(word, reversed(found), off_before=off_before) == (state, problem)


@pytest.mark.parametrize(
    ("body", "text", "told"),
    [
        ({"code": "NOT_FOUND", "message": "Machine not found"}, "", ("NOT_FOUND", "Machine not found")),
        ({"code": "X", "message": "m", "issues": [{"message": "a"}, 3]}, "", ("X", "m; a")),
        ({"message": "m"}, "", (None, "m")),
        (None, "<html>  error code: 1008 </html>", (None, "<html> error code: 1008 </html>")),
    ],
)
def test_error_bodies(body: object, text: str, told: tuple[str | None, str]) -> None:
    assert explain(body, text) == told
