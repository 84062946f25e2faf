# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items 11, 12 and 13: labels, documents, examples, messages, dependencies."""

from __future__ import annotations

import typing as t
from pathlib import Path

import yaml

from tests.mistakes import desk as mistakes
from tests.mistakes.desk import Document
from tests.mistakes.table import MISTAKES

from .desk import Desk, Done
from .row import Row, ended

MISTAKE = "tests/e2e/test_mistakes.py::test_a_mistake_is_answered_in_words_that_help"

# ---- item 11


def _with_label(desk: Desk) -> Done:
    def change(node_class: Document, _training: Document) -> None:
        talos = node_class["spec"]["talosConfig"]
        text = Path(talos.pop("machineConfigTemplateFile")).read_text(encoding="utf-8")
        talos["machineConfigTemplate"] = text.replace(
            "  nodeLabels:\n", "  nodeLabels:\n    node.kubernetes.io/instance-type: gpu\n"
        )

    done = desk.playbook("provision", documents=desk.documents(change), nodes=1)
    (node,) = [one for name, one in desk.sandbox.nodes().items() if name.startswith("tgp-")]
    return Done(
        done.rc, f"{done.text}\ninstance-type of the node: [{node['metadata']['labels']['node.kubernetes.io/instance-type']}]"
    )


def _mesh_in_talos(node_class: Document, _training: Document) -> None:
    node_class["spec"]["talosConfig"]["tailscaleConfig"] = node_class["spec"].pop("tailscaleConfig")


def _operator(node_class: Document, _training: Document) -> None:
    node_class["spec"]["networking"] = {"tailscale": {"operatorEnabled": True}}


def _variables_alone(desk: Desk) -> Done:
    """As ``docker run -e GPU_NODE_1_NAME=…`` of k8s-gpu-autoprovision has them."""
    url = f"{desk.sandbox.variables['WEBHOOK_URL']}/rack-1"
    given = {"NAME": "rack-1", "GPU_COUNT": "1", "SCALE_UP_ENDPOINT": f"{url}/start", "SCALE_DOWN_ENDPOINT": f"{url}/stop"}
    env = {f"GPU_NODE_1_{name}": value for name, value in given.items()}
    done = desk.run(
        "ansible-playbook",
        "playbooks/autoscale.yml",
        "--check",
        env=env,
        shown="GPU_NODE_1_NAME=rack-1 GPU_NODE_1_GPU_COUNT=1 … ansible-playbook playbooks/autoscale.yml --check",
    )
    return done


def _example(desk: Desk) -> Done:
    """With the true types of the clouds, and the two clouds of the sample alone."""
    found = list(yaml.safe_load_all((desk.version.root / "examples" / "seed-s0-corrected.yml").read_text()))
    for one in found:
        if one["kind"] == "GPUNodeClass":
            one["spec"]["providers"] = [{"name": each["name"]} for each in one["spec"]["providers"] if each["name"] != "vast"]
    return desk.playbook("provision", "--check", documents=desk.file("pools.yml", yaml.safe_dump_all(found)), nodes=1)


ITEM_11 = [
    Row(
        11, "a template's own instance-type label survives the join", _with_label,
        ended(0, "instance-type of the node: [gpu_1x_rtx6000]"), ended(0, "instance-type of the node: [gpu]"),
        "tests/contract/act/test_marks.py::test_S0_25_the_templates_instance_type_is_that_of_the_node", alone=True,
    ),
    Row(
        11, "talosConfig.tailscaleConfig is accepted",
        lambda desk: desk.playbook("provision", "--check", documents=desk.documents(_mesh_in_talos), nodes=1),
        ended(2, "talosConfig.tailscaleConfig"), ended(0, "then $0.69/h"),
        "tests/unit/documents/test_meaning.py::test_S3_06_settings_of_the_mesh_may_stand_in_talosConfig",
    ),
    Row(
        11, "the remedy for operatorEnabled is right",
        lambda desk: desk.playbook("provision", "--check", documents=desk.documents(_operator), nodes=1),
        ended(2, "spec.tailscaleConfig", never=("prereqs.yml",)), ended(2, "(operatorEnabled) is set up by prereqs.yml"),
        "tests/unit/documents/test_faults.py::test_D06_what_has_another_name_or_place_here_is_told_so",
    ),
    Row(
        11, "the variables of k8s-gpu-autoprovision alone work", _variables_alone,
        ended(2, "There is no pool among the documents"), ended(0, "localhost : ok="),
        "tests/e2e/test_loop.py::test_S2_11_the_variables_alone_are_enough",
    ),
    Row(
        11, "gpu_1x_rtx4090 does not exist at Lambda",
        lambda desk: desk.run("grep", "-rn", "gpu_1x_rtx4090", "sandbox"),
        ended(0, "sandbox/catalogue.py"), ended(1),
        "tests/unit/sandbox/test_scenario.py::test_lambdas_catalogue_holds_only_what_lambda_rents",
    ),
    Row(
        11, "the S0 example says what happens with RTX 4090 at each provider",
        lambda desk: desk.run("grep", "-iE", "# +(runpod|lambdalabs|paperspace|vast) ", "examples/seed-s0-corrected.yml"),
        ended(1), ended(0, "lambdalabs rents no RTX 4090", "runpod has it, in containers"),
        "tests/e2e/test_bad_input.py::test_seed_documents_are_accepted_and_their_template_is_refused_with_reasons",
    ),
    Row(
        11, "and a run with the sample's two providers says the same", _example,
        ended(2, "gpu type"), ended(2, "cannot be Kubernetes nodes"),
        "tests/unit/fleet/test_L13_offers.py::test_L13_in_a_mixed_class_each_cloud_says_its_cause", "four-clouds",
    ),
]  # fmt: skip

