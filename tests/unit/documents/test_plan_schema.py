# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of saved plans that ships is that of the code, and says of a plan what the code says."""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.record import from_record, to_record

from schemas import plan_schema

from ..fleet.test_L22_saved_plan import saved

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "schemas" / "plan.schema.json").read_text())


def test_L22_the_shipped_schema_is_up_to_date() -> None:
    assert plan_schema.schema() == SCHEMA
    assert (Path(__file__).resolve().parents[3] / "schemas" / "plan.schema.json").read_text() == plan_schema.text()


def test_L22_a_plan_meets_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(to_record(saved()), SCHEMA)


@pytest.mark.parametrize(
    "path, value",
    [
        ("steps.0.kind", None),
        ("steps.0.price_hour", 1),
        ("steps.0.price_hour", "dear"),
        ("cluster_id", 5),
        ("format_version", 2),
        ("more", ""),
    ],
)
def test_L22_what_the_schema_refuses_the_code_refuses(path: str, value: t.Any) -> None:
    content: t.Any = copy.deepcopy(to_record(saved()))
    place, *parts = content, *path.split(".")
    for part in parts[:-1]:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[parts[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)
    with pytest.raises(InvalidInput):
        from_record(content)


def test_L22_the_parts_of_a_plan_are_described() -> None:
    for name in ("Request", "Step", "Precondition"):
        fields = plan_schema.schema()["$defs"][name]["properties"]
        assert any("description" in one for one in fields.values()), name
    assert all("description" in one for one in plan_schema.schema()["properties"].values())
