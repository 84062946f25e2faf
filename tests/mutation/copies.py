# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults of mutations.yml, where each of them belongs in the source, and a copy of the collection that has one of them.

A fault is found by its symbol and by a run of tokens inside it, so comments, line breaks and trailing commas may change, and a function may
move to another file.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tokenize
import typing as t
from pathlib import Path

import yaml

from tests.coverage import node_ids

ROOT = Path(__file__).resolve().parents[2]
UTILS = Path("plugins") / "module_utils"
Mutation = dict[str, t.Any]  # symbol, from, to, what; rule (with edge or unseen), tests or proves; survives
MUTATIONS: list[Mutation] = yaml.safe_load((Path(__file__).parent / "mutations.yml").read_text())
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::\w+)", re.MULTILINE)
_PYTEST = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=short"]
_OTHER_TIME = 1_000_000_000  # of a changed file, seconds since 1970: bytecode of the unchanged one never fits it


# ---- where a fault belongs


@dataclasses.dataclass(frozen=True)
class Place:
    """A piece of a file's text: its path below plugins/module_utils, and where it begins and ends (characters)."""

    path: str
    start: int
    end: int

    @property
    def package(self) -> str:
        """The folder below plugins/module_utils, or the name of a file that lies in none."""
        return self.path.split("/")[0].removesuffix(".py")


class Misplaced(Exception):
    """A mutation does not fit the source any more."""


def _symbols(body: t.Iterable[ast.stmt], prefix: str = "", *, names: bool = True) -> t.Iterator[tuple[str, ast.stmt]]:
    """Qualified names of functions, classes, methods and of (``names``) of what a module or class assigns."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from _symbols(node.body, f"{prefix}{node.name}.", names=isinstance(node, ast.ClassDef))
        elif names and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((prefix + one.id, node) for one in targets if isinstance(one, ast.Name))


@functools.cache
def _index() -> dict[str, list[tuple[str, int, int]]]:
    """For each qualified name: path below plugins/module_utils, first and last line."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    for file in sorted((ROOT / UTILS).rglob("*.py")):
        for name, node in _symbols(ast.parse(file.read_text()).body):
            place = (file.relative_to(ROOT / UTILS).as_posix(), node.lineno, node.end_lineno or node.lineno)
            found.setdefault(name, []).append(place)
    return found


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """Those that are code; without commas before a closing bracket, which a formatter adds and removes."""
    found = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type not in _NO_CODE]
    behind = [*(one.string for one in found[1:]), ""]
    return [one for one, then in zip(found, behind, strict=True) if not (one.string == "," and then in (")", "]", "}"))]


@functools.cache
def _tokens_of(path: str) -> list[tokenize.TokenInfo]:
    return _tokens((ROOT / UTILS / path).read_text())


def locate(mutation: Mutation) -> Place:
    """The one place where its ``from`` stands inside its symbol (``name``, ``Class.method``, or ``file.py:name`` where several share it)."""
    file, _colon, name = mutation["symbol"].rpartition(":")
    places = [one for one in _index().get(name, []) if not file or f"/{one[0]}".endswith(f"/{file}")]
    if len(places) != 1:
        raise Misplaced(f"{mutation['symbol']} is there {len(places)} times: {', '.join(one[0] for one in places)}")
    path, first, last = places[0]
    inside = [one for one in _tokens_of(path) if first <= one.start[0] <= last]
    wanted = [one.string for one in _tokens(mutation["from"].strip())]
    texts = [one.string for one in inside]
    begins = [at for at in range(len(texts) - len(wanted) + 1) if texts[at : at + len(wanted)] == wanted]
    if len(begins) != 1:
        raise Misplaced(f"{mutation['symbol']} in {path} has {mutation['from']!r} {len(begins)} times")
    offsets = [0]
    for line in (ROOT / UTILS / path).read_text().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    begin, end = inside[begins[0]].start, inside[begins[0] + len(wanted) - 1].end
    return Place(path, offsets[begin[0] - 1] + begin[1], offsets[end[0] - 1] + end[1])