# ---- item 12


def _mistake(what: str) -> t.Callable[[Desk], Done]:
    """One of tests/mistakes, by the playbook's command line."""
    (found,) = [one for one in MISTAKES if one.what == what]

    def play(desk: Desk) -> Done:
        done = found.make(t.cast("mistakes.Desk", desk))
        return Done(done.rc, done.text)

    return play


def _faulty(node_class: Document, training: Document) -> None:
    node_class["spec"]["limits"]["maxNodes"] = "five"
    training["spec"]["maxHourlyPrice"] = 1.5
    training["spec"]["template"]["spec"]["requirements"][1]["values"] = 16000
    training["spec"]["disruption"]["consolidateAfter"] = "10 minutes"


def _from_elsewhere(desk: Desk) -> Done:
    desk.documents()
    inventory = desk.file("gpu.tgp.yml", yaml.safe_dump({"plugin": "tgp.gpu.nodes", "documents": ["pools.yml"]}))
    return desk.run("ansible-inventory", "-i", inventory, "--graph")


def _validated(**env: str) -> t.Callable[[Desk], Done]:
    return lambda desk: desk.playbook("validate", env=env)


MESH = """
from ansible_collections.tgp.gpu.plugins.module_utils.preflight import endpoint_check
from ansible_collections.tgp.gpu.plugins.module_utils.preflight import endpoint_check as reach
host, port = reach.endpoint("https://100.64.0.1:6443")
found = reach.Reached(reach.API, host, port, "connect", "no answer.")
endpoint_check.look = lambda *_place, **_how: [found]
print(endpoint_check.check_endpoint("https://100.64.0.1:6443", []))
"""


def _alarmed(desk: Desk) -> Done:
    """The connection breaks before each terminate, for longer than a quarter of an hour."""
    given = desk.provision()
    desk.sandbox.faults({"service": "lambda", "method": "POST", "path": "/terminate$", "kind": "lost_before", "times": None})
    desk.playbook("destroy", documents=given, everything=True, force=True)
    desk.sandbox.advance(910)
    return desk.playbook("reap", documents=given)


def _compared(desk: Desk) -> Done:
    return desk.playbook("provision", "--check", "--diff", documents=desk.documents(), nodes=1)


