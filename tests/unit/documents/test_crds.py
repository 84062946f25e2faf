# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRDs that ship are made from the schemas, and structural."""

from __future__ import annotations

import typing as t
from pathlib import Path

import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.documents import schemas

from schemas import crds

ROOT = Path(__file__).resolve().parents[3]


def test_S3_10_the_shipped_crds_are_up_to_date() -> None:
    assert list(yaml.safe_load_all((ROOT / "schemas" / "crds.yaml").read_text())) == crds.definitions()


def test_S0_13_the_shipped_schemas_are_up_to_date() -> None:
    for kind in schemas.KINDS:
        assert (ROOT / "schemas" / f"{kind.lower()}.schema.json").read_text() == schemas.text(kind)


def test_no_part_is_beyond_structural_schemas() -> None:
    for definition in crds.definitions():
        for path, part in _parts(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "spec"):
            assert not {"const", "$schema", "$ref", "$defs"} & set(part), path
            assert "type" in part or part.get("x-kubernetes-int-or-string"), path
            assert not ("properties" in part and "additionalProperties" in part), path


def _parts(schema: dict[str, t.Any], path: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from _parts(one, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _parts(schema[key], f"{path}.{key}")