def changed(mutation: Mutation) -> str:
    """The text of the file with the fault; it is Python, and not the same Python."""
    place = locate(mutation)
    text = (ROOT / UTILS / place.path).read_text()
    line = text[text.rfind("\n", 0, place.start) + 1 : place.start]
    indent = line[: len(line) - len(line.lstrip())]
    new = text[: place.start] + mutation["to"].replace("\n", "\n" + indent) + text[place.end :]
    if ast.dump(ast.parse(new)) == ast.dump(ast.parse(text)):
        raise Misplaced(f"{mutation['symbol']}: {mutation['to']!r} says the same as {mutation['from']!r}")
    return new


def draw(count: int, seed: str) -> list[Mutation]:
    """So many of those that have to be noticed, by seed."""
    return random.Random(f"mutations {seed}").sample([one for one in MUTATIONS if "survives" not in one], count)


# ---- a copy of the collection


def copy_to(top: Path) -> Path:
    """The collection once more, in a folder that Python looks into first."""
    collection = top / "ansible_collections" / "tgp" / "gpu"
    shutil.copytree(ROOT / "plugins", collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    return top


def environment(copy: Path) -> dict[str, str]:
    """Of a process that imports the copy."""
    return {**os.environ, "PYTHONPATH": str(copy)}


@contextlib.contextmanager
def mutated(copy: Path, mutation: Mutation) -> t.Iterator[None]:
    """While it lasts, the copy has the fault. Its processes must not keep bytecode (``-B``): two faults may look alike by time and size."""
    file = copy / "ansible_collections" / "tgp" / "gpu" / UTILS / locate(mutation).path
    text, times = file.read_text(), file.stat()
    file.write_text(changed(mutation))
    os.utime(file, (_OTHER_TIME, _OTHER_TIME))
    try:
        yield
    finally:
        file.write_text(text)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


# ---- its tests


@functools.cache
def _tests_of_rule(rule: str) -> tuple[str, ...]:
    """Each by its own id: ``-k`` would also choose every test of a file that carries the rule's name."""
    test = re.compile(rf"^def (test_{rule.replace('-', '')}_\w+)", re.MULTILINE)
    files = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    found = tuple(f"{path}::{name}" for path in files for name in test.findall(path.read_text()))
    if not found:
        raise Misplaced(f"no test carries the name of {rule}")
    return found


def arguments(mutation: Mutation) -> list[str]:
    """Of pytest: the tests of the rule, or those that are named (below tests/), until one fails; else those of the rows it proves."""
    if "rule" not in mutation and "tests" not in mutation:
        return arguments_of_proof(mutation)
    chosen = _tests_of_rule(mutation["rule"]) if "rule" in mutation else [f"tests/{one}" for one in mutation["tests"]]
    return [*_PYTEST, "-x", *chosen]


def arguments_of_proof(mutation: Mutation) -> list[str]:
    """Of pytest: the tests that have to fail because rows of docs/evidence/coverage.md name them; empty where the fault proves no row.
    Misplaced when no fast level has such a test: pytest without a name would run them all."""
    names = sorted(set(mutation.get("proves", {}).values()))
    if missing := [test for test in names if not node_ids(test)]:
        raise Misplaced(f"{mutation['what']}: no fast test is called {', '.join(missing)}")
    chosen = [f"tests/{one}" for test in names for one in node_ids(test)]
    return [*_PYTEST, *chosen] if chosen else []


def run(copy: Path, mutation: Mutation) -> subprocess.CompletedProcess[str]:
    """Its tests against the copy as it is, in a process that imports all anew."""
    command = [sys.executable, "-B", "-m", "pytest", *arguments(mutation)]
    return subprocess.run(command, cwd=ROOT, env=environment(copy), capture_output=True, text=True, timeout=300, check=False)


def failed(code: int, output: str) -> list[str]:
    """The names of the tests that failed."""
    return [one.rpartition("::")[2] for one in _FAILED.findall(output)] if code == 1 else []


def noticed_by(code: int, output: str) -> str:
    """The test that failed first, "" when none did."""
    return next(iter(failed(code, output)), "")
