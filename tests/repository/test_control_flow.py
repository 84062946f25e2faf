# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection does never hangs on the words of its own messages, on which function was handed over, or on how a module's name ends."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tgp.gpu.plugins.module_utils.core.run_step import RunPart
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import of_ansible

from .tree import below, name, tree

CODE = [path for path in below("plugins", suffix=".py") if "doc_fragments" not in path.parts]
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_SEVERAL = (ast.Tuple, ast.List, ast.Set)


# ---- functions are called, not compared


def _functions(code: ast.Module) -> set[str]:
    return {one.name for one in code.body if isinstance(one, _FUNCTION)}


def _imported(path: Path) -> set[str]:
    """Functions of other files of the collection that this one knows by name."""
    found: set[str] = set()
    for one in ast.walk(tree(path)):
        if isinstance(one, ast.ImportFrom) and one.level:
            place = path.parents[one.level - 1].joinpath(*(one.module or "").split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    known = _functions(tree(file))
                    found |= {alias.asname or alias.name for alias in one.names if alias.name in known}
    return found


def _bound(function: ast.AST) -> set[str]:
    """Names that are variables of this function."""
    parts = list(ast.walk(function))
    return {one.arg for one in parts if isinstance(one, ast.arg)} | {
        one.id for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


def _methods(code: ast.Module) -> set[str]:
    """Of classes, without properties."""
    classes = [one for one in ast.walk(code) if isinstance(one, ast.ClassDef)]
    return {one.name for each in classes for one in each.body if isinstance(one, _FUNCTION) and not one.decorator_list}


def compared_functions(code: ast.Module, imported: t.Collection[str] = ()) -> list[tuple[int, str]]:
    functions, methods = _functions(code) | set(imported), _methods(code)
    found: list[tuple[int, str]] = []

    def is_function(side: ast.expr, bound: set[str]) -> bool:
        if isinstance(side, _SEVERAL):
            return any(is_function(one, bound) for one in side.elts)
        if isinstance(side, ast.Attribute):
            return isinstance(side.value, ast.Name) and side.value.id in ("self", "cls") and side.attr in methods
        return isinstance(side, ast.Name) and side.id in functions and side.id not in bound

    def look(node: ast.AST, bound: set[str]) -> None:
        if isinstance(node, (*_FUNCTION, ast.Lambda)):
            bound = bound | _bound(node)
        if isinstance(node, ast.Compare) and any(is_function(side, bound) for side in (node.left, *node.comparators)):
            found.append((node.lineno, ast.unparse(node)))
        for child in ast.iter_child_nodes(node):
            look(child, bound)

    look(code, set())
    return found


def test_no_function_is_told_from_another() -> None:
    found = [f"{name(path)}:{line} {text}" for path in CODE for line, text in compared_functions(tree(path), _imported(path))]
    assert found == [], "let a record say what is to be done (as runs/machines.py: Step)"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("def _join(): ...\ndef f(work):\n    return work is _join", True),
        ("def _join(): ...\ndef f(work):\n    return work in (_join, print)", True),
        ("def _join(): ...\ndef f(work):\n    return _join != work", True),
        ("def f(work):\n    return work is taken", True),
        ("class A:\n    def go(self): ...\n    def f(self, work):\n        return work == self.go", True),
        ("def size(): ...\ndef f(size):\n    return size == 3", False),
        ("def size(): ...\ndef f():\n    return size() == 3", False),
        ("class A:\n    @property\n    def size(self): ...\n    def f(self):\n        return self.size == 3", False),
    ],
)
def test_a_function_that_is_compared_is_found(code: str, wrong: bool) -> None:
    assert bool(compared_functions(ast.parse(code), {"taken"})) is wrong


# ---- a module says what it is


def _constants(code: ast.Module) -> dict[str, ast.expr]:
    return {
        one.targets[0].id: one.value
        for one in code.body
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
    }


def endings(code: ast.Module) -> list[tuple[int, str]]:
    """Where something hangs on an ending such as _info."""
    known = _constants(code)
    found = []
    for one in ast.walk(code):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("endswith", "removesuffix"):
            given = [known.get(arg.id, arg) if isinstance(arg, ast.Name) else arg for arg in one.args]
            words = [part.value for arg in given for part in ast.walk(arg) if isinstance(part, ast.Constant)]
            if any(isinstance(word, str) and re.match(r"_[a-z]", word) for word in words):
                found.append((one.lineno, ast.unparse(one)))
    return found


def test_nothing_hangs_on_how_the_name_of_a_module_ends() -> None:
    code = [*below("plugins/module_utils/core", suffix=".py"), *below("plugins/action", suffix=".py")]
    assert [f"{name(path)}:{line} {text}" for path in code for line, text in endings(tree(path))] == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ('looks = name.endswith("_info")', True),
        ('looks = name.endswith(("_info", "_validate"))', True),
        ('_LOOKS = ("_info", "_validate")\ndef f(self):\n    return self._name.endswith(_LOOKS)', True),
        ('looks = name.removesuffix("_info") != name', True),
        ('found = file.endswith(".json")', False),
    ],
)
def test_an_ending_is_found_however_it_is_written(code: str, wrong: bool) -> None:
    assert bool(endings(ast.parse(code))) is wrong


