# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What we know of cards and machine types, and what the sandbox sells, against what the clouds themselves published in 2026.

``gpu_table.csv`` has a card and a size of its memory a line, with the names of Vast.ai and the ids of RunPod (several: "|") and the name
in RunPod's catalogue. ``paperspace_table.csv`` has Paperspace's machine types; a price is its list price, where that is a promotion or missing
the last one that was charged.
"""

from __future__ import annotations

import csv
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import gpu_models
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace import types
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod.records import gpu_of
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast import gpu_names

from sandbox import paperspace_types as paperspace_sandbox
from sandbox import runpod_types as runpod_sandbox
from sandbox import vast_catalogue as vast_sandbox

Row = dict[str, str]


def table(name: str) -> list[Row]:
    with (Path(__file__).parent / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


CARDS, MACHINES = table("gpu_table.csv"), table("paperspace_table.csv")


def names(row: Row, column: str) -> list[str]:
    return [one for one in row[column].split("|") if one]


def sizes(column: str) -> dict[str, set[tuple[str, int]]]:
    """What each name of a column may be: model and GiB."""
    found: dict[str, set[tuple[str, int]]] = {}
    for row in CARDS:
        for one in names(row, column):
            found.setdefault(one, set()).add((row["model"], int(row["gib"])))
    return found


def test_the_tables_are_whole() -> None:
    assert (len(CARDS), len(sizes("vast")), len(sizes("runpod")), len(MACHINES)) == (175, 144, 54, 28)


@pytest.mark.parametrize("row", CARDS, ids=lambda row: f"{row['model']} {row['gib']}")
def test_a_card_is_known_with_its_maker_and_its_memory(row: Row) -> None:
    assert gpu_models.vendor(row["model"]) == row["vendor"] and int(row["gib"]) * 1024 in gpu_models.memory_sizes_mib(row["model"])


def test_no_card_has_memory_that_nobody_sells() -> None:
    sold: dict[str, set[int]] = {}
    for row in CARDS:
        sold.setdefault(row["model"], set()).add(int(row["gib"]) * 1024)
    wrong = {
        model: gpu_models.memory_sizes_mib(model)
        for model, all_sizes in sold.items()
        if set(gpu_models.memory_sizes_mib(model)) != all_sizes
    }
    assert not wrong


# ---- Vast.ai


@pytest.mark.parametrize("row", [one for one in CARDS if one["vast"]], ids=lambda row: f"{row['model']} {row['gib']}")
def test_a_name_of_vast_is_its_card_and_back(row: Row) -> None:
    size = int(row["gib"]) * 1024
    for name in names(row, "vast"):
        assert gpu_names.model_of(name) == row["model"]
        assert name in gpu_names.spellings([row["model"]])
    for reported in (size, size * 0.96):  # drivers keep a little for themselves
        assert gpu_names.memory_mib(row["model"], reported) == size


def test_vast_is_asked_for_no_other_name() -> None:
    assert set(gpu_names.spellings(gpu_models.known())) == set(sizes("vast"))


@pytest.mark.parametrize("name", vast_sandbox.GPUS)
def test_the_sandbox_sells_the_cards_of_vast(name: str) -> None:
    model, reported, _capability, _price = vast_sandbox.GPUS[name]
    assert (model, gpu_names.memory_mib(model, reported) // 1024) in sizes("vast")[name]


# ---- RunPod


@pytest.mark.parametrize("row", [one for one in CARDS if one["runpod"]], ids=lambda row: f"{row['model']} {row['gib']}")
def test_an_id_of_runpod_is_its_card(row: Row) -> None:
    for identifier in names(row, "runpod"):
        for told in (int(row["gib"]), None):
            model, memory = gpu_of(identifier, row["runpod_name"], told)
            assert model == row["model"] and memory in ((int(row["gib"]) * 1024,) if told else (int(row["gib"]) * 1024, None))


@pytest.mark.parametrize("identifier", runpod_sandbox.GPUS)
def test_the_sandbox_sells_the_cards_of_runpod(identifier: str) -> None:
    card = runpod_sandbox.GPUS[identifier]
    model, memory = gpu_of(identifier, card.name, card.memory)
    assert model == card.model and (model, (memory or 0) // 1024) in sizes("runpod")[identifier]


# ---- Paperspace


def _type(row: Row) -> tuple[t.Any, ...]:
    price = Decimal(row["price"]) if row["price"] else None
    return row["model"], int(row["gpus"]), int(row["gib"] or 0), price


def test_the_types_of_paperspace_are_those_of_its_pages() -> None:
    ours = {label: (kind.model, kind.number, (kind.memory_mib or 0) // 1024, kind.price) for label, kind in types.TYPES.items()}
    assert ours == {row["type"]: _type(row) for row in MACHINES if row["type"] not in types.NOT_OFFERED}


def test_the_sandbox_sells_the_types_of_paperspace() -> None:
    sold = {label: (kind.model, kind.gpus, kind.memory_gib, kind.price) for label, kind in paperspace_sandbox.TYPES.items()}
    assert sold == {row["type"]: _type(row) for row in MACHINES}
