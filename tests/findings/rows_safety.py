# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items 8, 9 and 10: security, records, outages."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import typing as t

import httpx

from tests.mistakes.desk import Document
from tests.unit.cluster.test_csr import NODE, TOKEN, block, other_name, raw_of

from .desk import Desk, Done
from .row import Row, ended
from .rows_modules import market
from .rows_money import GOOD

TARGETS = "tests/unit/clouds/test_webhook_targets.py"
PROGRAMS = "tests/unit/floor/test_programs.py"
KEY = "power-service-key-0123456789"
SAID = "words-of-a-power-service"


# ---- item 8: where the key goes


def _own(url: str) -> t.Callable[[Document, Document], None]:
    """One own machine at this address, and a pool for it."""

    def change(node_class: Document, training: Document) -> None:
        ends = {
            f"{word}Endpoint": f"{url}/rack-1/{path}"
            for word, path in (("scaleUp", "start"), ("scaleDown", "stop"), ("status", "status"))
        }
        node_class["spec"]["providers"] = [
            {"name": "webhook", "machines": [{"name": "rack-1", "gpuCount": 1, "gpuType": "RTX3090", **ends}]}
        ]
        training["spec"]["template"]["spec"] = {"requirements": []}

    return change


@contextlib.contextmanager
def _listener() -> t.Iterator[tuple[str, list[str]]]:
    """A service that somebody else runs, and the credentials that it was sent."""
    got: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("authorization", "no key"))
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_words: t.Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def _elsewhere(desk: Desk) -> Done:
    with _listener() as (url, got):
        given = desk.documents(_own(url))
        env = {"WEBHOOK_AUTH_VALUE": f"Bearer {KEY}"}
        done = desk.playbook("provision", "--check", documents=given, nodes=1, env=env)
        return Done(done.rc, f"{done.text}\nthe stranger got: {got[0] if got else 'nothing'}")


def _clear_text(desk: Desk) -> Done:
    env = {"WEBHOOK_AUTH_VALUE": f"Bearer {KEY}", "WEBHOOK_URL": "http://0.0.0.0:9"}
    return desk.playbook("provision", "--check", documents=desk.documents(_own("")), nodes=1, env=env)


PARSED = """
import sys, yaml
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
try:
    from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
except ImportError:
    Document = lambda place, mapping: (place, mapping)
try:
    found, _warnings = parse([Document("pools.yml", one) for one in yaml.safe_load_all(open(sys.argv[1]))])
except InvalidInput as error:
    sys.exit("; ".join(error.problems))
print("accepted:", *found.classes)
"""


def _link_local(desk: Desk) -> Done:
    """Parsed only: a look at that address would leave this machine."""
    given = desk.documents(_own("http://169.254.169.254"))
    return desk.python(PARSED, given, shown="documents.parse(…) of a class whose machine is at http://169.254.169.254")


def _stored(desk: Desk) -> Done:
    """A power service refuses, in words of its own; afterwards the state folder and the claims are searched for them."""
    rule = {"service": "webhook", "method": "POST", "path": "/rack-1/start", "kind": "status", "status": 400, "times": None}
    desk.sandbox.faults({**rule, "body": {"error": SAID}})
    given = desk.documents(_own(desk.sandbox.variables["WEBHOOK_URL"]))
    done = desk.playbook("provision", documents=given, nodes=1)
    files = [one for one in desk.sandbox.state.rglob("*") if one.is_file() and SAID in one.read_text(errors="replace")]
    claims = [one for one in desk.sandbox.configmaps() if SAID in json.dumps(one)]
    return Done(done.rc, f"{done.text}\nstored: {'yes' if files or claims else 'no'}")


# ---- item 8: programs

NOTIFY = """
import json, os, sys
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.notifications import Message, Sender
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
os.environ["LAMBDA_API_KEY"] = "key-0123456789abcdefghij"
task = Task({"notify_command": [sys.argv[1]]}, clock=SystemClock())
Sender(task).begin([Message("orphan_found", "key", "subject", "text")]).arrived(print)
print(open(sys.argv[2]).read())
"""
EXEC = """
import os, sys, httpx
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find
os.environ["LAMBDA_API_KEY"] = "key-0123456789abcdefghij"
access(find(sys.argv[1])).authorize(httpx.Request("GET", "http://x.test/"))
print(open(sys.argv[2]).read())
"""


