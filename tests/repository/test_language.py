# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the field, and no private ones: pages, plugins, roles, the changelog, schemas and messages use no phrase of PHRASES."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from .tree import ROOT, below, name

# a pattern, and what to write instead
PHRASES = {
    r"patience": "rate limited, retrying in 12 s; exponential backoff",
    r"left alone|leaves? \w+ alone|leaving \w+ alone": "backed off until, not changed, skipped",
    r"rehears\w+": "dry run",
    r"left-?overs?|what remains of": "orphaned, garbage-collected",
    r"no claim knows|nobody knows|knows nobody": "without a claim; outcome unknown, looked up by name",
    r"giv(?:e|es|en|ing) (?:\w+ ){0,4}back|gave (?:\w+ ){0,4}back|hand(?:s|ed)? back": "terminate, delete",
    r"wish(?:es|ed)?": "spec, desired state, requirement",
    r"let in|takes? in(?! \w+ (?:seconds|minutes))|taken in": "adopt",
    r"told|telling": "event, reported, audit log",
    r"on record": "claim, recorded",
    r"(?<!there )is no (?!longer|more|less|other|such)": "must be ..., got ...",
    r"whole or not at all": "atomic",
    r"looks?, decides?,? (?:and )?acts?": "reconcile, plan, apply",
    r"by (?:its|their) own word": "as the provider reports",
    r"strangers?|somebody(?: else)?'?s?": "another owner, not managed by this cluster",
    r"what (?:it|they|that) (?:is|are) worth": "what it permits",
    r"thrown away": "deleted, discarded",
    r"comes? to rest": "converges",
    r"(?:is|are) at work": "is running",
    r"held against": "compared with, checked against",
    r"(?:falls?|fell|is|are) ill": "unhealthy",
    r"as ever": "as usual, as before",
}
_PATTERN = re.compile("|".join(rf"(?P<p{index}>\b(?:{phrase})\b)" for index, phrase in enumerate(PHRASES)), re.IGNORECASE)
_BLOCK = re.compile(r"```.*?```|~~~.*?~~~", re.DOTALL)
_CODE = re.compile(r"^(?: {4}|\t)[^\n]*$|``[^`]+``|`[^`\n]+`|\]\([^)\s]+\)|https?://\S+|\b[CVO]\([^)]*\)", re.MULTILINE)


def _markdown(path: Path) -> str:
    return _CODE.sub(" ", _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8")))


def _strings(path: Path) -> str:
    """What a Python file says to people: comments and string constants of two words and more, and of f-strings the fixed parts."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    comments = [token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT]
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(
        _CODE.sub(" ", string) if "\n" not in string else re.sub(r"`[^`\n]+`", " ", string)
        for string in (*strings, *comments)
        if " " in string
    )


def _yaml(path: Path) -> str:
    """What a YAML file says to people: without templates, keys, and names of variables and their parts (plan_result.leftovers)."""
    text = re.sub(r"`[^`\n]+`|\{\{.*?\}\}", " ", path.read_text(encoding="utf-8"))
    return re.sub(r"\b\w+(?:\.\w+)+\b|^ *[\w.-]+:(?=\s)", " ", text, flags=re.MULTILINE)


def phrases(text: str) -> list[str]:
    """The forbidden ones in it, each with what to write instead."""
    found = []
    for match in _PATTERN.finditer(text):
        instead = list(PHRASES.values())[int((match.lastgroup or "p0")[1:])]
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{line}: {match[0]!r}: write: {instead}")
    return found


def _plain(path: Path) -> str:
    return re.sub(r"`[^`\n]+`", " ", path.read_text(encoding="utf-8"))


_READERS = {".md": _markdown, ".py": _strings, ".yml": _yaml, ".yaml": _yaml, ".json": _plain, ".rst": _plain}
_PLACES = {
    "docs": (".md",),
    "sandbox": (".md",),
    "roles": (".md", ".yml", ".yaml"),
    "playbooks": (".md", ".yml", ".yaml"),
    "extensions": (".md", ".yml", ".yaml"),
    "examples": (".md", ".yml", ".yaml"),
    "changelogs": (".yml", ".yaml"),
    "schemas": (".json", ".py"),
    "plugins": (".py",),
}
PATHS = [
    *(ROOT / page for page in ("README.md", "CHANGELOG.rst", "CONTRIBUTING.md", "SECURITY.md")),
    *(path for folder, suffixes in _PLACES.items() for suffix in suffixes for path in below(folder, suffix=suffix)),
]


@pytest.mark.parametrize("path", PATHS, ids=name)
def test_a_text_uses_the_words_of_the_field(path: Path) -> None:
    assert phrases(_READERS[path.suffix](path)) == []


def test_a_private_phrase_is_found() -> None:
    assert phrases("lambda asks for 12 s of patience") and phrases("budget.soft_percent 120 is no share")
    assert not phrases("There is no plan. The pool is no longer there.")


def test_a_private_phrase_of_a_task_is_found(tmp_path: Path) -> None:
    """Names of options and variables are none."""
    play = tmp_path / "play.yml"
    play.write_text("- name: Give it back\n  told: '{{ told }}'\n  when: plan_result.told\n  # told once\n", encoding="utf-8")
    assert [found.partition(":")[0] for found in phrases(_yaml(play))] == ["1", "4"]
