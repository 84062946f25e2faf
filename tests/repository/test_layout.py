# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes of files and folders below plugins/module_utils, names of its classes, and no import cycles.

A folder holds 3 to 14 files. ``__init__.py`` counts for the smallest number, since a provider may be two files and its ``__init__.py``; it does
not count for the largest one, nor as a file anywhere else. A folder that holds only folders is free.

An import counts wherever it stands: at the top, inside a function, or for annotations only.
"""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import pytest

from .tree import ROOT, UTILS, below, tree

MOST_FILES = 407
MOST_SMALL = 15
SMALL = 50  # lines
LONGEST = 500  # lines
FEWEST_IN_FOLDER, MOST_IN_FOLDER = 3, 14
MOST_IGNORED_TYPES = 2
GONE = ("fleet", "act")  # folders that were sorted into packages with the field's names
#: a class name that is there more than once, and why both keep it
SHARED_NAMES = {
    "Answer": "whether a device plugin is there, and of an eviction and an HTTP call: no file knows two of them",
    "Attempt": "a launch, and a call that Tailscale refused: the second is known to its package only",
    "Calls": "the API calls of one cloud: clouds do not know each other",
    "Reader": "of a user's document and, as a protocol, of a tailnet",
    "Reason": "why a machine ends, and why a pool does not serve a pod",
    "Removal": "which nodes of a pool go, and how one attempt of a garbage collection ended",
    "Room": "for pods on a machine, and for disruptions in a budget",
    "Step": "of a termination, and of a saved plan",
    "Target": "of a drain, and of a probe",
    "Use": "of a node's GPUs, of a limit, and of the hours of a machine's life",
    "Wanted": "what a cloud's connector is given, and the size of a pool in a saved plan",
}
VAGUE_FUNCTIONS = {"judge", "_judge"}  # a step of a plan is named after what it decides
Graph = dict[str, set[str]]


def python(folder: Path) -> list[Path]:
    """All Python files below the folder; of the repository those that git has."""
    if folder.is_relative_to(ROOT):
        return below(folder.relative_to(ROOT).as_posix(), suffix=".py")
    return sorted(folder.rglob("*.py"))


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def files(folder: Path) -> dict[str, int]:
    """Files below the folder and their lines, without ``__init__.py``."""
    return {path.relative_to(folder).as_posix(): lines(path) for path in python(folder) if path.name != "__init__.py"}


def small(folder: Path) -> list[str]:
    return [path for path, count in files(folder).items() if count < SMALL]


def too_long(folder: Path) -> list[str]:
    return [f"{path}: {count} lines" for path, count in files(folder).items() if count > LONGEST]


def odd_folders(folder: Path) -> list[str]:
    """Folders with too few or too many files of their own."""
    held: dict[str, list[str]] = {}
    for path in python(folder):
        held.setdefault(path.parent.relative_to(folder).as_posix(), []).append(path.name)
    held.pop(".", None)
    counts = {one: (len(names), len(names) - names.count("__init__.py")) for one, names in held.items()}
    return [
        f"{one}: {without} files"
        for one, (all_, without) in sorted(counts.items())
        if without and (all_ < FEWEST_IN_FOLDER or without > MOST_IN_FOLDER)
    ]


def ignored_types(folder: Path) -> int:
    return sum(len(re.findall(r"#\s*type:\s*ignore", path.read_text(encoding="utf-8"))) for path in python(folder))


def shared_names(folder: Path) -> dict[str, list[str]]:
    """Class names that are there more than once, with the files that define them."""
    held: dict[str, list[str]] = {}
    for path in python(folder):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                held.setdefault(node.name, []).append(path.relative_to(folder).as_posix())
    return {name: places for name, places in sorted(held.items()) if len(places) > 1}


def vague_functions(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder).as_posix()}:{node.lineno} {node.name}"
        for path in python(folder)
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in VAGUE_FUNCTIONS
    ]


def graph(folder: Path) -> Graph:
    """What each file below the folder imports of the others. An import of a package is one of its ``__init__.py``."""
    package = folder.name
    known = {".".join((package, *path.relative_to(folder).with_suffix("").parts)): path for path in python(folder)}
    found: Graph = {name.removesuffix(".__init__"): set() for name in known}
    for name, path in known.items():
        own = name.removesuffix(".__init__")
        for node in ast.walk(tree(path)):
            found[own].update(one for one in _imported(node, name.split("."), found) if one != own)
    return found


def _imported(node: ast.AST, source: list[str], known: t.Container[str]) -> t.Iterator[str]:
    if isinstance(node, ast.Import):
        wanted = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = [*(source[: -node.level] if node.level else ()), *((node.module or "").split(".") if node.module else ())]
        wanted = [".".join((*base, alias.name)) for alias in node.names]
    else:
        return
    for one in wanted:
        whole = re.search(rf"(?:^|\.)({re.escape(source[0])}(?:\.|$).*)", one)  # ours may be named by all that is above it
        inner = whole[1] if whole else ""
        for target in (inner, inner.rpartition(".")[0]):
            if target in known:
                yield target
                break


def cycles(imports: Graph) -> list[list[str]]:
    """Groups of files that reach each other by imports (Tarjan), each sorted."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        number[one] = lowest[one] = len(number)
        path.append(one)
        for other in sorted(imports.get(one, ())):
            if other not in number:
                visit(other)
                lowest[one] = min(lowest[one], lowest[other])
            elif other in path:
                lowest[one] = min(lowest[one], number[other])
        if lowest[one] == number[one]:
            group = path[path.index(one) :]
            del path[path.index(one) :]
            if len(group) > 1:
                found.append(sorted(group))

    for one in sorted(imports):
        if one not in number:
            visit(one)
    return found


