# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items 1, 3 and 4: variables, where modules run, action groups."""

from __future__ import annotations

import json

from tests.mistakes.desk import Document

from .desk import Desk, Done
from .row import Row, ended

VARIABLES = "tests/e2e/test_variables.py"
PLACES = "tests/e2e/test_where_modules_run.py"
LOOK: Document = {"tgp.gpu.control_plane_info": {"endpoint": "https://127.0.0.1:9", "talos": False}}
READ: Document = {"tgp.gpu.instance_info": {"clouds": ["lambda"]}}
MISTYPED: Document = {"tgp.gpu.lambda_instance": {"name": "tgp-x", "instance_type": "gpu_1x_a10", "sise": 1}}


def _given(desk: Desk, playbook: str, *words: str, **variables: object) -> Done:
    """With -e, by exactly these names."""
    return desk.run("ansible-playbook", f"playbooks/{playbook}.yml", "-e", json.dumps(variables), *words)


def _of_a_group(desk: Desk, **variables: object) -> Done:
    return desk.run(
        "ansible-playbook",
        "playbooks/provision.yml",
        "-i",
        desk.inventory(**variables),
        "--check",
        shown=f"ansible-playbook playbooks/provision.yml -i inventory.yml --check  # group variables: {', '.join(variables)}",
    )


def _survey(desk: Desk) -> Done:
    """AWX sends the answers of a survey as extra variables, empty ones too."""
    return _given(desk, "provision", "--check", tgp_documents=desk.documents(), tgp_pool="training", tgp_nodes="", tgp_options={})


def _nodes_of_a_group(desk: Desk) -> Done:
    prefix = "" if desk.version.old else "tgp_"
    extra = json.dumps({f"{prefix}documents": desk.documents()})
    return desk.run("ansible-playbook", "playbooks/provision.yml", "-i", desk.inventory(nodes=4), "-e", extra, "--check")


def _loop(desk: Desk) -> Done:
    return desk.playbook("autoscale", "--check", loop=True)


ITEM_1 = [
    Row(
        1, "tgp_documents and tgp_nodes count with -e",
        lambda desk: _given(desk, "provision", "--check", tgp_documents=desk.documents(), tgp_pool="training", tgp_nodes=2),
        ended(2, "There is no pool among the documents"), ended(0, "then $1.38/h"),
        f"{VARIABLES}::test_group_variables_with_our_prefix_count_and_others_do_not",
    ),
    Row(
        1, "they count from an inventory too, where `documents` was ignored",
        lambda desk: _of_a_group(desk, tgp_documents=desk.documents(), tgp_pool="training", tgp_nodes=2, documents="/nowhere"),
        ended(2, "There is no pool among the documents"), ended(0, "then $1.38/h"),
        f"{VARIABLES}::test_group_variables_with_our_prefix_count_and_others_do_not",
    ),
    Row(
        1, "they count from an AWX survey, whose empty answers choose nothing", _survey,
        ended(2, "There is no pool among the documents"), ended(0, "then $0.69/h"),
        "tests/e2e/test_bad_input.py::test_empty_answers_of_a_survey_choose_nothing",
    ),
    Row(
        1, "`nodes: 4` of an inventory launches no machines", _nodes_of_a_group,
        ended(0, "then $2.76/h"), ended(0, "then $0.69/h"),
        f"{VARIABLES}::test_group_variables_with_our_prefix_count_and_others_do_not",
    ),
    Row(
        1, "old names work with -e, with a deprecation warning",
        lambda desk: _given(desk, "provision", "--check", documents=desk.documents(), pool="training", nodes=2),
        ended(0, "then $1.38/h", never=("DEPRECATION",)), ended(0, "The variable pool is called tgp_pool now", "then $1.38/h", "0.3.0"),
        f"{VARIABLES}::test_old_names_count_from_the_command_line_with_a_warning",
    ),
    Row(
        1, "old names do not work from an inventory (`nodes`, `region` did)",
        lambda desk: desk.run(
            "ansible-playbook", "playbooks/prices.yml", "-i", desk.inventory(region="europe-central"),
            shown="ansible-playbook playbooks/prices.yml -i inventory.yml  # group variable: region",
        ),
        ended(0, "Nothing fits."), ended(0, "us-east ("),
        f"{VARIABLES}::test_old_names_count_from_the_command_line_with_a_warning",
    ),
    Row(
        1, "-e pol=… is refused with \"Did you mean\"",
        lambda desk: desk.run("ansible-playbook", "playbooks/provision.yml", "-e", json.dumps(
            {"documents" if desk.version.old else "tgp_documents": desk.documents(), "pol": "training"}), "--check"),
        ended(0, "then $0.69/h"), ended(2, "pol is not a variable of this playbook. Did you mean tgp_pool?"),
        f"{VARIABLES}::test_a_mistyped_variable_is_refused",
    ),
    Row(
        1, "-e tgp_pol=… is refused with \"Did you mean\"",
        lambda desk: desk.run("ansible-playbook", "playbooks/provision.yml", "-e", json.dumps(
            {"documents" if desk.version.old else "tgp_documents": desk.documents(), "tgp_pol": "training"}), "--check"),
        ended(0, "then $0.69/h"), ended(2, "tgp_pol is not a variable of this playbook. Did you mean tgp_pool?"),
        f"{VARIABLES}::test_a_mistyped_variable_is_refused",
    ),
    Row(
        1, "other group variables stay legal, also such as resemble ours",
        lambda desk: _of_a_group(desk, tgp_documents=desk.documents(), pol="x", node=7, region_of_ours="eu"),
        ended(2, "There is no pool among the documents"), ended(0, "then $0.69/h", never=("Did you mean",)),
        f"{VARIABLES}::test_group_variables_with_our_prefix_count_and_others_do_not",
    ),
    Row(
        1, "the variable for loop mode has no reserved name", _loop,
        ended(0, "Found variable using reserved name 'loop'"), ended(0, "PLAY RECAP", never=("reserved name",)),
        "tests/e2e/test_mistakes.py::test_a_mistake_is_answered_in_words_that_help",
    ),
]  # fmt: skip

