# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""examples/gitops: fields that Argo CD and Flux know, orders that agree, and commands of pipelines that exist."""

from __future__ import annotations

import re
import shlex
import typing as t
from pathlib import Path

import pytest
import yaml

from .tree import ROOT

FOLDER = ROOT / "examples" / "gitops"
KINDS = [
    one["spec"]["names"]["kind"]
    for one in yaml.safe_load_all((ROOT / "schemas" / "crds.yaml").read_text(encoding="utf-8"))
    if one["spec"]["names"]["kind"] != "GPUNodeClaim"  # runs write it
]
#: fields of the APIs argoproj.io/v1alpha1, kustomize.toolkit.fluxcd.io/v1 and source.toolkit.fluxcd.io/v1 that the examples use
FIELDS = {
    "Application": {
        "project": str, "source": {"repoURL": str, "targetRevision": str, "path": str, "directory": {"recurse": bool, "exclude": str}},
        "destination": {"server": str}, "ignoreDifferences": [{"group": str, "kind": str, "jsonPointers": [str]}],
        "syncPolicy": {
            "automated": {"prune": bool, "selfHeal": bool, "allowEmpty": bool}, "syncOptions": [str],
            "retry": {"limit": int, "backoff": {"duration": str, "factor": int, "maxDuration": str}},
        },
    },
    "GitRepository": {"interval": str, "url": str, "ref": {"branch": str}},
    "Kustomization": {
        "interval": str, "dependsOn": [{"name": str}], "sourceRef": {"kind": str, "name": str}, "path": str, "prune": bool, "wait": bool,
        "timeout": str, "healthChecks": [{"apiVersion": str, "kind": str, "name": str, "namespace": str}],
    },
}  # fmt: skip


def documents(path: str) -> list[dict[str, t.Any]]:
    return [one for one in yaml.safe_load_all((FOLDER / path).read_text(encoding="utf-8")) if one]


def strange(value: t.Any, form: t.Any, at: str = "spec") -> t.Iterator[str]:
    """Fields that the form does not have, or that have another type."""
    if isinstance(form, dict) and isinstance(value, dict):
        for name, inner in value.items():
            yield from strange(inner, form[name], f"{at}.{name}") if name in form else [f"{at}.{name}"]
    elif isinstance(form, list) and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from strange(inner, form[0], f"{at}[{number}]")
    elif not (isinstance(form, type) and isinstance(value, form)):
        yield at


@pytest.mark.parametrize("path", ["argocd/application.yaml", "flux/kustomizations.yaml"])
def test_the_documents_have_fields_that_their_tool_knows(path: str) -> None:
    for document in documents(path):
        assert list(strange(document["spec"], FIELDS[document["kind"]])) == [], document["metadata"]["name"]


def test_fields_of_another_name_or_type_are_found() -> None:
    spec = {"prun": True, "wait": "yes", "dependsOn": [{"nam": "x"}]}
    assert list(strange(spec, FIELDS["Kustomization"])) == ["spec.prun", "spec.wait", "spec.dependsOn[0].nam"]


def test_argo_cd_applies_classes_before_pools_before_requests() -> None:
    waves: dict[str, int] = {}
    for path in sorted((FOLDER / "objects").rglob("*.yaml")):
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            waves[one["kind"]] = int(one["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave", "0"))
    assert sorted(waves, key=lambda kind: waves[kind]) == ["Namespace", *KINDS] and len(set(waves.values())) == 4
    kinds, application = documents("argocd/application.yaml")
    assert not kinds["spec"]["syncPolicy"]["automated"]["prune"]
    assert (kinds["spec"]["source"]["path"], application["spec"]["source"]["directory"]["exclude"]) == ("objects/kinds", "kinds/*")
    ignored = application["spec"]["ignoreDifferences"]
    assert [(one["kind"], one["jsonPointers"]) for one in ignored] == [("GPUNodePool", ["/spec/replicas"])]
    assert {"ServerSideApply=true", "RespectIgnoreDifferences=true"} <= set(application["spec"]["syncPolicy"]["syncOptions"])


def test_argo_cd_has_a_health_check_for_each_kind() -> None:
    (settings,) = documents("argocd/argocd-cm.yaml")
    assert list(settings["data"]) == [f"resource.customizations.health.tgp.io_{kind}" for kind in KINDS]
    assert len(set(settings["data"].values())) == 1


def test_flux_orders_the_same_folders_and_keeps_the_kinds() -> None:
    found = {
        one["metadata"]["name"]: one["spec"] for one in documents("flux/kustomizations.yaml") if one["kind"] == "Kustomization"
    }
    order = ["gpu-kinds", "gpu-classes", "gpu-pools", "gpu-requests"]
    assert list(found) == order
    for before, after in zip(order, order[1:], strict=False):
        assert found[after]["dependsOn"] == [{"name": before}]
    folders = {path.name for path in (FOLDER / "objects").iterdir()} | {"kinds"}
    assert {Path(one["path"]).name for one in found.values()} == folders
    assert [name for name, one in found.items() if not one["prune"]] == ["gpu-kinds"]
    assert all(one.get("wait") or one.get("healthChecks") for one in found.values())
    (check,) = found["gpu-pools"]["healthChecks"]
    pools = [
        one for path in (FOLDER / "objects" / "pools").iterdir() for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    assert (check["kind"], check["name"], check["namespace"]) in {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in pools
    }


def commands(value: t.Any) -> t.Iterator[str]:
    """Every command line of a pipeline."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "run" and isinstance(inner, str):
                yield from inner.splitlines()
            else:
                yield from commands(inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, str):
                yield inner
            else:
                yield from commands(inner)


@pytest.mark.parametrize("name", ["github.yaml", "gitlab.yaml"])
def test_the_commands_of_a_pipeline_are_playbooks_with_variables_that_they_take(name: str) -> None:
    (pipeline,) = documents(f"pipelines/{name}")
    called = []
    for line in commands(pipeline):
        words = shlex.split(line)
        if words[0] != "ansible-playbook":
            continue
        playbook = words[1].removeprefix("tgp.gpu.")
        (play,) = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
        given = [word.partition("=")[0] for word in words[2:] if word != "-e"]
        assert set(given) <= {f"tgp_{word}" for word in play["vars"]["tgp_variables"]}, line
        called.append(playbook)
    assert called == ["validate", "plan", "apply"]


def test_a_pipeline_reads_fields_that_a_summary_has() -> None:
    text = (FOLDER / "pipelines" / "github.yaml").read_text(encoding="utf-8")
    schema = yaml.safe_load((ROOT / "schemas" / "run-report.schema.json").read_text(encoding="utf-8"))["properties"]
    line = next(one for one in text.splitlines() if "jq -r" in one)
    fields = set(re.findall(r"[ (,]\.([a-z_]+)", line))
    assert fields == {"cost", "planned", "problems", "action", "name", "reason"}
    assert {"cost", "planned", "problems"} <= set(schema)
    assert {"action", "name", "reason"} <= set(schema["planned"]["items"]["required"])
