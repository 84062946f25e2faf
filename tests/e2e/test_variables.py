# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of playbooks from the command line, from an inventory, and mistyped."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.fixtures.demo import DEMO

from .box import Result, Sandbox


def looked(sandbox: Sandbox, folder: Path, playbook: str, group: dict[str, t.Any], *arguments: str) -> Result:
    """A rehearsal with these group variables and no document but theirs."""
    (folder / "group_vars").mkdir(exist_ok=True)
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(group))
    (folder / "hosts.yml").write_text("all: {hosts: {localhost: {ansible_connection: local}}}\n")
    return sandbox.playbook(playbook, "-i", str(folder / "hosts.yml"), *arguments, documents=None, check=True)


def planned(result: Result) -> int:
    """How many machines of the pool would be launched."""
    return len(set(re.findall(r"tgp-[0-9a-f]{8}-training-[0-9a-z]{5}", result.text)))


def test_group_variables_with_our_prefix_count_and_others_do_not(sandbox: Sandbox, tmp_path: Path) -> None:
    group = {
        "tgp_documents": str(DEMO),
        "tgp_pool": "training",
        "tgp_nodes": "{{ how_many }}",
        "how_many": 3,
        "nodes": 7,
        "documents": "/nowhere",
    }
    found = looked(sandbox, tmp_path, "provision", group).succeeded()
    assert planned(found) == 3 and "default/own" not in found.text
    one = looked(sandbox, tmp_path, "provision", group, "-e", "tgp_nodes=1").succeeded()
    assert planned(one) == 1
    assert "deprecat" not in (found.text + one.text).lower()


def test_old_names_count_from_the_command_line_with_a_warning(sandbox: Sandbox, tmp_path: Path) -> None:
    found = sandbox.playbook(
        "provision", "-e", f"documents={DEMO}", "-e", "pool=training", "-e", "nodes=2", documents=None, check=True
    )
    assert planned(found.succeeded()) == 2
    assert "The variable pool is called tgp_pool now" in found.words and "0.3.0" in found.words
    unknown = looked(sandbox, tmp_path, "provision", {"documents": str(DEMO), "pool": "training"})
    assert unknown.rc == 2 and "There is no pool among the documents" in unknown.words


@pytest.mark.parametrize(
    ("playbook", "variable", "sentence"),
    [
        ("provision", "pol=training", "pol is not a variable of this playbook. Did you mean tgp_pool?"),
        ("provision", "tgp_pol=training", "tgp_pol is not a variable of this playbook. Did you mean tgp_pool?"),
        ("destroy", "machin=tgp-x", "machin is not a variable of this playbook. Did you mean tgp_machine?"),
        ("reap", "tgp_nodes=1", "tgp_nodes means nothing to this playbook, which takes tgp_documents, tgp_options, tgp_summary."),
        ("autoscale", "nodes=1", "nodes means nothing to this playbook"),
        ("prices", "tgp_gpu_typ=A10", "Did you mean tgp_gpu_type?"),
        ("prereqs", "tgp_documets=x", "tgp_documets is not a variable of this playbook. Did you mean tgp_documents?"),
        ("takeover", "tgp_ssh_becom=false", "tgp_ssh_becom is not a variable of this playbook. Did you mean tgp_ssh_become?"),
        ("join_kubelet", "tgp_adress=192.0.2.1", "tgp_adress is not a variable of this playbook. Did you mean tgp_address?"),
    ],
)
def test_a_mistyped_variable_is_refused(sandbox: Sandbox, playbook: str, variable: str, sentence: str) -> None:
    before = sandbox.calls()
    found = sandbox.playbook(playbook, "-i", "localhost,", "-e", variable)  # takeover.yml is for hosts of an inventory
    assert found.rc == 2 and sentence in found.words
    assert "Traceback" not in found.text and sandbox.calls() == before


def test_destroy_ends_nothing_that_only_the_inventory_names(sandbox: Sandbox, tmp_path: Path) -> None:
    group = {"tgp_documents": str(DEMO), "tgp_pool": "training", "tgp_everything": True, "tgp_machine": "tgp-x"}
    found = looked(sandbox, tmp_path, "destroy", group)
    assert found.rc == 2 and "Nothing is named to be terminated" in found.words
