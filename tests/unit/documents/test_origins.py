# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-28: what a document may say depends on who may have written it."""

from __future__ import annotations

import copy
import shlex
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents import faults as origins
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document, DocumentOrigin
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS
from ansible_collections.tgp.gpu.plugins.module_utils.model import SecretRef, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import ENTRIES
from hypothesis import given
from hypothesis import strategies as st

Json = dict[str, t.Any]
PROBE = ["/opt/is idle", "--port", "8000"]
SERVICE: Json = {"image": "registry.example/llm:1", "command": ["serve"], "ports": [8000], "healthPath": "/health"}


def node_class(name: str = "containers", origin: DocumentOrigin = DocumentOrigin.OPERATOR, **spec: t.Any) -> Document:
    content = {"providers": [{"name": "runpod"}], "limits": {"maxNodes": 2, "maxHourlyCost": "9"}, **spec}
    return document("GPUNodeClass", {"name": name}, content, origin)


def pool(
    origin: DocumentOrigin = DocumentOrigin.NAMESPACE, namespace: str = "team-a", secret: Json | None = None, **end: t.Any
) -> Document:
    service = {**SERVICE, "environmentFrom": {"TOKEN": secret}} if secret else SERVICE
    spec: Json = {"nodeClassRef": {"name": "containers"}, "template": {"spec": {"lanes": ["service"], "service": service}}}
    if end:
        spec["disruption"] = end
    return document("GPUNodePool", {"name": "llm", "namespace": namespace}, spec, origin)


def request(origin: DocumentOrigin = DocumentOrigin.NAMESPACE, **spec: t.Any) -> Document:
    return document("GPURequest", {"name": "one"}, {"gpuType": "A10", "provider": "lambda", "maxHourlyPrice": "2", **spec}, origin)


