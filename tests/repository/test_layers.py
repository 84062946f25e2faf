# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports point downwards, decisions stay pure, and nothing half done is shipped."""

from __future__ import annotations

import ast
import functools
import re
import sys
import typing as t
from pathlib import Path

from .tree import ROOT, below, files, name, tree

PLUGINS = ROOT / "plugins"
PACKAGE = "ansible_collections.tgp.gpu.plugins"
NEIGHBOURS = {("documents", "providers"), ("documents", "talos"), ("bootstrap", "talos"), ("store", "kube")}
PURE = ("planner", "diagnosis", "model", "units")
SHIPPED = ("plugins", "roles", "playbooks", "sandbox")


def _layers() -> list[list[str]]:
    """The parts of the collection from top to bottom, as docs/explanation/architecture.md lists them: folders, and the files of core/."""
    table = (
        (ROOT / "docs" / "explanation" / "architecture.md")
        .read_text(encoding="utf-8")
        .partition("## Where things are")[2]
        .partition("\n## ")[0]
    )
    found = []
    for path in re.findall(r"^\| `plugins/([^`]+)`", table, re.MULTILINE):
        if not path.startswith("module_utils/"):
            found.append([path.split("/")[0]])
            continue
        before, _brace, inner = path.removeprefix("module_utils/").rstrip("/").partition("{")
        found.append([before + one for one in inner.partition("}")[0].split(",")] if inner else [before])
    return found


LAYERS = _layers()
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
EDGES = next(layer for layer in LAYERS if "core/http" in layer)


def part(path: Path) -> str:
    """modules, runs, diagnosis/evidence, core/http ...: the part of the collection a file (or a folder) belongs to."""
    inner = path.relative_to(PLUGINS).with_suffix("").as_posix().removeprefix("module_utils/")
    fits = [one for one in RANK if f"{inner}/".startswith(f"{one}/")]
    return max(fits, key=len, default=inner)


class Import(t.NamedTuple):
    """``target`` is a file or folder of ours or None; ``foreign`` the dotted name of anything else; ``typing``: for annotations only."""

    source: Path
    line: int
    target: Path | None
    foreign: str
    typing: bool


