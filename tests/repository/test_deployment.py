# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shipped for running by itself: rights, a CronJob, an execution environment, an AWX credential type."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.kube.bootstrap_tokens import OWN_BINDING, OWN_GROUP
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import FEATURES, HUBS, NEEDS, SECRETS, TOKENS, rights_of
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES

from charts import rights

from .tree import ROOT

READERS = {"status", "report", "plan"}
OUTSIDE = {
    "awx",
    "device_plugin",
    "images",
    "import_tgp_operator",
    "manifests",
    "migrate",
    "prereqs",
    "takeover",
    "verify_provider",
}  # what an administrator does once, and what needs no cluster


@functools.cache
def manifests(path: str) -> list[dict[str, t.Any]]:
    return [one for one in yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")) if one]


def granted() -> set[Right]:
    """Every right of the shipped roles."""
    roles = [one for one in manifests("files/rbac.yml") if one["kind"] in ("ClusterRole", "Role")]
    return {
        Right(verb, resource, group, role["metadata"].get("namespace", ""), name)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_the_shipped_rights_are_the_sum_of_those_of_the_playbooks() -> None:
    needed = {right for playbook in NEEDS for right in rights_of(playbook)}
    assert sorted(map(str, needed - granted())) == []
    assert sorted(map(str, granted() - needed)) == []


def test_the_table_has_every_playbook_that_works_in_a_cluster() -> None:
    playbooks = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert set(NEEDS) == playbooks - OUTSIDE
    assert {need.when for needs in NEEDS.values() for need in needs} == {"", *FEATURES}
    assert all(len({right.namespace for right in need.rights}) == 1 for needs in NEEDS.values() for need in needs)


def test_who_only_looks_may_only_read_and_who_terminates_lets_nothing_in() -> None:
    for playbook in READERS:
        assert {right.verb for right in rights_of(playbook)} <= {"get", "list"}, playbook
    for playbook in ("reap", "destroy"):
        found = rights_of(playbook)
        assert not [right for right in found if right.group == "certificates.k8s.io"]
        assert Right("create", "secrets", namespace="kube-system") not in found


@pytest.mark.parametrize("playbook", NEEDS)
def test_who_has_own_machines_only_needs_no_right_on_secrets_and_certificate_requests(playbook: str) -> None:
    found = rights_of(playbook, set(FEATURES) - {TOKENS, SECRETS, HUBS})
    assert not [right for right in found if right.resource == "secrets" or right.group == "certificates.k8s.io"]


def test_no_right_is_wider_than_it_must_be() -> None:
    for right in granted():
        assert "*" not in (right.verb, right.resource, right.group)
        named = (
            right.resource == "configmaps" and right.verb == "get" and right.name
        )  # in whichever namespace a program of others is
        assert right.namespace or named or right.resource not in ("secrets", "configmaps", "leases"), right
    assert {right.verb for right in granted() if right.resource == "secrets" and right.namespace == "kube-system"} == {
        "create",
        "delete",
    }


def test_every_role_is_bound_to_the_one_account() -> None:
    found = manifests("files/rbac.yml")
    account = next(one["metadata"] for one in found if one["kind"] == "ServiceAccount")
    roles = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in found if one["kind"].endswith("Role")
    }
    bound = set()
    for one in found:
        if one["kind"].endswith("Binding") and one["metadata"]["name"] != OWN_BINDING:
            assert one["subjects"] == [{"kind": "ServiceAccount", **account}]
            bound.add((one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace")))
    assert bound == roles


def test_only_the_group_of_our_tokens_is_let_ask_for_certificates_and_nobody_approves_them_unseen() -> None:
    (binding,) = [one for one in manifests("files/rbac.yml") if one["metadata"]["name"] == OWN_BINDING]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:node-bootstrapper",
    }
    assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("Group", OWN_GROUP)]
    assert "nodeclient" not in (ROOT / "files" / "rbac.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "playbook"), [("examples/cronjob.yaml", "reap"), ("examples/cronjob-archive.yaml", "archive")])
def test_the_cron_job_runs_its_playbook_with_that_account(path: str, playbook: str) -> None:
    *others, job = manifests(path)
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    namespaces = {one["metadata"]["name"] for one in manifests("files/rbac.yml") if one["kind"] == "Namespace"}
    assert job["metadata"]["namespace"] in namespaces
    assert pod["serviceAccountName"] in {
        one["metadata"]["name"] for one in manifests("files/rbac.yml") if one["kind"] == "ServiceAccount"
    }
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    command = container["command"]
    assert command[:2] == ["ansible-playbook", f"tgp.gpu.{playbook}"] and (ROOT / "playbooks" / f"{playbook}.yml").exists()
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert set(mounts.values()) == {one["name"] for one in pod["volumes"]}
    paths = [command[-1].partition("=")[2], *(one["value"] for one in container["env"] if one["value"].startswith("/"))]
    assert all(any(path == mount or path.startswith(f"{mount}/") for mount in mounts) for path in paths)
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    claimed = {one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one}
    assert {(one["kind"], one["metadata"]["name"], one["metadata"]["namespace"]) for one in others} == {
        ("PersistentVolumeClaim", name, job["metadata"]["namespace"]) for name in claimed
    }


def test_the_archive_outlives_the_pod_that_writes_it() -> None:
    """A line leaves the cluster once the file has it: a file of the container would go with the pod."""
    *_others, job = manifests("examples/cronjob-archive.yaml")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    file = Path(container["command"][-1].removeprefix("tgp_path="))
    (volume,) = [one["name"] for one in container["volumeMounts"] if Path(one["mountPath"]) in file.parents]
    assert "persistentVolumeClaim" in next(one for one in pod["volumes"] if one["name"] == volume)


def test_the_loop_runs_in_the_cluster_with_that_account_and_has_time_to_end() -> None:
    (deployment,) = manifests("examples/k8s-gpu-autoprovision/deployment.yaml")
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate") and pod["terminationGracePeriodSeconds"] >= 45 * 60
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    accounts = [one["metadata"] for one in manifests("files/rbac.yml") if one["kind"] == "ServiceAccount"]
    assert {"name": pod["serviceAccountName"], "namespace": deployment["metadata"]["namespace"]} in accounts
    command = container["command"]
    assert command[:4] == ["ansible-playbook", "tgp.gpu.autoscale", "-e", "tgp_loop=true"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    assert set(mounts.values()) == {one["name"] for one in pod["volumes"]}
    files = [one.removeprefix("@").removeprefix("tgp_documents=") for one in command[5::2]]
    assert [Path(one).name for one in files] == ["pools.yml", "values.yaml"]
    assert all(
        (ROOT / "examples" / "k8s-gpu-autoprovision" / Path(one).name).is_file() and str(Path(one).parent) in mounts
        for one in files
    )
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert (
        container["image"]
        == manifests("examples/cronjob.yaml")[0]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"]
    )


def test_what_the_chart_has_of_other_files_is_current() -> None:
    chart = ROOT / "charts" / "tgp-gpu"
    assert rights.FILE.read_text(encoding="utf-8") == rights.text(), "run: python -m charts.rights"
    for copy, source in (
        ("crds.yaml", "schemas/crds.yaml"),
        ("admission_policy.yml", "files/admission_policy.yml"),
        ("prometheus_rules.yml", "monitoring/prometheus_rules.yml"),
        ("dashboards", "monitoring/dashboards"),
    ):
        assert (chart / "files" / copy).samefile(ROOT / source)
    (described,) = manifests("charts/tgp-gpu/Chart.yaml")
    (galaxy,) = manifests("galaxy.yml")
    assert described["version"] == described["appVersion"] == galaxy["version"]


def test_the_execution_environment_has_all_that_it_needs() -> None:
    (meta,) = manifests("meta/execution-environment.yml")
    assert set(meta["dependencies"]) == {"python", "system"}
    assert all((ROOT / path).is_file() for path in meta["dependencies"].values())
    (image,), (decisions,) = manifests("examples/execution-environment.yaml"), manifests("examples/decision-environment.yaml")
    shared = {key: value for key, value in decisions["dependencies"].items() if key not in ("python", "system")}
    assert (shared, decisions["additional_build_files"]) == (image["dependencies"], image["additional_build_files"])
    (galaxy,) = manifests("galaxy.yml")
    tarball = f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}.tar.gz"
    (collection,) = image["dependencies"]["galaxy"]["collections"]
    (extra,) = image["additional_build_files"]
    assert extra["src"] == f"../{tarball}"
    assert collection == {"name": f"{extra['dest']}/{tarball}", "type": "file"}
    core = next(line for line in (ROOT / "requirements-controller.txt").read_text().splitlines() if line.startswith("ansible-core"))
    assert image["dependencies"]["ansible_core"]["package_pip"] == core


def test_requirements_leave_the_users_ansible_alone() -> None:
    """``pip install -r requirements.txt`` into an environment with Ansible must not replace it; a fresh controller has a file of its own."""

    def wanted(name: str) -> list[str]:
        lines = [line.strip() for line in (ROOT / name).read_text().splitlines() if line.strip() and not line.startswith("#")]
        return [re.split(r"[<>=~!\[ ]", line, maxsplit=1)[0] if not line.startswith("-") else line for line in lines]

    assert not [name for name in wanted("requirements.txt") if name.startswith("ansible")]
    assert wanted("requirements-controller.txt") == ["-r requirements.txt", "ansible-core"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install -r requirements-controller.txt" in readme and "pip install -r requirements.txt" in readme
    (runtime,) = manifests("meta/runtime.yml")
    core = next(line for line in (ROOT / "requirements-controller.txt").read_text().splitlines() if line.startswith("ansible-core"))
    assert runtime["requires_ansible"].startswith(">=2.19") and ">=2.19," in core


class _Loader(yaml.SafeLoader):
    """Reads ``!unsafe`` as text."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def awx_types() -> list[dict[str, t.Any]]:
    text = (ROOT / "roles" / "awx" / "vars" / "main.yml").read_text(encoding="utf-8")
    return t.cast("list[dict[str, t.Any]]", yaml.load(text, _Loader)["awx_credential_types"])


@pytest.mark.parametrize("kind", awx_types(), ids=lambda kind: kind["name"])
def test_a_credential_type_of_awx_hands_over_every_field_where_the_collection_reads_it(kind: dict[str, t.Any]) -> None:
    fields, injectors = {field["id"]: field for field in kind["inputs"]["fields"]}, kind["injectors"]
    values = [*injectors.get("file", {}).values(), *injectors["env"].values()]
    files = {f"tower.filename.{name.removeprefix('template.')}" for name in injectors.get("file", {})}
    assert {re.sub(r"[{} ]", "", value) for value in values} == {*fields, *files}
    assert set(kind["inputs"]["required"]) <= set(fields)
    public = {"url", "hosts", "client_id", "control_plane_endpoint"} - ({"url"} if kind["name"] == "notices" else set())
    assert {name for name in fields if not fields[name].get("secret")} <= public
    pages = [
        (ROOT / path).read_text(encoding="utf-8") for path in ("README.md", "docs/reference/clouds.md", "docs/reference/events.md")
    ]
    assert [name for name in injectors["env"] if not any(f"`{name}`" in page for page in pages)] == []


def test_every_provider_and_mesh_has_a_credential_type_in_awx() -> None:
    injected = {name for kind in awx_types() for name in kind["injectors"]["env"]}
    assert [entry.name for entry in ENTRIES.values() if entry.key and not injected & set(entry.variables(entry.key))] == []
    assert {"TS_OAUTH_CLIENT_SECRET", "TAILSCALE_API_KEY", "KUBECONFIG", "TGP_TALOS_SECRETS"} <= injected
