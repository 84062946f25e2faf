# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person gets wrong is refused in words that help, before anything is rented."""

from __future__ import annotations

import base64
import copy
import datetime
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.fixtures.demo import demo_documents

from .box import ROOT, Result, Sandbox, by_name

SEEDS = ROOT / "tests" / "fixtures" / "seeds"
CORRECTED = ROOT / "examples" / "seed-s0-corrected.yml"
WRONG = "a-key-that-nobody-ever-gave-out-0123456789"


def refused(sandbox: Sandbox, result: Result, *sentences: str) -> None:
    """The run failed with these words, and neither a cloud nor the tailnet was told to do anything."""
    result.failed()
    for sentence in sentences:
        assert sentence in result.words, f"missing: {sentence}\n{result.text}"
    untouched(sandbox)
    assert "Traceback" not in result.text


def untouched(sandbox: Sandbox) -> None:
    paid = [line for line in sandbox.writes() if not line.startswith("kubernetes ")]
    assert paid == []
    assert sandbox.totals()["instances"] == 0
    assert sandbox.totals()["keys"] == 0
    if sandbox.kube.get("/api/v1/namespaces/tgp-system").status_code == 200:
        assert sandbox.claims() == {}


def documents(change: t.Callable[[dict[str, t.Any], dict[str, t.Any]], None] | None = None) -> list[dict[str, t.Any]]:
    """The demo's class and its pool of rented machines, altered."""
    found = demo_documents()
    node_class, pool = by_name(found, "GPUNodeClass", "demo"), by_name(found, "GPUNodePool", "training")
    if change is not None:
        change(node_class, pool)
    return [node_class, pool]


# ---- documents