ITEM_12 = [
    Row(
        12, "errors of destroy.yml use its names", lambda desk: desk.playbook("destroy"),
        ended(2, "Set names, pools, or all: true"), ended(2, "Set tgp_machine, tgp_pool, or tgp_everything: true."), MISTAKE,
    ),
    Row(
        12, "errors of prices.yml use its names, and print no specification",
        lambda desk: desk.playbook("prices", documents=None, gpu_count="four"),
        ended(2, "prices_gpu_count"), ended(2, "tgp_gpu_count", never=("prices_gpu_count", "argument_spec")), MISTAKE,
    ),
    Row(
        12, "a path is not masked", _mistake("Talos secrets that are not there"),
        ended(2, "the file ********"), ended(2, "/nowhere/secrets.yaml", never=("the file ********",)), MISTAKE,
    ),
    Row(
        12, "all faults of a document are reported at once",
        lambda desk: desk.playbook("validate", documents=desk.documents(_faulty)),
        ended(2, "maxHourlyPrice", never=("consolidateAfter",)), ended(2, "consolidateAfter", "maxNodes", "maxHourlyPrice", "values"),
        "tests/unit/documents/test_faults.py::test_every_fault_of_a_document_is_told_at_once",
    ),
    Row(
        12, "faults have line numbers", lambda desk: desk.playbook("validate", documents=desk.documents(_faulty)),
        ended(2, "pools.yml#", never=("pools.yml:4",)), ended(2, "pools.yml:"),
        "tests/unit/observe/test_documents.py::test_each_fault_of_a_file_stands_with_its_line",
    ),
    Row(
        12, "a region typo gets \"Did you mean\" and exit 2", lambda desk: desk.playbook("prices", documents=None, region="us-wset"),
        ended(0, "Nothing fits."), ended(2, "Did you mean us-west"), MISTAKE,
    ),
    Row(
        12, "a mode typo gets \"Did you mean\"", lambda desk: desk.playbook("plan", mode="provison"),
        ended(2, "provison", never=("Did you mean",)), ended(2, "Did you mean provision?"), MISTAKE,
    ),
    Row(
        12, "a model typo gets \"Did you mean\" (instance modules)",
        lambda desk: desk.module("lambda_instance", "--check", name=desk.name, instance_type="gpu_1x_a1O"),
        ended(2, "gpu_1x_a1O", never=("Did you mean",)), ended(2, "Did you mean gpu_1x_a10"),
        "tests/contract/clouds/test_instance_modules.py::test_a_misspelt_type_is_refused_with_what_was_meant",
    ),
    Row(
        12, "documents of an inventory are relative to its file", _from_elsewhere,
        ended(0, "No document file"), ended(0, "@gpu_nodes", never=("No document file",)),
        "tests/unit/inventory/test_nodes.py::test_documents_are_relative_to_the_inventory_file",
    ),
    Row(
        12, "missing rights are listed together, with the file that grants them", _mistake("no rights in the cluster"),
        ended(2, "not allowed to", never=("kubectl apply -f",)), ended(2, "kubectl apply -f", "rbac.yml"),
        "tests/e2e/test_bad_input.py::test_all_missing_rights_are_named_at_once_with_the_file_that_grants_them",
    ),
    Row(
        12, "an expired client certificate is recognised locally", _mistake("an expired client certificate"),
        ended(2, "kubernetes", never=("expired on",)), ended(2, "expired on 2020-02-01", "Fetch a new kubeconfig"),
        "tests/unit/cluster/test_kubeconfig.py::test_an_expired_client_certificate_is_recognised_before_any_call",
    ),
    Row(
        12, "validate.yml probes the control plane endpoint", _validated(TGP_CONTROL_PLANE_ENDPOINT="https://127.0.0.1:9"),
        ended(0, "ok"), ended(2, "No machine would join"),
        "tests/contract/act/test_validate.py::test_the_control_planes_address_is_probed",
    ),
    Row(
        12, "of one that only the mesh reaches, it warns that it did not probe it",
        lambda desk: desk.python(MESH, shown="preflight.endpoint_check of https://100.64.0.1:6443, where nothing answers from here"),
        ended(1, "cannot import name 'endpoint_check'"), ended(0, "Only the mesh leads to 100.64.0.1", "was not tried"),
        "tests/contract/act/test_validate.py::test_the_control_planes_address_is_probed",
    ),
    Row(
        12, "ALARM texts print no Python tuples", _alarmed,
        ended(2, "(lambda ('"), ended(2, "ALARM", "still exists", never=("(lambda ('",)),
        "tests/contract/act/test_teardown.py::test_L10_a_destroy_that_is_pending_for_long_raises_an_alarm", alone=True,
    ),
    Row(
        12, "offer_info prints tables only when asked", lambda desk: desk.plays({"tgp.gpu.offer_info": {"clouds": ["lambda"], "limit": 3}}),
        ended(0, "cloud model GPUs GiB"), ended(0, "ok: [localhost]", never=("cloud model GPUs GiB",)),
        "tests/contract/clouds/test_offers.py::test_S0_03_one_table_over_all_clouds_cheapest_first",
    ),
    Row(
        12, "--diff shows what a user would call a change", _compared,
        ended(0, "blocked_times"), ended(0, "+++ after", never=("blocked_times",)),
        "tests/contract/act/test_saved_plan.py::test_L22_diff_shows_the_machines_before_and_after",
    ),
]  # fmt: skip

# ---- item 13


def _page(desk: Desk) -> Done:
    """A controller without matplotlib, after a machine that cost something."""
    given = desk.provision()
    desk.sandbox.advance(3600)
    desk.playbook("destroy", documents=given, everything=True, force=True)
    desk.file("without/matplotlib/__init__.py", "raise ImportError('there is no matplotlib here')\n")
    env = {"PYTHONPATH": f"{desk.folder / 'without'}:{desk.version.path}"}
    page = desk.folder / "report.html"
    done = desk.playbook("report", documents=None, format="html", path=str(page), env=env)
    return Done(done.rc, f"{done.text}\npage with charts: {'yes' if page.exists() and '<svg' in page.read_text() else 'no'}")


ITEM_13 = [
    Row(
        13, "requirements.txt does not replace the user's ansible-core",
        lambda desk: desk.run("grep", "-E", "^ansible-core", "requirements.txt"),
        ended(0, "ansible-core>=2.19,<2.23"), ended(1),
        "tests/repository/test_deployment.py::test_requirements_leave_the_users_ansible_alone",
    ),
    Row(
        13, "requirements-controller.txt says what a fresh controller needs",
        lambda desk: desk.run("cat", "requirements-controller.txt"),
        ended(1, "No such file"), ended(0, "ansible-core>=2.19,<2.23"),
        "tests/repository/test_deployment.py::test_requirements_leave_the_users_ansible_alone",
    ),
    Row(
        13, "the HTML report works without matplotlib, by SVG", _page,
        ended(2, "matplotlib"), ended(0, "page with charts: yes"),
        "tests/contract/act/test_report.py::test_A07_without_matplotlib_the_page_has_the_same_charts", alone=True,
    ),
]  # fmt: skip
