# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks' variables: which are ours, which only look like it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.variables import ROLES, WORDS, Check, called, check, source

ROOT = Path(__file__).parents[3]
PROVISION = ["documents", "options", "pool", "nodes"]


def plays() -> dict[str, list[dict[str, t.Any]]]:
    return {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "playbooks").glob("*.yml"))}


def test_every_playbook_says_what_it_takes_and_takes_nothing_else() -> None:
    taken: set[str] = set()
    for name, found in plays().items():
        for play in found:
            words = play["vars"]["tgp_variables"]
            assert len(words) == len(set(words)) and set(words) <= WORDS, name
            text = (ROOT / "playbooks" / f"{name}.yml").read_text()
            unused = {word for word in words if f"tgp_given.{word}" not in text}
            assert unused == ({"allow_experimental"} if name == "takeover" else set()), name  # the role reads it
            taken |= set(words)
    assert taken == WORDS


def test_roles_are_those_that_there_are() -> None:
    assert {path.name for path in (ROOT / "roles").iterdir()} == ROLES


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pol", "tgp_pool"),
        ("pools", "tgp_pool"),
        ("node", "tgp_nodes"),
        ("documets", "tgp_documents"),
        ("tgp_pol", "tgp_pool"),
        ("tpg_nodes", "tgp_nodes"),
        ("tgp_document", "tgp_documents"),
    ],
)
def test_a_mistyped_name_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    assert check({name: "x"}, PROVISION) == Check((f"{name} is not a variable of this playbook. Did you mean {meant}?",))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("plan_lock_wiat", "plan_lock_wait"),
        ("plan_lockwait", "plan_lock_wait"),
        ("apply_lock_waits", "apply_lock_wait"),
        ("prereqs_control_plane_tag", "prereqs_control_planes_tag"),
        ("takeover_conifg", "takeover_config"),
    ],
)
def test_a_mistyped_variable_of_a_role_is_refused(name: str, meant: str) -> None:
    assert check({name: "x"}, PROVISION) == Check((f"{name} is not a variable of a role. Did you mean {meant}?",))


@pytest.mark.parametrize("name", ["plan_lock_wait", "plan_owner", "report_author", "check_host", "prereqs_chart"])
def test_variables_of_roles_and_others_that_begin_like_one_are_left_alone(name: str) -> None:
    assert check({name: "x"}, PROVISION) == Check()


@pytest.mark.parametrize("name", ["tgp_mode", "mode", "tgp_everything", "machine"])
def test_a_variable_of_another_playbook_is_refused(name: str) -> None:
    (problem,) = check({name: "x"}, PROVISION).problems
    assert problem == f"{name} means nothing to this playbook, which takes tgp_documents, tgp_options, tgp_pool, tgp_nodes."


def test_a_name_with_our_prefix_that_is_like_none_is_refused() -> None:
    assert check({"tgp_colour": "x"}, PROVISION).problems == (
        "tgp_colour is not a variable of this playbook, which takes tgp_documents, tgp_options, tgp_pool, tgp_nodes.",
    )


def test_what_awx_gives_each_of_its_jobs_is_ignored() -> None:
    """One of them is like a variable of the role awx. Without a job it is a mistake."""
    given = ["awx_job_id", "awx_project_scm_branch", "tower_job_id", "tower_project_scm_branch", "tgp_pool"]
    assert check(given, ["pool"]).problems == ()
    (problem,) = check(given[1:], ["pool"]).problems
    assert "awx_project_branch" in problem
    (problem,) = check([*given, "tgp_pol"], ["pool"]).problems
    assert "tgp_pool" in problem


@pytest.mark.parametrize(
    "name", ["ansible_python_interpreter", "awx_job_id", "tower_user_name", "nodeGroups", "tool", "site", "color"]
)
def test_other_names_are_not_our_business(name: str) -> None:
    assert check({name: "x"}, PROVISION) == Check()


@pytest.mark.parametrize("playbook", sorted(plays()))
def test_variables_of_roles_are_not_our_business(playbook: str) -> None:
    words = plays()[playbook][0]["vars"]["tgp_variables"]
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            assert check(entry.get("options") or {}, words) == Check(), (playbook, path)


def test_old_names_are_told_and_count_from_the_command_line_only() -> None:
    assert check({"pool": "x", "tgp_nodes": 1}, PROVISION) == Check((), ("pool",))
    assert source("pool", {"pool": "x"}, {"pool": "x"}) == "pool"
    assert source("pool", {"pool": "of the inventory"}, {}) == ""
    assert source("pool", {"tgp_pool": "y", "pool": "x"}, {"pool": "x"}) == "tgp_pool"


def test_what_to_destroy_is_not_taken_from_the_inventory() -> None:
    assert source("pool", {"tgp_pool": "y"}, {}) == "tgp_pool"
    assert source("pool", {"tgp_pool": "y"}, {}, extra_only=True) == ""
    assert source("pool", {"tgp_pool": "y"}, {"tgp_pool": "y"}, extra_only=True) == "tgp_pool"


def test_options_are_called_as_the_playbook_calls_them() -> None:
    options = ["pools", "nodes", "names", "all", "lock_wait", "name"]
    assert called(options, PROVISION) == {"pools": "tgp_pool", "nodes": "tgp_nodes"}
    assert called(options, ["machine", "everything"]) == {"names": "tgp_machine", "name": "tgp_machine", "all": "tgp_everything"}
    assert called(options, []) == {}
