# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mistakes, in the order in which a newcomer makes them."""

from __future__ import annotations

import base64
import datetime
import typing as t
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.e2e.box import ROOT, by_name
from tests.fixtures.demo import demo_documents

from .desk import Change, Desk, Document, Done, Mistake

WRONG = "a-key-that-nobody-ever-gave-out-0123456789"
LAMBDA = ("LAMBDA_API_KEY", "LAMBDA_LABS_API_KEY")


# ---- documents


def _set(path: str, value: t.Any, *, of_class: bool = False) -> Change:
    """A change of one field, with numbers for places in lists."""

    def change(node_class: Document, pool: Document) -> None:
        *way, last = path.split(".")
        place: t.Any = node_class if of_class else pool
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
        place[int(last) if isinstance(place, list) else last] = value

    return change


def _altered(path: str, value: t.Any, *, of_class: bool = False) -> t.Callable[[Desk], Done]:
    return lambda desk: desk.plan(desk.documents(_set(path, value, of_class=of_class)))


def _with_gpu_type(model: str) -> t.Callable[[Desk], Done]:
    requirement = {"key": "tgp.io/gpu-type", "operator": "In", "values": [model]}
    return _altered("spec.template.spec.requirements.1", requirement)


def _twice(desk: Desk) -> Done:
    pool = by_name(demo_documents(), "GPUNodePool", "training")
    return desk.plan(desk.documents(None, pool))


def _foreign(desk: Desk) -> Done:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}}
    return desk.plan(desk.file("web.yml", yaml.safe_dump(deployment)))


def _four_faults(desk: Desk) -> Done:
    def change(node_class: Document, pool: Document) -> None:
        _set("spec.limits.maxNodes", "five")(node_class, pool)
        _set("spec.maxHourlyPrice", 1.5)(node_class, pool)
        _set("spec.template.spec.requirements.1.values", 16000)(node_class, pool)
        _set("spec.disruption.consolidateAfter", "10 minutes")(node_class, pool)

    return desk.plan(desk.documents(change))


def _tab(desk: Desk) -> Done:
    text = Path(desk.documents()).read_text()
    return desk.plan(desk.file("pools.yml", text.replace("  weight: 10", "\tweight: 10")))


DOCUMENTS = [
    Mistake(
        "a typo of a field", _altered("spec.maxHourlyPrize", "1.00"), 2, ("spec.maxHourlyPrize", "Did you mean maxHourlyPrice")
    ),
    Mistake("an unknown cloud", _altered("spec.providers.0.name", "lambada", of_class=True), 2, ("lambada", "Did you mean lambda")),
    Mistake("an unknown class", _altered("spec.nodeClassRef.name", "damo"), 2, ("spec.nodeClassRef.name", "damo", "demo")),
    Mistake("an unknown pool", lambda desk: desk.plan(pools=["trainning"]), 2, ("There is no pool trainning", "default/training")),
    Mistake("an unknown kind", _altered("kind", "GPUNodePol"), 2, ("GPUNodePol", "GPUNodePool")),
    Mistake("an unknown version", _altered("apiVersion", "tgp.io/v7"), 2, ("tgp.io/v7", "tgp.io/v1")),
    Mistake("an unknown GPU model", _with_gpu_type("RTX 4091"), 2, ("RTX 4091", "Did you mean RTX4090")),
    Mistake("an unknown lane", _altered("spec.template.spec.lanes", ["kubelt"]), 2, ("kubelt", "kubelet")),
    Mistake("the same pool twice", _twice, 2, ("default/training", "pools.yml")),
    Mistake("YAML of something else", _foreign, 2, ("web.yml", "Deployment")),
    Mistake("text instead of YAML", lambda desk: desk.plan(desk.file("pools.yml", "five nodes, please")), 2, ("pools.yml",)),
    Mistake("an empty file", lambda desk: desk.plan(desk.file("pools.yml", "")), 2, ("pools.yml holds no document",)),
    Mistake("a folder that is not there", lambda desk: desk.plan("/nowhere/pools"), 2, ("/nowhere/pools",)),
    Mistake(
        "four wrong types at once", _four_faults, 2, ("maxNodes", "maxHourlyPrice", "values", "consolidateAfter", "pools.yml:")
    ),
    Mistake("a number as a word", _altered("spec.limits.maxNodes", "five"), 2, ("spec.limits.maxNodes", "five")),
    Mistake("a number instead of a list", _altered("spec.template.spec.requirements.1.values", 16000), 2, ("values", "16000")),
    Mistake(
        "a duration in words", _altered("spec.disruption.consolidateAfter", "10 minutes"), 2, ("consolidateAfter", "10 minutes")
    ),
    Mistake("a negative number of nodes", _altered("spec.limits.maxNodes", -1), 2, ("spec.limits.maxNodes", "-1")),
    Mistake("a negative price", _altered("spec.maxHourlyPrice", "-1"), 2, ("spec.maxHourlyPrice", "-1")),
    Mistake("a tab", _tab, 2, ("pools.yml", "line", "column")),
    Mistake("nodes=-1", lambda desk: desk.plan(nodes=-1), 2, ("nodes for default/training is -1", "whole number")),
    Mistake("nodes=two", lambda desk: desk.plan(nodes="two"), 2, ("nodes for default/training is 'two'", "whole number")),
    Mistake(
        "nodes of an unknown pool", lambda desk: desk.plan(nodes={"bach": 2}), 2, ("There is no pool bach", "default/training")
    ),
    Mistake(
        "no documents at all",
        lambda desk: desk.module("fleet_plan", mode="provision"),
        2,
        ("There is no pool among the documents", "Give documents"),
    ),
]