def test_L08_each_module_of_a_run_says_what_it_is_to_the_report() -> None:
    """One closes it; those that never change anything leave nothing in it. AnsibleModule sees nothing of that."""
    said: dict[str, set[str]] = {"close": set(), "none": set(), "runs": set(), "whole": set()}
    known = set(inspect.signature(AnsibleModule.__init__).parameters)
    for path in below("plugins/modules", suffix=".py"):
        spec = importlib.import_module(f"ansible_collections.tgp.gpu.plugins.modules.{path.stem}").SPEC
        assert set(of_ansible(spec)) <= known, path.stem
        if "run_report" in spec:
            assert "run_id" in spec["argument_spec"] and RunPart(spec["run_report"]) is not RunPart.STEP, path.stem
            said[spec["run_report"]].add(path.stem)
    assert said == {
        "close": {"fleet_unlock"},
        "none": {"fleet_bench_mesh", "fleet_diagnose", "fleet_info", "fleet_report", "fleet_validate"},
        "runs": {"fleet_loop"},
        "whole": {"fleet_adopt", "fleet_archive", "fleet_move_claims", "fleet_pause", "fleet_release"},
    }


# ---- words steer nothing, unless they are somebody else's

#: what variables are called that hold words
WORDS = frozenset({
    "cause", "description", "detail", "details", "error", "furthest", "history", "line", "message", "messages", "msg", "note", "place",
    "problem", "problems", "reason", "said", "sentence", "state", "tail", "text", "texts", "warning", "what", "why", "words",
})  # fmt: skip
OTHERS = "another service's words, which says it in no other way"
CONSOLE = "a line of the machine's console, the only way in which its programs tell anything"
NAME = "names that others gave to what they made"
CLOSED = "a word of a closed list or a key, looked up as it stands there"

#: what was looked at: (file below plugins/, words) and why they may be looked for; a name in capitals stands for itself
REVIEWED = {
    ("module_utils/diagnosis/evidence/node.py", "connection refused"): OTHERS,
    (
        "module_utils/diagnosis/evidence/ssh_node.py",
        "==exit ",
    ): "a line that our script prints on the node, and its reader looks for",
    ("module_utils/diagnosis/evidence/ssh_node.py", "GPU "): OTHERS,
    ("module_utils/diagnosis/evidence/ssh_node.py", "_PART"): "a line that our script prints on the node, and its reader looks for",
    ("module_utils/diagnosis/join.py", "50001"): CONSOLE,
    ("module_utils/diagnosis/join.py", "apid"): CONSOLE,
    ("module_utils/diagnosis/join.py", "sign API server CSR"): CONSOLE,
    ("module_utils/diagnosis/mesh.py", "already used"): CONSOLE,
    ("module_utils/diagnosis/mesh.py", "not valid"): CONSOLE,
    ("module_utils/diagnosis/node.py", "label"): "the API server's words about a change of ours that it refused",
    ("module_utils/documents/faults.py", "'{}'"): "jsonschema's words; they alone say which missing field is meant",
    (
        "module_utils/providers/gcp/api.py",
        "{}'",
    ): "Google's sentence names the missing thing; its reason is the same for a missing zone",
    ("module_utils/planner/mesh_benchmark.py", "RETRIED"): OTHERS,
    ("module_utils/providers/gcp/launch.py", "ALL_REGIONS"): "the name of a quota of Google's",
    (
        "module_utils/providers/gcp/storage.py",
        "No such object",
    ): "the text of Cloud Storage for a missing object, not a missing bucket",
    ("module_utils/providers/gcp/launch.py", "Types/"): "part of the path of a thing at Google",
    ("module_utils/kube/client.py", "ValidatingAdmissionPolicy"): OTHERS,
    ("module_utils/kube/client.py", "_TERMINATING"): "the API server's, of a definition that is being deleted",
    ("module_utils/kube/client.py", "admission webhook "): OTHERS,
    ("module_utils/kube/drain/eviction.py", "disruption budget"): OTHERS,
    ("module_utils/kube/drain/eviction.py", "more than one PodDisruptionBudget"): OTHERS,
    ("module_utils/kube/nodes.py", "device-plugin"): NAME,
    ("module_utils/kube/nodes.py", "dra-driver"): NAME,
    ("module_utils/kube/dcgm_exporter.py", "DCGM_FI_"): "names of metrics of NVIDIA's exporter",
    ("module_utils/mesh/tailscale/client.py", "warning"): OTHERS,
    ("module_utils/mesh/wireguard/hub.py", "Unable to access interface"): OTHERS,
    ("module_utils/model/claims.py", "ADOPTED"): "a mark in stored records; those of earlier releases have no other",
    ("module_utils/observe/documents.py", "{}: "): "finds the number of the line that a warning tells, and nothing else",
    ("module_utils/operations/join/service.py", "_FAILED"): CONSOLE,
    ("module_utils/planner/provisioning/acceptance.py", "PULL_FAULTS"): "the kubelet's reasons why an image does not come",
    ("module_utils/planner/provisioning/pre_pull.py", "PULL_FAULTS"): "the same",
    ("module_utils/planner/provisioning/pre_pull.py", "_CREATES"): "the kubelet's reasons of a container whose image is there",
    ("module_utils/planner/offers/no_offer.py", "no accepted lane"): CLOSED,
    ("module_utils/providers/vast/api.py", "invalid user key"): OTHERS,
    ("module_utils/providers/vast/api.py", "session expired"): OTHERS,
    ("module_utils/providers/vast/api.py", "two factor authentication"): OTHERS,
    ("module_utils/reports/page.py", "low"): "a documented word of the report's data; it chooses a colour",
    ("module_utils/reports/page.py", "used up"): "a documented word of the report's data; it chooses a colour",
    ("module_utils/reports/status.py", "tgp tgp-{}-{}"): "what we called our keys at the mesh, which keeps nothing else for us",
    ("module_utils/runs/node_wait.py", "certificate requests"): CLOSED,
}


