# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-e name=value`` hands everything over as text, and Ansible takes no text for a condition or a number."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from .tree import ROOT

ROLES = sorted(folder.parent.parent for folder in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
FILTER = {"bool": "bool", "int": "int", "float": "float"}


def unsafe_uses(role: Path) -> t.Iterator[str]:
    """Places where an option is reckoned with as it stands. ``{{ name }}`` alone only hands it on to a module, which converts it."""
    options = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"][
        "options"
    ]
    for file in sorted((role / "tasks").glob("*.yml")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for name, option in options.items():
                wanted = FILTER.get(option.get("type", "str"))
                if wanted is None or re.fullmatch(rf'\s*[a-z_]+: "{{{{ {name} }}}}"', line):
                    continue
                bare = re.findall(rf"\b{name}\b(?!\s*\|\s*(?:{wanted}\b|default\())", line)
                if bare and " ~ " not in line and "{{ " + name + " }}" not in line:
                    yield f"{file.relative_to(ROOT)}:{number}: {name} needs | {wanted}"


def test_playbooks_that_take_a_summary_hand_it_on_and_are_named_in_the_reference() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "playbooks").glob("*.yml")}
    taking = {name for name, text in texts.items() if re.search(r"tgp_variables: \[[^]]*\bsummary\b", text)}
    assert {name for name in taking if "'summary': tgp_given.summary | default('')" not in texts[name]} == set()
    section = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8").partition("### The summary of a run")[2]
    named, rejecting = section.partition("```\n")[2].partition("The file is")[0].split("The other playbooks")
    assert set(re.findall(r"`(\w+)`", named)) == taking
    assert {"prices", "join_kubelet", "takeover"} <= set(re.findall(r"`(\w+)`", rejecting)) - taking


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_options_of_roles_may_be_given_as_text(role: Path) -> None:
    assert list(unsafe_uses(role)) == []