# ---- credentials and connections


def _with(**env: str | None) -> t.Callable[[Desk], Done]:
    """A first machine is wanted, in an environment that differs."""
    return lambda desk: desk.plan(None, env, nodes=1)


def _no_kubeconfig(desk: Desk) -> Done:
    return desk.plan(None, {"KUBECONFIG": None, "K8S_AUTH_KUBECONFIG": None, "HOME": str(desk.folder)}, nodes=1)


def _garbled_kubeconfig(desk: Desk) -> Done:
    return desk.plan(None, {"KUBECONFIG": desk.file("kubeconfig", "five nodes, please")}, nodes=1)


def _stranger(config: Document) -> None:
    config["users"][0]["user"] = {"token": WRONG}


def _elsewhere(config: Document) -> None:
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"


def _outdated(config: Document) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "newcomer")])
    begin, end = (datetime.datetime(year, 2, 1, tzinfo=datetime.timezone.utc) for year in (2019, 2020))
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    signed = made.serial_number(1).not_valid_before(begin).not_valid_after(end).sign(key, hashes.SHA256())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    encoded = {"client-certificate-data": signed.public_bytes(serialization.Encoding.PEM), "client-key-data": secret}
    config["users"][0]["user"] = {name: base64.b64encode(value).decode() for name, value in encoded.items()}


def _reaching(change: t.Callable[[Document], None]) -> t.Callable[[Desk], Done]:
    return lambda desk: desk.plan(None, desk.kubeconfig(change), nodes=1)