def _unknown_field(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    pool["spec"]["maxHourlyPrize"] = "1.00"


def _unknown_nested(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    node_class["spec"]["limits"]["maxNode"] = 3


def _negative_price(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    pool["spec"]["maxHourlyPrice"] = "-1"


def _no_price(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    pool["spec"]["maxHourlyPrice"] = "cheap"


def _no_class(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    pool["spec"]["nodeClassRef"]["name"] = "damo"


def _two_numbers(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    pool["spec"] |= {"replicas": 4, "minNodes": 1}


def _two_faults(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    _unknown_field(node_class, pool)
    _unknown_nested(node_class, pool)


def _no_own_machines(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    del by_cloud(node_class, "webhook")["machines"]


def _no_such_cloud(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    by_cloud(node_class, "lambda")["name"] = "lambada"


def _no_file(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    node_class["spec"]["talosConfig"]["machineConfigTemplateFile"] = "/nowhere/worker.yaml"


def _broken_template(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
    node_class["spec"]["talosConfig"] = {"machineConfigTemplate": "version: v1alpha1\nmachine: {token: {{ MachineTokn }}}\n"}


def by_cloud(node_class: dict[str, t.Any], name: str) -> dict[str, t.Any]:
    return next(one for one in node_class["spec"]["providers"] if one["name"] == name)


WRONG_DOCUMENTS: dict[str, tuple[t.Callable[..., None], tuple[str, ...]]] = {
    "unknown field": (_unknown_field, ("spec.maxHourlyPrize", "maxHourlyPrice")),
    "two faults at once": (_two_faults, ("spec.maxHourlyPrize", "spec.limits.maxNode")),
    "negative price": (_negative_price, ("spec.maxHourlyPrice", "-1")),
    "price that is no number": (_no_price, ("spec.maxHourlyPrice", "cheap")),
    "class that is not there": (_no_class, ("spec.nodeClassRef.name", "damo", "demo")),
    "an exact number and a floor": (_two_numbers, ("spec.replicas", "minNodes")),
    "own machines without machines": (_no_own_machines, ("spec.providers[1]", "no machines are listed", "_GPU_COUNT")),
    "unknown cloud": (_no_such_cloud, ("spec.providers[0].name", "lambada")),
    "template file that is missing": (_no_file, ("machineConfigTemplateFile", "/nowhere/worker.yaml")),
    "template with an unknown variable": (_broken_template, ("GPUNodeClass demo", "MachineTokn")),
}


@pytest.mark.parametrize("case", WRONG_DOCUMENTS)
def test_wrong_documents(sandbox: Sandbox, case: str) -> None:
    change, sentences = WRONG_DOCUMENTS[case]
    refused(sandbox, sandbox.playbook("provision", documents=documents(change)), *sentences)


@pytest.mark.parametrize("talos", [{}, {"machineConfigTemplate": ""}], ids=["none", "empty"])
def test_a_class_without_a_template(sandbox: Sandbox, talos: dict[str, t.Any]) -> None:
    def without(node_class: dict[str, t.Any], pool: dict[str, t.Any]) -> None:
        node_class["spec"]["talosConfig"] = talos

    refused(sandbox, sandbox.playbook("provision", documents=documents(without)), "machineConfigTemplate")


def test_no_documents(sandbox: Sandbox) -> None:
    refused(sandbox, sandbox.playbook("provision", documents=None), "There is no pool among the documents", "Give tgp_documents")


def test_a_file_that_is_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    missing = tmp_path / "pools.yml"
    refused(sandbox, sandbox.playbook("provision", documents=missing), str(missing))


def test_a_file_that_is_no_yaml(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "pools.yml"
    file.write_text("kind: [GPUNodePool\n")
    refused(sandbox, sandbox.playbook("provision", documents=file), str(file))


@pytest.mark.parametrize(
    ("variables", "sentences"),
    [
        ({"pool": "trainning"}, ("There is no pool trainning", "default/training")),
        ({"nodes": -1}, ("tgp_nodes for default/training is -1", "whole number")),
        ({"nodes": "many"}, ("tgp_nodes for default/training is 'many'", "whole number")),
        ({"nodes": {"trainning": 2}}, ("trainning",)),
        ({"nodes": 1.5}, ("nodes for default/training is",)),
    ],
    ids=["unknown pool", "negative number", "no number", "number for an unknown pool", "half a machine"],
)
def test_wrong_wishes(sandbox: Sandbox, variables: dict[str, t.Any], sentences: tuple[str, ...]) -> None:
    refused(sandbox, sandbox.playbook("provision", documents=documents(), extra_vars=variables), *sentences)


@pytest.mark.parametrize("variables", [{"pool": "training"}, {"pool": ["default/own", "training"]}], ids=["one", "several"])
def test_reap_for_some_pools_is_refused(sandbox: Sandbox, variables: dict[str, t.Any]) -> None:
    refused(
        sandbox, sandbox.playbook("reap", documents=documents(), extra_vars=variables), "tgp_pool means nothing to this playbook"
    )


@pytest.mark.parametrize(
    ("playbook", "variables", "sentence"),
    [
        ("destroy", {}, "Set tgp_machine, tgp_pool, or tgp_everything: true."),
        (
            "destroy",
            {"everything": True, "pool": "training"},
            "tgp_everything means every machine of this cluster, and tgp_machine or tgp_pool",
        ),
        ("join_kubelet", {}, "missing required arguments: tgp_machine"),
        ("plan", {"mode": "provison"}, "got: provison. Did you mean provision?"),
        ("plan", {"mode": "provision", "machine": "x"}, "tgp_machine cannot be used in mode provision"),
        ("prices", {"gpu_count": "four"}, "argument 'tgp_gpu_count' is of type str"),
        ("prices", {"region": "us-wset"}, "There is no region 'us-wset'. Did you mean us-west?"),
        ("prices", {"gpu_type": "A1000"}, "'A1000' is not a known GPU. Did you mean A100"),
        ("report", {"format": "htlm"}, "got: htlm. Did you mean html?"),
        ("status", {"options": {"claim_stor": "directory"}}, "Did you mean claim_store?"),
    ],
)
def test_errors_call_variables_by_their_names(sandbox: Sandbox, playbook: str, variables: dict[str, t.Any], sentence: str) -> None:
    """What the user typed and can correct: not the options of roles and modules behind it, nor their whole specifications."""
    done = sandbox.playbook(playbook, documents=None if playbook == "prices" else documents(), extra_vars=variables)
    assert done.rc == 2
    refused(sandbox, done, sentence)
    assert "argument_spec" not in done.text and len(done.text) < 8000


def test_empty_answers_of_a_survey_choose_nothing(sandbox: Sandbox) -> None:
    looked = sandbox.playbook("provision", "-e", "tgp_pool=", "-e", "tgp_nodes=", documents=documents(), check=True).succeeded()
    assert "default/training" in looked.text
    refused(
        sandbox, sandbox.playbook("destroy", "-e", "tgp_pool=", "-e", "tgp_machine=", documents=documents()), "Nothing is named"
    )


# ---- credentials


@pytest.mark.parametrize(
    ("env", "sentences"),
    [
        ({"LAMBDA_API_KEY": WRONG}, ("lambda", "LAMBDA_API_KEY")),
        ({"LAMBDA_API_KEY": None}, ("lambda", "LAMBDA_API_KEY")),
        ({"TS_OAUTH_CLIENT_SECRET": "tskey-client-" + WRONG}, ("tailscale", "The service does not accept OAuth client")),
        ({"TS_OAUTH_CLIENT_SECRET": None}, ("tailscale_oauth_client_secret", "TS_OAUTH_CLIENT_SECRET")),
        (
            {"TS_OAUTH_CLIENT_SECRET": None, "TS_OAUTH_CLIENT_ID": None},
            ("There is no credential for the tailnet", "TS_OAUTH_CLIENT_ID"),
        ),
        (
            {"TS_OAUTH_CLIENT_SECRET": None, "TS_OAUTH_CLIENT_ID": None, "TAILSCALE_API_KEY": "tskey-api-" + WRONG},
            ("tailscale", "The service does not accept the API token"),
        ),
        ({"TGP_TALOS_SECRETS": None}, ("talos_secrets", "TGP_TALOS_SECRETS")),
        (
            {"TGP_TALOS_SECRETS": "/nowhere/secrets.yaml"},
            ("talos_secrets (TGP_TALOS_SECRETS)", "/nowhere/secrets.yaml cannot be read"),
        ),
        ({"TGP_TALOS_SECRETS": "secrets/bundle"}, ("talos_secrets (TGP_TALOS_SECRETS)", "secrets/bundle cannot be read")),
        ({"KUBECONFIG": "/nowhere/config"}, ("/nowhere/config",)),
    ],
    ids=[
        "wrong cloud key",
        "no cloud key",
        "wrong oauth secret",
        "half an oauth client",
        "no mesh credential",
        "invalid api token",
        "no talos secrets",
        "talos secrets that are not there",
        "talos secrets that are not there, by a relative path",
        "no kubeconfig",
    ],
)
@pytest.mark.parametrize("playbook", ["provision", "validate"])
def test_credentials(sandbox: Sandbox, playbook: str, env: dict[str, str | None], sentences: tuple[str, ...]) -> None:
    result = sandbox.playbook(playbook, documents=documents(), env=env)
    refused(sandbox, result, *sentences)
    assert WRONG not in result.text


def kubeconfig(sandbox: Sandbox, folder: Path, change: t.Callable[[dict[str, t.Any]], None]) -> str:
    config = yaml.safe_load(Path(sandbox.variables["KUBECONFIG"]).read_text())
    change(config)
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return str(file)


def test_a_cluster_that_does_not_answer(sandbox: Sandbox, tmp_path: Path) -> None:
    def elsewhere(config: dict[str, t.Any]) -> None:
        config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"

    env = {"KUBECONFIG": kubeconfig(sandbox, tmp_path, elsewhere)}
    refused(sandbox, sandbox.playbook("provision", documents=documents(), env=env), "127.0.0.1:9", "kubernetes")


def test_a_cluster_that_does_not_know_us(sandbox: Sandbox, tmp_path: Path) -> None:
    def stranger(config: dict[str, t.Any]) -> None:
        config["users"][0]["user"] = {"token": WRONG}

    env = {"KUBECONFIG": kubeconfig(sandbox, tmp_path, stranger)}
    result = sandbox.playbook("provision", documents=documents(), env=env)
    refused(sandbox, result, "401")
    assert WRONG not in result.text


# ---- time


@pytest.mark.parametrize(
    ("playbook", "words"),
    [
        ("provision", "The clock of this host is"),
        ("reap", "The clock of this host is"),
        ("validate", "This machine's clock and the API server's differ by"),
    ],
)
def test_a_clock_that_is_off(sandbox: Sandbox, playbook: str, words: str) -> None:
    """Without the sandbox's clock file we live by the real time, and the cluster in another one."""
    sandbox.advance(3600)
    result = sandbox.playbook(playbook, documents=documents(), env={"TGP_CLOCK_FILE": None})
    refused(sandbox, result, words, "time synchronisation")
    assert result.rc == 2


def test_a_clock_file_that_is_no_clock(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    refused(
        sandbox,
        sandbox.playbook("provision", documents=documents(), env={"TGP_CLOCK_FILE": str(file)}),
        "TGP_CLOCK_FILE",
        str(file),
    )
    file.write_text("noon")
    refused(
        sandbox,
        sandbox.playbook("provision", documents=documents(), env={"TGP_CLOCK_FILE": str(file)}),
        "TGP_CLOCK_FILE",
        str(file),
    )


# ---- rights

NEEDED: list[dict[str, t.Any]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "update", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "delete"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]},
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments"], "verbs": ["list"]},
    {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]},
    {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"]},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"], "verbs": ["get"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]},
]


def limited(sandbox: Sandbox, folder: Path, rules: list[dict[str, t.Any]]) -> dict[str, str | None]:
    """The environment of somebody who has these rights and no others: a bootstrap token with a role of its own."""
    token_id, secret = "l1m1t3", "0123456789abcdef"
    now = datetime.datetime.fromisoformat(sandbox.world()["now"].replace("Z", "+00:00"))
    data = {
        "token-id": token_id,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "expiration": (now + datetime.timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    name = f"bootstrap-token-{token_id}"
    body = {"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token"}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for path in (
        f"/api/v1/namespaces/kube-system/secrets/{name}",
        f"{rbac}/clusterroles/limited",
        f"{rbac}/clusterrolebindings/limited",
    ):
        sandbox.kube.delete(path)
    sandbox.kube.post("/api/v1/namespaces/kube-system/secrets", json={**body, "data": encoded}).raise_for_status()
    sandbox.kube.post(f"{rbac}/clusterroles", json={"metadata": {"name": "limited"}, "rules": rules}).raise_for_status()
    binding = {
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"system:bootstrap:{token_id}"}],
    }
    sandbox.kube.post(f"{rbac}/clusterrolebindings", json=binding).raise_for_status()

    def change(config: dict[str, t.Any]) -> None:
        config["users"][0]["user"] = {"token": f"{token_id}.{secret}"}

    return {"KUBECONFIG": kubeconfig(sandbox, folder, change)}


@pytest.mark.parametrize(
    ("group", "resource", "verb", "words"),
    [
        ("", "nodes", "patch", "patch nodes"),
        ("", "nodes", "list", "list nodes"),
        ("", "pods/eviction", "create", "create pods/eviction"),
        ("coordination.k8s.io", "leases", "update", "is not allowed to update leases.coordination.k8s.io"),
    ],
)
def test_missing_rights_are_named_before_anything_is_rented(
    sandbox: Sandbox, tmp_path: Path, group: str, resource: str, verb: str, words: str
) -> None:
    rules = copy.deepcopy(NEEDED)
    rule = next(one for one in rules if group in one["apiGroups"] and resource in one["resources"])
    rule["verbs"].remove(verb)
    env = limited(sandbox, tmp_path, [one for one in rules if one["verbs"]])
    refused(sandbox, sandbox.playbook("provision", documents=documents(), env=env), words)


@pytest.mark.parametrize(
    ("playbook", "words", "never"),
    [
        ("provision", ("patch nodes", "create pods/eviction", "create secrets in namespace kube-system"), ()),
        ("validate", ("patch nodes", "create pods/eviction", "create secrets in namespace kube-system"), ()),
        ("reap", ("patch nodes", "create pods/eviction"), ("create secrets", "certificatesigningrequests")),
        ("status", ("list nodes", "list configmaps in namespace tgp-system"), ("patch", "create", "delete nodes")),
    ],
)
def test_all_missing_rights_are_named_at_once_with_the_file_that_grants_them(
    sandbox: Sandbox, tmp_path: Path, playbook: str, words: tuple[str, ...], never: tuple[str, ...]
) -> None:
    """Nobody learns of forty rights one by one, and nobody of those that this playbook does not need."""
    asks = [one for one in NEEDED if "selfsubjectaccessreviews" in one["resources"]]
    done = sandbox.playbook(playbook, documents=documents(), env=limited(sandbox, tmp_path, asks))
    refused(sandbox, done, "get namespaces kube-system", "in namespace tgp-system", *words)
    assert [word for word in never if word in done.words] == []
    (file, *_again) = re.findall(r"kubectl apply -f (\S+)", done.words)
    assert Path(file).samefile(ROOT / "files" / "rbac.yml")


def test_the_documented_rights_suffice(start: t.Callable[..., Sandbox], tmp_path: Path) -> None:
    """A full cycle with exactly the rights that are asked for, so that the list is neither too long nor too short."""
    sandbox = start(speed=100)
    env = limited(sandbox, tmp_path, NEEDED)
    sandbox.playbook("validate", documents=documents(), env=env).succeeded()
    sandbox.playbook("provision", documents=documents(), env=env).succeeded()
    sandbox.playbook("destroy", documents=documents(), env=env, extra_vars={"everything": True}).succeeded()
    assert sandbox.totals()["instances"] == 0


# ---- another run


def test_another_run_at_work(sandbox: Sandbox) -> None:
    """Who asks for machines waits, and fails when nothing was done (L-30); a timer simply comes again."""
    sandbox.kube.post("/api/v1/namespaces", json={"metadata": {"name": "tgp-system"}})
    cluster = sandbox.get("/api/v1/namespaces/kube-system")["metadata"]["uid"].replace("-", "")[:8]
    leases = "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
    now = datetime.datetime.fromisoformat(sandbox.world()["now"].replace("Z", "+00:00"))
    spec = {
        "holderIdentity": "another-host/4711/another-run",
        "leaseDurationSeconds": 7200,  # two minutes of a slow test machine
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "acquireTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    sandbox.kube.delete(f"{leases}/tgp-{cluster}")
    sandbox.kube.post(leases, json={"metadata": {"name": f"tgp-{cluster}"}, "spec": spec}).raise_for_status()
    try:
        skipped = sandbox.playbook("reap", documents=documents()).succeeded()
        assert "another-host/4711/another-run" in skipped.words
        assert skipped.count("changed") == 0
        untouched(sandbox)
        failing = sandbox.playbook("provision", documents=documents(), extra_vars={"plan_lock_wait": 120})
        assert failing.rc == 2 and "waiting for the run lock" in failing.words and "plan_lock_wait" in failing.words
        refused(sandbox, failing, "another-host/4711/another-run")
    finally:
        sandbox.kube.delete(f"{leases}/tgp-{cluster}").raise_for_status()


# ---- the sample documents of the Talos GPU Provisioner


def test_seed_documents_are_accepted_and_their_template_is_refused_with_reasons(start: t.Callable[..., Sandbox]) -> None:
    sandbox = start(speed=100, scenario="seed-s0")
    env = _tgp_secret(sandbox)
    result = sandbox.playbook("provision", documents=SEEDS, env=env)
    reasons = (
        "no field machine.systemd",
        "machine.files[0]: /etc/tailscale/authkey",
        "machine.files[1]",
        "ghcr.io/siderolabs/talos:v1.10.5",
    )
    refused(sandbox, result, "Nothing was rented, because a machine could not join", "GPUNodeClass standard-gpu-class", *reasons)
    assert sum(1 for line in result.text.splitlines() if line.startswith("  - GPUNodeClass standard-gpu-class: ")) == len(reasons)

    documents = list(yaml.safe_load_all(CORRECTED.read_text(encoding="utf-8")))
    documents[0]["spec"]["providers"].pop()  # the sample's own, of which neither has an RTX 4090 that could be a node
    none = sandbox.playbook("provision", documents=documents, env=env)
    refused(sandbox, none, "1 of the wanted machines will not come", "gpu type")

    made = sandbox.playbook("provision", documents=CORRECTED, env=env).succeeded()
    [machine] = sandbox.living()
    assert (machine["cloud"], machine["region"]) == ("vast", "Oregon, US"), "the cheapest of a virtual machine in the regions"
    assert made.count("failed") == 0
    node = sandbox.nodes()[machine["name"]]
    assert node["metadata"]["labels"]["tgp.io/nodepool"] == "ml-workload-pool"
    sandbox.playbook("destroy", documents=CORRECTED, env=env, extra_vars={"everything": True}).succeeded()
    assert sandbox.left()["instances"] == sandbox.left()["claims"] == sandbox.left()["devices"] == 0


def _tgp_secret(sandbox: Sandbox) -> dict[str, str | None]:
    """The Secret of the sample's step 1, and an environment without the credentials that are in it."""
    sandbox.kube.post("/api/v1/namespaces", json={"metadata": {"name": "tgp-system"}})
    values = {
        "RUNPOD_API_KEY": sandbox.variables["RUNPOD_API_KEY"],
        "LAMBDA_LABS_API_KEY": sandbox.variables["LAMBDA_API_KEY"],
        "VAST_API_KEY": sandbox.variables["VAST_API_KEY"],
        "client-id": sandbox.variables["TS_OAUTH_CLIENT_ID"],
        "client-secret": sandbox.variables["TS_OAUTH_CLIENT_SECRET"],
    }
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    body = {"metadata": {"name": "tgp-operator-secret"}, "type": "Opaque", "data": data}
    sandbox.kube.post("/api/v1/namespaces/tgp-system/secrets", json=body).raise_for_status()
    return dict.fromkeys(("LAMBDA_API_KEY", "RUNPOD_API_KEY", "VAST_API_KEY", "TS_OAUTH_CLIENT_ID", "TS_OAUTH_CLIENT_SECRET"))
