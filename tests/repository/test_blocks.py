# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every code block of the pages is what it says: commands exist and take their options, documents and playbooks are accepted.

Blocks of the pages in RUN are run from beginning to end by the test that stands there. Elsewhere a ``sh`` block holds commands that are checked
here, or the line ``<!-- illustration -->`` stands before it.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import httpx
import jsonschema
import pytest
import yaml
from ansible.cli.doc import DocCLI
from ansible.cli.inventory import InventoryCLI
from ansible.cli.playbook import PlaybookCLI
from ansible_collections.tgp.gpu.plugins.module_utils.core import variables
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS

from sandbox import scenario
from sandbox.__main__ import _parser as sandbox_parser
from sandbox.server import Served
from tests.blocks import Block, blocks, commands

from .tree import ROOT, below, name

RUN = {"README.md": "tests/e2e/test_readme.py", "docs/tutorial/first_node.md": "tests/e2e/test_tutorial.py"}
PAGES = {name(page): blocks(page.read_text(encoding="utf-8")) for page in [ROOT / "README.md", *below("docs", suffix=".md")]}
OUTPUT = ("text", "mermaid", "ini")
_PLAYBOOK = re.compile(r"(?:tgp\.gpu\.|(?:\./)?playbooks/)(\w+?)(?:\.yml)?")


def wrong(block: Block) -> list[str]:
    """What is wrong with a block, in words; empty for one that is fine."""
    try:
        if block.language in OUTPUT or (block.language == "sh" and block.illustration):
            return []
        if block.language == "sh":
            return [problem for words in commands(block.text) for problem in command(words)]
        if block.language == "yaml":
            return document(list(yaml.safe_load_all(block.text)))
        if block.language == "json":
            json.loads(block.text)
            return []
    except (ValueError, yaml.YAMLError) as error:
        return [str(error)]
    return ["a block needs a language: sh, yaml, json, or text for output"]


# ---- commands


def command(words: list[str]) -> list[str]:
    program = words[0].removeprefix(".venv/bin/")
    if program in _PROGRAMS:
        return _PROGRAMS[program](words[1:])
    return [f"{program} is not checked by any test: write <!-- illustration --> before the block"]


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """ValueError in the place of an exit."""

    def error(message: str) -> t.NoReturn:
        raise ValueError(message)

    parser.error = error  # type: ignore[method-assign]
    return parser.parse_args(arguments)


def _cli(cli: t.Any, arguments: list[str]) -> argparse.Namespace:
    made = cli(["ansible", *arguments])
    made.init_parser()
    return _parsed(made.parser, arguments)


def _playbook(arguments: list[str]) -> list[str]:
    found = []
    options = _cli(PlaybookCLI, arguments)
    for one in options.args:
        match = _PLAYBOOK.fullmatch(one)
        path = ROOT / "playbooks" / f"{match[1]}.yml" if match else ROOT / one
        if not path.is_file():
            found.append(f"{one} is no playbook of the collection")
            continue
        play = yaml.safe_load(path.read_text(encoding="utf-8"))[0]
        known = play.get("vars", {}).get("tgp_variables", [])
        found += variables.check(_extra(options.extra_vars), known).problems if match else []
    return found


def _extra(given: t.Sequence[str]) -> set[str]:
    names: set[str] = set()
    for text in given:
        if text.startswith("{"):
            names |= set(json.loads(text))
        elif not text.startswith("@"):
            names |= {pair.partition("=")[0] for pair in re.findall(r"\S+=\S*", text)}
    return names


def _doc(arguments: list[str]) -> list[str]:
    options = _cli(DocCLI, arguments)
    folder = {"module": "plugins/modules/{}.py", "role": "roles/{}"}.get(options.type, f"plugins/{options.type}/{{}}.py")
    short = [one.removeprefix("tgp.gpu.") for one in options.args if one.startswith("tgp.gpu.")]
    return [f"{one} is not in the collection" for one in short if not (ROOT / folder.format(one)).exists()]


def _inventory(arguments: list[str]) -> list[str]:
    _cli(InventoryCLI, arguments)
    return []


