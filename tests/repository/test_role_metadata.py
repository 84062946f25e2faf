# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role has the metadata, the argument specification and the README that Galaxy shows."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from .tree import ROOT

ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())


def read(path: Path) -> t.Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_has_metadata_that_agree_with_the_collection(role: Path) -> None:
    about, galaxy, runtime = read(role / "meta" / "main.yml"), read(ROOT / "galaxy.yml"), read(ROOT / "meta" / "runtime.yml")
    assert about["dependencies"] == []
    info = about["galaxy_info"]
    assert info["standalone"] is False and info["platforms"]
    assert [info["author"]] == galaxy["authors"] and [info["license"]] == galaxy["license"]
    assert f">={info['min_ansible_version']}.0" == runtime["requires_ansible"]
    assert 15 <= len(info["description"]) <= 100 and not info["description"].endswith(".")


def test_descriptions_differ() -> None:
    assert len({read(role / "meta" / "main.yml")["galaxy_info"]["description"] for role in ROLES}) == len(ROLES)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_has_a_readme_and_describes_its_options(role: Path) -> None:
    title, _, text = (role / "README.md").read_text(encoding="utf-8").partition("\n")
    assert title == f"# {role.name}" and text.strip()
    options = read(role / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults" / "main.yml") if (role / "defaults").exists() else {}
    assert all(name.startswith(f"{role.name}_") and options[name]["description"] for name in options)
    fixed = {name: value for name, value in defaults.items() if "{{" not in str(value)}
    assert {name: options[name]["default"] for name in fixed if "default" in options[name]}.items() <= fixed.items()