def _without_rights(desk: Desk) -> Done:
    """The user of a bootstrap token, who may ask what it may do and nothing else."""
    token_id, secret, kube = "n3wc0m", "0123456789abcdef", desk.sandbox.kube
    now = datetime.datetime.fromisoformat(desk.sandbox.world()["now"].replace("Z", "+00:00"))
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "expiration": (now + datetime.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    body = {"metadata": {"name": f"bootstrap-token-{token_id}"}, "type": "bootstrap.kubernetes.io/token", "data": encoded}
    path = "/api/v1/namespaces/kube-system/secrets"
    kube.post(path, json=body).raise_for_status()

    def change(config: Document) -> None:
        config["users"][0]["user"] = {"token": f"{token_id}.{secret}"}

    try:
        return desk.plan(None, desk.kubeconfig(change), nodes=1)
    finally:
        kube.delete(f"{path}/bootstrap-token-{token_id}")


def _dead_cloud(desk: Desk) -> Done:
    return desk.plan(None, {"LAMBDA_API_URL": "http://127.0.0.1:9"}, nodes=1)


def _fifty(desk: Desk) -> Done:
    return desk.plan(desk.documents(_set("spec.limits.maxNodes", 5)), nodes=50)


def _nothing_wanted(desk: Desk) -> Done:
    return desk.plan(None, {"LAMBDA_API_KEY": WRONG}, nodes=0)


def _validated(**env: str | None) -> t.Callable[[Desk], Done]:
    return lambda desk: desk.module("fleet_validate", env, documents=[desk.documents()])


NO_OAUTH: dict[str, str | None] = {"TS_OAUTH_CLIENT_ID": None, "TS_OAUTH_CLIENT_SECRET": None}
TEMPLATE = str(ROOT / "examples" / "templates" / "worker.yaml")
SETUP = [
    Mistake("a wrong key of a cloud", _with(LAMBDA_API_KEY=WRONG), 2, ("lambda", "LAMBDA_API_KEY", "lambda_api_key")),
    Mistake("no key of a cloud", _with(**dict.fromkeys(LAMBDA)), 2, ("lambda: no API key is given", "LAMBDA_API_KEY")),
    Mistake(
        "a wrong OAuth secret",
        _with(TS_OAUTH_CLIENT_SECRET=f"tskey-client-{WRONG}"),
        2,
        ("tailscale", "does not accept OAuth client"),
        ("mesh_login_server",),
    ),
    Mistake("no OAuth client", _with(**NO_OAUTH), 2, ("There is no credential for the tailnet", "TS_OAUTH_CLIENT_ID")),
    Mistake("a kubeconfig that is not there", _with(KUBECONFIG="/nowhere/config"), 2, ("/nowhere/config",)),
    Mistake("a kubeconfig that is none", _garbled_kubeconfig, 2, ("kubeconfig",)),
    Mistake("no kubeconfig anywhere", _no_kubeconfig, 2, ("kubeconfig", "KUBECONFIG")),
    Mistake("a token that the cluster does not know", _reaching(_stranger), 2, ("kubernetes", "401")),
    Mistake("a cluster that is not there", _reaching(_elsewhere), 2, ("kubernetes", "127.0.0.1:9")),
    Mistake("a cloud that is not there", _dead_cloud, 2, ("lambda", "machines unknown")),
    Mistake("no Talos secrets", _with(TGP_TALOS_SECRETS=None), 2, ("talos_secrets", "TGP_TALOS_SECRETS")),
    Mistake(
        "a template instead of Talos secrets",
        _with(TGP_TALOS_SECRETS=TEMPLATE),
        2,
        ("TGP_TALOS_SECRETS", "are the braces of a variable"),
    ),
    Mistake("an endpoint without https", _with(TGP_CONTROL_PLANE_ENDPOINT="10.0.0.1:6443"), 2, ("10.0.0.1:6443", "https://")),
    Mistake("no endpoint", _with(TGP_CONTROL_PLANE_ENDPOINT=None), 2, ("control_plane_endpoint", "TGP_CONTROL_PLANE_ENDPOINT")),
    Mistake(
        "Talos secrets that are not there",
        _with(TGP_TALOS_SECRETS="/nowhere/secrets.yaml"),
        2,
        ("/nowhere/secrets.yaml", "cannot be read"),
        ("********",),
    ),
    Mistake("more nodes than maxNodes", _fifty, 2, ("45 machines will not come: limit:pool.maxNodes",)),
    Mistake("a wrong key where nothing is wanted", _nothing_wanted, 2, ("lambda", "LAMBDA_API_KEY")),
    Mistake("no rights in the cluster", _without_rights, 2, ("kubectl apply -f", "rbac.yml", "patch nodes")),
    Mistake("an expired client certificate", _reaching(_outdated), 2, ("expired on 2020-02-01", "Fetch a new kubeconfig")),
    Mistake(
        "an endpoint at which nothing answers",
        _validated(TGP_CONTROL_PLANE_ENDPOINT="https://127.0.0.1:9"),
        2,
        ("control plane: No machine would join", "127.0.0.1"),
    ),
]

# ---- the command line


def _busy(name: str, **params: t.Any) -> t.Callable[[Desk], Done]:
    """Another run holds the lock of this cluster."""

    def make(desk: Desk) -> Done:
        kube, lease = desk.sandbox.kube, "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
        kube.post("/api/v1/namespaces", json={"metadata": {"name": "tgp-system"}})
        uid = desk.sandbox.get("/api/v1/namespaces/kube-system")["metadata"]["uid"].replace("-", "")[:8]
        now = datetime.datetime.fromisoformat(desk.sandbox.world()["now"].replace("Z", "+00:00")).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "laptop/4711/other", "leaseDurationSeconds": 86400, "acquireTime": now, "renewTime": now}
        kube.delete(f"{lease}/tgp-{uid}")
        kube.post(lease, json={"metadata": {"name": f"tgp-{uid}"}, "spec": spec}).raise_for_status()
        try:
            return desk.module("fleet_plan", check=False, mode=name, documents=[desk.documents()], lock_wait=1, **params)
        finally:
            kube.delete(f"{lease}/tgp-{uid}").raise_for_status()

    return make