# ---- item 3


def _elsewhere(desk: Desk, task: Document) -> Done:
    hosts = desk.file("hosts.yml", json.dumps({"all": {"hosts": {"bastion": {"ansible_host": "bastion.invalid"}}}}))
    return desk.plays(task, hosts="bastion", inventory=hosts)


ITEM_3 = [
    Row(
        3, "a module's attributes name action plugin, connection, async, delegation",
        lambda desk: desk.run("ansible-doc", "tgp.gpu.lambda_instance"),
        ended(0, "check_mode", never=("delegation",)), ended(0, "delegation", "async", "connection", "action"),
        "tests/repository/test_module_docs.py::test_where_a_module_runs_is_said",
    ),
    Row(
        3, "a module's requirements are documented",
        lambda desk: desk.run("ansible-doc", "tgp.gpu.lambda_instance"),
        ended(0, "OPTIONS", never=("REQUIREMENTS",)), ended(0, "REQUIREMENTS", "httpx"),
        "tests/repository/test_module_docs.py::test_libraries_that_a_module_needs_are_said",
    ),
    Row(
        3, "a task for a host that is not the controller is warned of", lambda desk: _elsewhere(desk, LOOK),
        ended(0, "ok: [bastion]", never=("WARNING",)), ended(0, "runs on the controller, not on bastion"),
        f"{PLACES}::test_a_task_for_another_host_or_user_is_warned_of_once",
    ),
    Row(
        3, "async runs where the same task without it runs", lambda desk: _elsewhere(desk, {**READ, "async": 60, "poll": 2}),
        ended(4, "UNREACHABLE"), ended(0, "ok: [bastion]", never=("UNREACHABLE",)),
        f"{PLACES}::test_async_with_a_poll_is_the_same_call",
    ),
    Row(
        3, "a job in the background runs on the controller", lambda desk: _elsewhere(desk, {**READ, "async": 60, "poll": 0}),
        ended(4, "UNREACHABLE"), ended(0, "changed: [bastion]", never=("UNREACHABLE",)),
        f"{PLACES}::test_a_job_in_the_background_runs_on_the_controller",
    ),
]  # fmt: skip

# ---- item 4


def _group(desk: Desk, group: str, task: Document, **defaults: object) -> Done:
    return desk.plays(task, module_defaults={f"group/tgp.gpu.{group}": defaults})


WRONG = "a-key-that-nobody-ever-gave-out-0123456789"


def _key_of(group: str, option: str, module: str, **params: object) -> Row:
    return Row(
        4, f"module_defaults of group {group} reach {module}",
        lambda desk: _group(desk, group, {f"tgp.gpu.{module}": params}, **{option: WRONG}),
        ended(4, f"could not resolve the module_defaults group tgp.gpu.{group}"), ended(2, option),
        "tests/repository/test_module_docs.py::test_module_defaults_of_a_group_reach_its_modules_and_messages_name_the_module",
    )  # fmt: skip


ITEM_4 = [
    _key_of("lambda", "lambda_api_key", "lambda_instance", name="tgp-x", state="absent"),
    _key_of("vast", "vast_api_key", "vast_instance", name="tgp-x", state="absent"),
    _key_of("runpod", "runpod_api_key", "runpod_pod", name="tgp-x", state="absent"),
    _key_of("paperspace", "paperspace_api_key", "paperspace_machine", name="tgp-x", state="absent"),
    _key_of("tailscale", "tailscale_api_token", "tailscale_device_info"),
    _key_of("kubernetes", "kubeconfig", "node_info"),
    _key_of("talos", "talos_secrets", "talos_config", dest="/tmp/worker.yaml", name="tgp-x", control_plane_endpoint="https://127.0.0.1:9"),
    Row(
        4, "errors name the module, not an internal plugin", lambda desk: desk.plays(MISTYPED),
        ended(2, "plugins.action.in_process"), ended(2, "Unsupported parameters for (tgp.gpu.lambda_instance) module: sise"),
        "tests/repository/test_module_docs.py::test_module_defaults_of_a_group_reach_its_modules_and_messages_name_the_module",
    ),
]  # fmt: skip
