# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An option that a variable of our playbooks gives is named by ``task.called``, never by a fixed word: its reader typed the variable."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import variables

from .tree import UTILS, below, name, tree

EVERYDAY = {
    "image",
    "namespace",
    "node",
    "pod",
    "port",
}  # options of diagnose.yml and bench_mesh.yml, and what most sentences are about
OPTIONS = sorted({*variables.WORDS, *variables._WORD_OF} - EVERYDAY)
_ANY = "|".join(OPTIONS)
# a word with an underscore is nothing but an option; an English word is one where a sentence treats it as one
NAMED = (
    re.compile(rf"(?<![\w./$-])(?:{'|'.join(one for one in OPTIONS if '_' in one)})(?![\w/-])"),
    re.compile(rf"(?:[Gg]ive|[Ss]et|[Cc]orrect|[Ll]eave out|out of|[Ww]ithout|[Nn]ame|[Oo]ption) (?:{_ANY})(?=[,.;:=) ]|$)"),
    re.compile(rf"(?:^|\. )(?:{_ANY})(?=,? (?:is|are|must|needs|cannot|\{{\}}))"),
)
# sentences in which the word is no option of a playbook
OTHERWISE = {
    "preflight/preflight.py": "all {} there",
    "runs/validate.py": "; without documents the taints and labels of pools were not compared",
    "providers/webhook/power.py": "Give it one, or set wait to false and wait for its node with tgp.gpu.node_wait.",  # of the instance modules
    "documents/faults.py": "class {} does not allow namespace {}. Add {} to spec.allowedNamespaces",
    "operations/teardown/teardown.py": "reason {}",
    "documents/parse.py": "machine {}: the classes {} and {} both have it.",
    "documents/service.py": "is for lane service only. Set lanes: [service], or remove it.",  # a field
    "planner/cluster_state.py": "replicas {}",  # of a pool
    "planner/claims/diff.py": "machine {} ({}: {})",
    "bootstrap/talos/push.py": "wait cannot be negative.",  # of talos_apply
    "talos/validation/rules.py": "machine is missing: a worker needs its machine section.",  # a section of the configuration
    "planner/claims/imports.py": "machine {}",  # what a row is about
    "talos/api/machine.py": "mode {}",
    "talos/validation/validate.py": "mode {} must be {} or {}.",  # of talos_validate
}


def texts(module: ast.Module) -> t.Iterator[str]:
    """Every sentence of a file but docstrings and shell scripts; what is filled in is ``{}``."""
    passed: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)) and node.body and isinstance(node.body[0], ast.Expr):
            passed.add(id(node.body[0].value))
        elif isinstance(node, ast.JoinedStr):
            passed.update(id(part) for part in node.values)
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            text = node.value
        else:
            continue
        if " " in text and "\n" not in text:
            yield text


def names_an_option(text: str) -> bool:
    return any(pattern.search(text) for pattern in NAMED)


@pytest.mark.parametrize("path", below("plugins/module_utils", suffix=".py"), ids=name)
def test_no_message_names_an_option_of_a_playbook_by_a_fixed_word(path: Path) -> None:
    reviewed = OTHERWISE.get(path.relative_to(UTILS).as_posix(), "")
    assert [text for text in texts(tree(path)) if names_an_option(text) and not (reviewed and reviewed in text)] == []


def test_every_reviewed_sentence_is_still_there() -> None:
    for place, reviewed in OTHERWISE.items():
        assert any(reviewed in text and names_an_option(text) for text in texts(tree(UTILS / place))), place


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise InvalidInput("x", remedy="Give path, for example report.html.")', True),
        ('f"older_than_days is {days}; lines stay"', True),
        ('f"generation must be a UUID, got {wanted!r}."', True),
        ("f\"Give {task.called('path')}, for example report.html.\"", False),
        ('"There is no pool among the documents."', False),
    ],
)
def test_what_counts_as_the_name_of_an_option(code: str, found: bool) -> None:
    assert any(names_an_option(text) for text in texts(ast.parse(code))) == found