def _make(arguments: list[str]) -> list[str]:
    targets = set(re.findall(r"^(\S+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    targets |= {target.replace("$(VENV)", ".venv") for target in targets}
    return [f"make has no target {one}" for one in arguments if "=" not in one and one not in targets]


@functools.cache
def _world() -> Served:
    """The sandbox that levers are tried on."""
    return Served(scenario.load(), seed=17)


def _curl(arguments: list[str]) -> list[str]:
    """A lever of the sandbox is sent to one. A machine that a page names is one of ours there, and a tailnet key is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", default="GET")
    parser.add_argument("-d")
    parser.add_argument("url")
    sent = _parsed(parser, arguments)
    if not sent.url.startswith("$SANDBOX_URL/"):
        return [f"{sent.url} is not of the sandbox: write <!-- illustration --> before the block"]
    with httpx.Client(base_url=_world().environment["SANDBOX_URL"]) as lever:
        path = sent.url.removeprefix("$SANDBOX_URL")
        lever.post("/clock", json={"advance": 60, "speed": 60}).raise_for_status()  # rates of calls are limited
        if machine := re.fullmatch(r"/machines/[\w-]+/(\w+)", path):
            lever.post("/stock", json={"cloud": "vast", "stock": 9}).raise_for_status()
            rented = lever.post("/strangers", json={"cloud": "vast", "name": f"tgp-a1b2c3d4-page-{next(_NUMBERS):05}"})
            path = f"/machines/{rented.raise_for_status().json()['name']}/{machine[1]}"
        answer = lever.request(sent.X, path, content=sent.d)
    refused = answer.is_error and not (path.startswith("/devices") and answer.status_code in (404, 409))
    return [f"{sent.X} {path}: {answer.text}"] if refused else []


def _python(arguments: list[str]) -> list[str]:
    """Modules and files that exist; the sandbox's arguments as the sandbox takes them."""
    if arguments[:2] == ["-m", "sandbox"]:
        _parsed(sandbox_parser(), arguments[2:])
        return []
    module = arguments[1].replace(".", "/") if arguments[:1] == ["-m"] else ""
    if module.startswith("tests/") and not ((ROOT / module).is_dir() or (ROOT / f"{module}.py").is_file()):
        return [f"{arguments[1]} is no module"]
    paths = [one.partition("::")[0] for one in arguments if one.startswith("tests/")]
    return [f"{path} does not exist" for path in paths if not (ROOT / path).exists()]


_PROGRAMS: dict[str, t.Callable[[list[str]], list[str]]] = {
    "ansible-playbook": _playbook,
    "ansible-doc": _doc,
    "ansible-inventory": _inventory,
    "make": _make,
    "python": _python,
    "curl": _curl,
}
_NUMBERS = itertools.count()


# ---- documents


def document(found: list[t.Any]) -> list[str]:
    """Whole documents of ours go through the collection's parser, with a class where a pool names one that is elsewhere; fragments are held
    against the schema of their kind. Other YAML only has to be YAML."""
    ours = [one for one in found if isinstance(one, dict) and one.get("kind") in KINDS]
    whole = [one for one in ours if "apiVersion" in one]
    problems = [problem for one in ours if one not in whole for problem in _fragment(KINDS[one["kind"]], one)]
    for one in found:
        if isinstance(one, dict) and len(one) == 1 and next(iter(one)) in _CLASS["properties"]["spec"]["properties"]:
            problems += _fragment(_CLASS["properties"]["spec"], one)
    if whole:
        classes = {one["metadata"]["name"] for one in whole if one["kind"] == "GPUNodeClass"}
        named = {one["spec"].get("nodeClassRef", {}).get("name") for one in whole if one["kind"] != "GPUNodeClass"}
        try:
            parse([Document("page.yml", _templated(one)) for one in [*whole, *(_class(one) for one in named - classes - {None})]])
        except InvalidInput as error:
            problems += error.problems
    return problems


_CLASS = KINDS["GPUNodeClass"]
_EXAMPLE = next(
    one
    for one in yaml.safe_load_all((ROOT / "examples" / "all_lanes.yml").read_text(encoding="utf-8"))
    if one["kind"] == "GPUNodeClass"
)


def _class(called: str) -> dict[str, t.Any]:
    return {**_EXAMPLE, "metadata": {"name": called}}


def _templated(found: dict[str, t.Any]) -> dict[str, t.Any]:
    """With the collection's template in the place of a file that the reader has."""
    if "machineConfigTemplateFile" not in found["spec"].get("talosConfig", {}):
        return found
    template = {"machineConfigTemplateFile": str(ROOT / "examples" / "templates" / "worker.yaml")}
    return {**found, "spec": {**found["spec"], "talosConfig": {**found["spec"]["talosConfig"], **template}}}


def _fragment(schema: t.Any, found: t.Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(_optional(copy.deepcopy(schema))).iter_errors(found)]


def _optional(schema: t.Any) -> t.Any:
    """The schema without required fields."""
    if isinstance(schema, dict):
        return {key: _optional(value) for key, value in schema.items() if key != "required" or not isinstance(value, list)}
    return [_optional(one) for one in schema] if isinstance(schema, list) else schema


# ---- tests


@pytest.fixture(scope="module", autouse=True)
def _ends() -> t.Iterator[None]:
    yield
    if _world.cache_info().currsize:
        _world().stop()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_checked_or_marked_as_an_illustration(page: str) -> None:
    found = [block for block in PAGES[page] if not (page in RUN and block.language == "sh")]
    assert [f"{page}:{block.line}: {problem}" for block in found for problem in wrong(block)] == []


@pytest.mark.parametrize("page", RUN)
def test_the_test_that_runs_a_page_names_it(page: str) -> None:
    assert Path(page).name in (ROOT / RUN[page]).read_text(encoding="utf-8")


def test_playbooks_of_pages_are_accepted_by_ansible(tmp_path: Path) -> None:
    """Plays, and lists of tasks as the tasks of a play: all in one process."""
    plays = []
    for page, found in PAGES.items():
        for block in found:
            read = list(yaml.safe_load_all(block.text)) if block.language == "yaml" else []
            if read and isinstance(read[0], list) and all(isinstance(one, dict) for one in read[0]):
                whole = read[0] if any("hosts" in one for one in read[0]) else [{"hosts": "all", "tasks": read[0]}]
                plays.append(tmp_path / f"{Path(page).stem}_{block.line}.yml")
                plays[-1].write_text(yaml.safe_dump(whole), encoding="utf-8")
    program = Path(sys.executable).parent / "ansible-playbook"
    run = subprocess.run(
        [str(program), "--syntax-check", "-i", "localhost,", *map(str, plays)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("", "make demo", "a block needs a language"),
        ("sh", "kubectl get nodes", "kubectl is not checked"),
        ("sh", "make dmeo", "make has no target dmeo"),
        ("sh", "ansible-playbook tgp.gpu.provison", "is no playbook"),
        ("sh", "ansible-playbook tgp.gpu.reap --chek", "--chek"),
        ("sh", "ansible-playbook tgp.gpu.reap \\\n  -e tgp_document=a.yml", "tgp_documents"),
        ("sh", 'ansible-playbook tgp.gpu.reap -e \'{"tgp_pool": "a"}\'  # only a', "tgp_pool means nothing"),
        ("sh", "ansible-doc tgp.gpu.fleet_plam", "is not in the collection"),
        ("sh", "python -m sandbox up --env-file env --sped 2", "--sped"),
        ("sh", ".venv/bin/python -m pytest tests/unti", "does not exist"),
        ("sh", 'curl -s -X POST "$SANDBOX_URL/clock" -d \'{"advanced": 9}\'', "advance"),
        ("sh", 'curl -s -X POST "$SANDBOX_URL/machines/rack-1/bury"', "a machine can"),
        ("sh", "curl -s https://example.com/", "is not of the sandbox"),
        ("sh", "for a in 1; do make demo; done", "more than a list of commands"),
        ("yaml", "a: [", "expected"),
        ("yaml", "kind: GPUNodePool\nspec: {bugdet: {}}", "bugdet"),
        ("yaml", "talosConfig: {patchs: []}", "patchs"),
        ("yaml", "apiVersion: tgp.io/v1\nkind: GPUNodeClass\nmetadata: {name: a}\nspec: {providers: [{name: lamda}]}", "lamda"),
        ("json", "{", "Expecting"),
    ],
)
def test_a_wrong_block_is_found(language: str, text: str, problem: str) -> None:
    assert problem in "\n".join(wrong(Block(1, language, text)))


def test_a_mark_makes_an_illustration_of_the_next_block_alone() -> None:
    page = (
        "<!-- illustration: needs root -->\n```sh\nkubectl get nodes\n```\n\n```sh\nkubectl get pods\n```\n\n    kubectl get jobs\n"
    )
    found = blocks(page)
    assert [(block.language, bool(block.illustration), bool(wrong(block))) for block in found] == [
        ("sh", True, False),
        ("sh", False, True),
        ("", False, True),
    ]