def _subject(node: ast.AST) -> str:
    """What something is called whose text is looked at: error of ``str(error).lower()``."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[value, *_]) | ast.Call(func=ast.Attribute(value=value)):
            return _subject(value)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.BoolOp(values=[value, *_]) | ast.Subscript(value=value):
            return _subject(value)
        case ast.Attribute(attr=found) | ast.Name(id=found):
            return found
    return ""


def _sought(node: ast.AST) -> t.Iterator[str]:
    """The words that are looked for; {} stands for what is filled in."""
    match node:
        case ast.Constant(value=str(text)) if re.search(r"\w", text):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values)
        case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Set(elts=several):
            for one in several:
                yield from _sought(one)
        case ast.Attribute(attr=constant) | ast.Name(id=constant) if constant.isupper():
            yield constant


def _asked(node: ast.AST) -> t.Iterator[tuple[ast.AST, ast.AST]]:
    """What is looked at, and what for."""
    match node:
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=value), args=[sought, *_]):
            yield value, sought
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for operator, one, other in zip(ops, (left, *comparators), comparators, strict=False):
                if isinstance(operator, (ast.In, ast.NotIn)) and not isinstance(other, _SEVERAL):
                    yield other, one
                elif isinstance(operator, (ast.In, ast.NotIn)):
                    yield one, ast.Tuple([part for part in other.elts if _is_prose(part)])  # type: ignore[attr-defined]
                elif isinstance(operator, (ast.Eq, ast.NotEq)):
                    yield from ((first, second) for first, second in ((one, other), (other, one)) if _is_prose(second))


def _is_prose(node: ast.AST) -> bool:
    return any(re.search(r"[a-z] [a-z]", text) for text in _sought(node))


def searched_words(code: ast.AST) -> set[str]:
    """Words that are looked for in what holds words, or that are a sentence themselves."""
    found = set()
    for node in ast.walk(code):
        for looked_at, sought in _asked(node):
            found |= {text for text in _sought(sought) if _subject(looked_at) in WORDS or re.search(r"[a-z] [a-z]", text)}
    return found


def test_words_of_ours_steer_nothing() -> None:
    found = {(name(path).removeprefix("plugins/"), text) for path in CODE for text in searched_words(tree(path))}
    assert found - set(REVIEWED) == set(), (
        "if we wrote these words, hand over a typed result beside them; if not, say whose they are"
    )
    assert set(REVIEWED) - found == set(), "nobody looks for these any more"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('result = "left" if message.startswith("left alone") else "removed"', {"left alone"}),
        ('end = one.message.endswith("(given back)")', {"(given back)"}),
        ('found if detail.startswith("it says") else None', {"it says"}),
        ('field = "timeZone" if "time zone" in str(error) else "amount"', {"time zone"}),
        ('any("policy" in text or "rules" in text for text in unseen)', {"policy", "rules"}),
        ('one["state"].startswith("low")', {"low"}),
        ('place.endswith((f" key {key}", f"/{key}.json"))', {" key {}", "/{}.json"}),
        ('sentence.startswith(f"{place}: ")', {"{}: "}),
        ("one.message.startswith(MADE_FOR)", {"MADE_FOR"}),
        ('furthest == "no accepted lane"', {"no accepted lane"}),
        ('outcome in ("no accepted lane", "blocked")', {"no accepted lane"}),
        ('"/" in text', set()),
        ('one.state == "denied"', set()),
        ('file.endswith(".json")', set()),
    ],
)
def test_words_that_are_looked_for_are_found(code: str, words: set[str]) -> None:
    assert searched_words(ast.parse(textwrap.dedent(code))) == words
