# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of labels, names of GPU resources and words of reasons stand in one file each; rules read each setting; L-23 names constants."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import labels, reasons, resources
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings

from .tree import ROOT, UTILS, below, name, tree

MODEL = "plugins/module_utils/model"
CODE = [
    *below("plugins/module_utils", suffix=".py"),
    *below("plugins/action", suffix=".py"),
    *below("plugins/inventory", suffix=".py"),
]


def _constants(module: t.Any) -> set[str]:
    return {value for key, value in vars(module).items() if key.isupper() and isinstance(value, str)}


def _docstrings(code: ast.AST) -> set[int]:
    """Texts that stand alone: they document."""
    return {id(one.value) for one in ast.walk(code) if isinstance(one, ast.Expr)}


def texts(code: ast.AST) -> t.Iterator[tuple[int, str]]:
    """Each text of the code with its line: constants, parts of f-strings, and constants that are added to each other."""
    ignored = _docstrings(code)
    for one in ast.walk(code):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in ignored:
            yield one.lineno, one.value
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            parts = [part.value for part in ast.walk(one) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            yield one.lineno, "".join(parts)
        elif isinstance(one, ast.JoinedStr):
            yield one.lineno, "".join(str(part.value) for part in one.values if isinstance(part, ast.Constant))


def found(wanted: t.Callable[[str], bool], allowed: t.Collection[str]) -> list[str]:
    """Where a text is wanted elsewhere than in the ``allowed`` files."""
    lines = []
    for path in CODE:
        if name(path) not in allowed:
            lines += [f"{name(path)}:{line} {text[:60]!r}" for line, text in texts(tree(path)) if wanted(text)]
    return lines


def test_keys_of_labels_stand_in_one_file() -> None:
    """A sentence or a template may quote one. Code that writes or reads one names its constant."""
    keys = _constants(labels)
    template = {"plugins/module_utils/talos/config.py"}  # the built-in machine configuration, as text
    assert (
        found(
            lambda text: text in keys or text.startswith(labels.PREFIX), {f"{MODEL}/labels.py", f"{MODEL}/resources.py", *template}
        )
        == []
    )


def test_names_of_gpu_resources_stand_in_one_file() -> None:
    assert found(lambda text: text in _constants(resources), {f"{MODEL}/resources.py"}) == []


def test_words_of_reasons_stand_in_one_file() -> None:
    """``Calendar`` is a class of the model as well, and pods wait with reasons of their own."""
    words = {str(one) for one in (*reasons.Reason, *reasons.Finding)} - {"Calendar", "Waiting"}
    assert found(lambda text: text in words, {f"{MODEL}/reasons.py"}) == []


def test_kinds_of_steps_that_only_a_plan_has_stand_in_one_file() -> None:
    """Other words of theirs, such as launch and update, are verbs of many things."""
    words = {str(one) for one in reasons.ActionKind if one.startswith("delete_") or one in ("untaint", "annotate")}
    mesh = {"plugins/module_utils/observe/audit.py"}  # what is told of a call: the same words, of calls to the mesh
    assert found(lambda text: text in words, {f"{MODEL}/reasons.py", *mesh}) == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('x = "tgp.io/nodepool"', True),
        ('x = "tgp.io/" + name', True),
        ('x = "tgp" + ".io/" + "nodepool"', True),
        ('x = f"tgp.io/{name}"', True),
        ('def f():\n    """tgp.io/nodepool is read."""', False),
        ('raise ValueError("the label tgp.io/nodepool is missing")', False),
    ],
)
def test_a_key_is_found_however_it_is_written(code: str, wrong: bool) -> None:
    assert any(text.startswith(labels.PREFIX) for _line, text in texts(ast.parse(code))) is wrong


# ---- defaults

PLANNER = "plugins/module_utils/planner"
_CONSTANT = re.compile(r"^\| L-[^|]* \| `([A-Z_]+)`[^|]* \| (-?[0-9.]+) \| `([^`]+)` \|$", re.MULTILINE)


def _reads(path: Path) -> set[str]:
    """Names of attributes that are read of something that is called settings."""
    read = set()
    for one in ast.walk(tree(path)):
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load):
            owner = ast.unparse(one.value)
            if owner.split(".")[-1].lstrip("_") == "settings":
                read.add(one.attr)
    return read


def test_L23_each_default_is_read_by_a_rule() -> None:
    """Saved plans only carry settings from one run to the other."""
    rules = [path for path in below(PLANNER, suffix=".py") if not name(path).startswith(f"{PLANNER}/plans/")]
    read = set().union(*map(_reads, rules))
    fields = {one.name for one in dataclasses.fields(Settings)}
    assert fields - read == set(), "a default that nobody reads is a promise that nobody keeps"


def _finals(path: Path) -> t.Iterator[tuple[str, Decimal, str]]:
    """The numbers of a file that are marked as final: name, value, and the file's path below module_utils."""
    for one in tree(path).body:
        if isinstance(one, ast.AnnAssign) and ast.unparse(one.annotation) == "t.Final" and one.value is not None:
            number = one.value.args[0] if isinstance(one.value, ast.Call) else one.value
            yield ast.unparse(one.target), Decimal(ast.literal_eval(number)), path.relative_to(UTILS).as_posix()


def test_L23_the_table_of_constants_is_true_and_complete() -> None:
    text = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## L-23 .*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    told = [(constant, Decimal(value), path) for constant, value, path in _CONSTANT.findall(section)]
    there = [row for path in (*below(PLANNER, suffix=".py"), *below(MODEL, suffix=".py")) for row in _finals(path)]
    assert len(told) == section.count("\n| L-") and sorted(told) == sorted(there)


def test_nothing_is_stored_twice() -> None:
    """Two names for one key would be two places."""
    for module in (labels, resources):
        values = [value for key, value in vars(module).items() if key.isupper() and isinstance(value, str)]
        assert len(values) == len(set(values))