def _program(desk: Desk, answer: str = "") -> tuple[str, str]:
    """A program that says whether it was given a key, and the file that it writes."""
    file = str(desk.folder / "told")
    script = (
        f"#!/bin/sh\nif [ -n \"$LAMBDA_API_KEY\" ]; then echo has the key; else echo has no key; fi > {file}\necho '{answer}'\n"
    )
    path = desk.file("program", script)
    (desk.folder / "program").chmod(0o755)
    return path, file


def _notify(desk: Desk) -> Done:
    return desk.python(NOTIFY, *_program(desk), shown="core.notifications.Sender of notify_command, with LAMBDA_API_KEY set")


def _exec_plugin(desk: Desk) -> Done:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t-0123456789abcdef"}}
    program, file = _program(desk, json.dumps(answer))
    plugin = {"apiVersion": answer["apiVersion"], "command": program}
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://x.test"}}],
        "users": [{"name": "a", "user": {"exec": plugin}}],
    }
    path = desk.file("config", json.dumps(config))
    return desk.python(EXEC, path, file, shown="kube.auth.credentials.access of a kubeconfig with exec, with LAMBDA_API_KEY set")


TEMPLATE = """
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import render
names = "MachineToken ClusterCA ClusterID ClusterSecret ControlPlaneEndpoint ClusterName BootstrapToken KubernetesCA NodeName NodePool"
text = "machine: {{ 'a' * 50000000 }}"
print(len(render(text, dict.fromkeys(names.split(), "x"))), "characters")
"""
CSR = """
import json, sys
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
request = csr.parse(json.loads(sys.argv[1]))
print("objections:", "; ".join(csr.wrong(request, token_id=sys.argv[2], node=sys.argv[3])) or "none")
"""


def _asks(what: str, pem: bytes, **spec: t.Any) -> t.Callable[[Desk], Done]:
    return lambda desk: desk.python(
        CSR, json.dumps(raw_of(pem, **spec)), TOKEN, NODE, shown=f"kube.csr.wrong(…) of a request with {what}"
    )


CSRS = "tests/unit/cluster/test_csr.py::test_what_no_kubelet_asks_for_is_denied"
ITEM_8 = [
    Row(
        8, "the webhook key is bound to its hosts", _elsewhere,
        ended(2, f"the stranger got: Bearer {KEY}"), ended(2, "webhook_hosts", "the stranger got: nothing"),
        f"{TARGETS}::test_a_class_cannot_send_the_key_to_a_host_of_its_choice",
    ),
    Row(
        8, "http with a key goes to loopback only (power service)", _clear_text,
        ended(2, "will not come: not available"), ended(2, "clear text", "Use https"),
        f"{TARGETS}::test_http_with_a_credential_is_refused_elsewhere",
    ),
    Row(
        8, "http with a key goes to loopback only (clouds)",
        lambda desk: desk.module("instance_info", clouds=["lambda"], lambda_api_url="http://0.0.0.0:9"),
        ended(2, "http://0.0.0.0:9", never=("Use https",)), ended(2, "lambda_api_url leads to http://0.0.0.0:9", "Use https"),
        "tests/contract/clouds/test_instance_modules.py::test_plain_http_to_another_machine_is_refused",
    ),
    Row(
        8, "link-local addresses are refused", _link_local,
        ended(0, "accepted: demo"), ended(1, "link-local"),
        f"{TARGETS}::test_a_link_local_address_is_a_fault_of_its_document_and_of_its_group",
    ),
    Row(
        8, "response bodies are not stored", _stored,
        ended(2, "stored: yes"), ended(2, "stored: no", SAID),
        "tests/contract/act/test_error_details.py::test_words_of_a_power_service_are_shown_and_not_stored", alone=True,
    ),
    Row(
        8, "a notify command gets no keys", _notify,
        ended(0, "has the key"), ended(0, "has no key"), f"{PROGRAMS}::test_L28_a_notify_command_gets_no_keys",
    ),
    Row(
        8, "an exec plugin of a kubeconfig gets no keys", _exec_plugin,
        ended(0, "has the key"), ended(0, "has no key"), f"{PROGRAMS}::test_L28_an_exec_plugin_gets_its_own_variables_and_no_keys",
    ),
    Row(
        8, "a template that allocates without bound is stopped",
        lambda desk: desk.python(TEMPLATE, shown="talos.template.render(\"machine: {{ 'a' * 50000000 }}\", …)"),
        ended(0, "50000009 characters"), ended(1, "are taken"),
        "tests/unit/talos/test_template.py::test_a_template_cannot_take_the_memory_of_the_controller",
    ),
    Row(
        8, "a ValidatingAdmissionPolicy ships beside the RBAC",
        lambda desk: desk.run("grep", "-rhw", "--include=*.yml", "kind: ValidatingAdmissionPolicy", "files"),
        ended(1), ended(0, "kind: ValidatingAdmissionPolicy"),
        "tests/cluster/test_admission_real.py::test_a_thief_makes_no_other_secret",
    ),
    Row(
        8, "certificate requests: usages are checked", _asks("usage server auth", block(NODE), usages=["server auth", "client auth"]),
        ended(0, "objections: none"), ended(0, "objections: ", "server auth"), CSRS,
    ),
    Row(
        8, "certificate requests: other names are checked", _asks("a DNS name", block(NODE, extensions=other_name("kubernetes.default"))),
        ended(0, "objections: none"), ended(0, "objections: ", never=("none",)), CSRS,
    ),
    Row(
        8, "certificate requests: the lifetime is checked", _asks("ten years", block(NODE), expirationSeconds=315_360_000),
        ended(0, "objections: none"), ended(0, "objections: ", never=("none",)), CSRS,
    ),
    Row(
        8, "a page says who may write which document, and what a stolen kubeconfig can do",
        lambda desk: desk.run("grep", "-i", "kubeconfig", "docs/reference/who_may_write.md"),
        ended(2, "No such file"), ended(0, "stolen"),
        "tests/repository/test_pages.py::test_every_page_is_there_and_its_links_lead_somewhere",
    ),
]  # fmt: skip