def document(kind: str, metadata: Json, spec: Json, origin: DocumentOrigin) -> Document:
    return Document(f"{kind} {origin.value}", {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": metadata, "spec": spec}, origin)


def read(*documents: Document, **more: t.Any) -> Specs:
    return parse(documents, **more)[0]


def faults(*documents: Document, **more: t.Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse(documents, **more)
    return "\n".join(caught.value.problems)


def test_L28_an_object_of_the_cluster_runs_no_command_whatever_is_allowed() -> None:
    wrong = pool(idleProbe={"command": PROBE})
    assert "spec.disruption.idleProbe.command: an object of the cluster cannot name a program" in faults(
        node_class(), wrong, allow_commands=[shlex.join(PROBE), PROBE[0]]
    )


def test_L28_a_command_of_a_file_needs_the_runs_consent_and_the_refusal_names_it() -> None:
    own = pool(DocumentOrigin.OPERATOR, idleProbe={"command": PROBE})
    said = faults(node_class(), own)
    line = shlex.join(PROBE)
    assert f"Add {line!r} to the option allow_commands" in said
    for allowed in (line, "'/opt/is idle'", "'/opt/is idle' --port"):
        probe = read(node_class(), own, allow_commands=["true", allowed]).pools[0].idle_probe
        assert probe is not None and list(probe.command) == PROBE
    for other in ("/opt/is", "'/opt/is idle' 8000", "'/opt/is idle' --port 80", "", "'", "*"):
        assert "allow_commands" in faults(node_class(), own, allow_commands=[other])


@pytest.mark.parametrize("make", [node_class, request], ids=["class", "request"])
def test_L28_an_object_of_the_cluster_reads_no_file_of_the_controller(make: t.Callable[..., Document]) -> None:
    origin = DocumentOrigin.CLUSTER if make is node_class else DocumentOrigin.NAMESPACE
    wrong = make(origin=origin, talosConfig={"machineConfigTemplateFile": "/etc/passwd"})
    assert "machineConfigTemplateFile: an object of the cluster cannot name a file" in faults(wrong)


def test_L28_a_namespaced_object_names_secrets_of_its_own_namespace_only() -> None:
    stolen = {"name": "tgp-operator-secret", "key": "LAMBDA_API_KEY", "namespace": "tgp-system"}
    assert "TOKEN.namespace: tgp-system is not the namespace of this object" in faults(node_class(), pool(secret=stolen))
    for own in ({"name": "hub", "key": "token"}, {"name": "hub", "key": "token", "namespace": "team-a"}):
        service = read(node_class(), pool(secret=own)).pools[0].service
        assert service is not None and service.environment_from == {"TOKEN": SecretRef("hub", "token", "team-a")}


def test_L28_the_operators_files_name_any_secret() -> None:
    for secret, place in (({"name": "hub", "key": "token"}, "tgp-system"), ({"name": "h", "key": "t", "namespace": "x"}, "x")):
        service = read(node_class(), pool(DocumentOrigin.OPERATOR, secret=secret)).pools[0].service
        assert service is not None and service.environment_from["TOKEN"].namespace == place


@pytest.mark.parametrize("field", ["credentialsRef", "templateRef"])
def test_L28_a_request_object_has_no_namespace_and_names_no_secret(field: str) -> None:
    ref = {"name": "tgp-operator-secret", "key": "LAMBDA_API_KEY"}
    spec = {"talosConfig": {field: ref}} if field == "templateRef" else {field: ref}
    assert f"{field}: a GPURequest object has no namespace of its own" in faults(request(**spec))
    assert read(request(DocumentOrigin.OPERATOR, **spec)).pools


def test_L28_secrets_for_registries_are_of_the_records_namespace_and_no_other_object_names_them() -> None:
    """The pod that pulls is one of ours (L-43)."""
    asks: Json = {"prePull": {"images": ["llm:1"], "imagePullSecrets": ["registry"]}}
    words = "spec.prePull.imagePullSecrets: these are Secrets of tgp-system, which this object cannot name"
    assert words in faults(request(**asks))
    assert read(request(DocumentOrigin.OPERATOR, **asks)).pools[0].pre_pull
    assert read(request(prePull={"images": ["llm:1"]})).pools[0].pre_pull
    spec: Json = {"nodeClassRef": {"name": "containers"}, **asks}
    for origin, namespace, refused in (
        (DocumentOrigin.NAMESPACE, "team-a", True),
        (DocumentOrigin.NAMESPACE, "tgp-system", False),
        (DocumentOrigin.OPERATOR, "team-a", False),
    ):
        asked = document("GPUNodePool", {"name": "llm", "namespace": namespace}, spec, origin)
        found = faults(node_class(), asked, document("GPURequest", {"name": "x"}, {}, origin))
        assert (words in found) is refused


OWN = {
    "credentials": {"providers": [{"name": "runpod", "credentialsRef": {"name": "keys", "key": "runpod"}}]},
    "template": {"talosConfig": {"templateRef": {"name": "talos", "key": "worker"}}},
    "registry": {"providers": [{"name": "runpod", "settings": {"registry": "cred-1"}}]},
    "volumes": {"providers": [{"name": "runpod", "volumes": [{"name": "models", "mountPath": "/models"}]}]},
}


@pytest.mark.parametrize("own", OWN)
def test_L28_a_class_with_credentials_of_its_own_is_for_no_namespace_unless_it_says_so(own: str) -> None:
    for origin in (DocumentOrigin.OPERATOR, DocumentOrigin.CLUSTER):
        said = faults(node_class(origin=origin, **OWN[own]), pool())
        assert "class containers does not allow namespace team-a. Add team-a to spec.allowedNamespaces" in said
        assert read(node_class(origin=origin, **OWN[own]), pool(DocumentOrigin.OPERATOR)).pools, "the operator's own pools may"
        for allowed in (["team-a"], ["team-b", "team-a"], ["*"]):
            assert read(node_class(origin=origin, **OWN[own], allowedNamespaces=allowed), pool()).pools


def test_L28_a_class_without_credentials_is_for_all_unless_it_says_otherwise() -> None:
    assert read(node_class(), pool()).pools
    assert read(node_class(talosConfig={"machineConfigTemplateFile": __file__}), pool()).pools
    for allowed in ([], ["team-b"]):
        assert "does not allow namespace team-a" in faults(node_class(allowedNamespaces=allowed), pool())


def test_L28_the_class_of_a_request_is_not_for_other_pools() -> None:
    other = pool()
    spec = copy.deepcopy(dict(other.mapping["spec"]))
    spec["nodeClassRef"]["name"] = "request-one"
    wrong = document("GPUNodePool", {"name": "llm", "namespace": "team-a"}, spec, DocumentOrigin.NAMESPACE)
    assert "class request-one does not allow namespace team-a" in faults(request(DocumentOrigin.OPERATOR, provider="runpod"), wrong)


def test_L28_an_object_never_takes_the_name_of_a_document_of_the_operator() -> None:
    """The fault is that of the object, in whatever order they are read."""
    mine, theirs = pool(DocumentOrigin.OPERATOR), pool(DocumentOrigin.NAMESPACE)
    for order in ([mine, theirs], [theirs, mine]):
        assert "GPUNodePool namespace: metadata.name: there are two pools named team-a/llm" in faults(node_class(), *order)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4), st.integers(1, 4), st.text(min_size=1))
def test_L28_what_a_refusal_says_to_add_allows_exactly_that(command: list[str], first: int, other: str) -> None:
    assert origins.is_allowed(command, [shlex.join(command)])
    assert origins.is_allowed(command, [shlex.join(command[:first])])
    assert not origins.is_allowed(command, [shlex.join([*command, other])])
    assert origins.is_allowed([other, *command], [shlex.join(command)]) is ([other, *command][: len(command)] == command)


# Fields of free text whose content is neither run, read as a file nor a Secret's name. A new field of documents belongs here or into the
# tables of origins.py: does it run a program, read a file or name a Secret on behalf of whoever writes the document?
TEST = {
    "spec.acceptance.image": "of a pod on the rented machine, without a token, a volume, or rights",
    "spec.acceptance.command": "runs in that pod",
    "spec.acceptance.runtimeClassName": "name of an object of the cluster",
    "spec.prePull.images": "of a pod on the rented machine, without a token, a volume, or rights; none of their programs is started",
}
HUB_FIELDS = ("endpoint", "publicKey", "network", "hubAddress", "addresses", "allowedIPs", "hub", "interface")
OPERATORS_FIELDS = ("privateKey", "publicKey", "serverEndpoint", "allowedIPs", "address")
HARMLESS = {
    "GPUNodeClass": {
        "spec.providers[].name": "name of a cloud",
        "spec.providers[].machines[]": "own machines: names, models, and addresses of the power service, which gets its key there",
        "spec.providers[].nodeGroups[]": "as machines",
        "spec.providers[].settings.sshKey": "name of a public key of the account",
        "spec.providers[].settings.imageFamily": "image of the rented machine",
        "spec.providers[].settings.templateId": "image of the rented machine",
        "spec.providers[].settings.os": "image of the rented machine",
        "spec.providers[].settings.snapshotId": "image of the rented machine",
        "spec.providers[].settings.regions": "words of the cloud",
        "spec.providers[].settings.zones": "words of the cloud",
        "spec.providers[].settings.project": "project of the account: what is not allowed to its service account is refused there",
        "spec.providers[].settings.subnetwork": "name of a network of the account",
        "spec.providers[].settings.talosImage": "image of the rented machine",
        "spec.providers[].settings.imageBucket": "bucket of the account: what is not allowed to its service account is refused there",
        "spec.providers[].settings.prices.*": "dollars",
        "spec.providers[].settings.spotPrices.*": "dollars",
        "spec.providers[].settings.firewallGroup": "id of a firewall group of the account",
        "spec.providers[].settings.network": "id of a network of the account",
        "spec.providers[].settings.minCudaVersion": "a version",
        "spec.providers[].settings.ports": "ports of the rented machine",
        "spec.providers[].settings.image": "image of the rented machine",
        "spec.providers[].settings.vmImage": "image of the rented machine",
        "spec.providers[].settings.bulkStatusEndpoint": "an address of the power service, as those of machines",
        "spec.instanceRequirements": "words of offers",
        "spec.budget": "numbers and a time zone",
        "spec.allowedNamespaces": "names of namespaces",
        "spec.talosConfig.image": "image of the rented machine",
        "spec.talosConfig.machineConfigTemplate": "rendered in a Jinja sandbox without files, programs and network",
        "spec.talosConfig.patches": "YAML that is merged, never run",
        "spec.talosConfig.registryMirrors": "addresses for the rented machine",
        "spec.talosConfig.schematic": "data for the Image Factory",
        "spec.talosConfig.tailscaleConfig": "as spec.tailscaleConfig",
        "spec.tailscaleConfig": "tags and networks of the rented machine",
        **{
            f"spec.wireguardConfig.{field}": "addresses and names; the hub is one of the operator's inventory"
            for field in HUB_FIELDS
        },
        **{
            f"spec.talosConfig.wireGuardConfig.{field}": "read as spec.wireguardConfig; the key reaches no machine"
            for field in OPERATORS_FIELDS
        },
    },
    "GPUNodePool": {
        "spec.nodeClassRef.name": "checked by allowedNamespaces",
        "spec.template.metadata": "labels and annotations",
        "spec.template.spec.requirements[]": "words of offers",
        "spec.template.spec.taints[]": "taints of the nodes",
        "spec.template.spec.startupTaints[]": "taints of the nodes",
        "spec.template.spec.service.image": "image of the rented machine",
        "spec.template.spec.service.command": "runs on the rented machine",
        "spec.template.spec.service.args": "runs on the rented machine",
        "spec.template.spec.service.environment": "variables of the rented machine",
        "spec.template.spec.service.healthPath": "asked of the rented machine in the mesh",
        "spec.disruption.idleProbe.url": "asked of the rented machine in the mesh",
        "spec.disruption.budgets[]": "schedules",
        "spec.unhealthyConditions[]": "words that are compared with those of a Node",
        "spec.calendar": "times",
        "spec.budget": "numbers and a time zone",
        "spec.schedulers": "names that are compared",
        **TEST,
    },
    "GPURequest": {
        "spec.provider": "name of a cloud",
        "spec.gpuType": "model",
        **TEST,
        "spec.region": "region",
        "spec.budget": "numbers and a time zone",
        "spec.talosConfig.image": "as in GPUNodeClass",
        "spec.talosConfig.machineConfigTemplate": "as in GPUNodeClass",
        "spec.talosConfig.patches": "as in GPUNodeClass",
        "spec.talosConfig.registryMirrors": "as in GPUNodeClass",
        "spec.talosConfig.schematic": "as in GPUNodeClass",
        "spec.talosConfig.tailscaleConfig": "as in GPUNodeClass",
        "spec.tailscaleConfig": "as in GPUNodeClass",
        **{f"spec.wireguardConfig.{field}": "as in GPUNodeClass" for field in HUB_FIELDS},
        **{f"spec.talosConfig.wireGuardConfig.{field}": "as in GPUNodeClass" for field in OPERATORS_FIELDS},
    },
}


def texts(schema: Json, path: str) -> t.Iterator[str]:
    """Places of a schema that take text; amounts, shares and durations (text or a number) are parsed."""
    if "enum" in schema or "const" in schema:
        return
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from texts(inner, f"{path}.{name}")
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        yield from texts(schema["additionalProperties"], f"{path}.*")
    elif kind == "array":
        yield from texts(schema["items"], f"{path}[]")
    elif kind == "object" or kind == "string":
        yield path


def fields(kind: str) -> list[str]:
    found = [path for path in texts(KINDS[kind]["properties"]["spec"], "spec") if path != "spec.providers[].settings"]
    if kind == "GPUNodeClass":
        for entry in ENTRIES.values():
            for name, schema in entry.settings.items():
                found += texts(schema, f"spec.providers[].settings.{name}")
    return found


def covers(path: str, field: str) -> bool:
    return field == path or field.startswith((f"{path}.", f"{path}["))


@pytest.mark.parametrize("kind", KINDS)
def test_L28_every_field_of_free_text_is_classified(kind: str) -> None:
    tables = (origins.COMMANDS, origins.FILES, origins.SECRETS, origins.PULLS, origins.ACCOUNT)
    bound = [path for table in tables for path in table.get(kind, ())]
    known = [*bound, *HARMLESS[kind]]
    assert [one for one in fields(kind) if not any(covers(path, one) for path in known)] == []
    assert [path for path in known if not any(covers(path, one) for one in fields(kind))] == []
    assert [path for path in HARMLESS[kind] if any(covers(path, one) or covers(one, path) for one in bound)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_L28_whatever_looks_like_a_secret_a_file_or_a_command_is_bound(kind: str) -> None:
    """By form and by name, so that a field is not called harmless by mistake."""
    found = set()

    def walk(schema: Json, path: str) -> None:
        inner = schema.get("properties", {})
        words = path.rpartition(".")[2].lower()
        of_files = words.endswith(("file", "path", "secret"))
        if {"name", "key", "namespace"} <= set(inner) or of_files or words in ("command", "exec", "script", "hook"):
            found.add(path)
        for name, one in inner.items():
            walk(one, f"{path}.{name}")
        for name, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(schema.get(name), dict):
                walk(schema[name], f"{path}{mark}")

    walk(KINDS[kind]["properties"]["spec"], "spec")
    bound = {path for table in (origins.COMMANDS, origins.FILES, origins.SECRETS) for path in table.get(kind, ())}
    of_machines = {"spec.acceptance.command", "spec.providers[].volumes[].mountPath"} & found | {
        "spec.template.spec.service.command",
        "spec.template.spec.service.healthPath",
    }
    assert found - of_machines == bound