def _applied_twice(desk: Desk) -> Done:
    name, saved = desk.machine(), str(desk.folder / "plan.json")
    documents = [desk.documents()]
    desk.call("fleet_plan", check=False, mode="destroy", documents=documents, names=[name], save_to=saved)
    first, _lines = desk.call("fleet_apply", check=False, documents=documents, file=saved)
    try:
        desk.call("fleet_teardown", check=False, documents=documents, run_id=first["run_id"], orphans=first["orphans"])
    finally:
        desk.call("fleet_unlock", check=False, documents=documents, run_id=first["run_id"])
    return desk.playbook("apply", tgp_plan=saved)


def _inventory(desk: Desk, **variables: t.Any) -> str:
    return desk.file("inventory.yml", yaml.safe_dump({"all": {"hosts": {"localhost": {}}, "vars": variables}}))


def _nodes_of_a_group(desk: Desk) -> Done:
    """Before 0.2.0 that was an order of four machines."""
    return desk.playbook("provision", "-i", _inventory(desk, nodes=4), "--check")


def _documents_of_a_group(desk: Desk) -> Done:
    given = _inventory(desk, tgp_documents=desk.documents(), tgp_pool="training", tgp_nodes=2)
    return desk.playbook("provision", "-i", given, "--check", documents=False)


def _key_for_all_modules(desk: Desk) -> Done:
    task = {"name": "Name an image", "tgp.gpu.talos_schematic": {"state": "absent"}}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "module_defaults": {"group/tgp.gpu.all": {"lambda_api_key": WRONG}},
        "tasks": [task],
    }
    return desk.command("ansible-playbook", desk.file("play.yml", yaml.safe_dump([play])))


def _task_for_gpu_nodes(desk: Desk) -> Done:
    """Before 0.2.0 it was answered by the controller."""
    name = desk.machine()
    inventory = desk.file("gpu.tgp.yml", yaml.safe_dump({"plugin": "tgp.gpu.nodes", "documents": [desk.documents()]}))
    try:
        done = desk.command("ansible", "gpu_nodes", "-i", inventory, "-m", "ansible.builtin.raw", "-a", "hostname", "-T", "2")
        return Done(done.rc, done.text.replace(name, "tgp-NAME"))
    finally:
        plan, _lines = desk.call("fleet_plan", check=False, mode="destroy", documents=[desk.documents()], all=True)
        desk.call("fleet_teardown", check=False, documents=[desk.documents()], run_id=plan["run_id"])
        desk.call("fleet_unlock", check=False, run_id=plan["run_id"])


