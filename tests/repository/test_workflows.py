# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflows of the forge and the hooks of pre-commit: what they call is there, they may do little, and only a tag publishes."""

from __future__ import annotations

import itertools
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from tests import run
from tests.matrix import PRE_RELEASES, combinations

from .test_makefile import phony
from .tree import ROOT, name

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
Found = dict[t.Any, t.Any]


def load(path: Path) -> Found:
    found: Found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def workflow(stem: str) -> Found:
    return load(ROOT / ".github" / "workflows" / f"{stem}.yml")


def jobs() -> list[tuple[str, Found]]:
    return [(f"{path.stem}.{job}", found) for path in WORKFLOWS for job, found in load(path)["jobs"].items()]


def steps() -> list[tuple[str, Found]]:
    own = [(job, step) for job, found in jobs() for step in found["steps"]]
    return own + [(name(path), step) for path in ACTIONS for step in load(path)["runs"]["steps"]]


def commands() -> list[tuple[str, str]]:
    """Every line that a job runs, with each value of its matrix put in."""
    found = []
    for job, content in jobs():
        matrix = dict(content.get("strategy", {}).get("matrix", {}))
        rows = matrix.pop("include", None) or [
            dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())
        ]
        for step in content["steps"]:
            for row in rows:
                text = step.get("run", "")
                for key, value in row.items():
                    text = text.replace(f"${{{{ matrix.{key} }}}}", value)
                found += [(job, line) for line in text.splitlines()]
    return found


# ---- what is called


def test_the_matrix_of_the_forge_is_the_table_of_make_matrix() -> None:
    rows = workflow("ci")["jobs"]["unit"]["strategy"]["matrix"]["include"]
    assert rows == [{"core": one.core, "python": one.python} for one in combinations()]
    allowed = workflow("ci")["jobs"]["unit"]["continue-on-error"]
    assert re.findall(r"matrix\.core == '([\d.]+)'", allowed) == list(PRE_RELEASES), "only a pre-release may fail"


def test_the_commands_name_what_exists() -> None:
    called = commands()
    targets = {(job, found) for job, line in called for found in re.findall(r"\bmake ([\w-]+)", line)}
    assert len(targets) > 5 and {one for one in targets if one[1] not in phony()} == set()
    paths = {(job, path) for job, line in called for path in re.findall(r"(?<![\w./-])(?:tests|sandbox|docs|roles)/[\w./-]+", line)}
    assert len(paths) > 5 and sorted(one for one in paths if not (ROOT / one[1]).exists()) == []
    modules = {(job, module.replace(".", "/")) for job, line in called for module in re.findall(r"-m (tests[\w.]*)", line)}
    assert modules and [one for one in modules if not (ROOT / f"{one[1]}.py").exists()] == []
    assert [one for one in called if "${{" in one[1]] == [], "an expression in a shell line can be somebody's text"


def test_the_files_that_caches_and_actions_depend_on_exist() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in [*WORKFLOWS, *ACTIONS])
    patterns = [one for found in re.findall(r"hashFiles\((.+?)\)", texts) for one in re.findall(r"'(.+?)'", found)]
    patterns += re.findall(r"(?:dependency-path|version-file): (\S+)", texts)
    assert len(patterns) > 4
    skipped = (".venv", ".cache")
    found = {
        one: [path for path in ROOT.glob(one.replace("**/", "*/")) if path.parts[len(ROOT.parts)] not in skipped]
        for one in patterns
    }
    assert [one for one, paths in found.items() if not paths] == []


def test_the_go_that_is_set_up_builds_everything() -> None:
    """The file that names Go's version asks for the newest of all modules."""
    (file,) = re.findall(r"go-version-file: (\S+)", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))

    def wanted(path: Path) -> tuple[int, ...]:
        (version,) = re.findall(r"^go ([\d.]+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return tuple(int(part) for part in version.split("."))

    assert wanted(ROOT / file) == max(wanted(path) for path in (ROOT / "tests").rglob("*.mod"))


# ---- what is allowed


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_a_workflow_may_only_read(path: Path) -> None:
    content = load(path)
    assert content["permissions"] == {"contents": "read"} and content["concurrency"]["group"]
    assert {job for job, found in content["jobs"].items() if "permissions" in found or "timeout-minutes" not in found} == set()
    assert "pull_request_target" not in content[True]  # YAML reads the key "on" as true


def test_actions_are_of_the_forge_itself_or_of_this_repository() -> None:
    used = [step["uses"] for _job, step in steps() if "uses" in step]
    local = [one for one in used if one.startswith("./")]
    assert [one for one in local if not (ROOT / one / "action.yml").exists()] == []
    assert [one for one in used if one not in local and not re.fullmatch(r"actions/[\w-]+@v\d+", one)] == []
    assert all(step["with"]["persist-credentials"] is False for _job, step in steps() if "actions/checkout" in step.get("uses", ""))


def test_only_a_tag_publishes_with_the_token_of_an_environment() -> None:
    release = workflow("release")
    assert release[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    publish = release["jobs"]["publish"]
    assert (publish["environment"], publish["needs"], publish["if"]) == ("galaxy", "build", "github.ref_type == 'tag'")
    assert [line for job, line in commands() if "publish" in line and job != "release.publish"] == []
    secrets = [(job, step["name"]) for job, step in steps() if "secrets." in str(step)]
    assert secrets == [("release.publish", "Publish")]
    assert [line for _job, line in commands() if re.search(r"secrets\.|TOKEN|--token|--api-key", line)] == []


# ---- pre-commit


def test_the_hooks_are_local_and_run_the_tools_of_the_checks() -> None:
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert repository["repo"] == "local" and {hook["language"] for hook in hooks.values()} == {"system"}
    assert set(hooks) == {"ruff", "ruff-format", "mypy", "changelog", "ansible-lint"}
    entries = [hook["entry"].split() for hook in hooks.values()]
    programs = {Path(words[0]) for words in entries}
    assert all((ROOT / program).exists() for program in programs if (ROOT / ".venv").exists())
    scripts = [words for words in entries if words[0].endswith("/python")]
    assert [words[1:3] for words in scripts] == [["tests/run.py", "--only"]] * 2
    assert {words[3] for words in scripts} <= set(run.CHECKS)