# ---- the collection


def test_no_old_folder_comes_back() -> None:
    assert [path for path in files(UTILS) if set(Path(path).parts[:-1]) & set(GONE)] == []


def test_the_number_of_files_stays() -> None:
    assert 100 < len(files(UTILS)) <= MOST_FILES
    assert len(small(UTILS)) <= MOST_SMALL, small(UTILS)


def test_no_file_is_too_long() -> None:
    assert too_long(UTILS) == []


def test_folders_have_3_to_14_files() -> None:
    assert odd_folders(UTILS) == []


@pytest.mark.parametrize("folder", ["plugins/module_utils", "sandbox"])
def test_no_import_cycles(folder: str) -> None:
    imports = graph(ROOT / folder)
    assert sum(map(len, imports.values())) > 100
    assert cycles(imports) == []


def test_a_class_name_means_one_thing() -> None:
    assert {name: places for name, places in shared_names(UTILS).items() if name not in SHARED_NAMES} == {}
    assert sorted(set(SHARED_NAMES) - set(shared_names(UTILS))) == [], "listed and shared no more"


def test_no_function_is_called_judge() -> None:
    assert vague_functions(UTILS) == []


def test_types_are_ignored_rarely() -> None:
    assert ignored_types(ROOT / "plugins") <= MOST_IGNORED_TYPES


# ---- each check finds what it is for


def write(folder: Path, texts: t.Mapping[str, str]) -> Path:
    """A made-up tree of files, named without ``.py``."""
    for name, text in texts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_sizes_are_seen(tmp_path: Path) -> None:
    sizes = {"a/big": 501, "a/fits": 500, "a/crumb": 49, "a/plain": 50, "a/__init__": 3}
    house = write(tmp_path / "house", {name: "x = 1\n" * count for name, count in sizes.items()})
    assert sorted(files(house)) == ["a/big.py", "a/crumb.py", "a/fits.py", "a/plain.py"]
    assert (small(house), too_long(house)) == (["a/crumb.py"], ["a/big.py: 501 lines"])


@pytest.mark.parametrize(
    ("count", "init", "odd"),
    [
        (1, True, True),
        (2, False, True),
        (2, True, False),
        (3, False, False),
        (14, True, False),
        (15, False, True),
        (0, True, False),
    ],
)
def test_folders_are_seen(tmp_path: Path, count: int, init: bool, odd: bool) -> None:
    names = [*(f"room/file{number}" for number in range(count)), *(["room/__init__"] if init else [])]
    house = write(tmp_path / "house", dict.fromkeys(names, ""))
    assert odd_folders(house) == ([f"room: {count} files"] if odd else [])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"a": "from .b import x", "b": "from .c import x", "c": ""}, []),
        ({"a": "from . import b", "b": "from .c import x", "c": "from .a import x"}, [["house.a", "house.b", "house.c"]]),
        ({"a": "def f():\n    from .b import x", "b": "from .a import x"}, [["house.a", "house.b"]]),
        ({"a": "if t.TYPE_CHECKING:\n    from .b import X", "b": "from .a import x"}, [["house.a", "house.b"]]),
        ({"a/b": "from ..c import x", "c": "from .a.b import x"}, [["house.a.b", "house.c"]]),
        ({"a/b": "from ..c import x", "c": "from other.house.a import b"}, [["house.a.b", "house.c"]]),
        ({"a/__init__": "from .b import x", "a/b": "from ..c import y", "c": "from .a import x"}, [["house.a", "house.a.b", "house.c"]]),
        ({"a": "from .b import x\nfrom .c import x", "b": "from .a import x", "c": "from .d import x", "d": "from .c import x"},
         [["house.c", "house.d"], ["house.a", "house.b"]]),
    ],
)  # fmt: skip
def test_circles_are_seen(tmp_path: Path, texts: dict[str, str], expected: list[list[str]]) -> None:
    assert sorted(cycles(graph(write(tmp_path / "house", texts)))) == sorted(expected)


def test_names_are_seen(tmp_path: Path) -> None:
    texts = {"a": "class Room: ...", "b/c": "def f():\n    class Room: ...", "d": "class Door:\n    def judge(self): ..."}
    house = write(tmp_path / "house", texts)
    assert shared_names(house) == {"Room": ["a.py", "b/c.py"]}
    assert vague_functions(house) == ["d.py:2 judge"]


def test_ignored_types_are_seen(tmp_path: Path) -> None:
    assert (
        ignored_types(write(tmp_path, {"a": "x = 1  # type: ignore[assignment]\ny = 1  #type:ignore\n# a type is ignored\n"})) == 2
    )