def _inventory_from_elsewhere(desk: Desk) -> Done:
    desk.documents()
    inventory = desk.file("gpu.tgp.yml", yaml.safe_dump({"plugin": "tgp.gpu.nodes", "documents": ["pools.yml"]}))
    return desk.command("ansible-inventory", "-i", inventory, "--graph")


COMMANDS = [
    Mistake(
        "a typo in options",
        lambda desk: desk.playbook("status", tgp_options={"claim_stor": "directory"}),
        2,
        ("Did you mean claim_store?",),
    ),
    Mistake(
        "a typo of a variable, -e pol=",
        lambda desk: desk.playbook("provision", "--check", pol="batch"),
        2,
        ("Did you mean tgp_pool?",),
    ),
    Mistake(
        "a typo of a variable, -e tgp_nods=",
        lambda desk: desk.playbook("provision", "--check", tgp_nods=1),
        2,
        ("Did you mean tgp_nodes?",),
    ),
    Mistake("provision while another run is at work", _busy("provision"), 2, ("laptop/4711/other", "plan_lock_wait")),
    Mistake("destroy while another run is at work", _busy("destroy", all=True), 2, ("laptop/4711/other", "plan_lock_wait")),
    Mistake(
        "a plan that is not there",
        lambda desk: desk.module("fleet_apply", documents=[desk.documents()], file="/nowhere/plan.json"),
        2,
        ("/nowhere/plan.json",),
    ),
    Mistake("a plan that is applied twice", _applied_twice, 0, ("terminated already",)),
    Mistake(
        "since=yesterday", lambda desk: desk.module("fleet_report", since="yesterday"), 2, ("since: 'yesterday' is not a time",)
    ),
    Mistake(
        "time_zone=Europe/Berlyn",
        lambda desk: desk.module("fleet_report", time_zone="Europe/Berlyn"),
        2,
        ("Europe/Berlyn", "Europe/Berlin"),
    ),
    Mistake(
        "min_gpu_memory=24gigs",
        lambda desk: desk.module("offer_info", min_gpu_memory="24gigs"),
        2,
        ("min_gpu_memory: '24gigs'", "24GiB"),
    ),
    Mistake("region=us-wset", lambda desk: desk.module("offer_info", region=["us-wset"]), 2, ("us-wset", "Did you mean us-west")),
    Mistake("nodes in the inventory", _nodes_of_a_group, 0, ("launch",), ("reserved name",)),
    Mistake("documents in the inventory", _documents_of_a_group, 0, ("launch", "default/training")),
    Mistake(
        "destroy of nothing", lambda desk: desk.playbook("destroy"), 2, ("Set tgp_machine, tgp_pool, or tgp_everything: true.",)
    ),
    Mistake("reap of one pool", lambda desk: desk.playbook("reap", tgp_pool="training"), 2, ("tgp_pool", "tgp_documents")),
    Mistake(
        "gpu_count=four",
        lambda desk: desk.playbook("prices", documents=False, tgp_gpu_count="four"),
        2,
        ("tgp_gpu_count",),
        ("argument_spec",),
    ),
    Mistake("mode=provison", lambda desk: desk.playbook("plan", tgp_mode="provison"), 2, ("provison", "Did you mean provision?")),
    Mistake(
        "a key for all modules at once",
        _key_for_all_modules,
        2,
        ("tgp.gpu.talos_schematic", "lambda_api_key"),
        ("in_process",),  # Ansible quotes the line of the play that has the key
    ),
    Mistake("a task for hosts: gpu_nodes", _task_for_gpu_nodes, 4, ("UNREACHABLE",), ("CHANGED",)),
    Mistake(
        "an inventory read from another folder", _inventory_from_elsewhere, 0, ("@gpu_nodes",), ("No document file", "WARNING")
    ),
    Mistake("loop=true", lambda desk: desk.playbook("autoscale", "--check", tgp_loop=True), 0, ("localhost",), ("reserved name",)),
]

MISTAKES = (*DOCUMENTS, *SETUP, *COMMANDS)