# ---- item 9

LEDGER = """
import sys
from ansible_collections.tgp.gpu.plugins.module_utils.store.configmap import ConfigMapStore
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
store = ConfigMapStore(connect(Task({}, clock=SystemClock())))
for number in range(int(sys.argv[1])):
    store.ledger({"name": f"tgp-a1b2c3d4-training-{number:05d}", "cost": "0.10", "why": "x" * 560})
"""


def _closings(desk: Desk) -> Done:
    done = desk.python(LEDGER, "200", shown="200 × ConfigMapStore.ledger(a line of 640 bytes)")
    parts = [one for one in desk.sandbox.configmaps() if "tgp.io/ledger" in one["metadata"].get("labels", {})]
    sizes = [len(json.dumps(one.get("data") or {})) for one in parts]
    return Done(
        done.rc, f"{done.text}\nparts above 64 kB: {sum(one > 64_000 for one in sizes)}, the largest has {max(sizes) // 1000} kB"
    )


def _archive(desk: Desk) -> Done:
    return desk.playbook("archive", documents=None, path=str(desk.folder / "ledger.jsonl"))


ITEM_9 = [
    Row(
        9, "the ledger appends in parts of 60 kB (each line rewrites its part)", _closings,
        ended(0, "parts above 64 kB: 1"), ended(0, "parts above 64 kB: 0"),
        "tests/contract/cluster/test_ledger.py::test_L16_a_thousand_closings_write_little", alone=True,
    ),
    Row(
        9, "lines can be archived to a file", _archive,
        ended(1, "could not be found"), ended(0, "moved 0 lines"),
        "tests/contract/act/test_archive.py::test_L16_old_lines_move_and_the_report_says_the_same",
    ),
    Row(
        9, "claims, state and ledger are tested at 2,000 machines and 50,000 lines",
        lambda desk: desk.run("grep", "-rhoE", "def test_.*(two|fifty)_thousand.*\\(", "tests"),
        ended(1), ended(0, "def test_L16_a_ledger_of_fifty_thousand_lines_takes_the_next_one(", "two_thousand"),
        "tests/contract/cluster/test_ledger.py::test_L02_two_thousand_claims_are_written_and_listed",
    ),
]  # fmt: skip