@functools.cache
def imports(path: Path) -> list[Import]:
    found: list[Import] = []

    def note(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(path, node.lineno, None, alias.name, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and not (node.module or "").startswith(PACKAGE):
            found.append(Import(path, node.lineno, None, node.module or "", typing_only))
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else PLUGINS
            inner = (node.module or "").removeprefix(PACKAGE).strip(".")
            base = base.joinpath(*inner.split(".")) if inner else base
            for alias in node.names:
                inside = base / alias.name
                exists = inside.is_dir() or inside.with_suffix(".py").exists()
                found.append(Import(path, node.lineno, inside if exists else base, "", typing_only))
        for child in ast.iter_child_nodes(node):
            note(
                child,
                typing_only or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body),
            )

    note(tree(path), False)
    return found


OURS = [one for path in below("plugins", suffix=".py") if "doc_fragments" not in path.parts for one in imports(path)]


def test_every_part_is_in_the_list() -> None:
    assert {part(one.source) for one in OURS} - set(RANK) == set()


def test_imports_point_downwards() -> None:
    wrong = []
    for one in OURS:
        if one.target is None:
            continue
        above, under = part(one.source), part(one.target)
        if above == under or (above, under) in NEIGHBOURS:
            continue
        same = RANK[above] == RANK[under]
        if RANK[above] > RANK[under] or (same and not (above in EDGES and EDGES.index(above) < EDGES.index(under))):
            wrong.append(f"{name(one.source)}:{one.line} {above} imports {under}")
    assert wrong == []


def test_rules_are_pure() -> None:
    """They import the standard library, errors and each other, and of the former nothing that reads the clock, files or the network.
    Units may leave the reading of a text to a library."""
    outside = {"os", "pathlib", "socket", "ssl", "subprocess", "threading", "time", "urllib", "http", "tempfile", "shutil", "io"}
    allowed = sys.stdlib_module_names - outside
    rules = [one for one in OURS if part(one.source) in PURE]
    assert {part(one.source) for one in rules} == set(PURE)
    wrong = [one for one in rules if one.foreign.split(".")[0] not in allowed and one.target is None]
    wrong = [one for one in wrong if not (part(one.source) == "units" and one.typing)]
    rest = [one for one in rules if one.target is not None and part(one.target) not in (*PURE, "core/errors")]
    wrong += [one for one in rest if (part(one.source), part(t.cast(Path, one.target))) != ("units", "core/lazy_import")]
    assert [f"{name(one.source)}:{one.line} {one.foreign or one.target}" for one in wrong] == []
    clocks = re.compile(r"\b(datetime\.now|utcnow|date\.today|time\.time|open)\(")
    pure = [path for one in PURE for path in below(f"plugins/module_utils/{one}", suffix=".py") if part(path) in PURE]
    read = [name(path) for path in pure if clocks.search(path.read_text(encoding="utf-8"))]
    assert read == []


def test_other_packages_are_loaded_lazily() -> None:
    """A module that does not need a package must work, or say which one is missing; so it is imported on first use (libs.lazy)."""
    wrong = [
        f"{name(one.source)}:{one.line} {one.foreign}"
        for one in OURS
        if one.target is None
        and not one.typing
        and one.foreign.split(".")[0] not in (*sys.stdlib_module_names, "ansible", "__future__")
    ]
    assert wrong == []


def test_only_the_outermost_parts_know_the_controller() -> None:
    controller = [
        f"{name(one.source)}:{one.line} {one.foreign}"
        for one in OURS
        if one.foreign.startswith("ansible")
        and not one.foreign.startswith("ansible.module_utils")
        and part(one.source) not in ("action", "inventory", "lookup")
    ]
    assert controller == []


def test_no_error_is_swallowed() -> None:
    """Who catches everything raises again, or says why not beside it."""
    wrong = []
    for path in below("plugins", "sandbox", suffix=".py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type))
            ):
                again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                explained = re.search(r"# noqa: BLE001 - \w+ \w+", lines[node.lineno - 1])
                if not (again or explained):
                    wrong.append(f"{name(path)}:{node.lineno}")
    assert wrong == []


def test_nothing_half_done_is_shipped() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    wrong = [
        f"{name(path)}:{number}"
        for path in below(*SHIPPED)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert wrong == []


def test_no_shortcut_for_tests_in_the_product() -> None:
    """D-18: the product behaves in tests as it does everywhere, and has no asserts that an optimising Python would drop."""
    words = re.compile(r"fake[-_]|pytest|unittest|dummy[-_]|PYTEST_", re.IGNORECASE)
    wrong = [name(path) for path in below("plugins", "roles", "playbooks") if words.search(path.read_text(encoding="utf-8"))]
    asserts = [
        name(path) for path in below("plugins", suffix=".py") if any(isinstance(node, ast.Assert) for node in ast.walk(tree(path)))
    ]
    assert (wrong, asserts) == ([], [])


def test_every_python_file_carries_the_licence() -> None:
    lines = (
        "# Copyright (c) 2026, the tgp.gpu contributors",
        "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
        "# SPDX-License-Identifier: GPL-3.0-or-later",
    )
    wrong = []
    for path in files():
        if path.suffix == ".py" and (text := path.read_text(encoding="utf-8")).strip():
            head = text.splitlines()
            if head[0].startswith("#!"):
                head = head[1:]
            if not all(found.startswith(line) for found, line in zip(head, lines, strict=False)) or len(head) < len(lines):
                wrong.append(name(path))
    assert wrong == []


def test_nothing_tells_of_the_machine_it_was_written_on() -> None:
    places = rb"(?<![\w.}])/(?:work|root|Users)/[A-Za-z.]|/home/(?!user\b|ubuntu\b)[a-z]+/"
    words = re.compile(places + rb"|pythonhosted\.org|proxy\.golang\.org|registry\.npmjs\.org")
    wrong = [
        f"{name(path)}:{number}"
        for path in files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if words.search(line)
    ]
    assert wrong == []


# ---- handlers of signals

_LOCKS = {"set", "acquire", "notify", "notify_all", "put", "print", "write", "info", "warning", "error"}


def locking_handlers(text: str) -> list[int]:
    """Lines of signal.signal calls whose handler takes a lock. It runs between two instructions of the main thread, which
    may hold that lock."""
    if "signal.signal" not in text:
        return []
    module = ast.parse(text)
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
    found = []
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal" and len(node.args) == 2):
            continue
        handler = node.args[1]
        name = handler.attr if isinstance(handler, ast.Attribute) else handler.id if isinstance(handler, ast.Name) else ""
        body = handler if isinstance(handler, ast.Lambda) else functions.get(name)
        calls = [inner.func for inner in ast.walk(body) if isinstance(inner, ast.Call)] if body is not None else []
        names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
        if names & _LOCKS or (body is not None and any(isinstance(inner, ast.With) for inner in ast.walk(body))):
            found.append(node.lineno)
    return found


def test_handlers_of_signals_take_no_lock() -> None:
    paths = below(*SHIPPED, "tests", suffix=".py")
    found = [f"{name(path)}:{line}" for path in paths for line in locking_handlers(path.read_text(encoding="utf-8"))]
    assert len(paths) > 300 and found == []


def test_a_handler_that_takes_a_lock_is_found() -> None:
    inline = "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
    method = "class A:\n    def _on(self, *_):\n        with self.lock:\n            pass\nsignal.signal(number, self._on)\n"
    assert (locking_handlers(inline), locking_handlers(method)) == ([1], [5])
    assert locking_handlers("signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n") == []
