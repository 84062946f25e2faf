# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Helm makes of the chart: pods of the restricted standard, each playbook's rights and no more, Secrets by name, wrong values refused."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import (
    CLAIMS,
    FEATURES,
    NEEDS,
    NODE_CLAIMS,
    OBJECTS,
    SECRETS,
    TOKENS,
    rights_of,
)
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right

from schemas import crds

from .helm_cli import CHART, SPACE, Helm

CASES = sorted((CHART / "ci").glob("*.yaml"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
Manifest = dict[str, t.Any]


def kinds(manifests: list[Manifest], *wanted: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in wanted]


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The specs of all pods, by the name of what makes them."""
    found = {}
    for one in manifests:
        spec = one.get("spec") or {}
        spec = spec.get("jobTemplate", {}).get("spec", spec) if one["kind"] == "CronJob" else spec
        pod = spec if one["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
        if "containers" in pod:
            found[one["metadata"]["name"]] = pod
    return found


def variables(pod: Manifest) -> dict[str, t.Any]:
    """The extra variables of a playbook's pod."""
    return json.loads(pod["containers"][0]["command"][-1])


def granted(manifests: list[Manifest], account: str) -> set[Right]:
    """What the roles that are bound to an account let it do."""
    roles = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")): one
        for one in kinds(manifests, "Role", "ClusterRole")
    }
    return {
        Right(verb, resource, group, binding["metadata"].get("namespace", ""), name)
        for binding in kinds(manifests, "RoleBinding", "ClusterRoleBinding")
        if {"kind": "ServiceAccount", "name": account, "namespace": SPACE} in binding["subjects"]
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace", "")]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_lint_has_nothing_to_say(helm: Helm) -> None:
    for values in CASES:
        said = helm.run("lint", "--strict", str(CHART), "--values", str(values))
        assert "1 chart(s) linted, 0 chart(s) failed" in said and "WARNING" not in said, said


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_every_pod_is_of_the_restricted_standard_and_mounts_what_it_names(helm: Helm, values: pathlib.Path) -> None:
    manifests = helm.template("--values", str(values))
    found = pods(manifests)
    assert "tgp-gpu-validate" in found
    accounts = {one["metadata"]["name"] for one in kinds(manifests, "ServiceAccount")}
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod) and pod["serviceAccountName"] in accounts
        assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} <= {"configMap", "secret", "emptyDir"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        mounts = {one["mountPath"] for one in container["volumeMounts"]}
        named = [one["value"] for one in container["env"] if one["value"].startswith("/")]
        if container["command"][0] == "ansible-playbook":
            named += variables(pod).get("tgp_documents", [])
        assert [path for path in named if not any(path == mount or path.startswith(f"{mount}/") for mount in mounts)] == [], name
    assert not kinds(manifests, "Secret")


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_each_account_has_the_rights_of_its_playbook_and_no_more(helm: Helm, values: pathlib.Path) -> None:
    given = yaml.safe_load(values.read_text(encoding="utf-8"))
    manifests = helm.template("--values", str(values))
    features = {
        "own-machines-values": {CLAIMS},
        "loop-values": {CLAIMS, NODE_CLAIMS},
        "mesh-values": {CLAIMS, TOKENS, SECRETS, OBJECTS},
        "schedule-values": set(FEATURES) - {NODE_CLAIMS, OBJECTS},
    }[values.stem]
    places = given.get("rbac", {}).get("serviceNamespaces", [])
    only = given.get("rbac", {}).get("secretNames", [""])
    accounts = [
        one["metadata"]["name"] for one in kinds(manifests, "ServiceAccount") if one["metadata"]["name"] != "tgp-gpu-expose"
    ]
    assert accounts
    for account in accounts:
        wanted = set()
        for right in rights_of(account.removeprefix("tgp-gpu-").replace("-", "_"), features):
            spread = places if right.namespace == "default" else [right.namespace]
            names = only if (right.resource, right.namespace) == ("secrets", SPACE) else [right.name]
            wanted |= {Right(right.verb, right.resource, right.group, place, name) for place in spread for name in names}
        assert granted(manifests, account) == wanted, account


def test_every_playbook_with_rights_of_its_own_can_have_an_account() -> None:
    assert SCHEMA["properties"]["rbac"]["properties"]["playbooks"]["items"]["enum"] == sorted(NEEDS)


def test_L46_nodes_may_read_the_lease_only_where_the_guard_is_enabled(helm: Helm) -> None:
    def bound(*flags: str) -> list[str]:
        bindings = [one for one in kinds(helm.template(*flags), "RoleBinding") if one["metadata"]["name"] == "tgp-gpu-guard"]
        return [subject["name"] for one in bindings for subject in one["subjects"]]

    assert (bound(), bound("--set", "guard.enabled=true")) == ([], ["system:nodes"])


def test_S2_13_its_values_as_they_stand_run_a_loop_without_rights_on_secrets_and_certificates(helm: Helm) -> None:
    manifests = helm.template("--values", str(CHART / "ci" / "own-machines-values.yaml"), release="k8s-gpu-autoprovision")
    (deployment,) = kinds(manifests, "Deployment")
    given = variables(pods(manifests)["tgp-gpu-autoscale"])
    assert given["tgp_loop"] and deployment["spec"]["strategy"] == {"type": "Recreate"}
    (documents,) = [one for one in kinds(manifests, "ConfigMap") if one["metadata"]["name"] == "tgp-gpu"]
    groups = yaml.safe_load(documents["data"][pathlib.Path(given["tgp_documents"][0]).name])
    assert groups == yaml.safe_load((CHART / "ci" / "own-machines-values.yaml").read_text())
    for account in ("tgp-gpu-autoscale", "tgp-gpu-status"):
        rights_there = granted(manifests, account)
        assert not [one for one in rights_there if one.resource == "secrets" or one.group == "certificates.k8s.io"]
    assert given["tgp_options"] == {"credentials_secret": ""}


def test_S3_22_its_values_bring_the_api_server_into_the_tailnet(helm: Helm) -> None:
    flags = ("--set", "networking.backend=tailscale", "--set", "networking.tailscale.operatorEnabled=true")
    manifests = helm.template(*flags, release="tgp-operator")
    assert variables(pods(manifests)["tgp-gpu-reap"]) == {"tgp_options": {"documents_from_cluster": True}}
    command = pods(manifests)["tgp-gpu-expose"]["containers"][0]["command"]
    assert command[-4:] == ["-m", "tgp.gpu.tailscale_expose", "-a", "hostname=k8s-api"]
    may = {Right(verb, "services", namespace="default", name="kubernetes") for verb in ("get", "patch")}
    assert granted(manifests, "tgp-gpu-expose") == may
    assert "has no effect with networking.backend none" in helm.refuses(*flags, "--set", "networking.backend=none")


def test_a_backend_is_that_of_the_classes_which_name_none(helm: Helm) -> None:
    manifests = helm.template("--values", str(CHART / "ci" / "loop-values.yaml"))
    (documents,) = kinds(manifests, "ConfigMap")
    node_class, pool = yaml.safe_load_all(documents["data"]["documents.yml"])
    assert node_class["spec"]["networking"] == {"backend": "none"} and "networking" not in pool["spec"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("image.tag=3", "/image/tag"),
        ("reap.schedule=5", "/reap/schedule"),
        ("reap.schedule=every day", "/reap/schedule"),
        ("jobs.suspend=maybe", "/jobs/suspend"),
        ("nodeGroups=x", "/nodeGroups"),
        ("nodeGroups[0].name=a", "gpuCount"),
        ("documents.inline[0].kind=Pod", "/documents/inline/0"),
        ("nodes=3", "nodes"),
        ("loop.intervall=3", "intervall"),
        ("networking.backend=ipsec", "/networking/backend"),
        ("networking.tailscale.operatorEnabled=7", "/networking/tailscale/operatorEnabled"),
        ("rbac.playbooks={manifests}", "/rbac/playbooks/0"),
        ("env.LAMBDA_API_KEY=secret", "LAMBDA_API_KEY"),
        ("options.notify_token=secret", "notify_token"),
        ("options.notify_apprise=secret", "notify_apprise"),
        ("env.TGP_NOTIFY_APPRISE=secret", "TGP_NOTIFY_APPRISE"),
        ("metrics.enabled=true", "metrics.enabled opens a port of the loop, and no loop runs."),
        ("metrics.port=80", "/metrics/port"),
        ("reap.enabled=false", "Nothing would run. Set reap.enabled or autoscale.enabled, or mode: loop."),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(helm: Helm, value: str, words: str) -> None:
    assert words in helm.refuses("--set", value)


def test_another_namespace_is_refused(helm: Helm) -> None:
    assert "The release must be in the namespace tgp-system" in helm.refuses("--namespace", "default")


def test_the_kinds_stay_when_the_release_goes(helm: Helm) -> None:
    kept = {"helm.sh/resource-policy": "keep"}
    found = kinds(helm.template(), "CustomResourceDefinition")
    assert [one["metadata"].pop("annotations") for one in found] == [kept] * (len(KINDS) + 1)
    assert found == [*crds.definitions(), crds.claim_definition()]


def test_the_schema_knows_every_value_and_every_field_of_an_own_machine() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    def compare(given: t.Any, schema: dict[str, t.Any], place: str) -> None:
        if schema.get("additionalProperties") is False:
            assert set(given) == set(schema["properties"]) - {"global"}, place
            for key, value in given.items():
                compare(value, schema["properties"][key], f"{place}.{key}")

    compare(values, SCHEMA, "values")
    machine = KINDS["GPUNodeClass"]["properties"]["spec"]["properties"]["providers"]["items"]["properties"]["machines"]["items"]
    assert SCHEMA["properties"]["nodeGroups"]["items"] == json.loads(json.dumps(machine))


def test_the_policies_of_admission_are_about_the_accounts_of_the_release(helm: Helm) -> None:
    manifests = helm.template("--values", str(CHART / "ci" / "schedule-values.yaml"))
    policies = kinds(manifests, "ValidatingAdmissionPolicy")
    assert [one["metadata"]["name"] for one in policies if "matchConditions" not in one["spec"]] == ["tgp-gpu-claims"], (
        "for everybody"
    )
    about = [one for one in policies if "matchConditions" in one["spec"]]
    assert len(about) == 3
    for policy in about:
        (account,) = [one["expression"] for one in policy["spec"]["matchConditions"] if one["name"] == "account"]
        named = {f"'system:serviceaccount:{SPACE}:{one['metadata']['name']}'" for one in kinds(manifests, "ServiceAccount")}
        assert account == f"request.userInfo.username in [{', '.join(sorted(named))}]"


def test_S0_05_the_metrics_of_a_loop_have_a_port_and_the_alerts_are_those_of_the_collection(helm: Helm) -> None:
    """Both only where they are asked for."""
    quiet = helm.template("--set", "mode=loop")
    assert "tgp-gpu-dashboards" not in {one["metadata"]["name"] for one in kinds(quiet, "ConfigMap")}
    assert not kinds(quiet, "PrometheusRule") and kinds(quiet, "NetworkPolicy")[0]["spec"]["ingress"] == []
    assert "ports" not in pods(quiet)["tgp-gpu-autoscale"]["containers"][0]
    given = [
        "mode=loop",
        "metrics.enabled=true",
        "metrics.port=9999",
        "prometheusRule.enabled=true",
        "prometheusRule.labels.release=prometheus",
        "dashboards.enabled=true",
        "dashboards.annotations.grafana_folder=GPUs",
    ]
    manifests = helm.template("--set", ",".join(given))
    container = pods(manifests)["tgp-gpu-autoscale"]["containers"][0]
    assert container["ports"] == [{"name": "metrics", "containerPort": 9999}]
    assert {"name": "TGP_METRICS_LISTEN", "value": "0.0.0.0:9999"} in container["env"]
    assert kinds(manifests, "NetworkPolicy")[0]["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 9999}]}]
    assert "ports" not in pods(manifests)["tgp-gpu-validate"]["containers"][0]
    (rule,) = kinds(manifests, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    monitoring = CHART.parents[1] / "monitoring"
    assert rule["spec"] == yaml.safe_load((monitoring / "prometheus_rules.yml").read_text(encoding="utf-8"))
    (boards,) = [one for one in kinds(manifests, "ConfigMap") if one["metadata"]["name"] == "tgp-gpu-dashboards"]
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert boards["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert boards["data"] == {path.name: path.read_text(encoding="utf-8") for path in (monitoring / "dashboards").glob("*.json")}