# ---- item 10


def _idle_and_cut_off(desk: Desk) -> Done:
    given = desk.provision()
    desk.playbook("reap", documents=given)
    desk.sandbox.advance(1300)
    desk.sandbox.faults({"service": "lambda", "kind": "status", "status": 503, "times": None})
    done = desk.playbook("reap", documents=given)
    (node,) = [one for name, one in desk.sandbox.nodes().items() if name.startswith("tgp-")]
    return Done(done.rc, f"{done.text}\nnode drained: {'yes' if node['spec'].get('unschedulable') else 'no'}")


def _only_provider_is_away(desk: Desk) -> Done:
    def change(node_class: Document, _training: Document) -> None:
        node_class["spec"]["providers"] = [one for one in node_class["spec"]["providers"] if one["name"] == "lambda"]

    env = {"LAMBDA_API_URL": "http://127.0.0.1:9", "WEBHOOK_URL": None}
    return desk.playbook("reap", documents=desk.documents(change), env=env)


TWICE = """
import os, sys
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import from_environment
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud
cloud = LambdaCloud(os.environ["LAMBDA_API_KEY"], url=os.environ["LAMBDA_API_URL"], clock=from_environment())
for _time in range(2):
    cloud.terminate(sys.argv[1])
print("terminated twice")
"""


def _terminated_twice(desk: Desk) -> Done:
    desk.module("lambda_instance", name=desk.name, instance_type="gpu_1x_a10", wait=False)
    desk.sandbox.control.post("/clock", json={"speed": 1}).raise_for_status()
    (machine,) = desk.sandbox.living()
    body = {"error": {"code": "global/unknown", "message": "API request failed."}}
    rule = {"service": "lambda", "path": "/terminate$", "kind": "status", "status": 400, "body": body, "times": None}
    desk.sandbox.faults({**rule, "after_calls": 1})
    return desk.python(TWICE, machine["id"], shown="LambdaCloud.terminate(id), twice")


def _stopped_by_its_owner(desk: Desk) -> Done:
    def change(node_class: Document, training: Document) -> None:
        node_class["spec"]["providers"] = [{"name": "vast"}]
        training["spec"]["template"]["spec"]["requirements"] = []

    given = desk.provision(documents=desk.documents(change))
    (machine,) = desk.sandbox.living()
    known = desk.sandbox.variables
    url, headers = f"{known['VAST_URL']}/api/v0/instances/{machine['id']}/", {"authorization": f"Bearer {known['VAST_API_KEY']}"}
    httpx.put(url, headers=headers, json={"state": "stopped"}).raise_for_status()
    desk.sandbox.advance(600)
    return desk.playbook("reap", "--check", documents=given)


ITEM_10 = [
    Row(
        10, "an idle node of a provider that cannot be reached is not drained", _idle_and_cut_off,
        ended(2, "node drained: yes"), ended(2, "node drained: no"),
        "tests/unit/fleet/test_L03_idle.py::test_L03_an_idle_node_is_not_drained_while_its_cloud_cannot_be_listed", alone=True,
    ),
    Row(
        10, "a run that could not reach its only provider exits 2", _only_provider_is_away,
        ended(0, "lambda could not be listed"), ended(2, "lambda could not be listed"),
        "tests/contract/reproductions/test_19_exit_status.py::"
        "test_L30_every_playbook_that_writes_fails_while_its_only_provider_cannot_be_reached",
    ),
    Row(
        10, "Lambda: a second terminate that is answered global/unknown is looked at again", _terminated_twice,
        ended(1, "global/unknown"), ended(0, "terminated twice"),
        "tests/contract/clouds/test_lambda.py::test_a_second_terminate_that_is_answered_unknown_is_looked_at_again", alone=True,
    ),
    Row(
        10, "Vast.ai: a machine that its owner stopped is not called outbid", _stopped_by_its_owner,
        ended(0, "SpotLost"), ended(0, "stopped by its owner", never=("SpotLost",)),
        "tests/contract/act/test_spot.py::test_L15_a_machine_on_demand_that_its_owner_stopped_is_not_called_outbid",
        market(vast={"offers": [GOOD]}), alone=True,
    ),
]  # fmt: skip
