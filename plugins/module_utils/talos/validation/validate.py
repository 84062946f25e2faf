# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is this a configuration that Talos takes, and one with which a GPU worker joins? Answers in sentences."""

from __future__ import annotations

import base64
import dataclasses
import difflib
import functools
import json
import re
import threading
import typing as t

from ...core.errors import InvalidInput
from ...model import Lane
from ...model.mesh import Tunnel
from ..config import build
from ..images.nvidia import image_problems
from ..releases.tables import OLDEST, minor, tables, text_of
from ..secrets import ClusterSecrets
from ..spec import DEFAULT_TALOS, NodeSpec, tag_of
from ..template import Document, at, machine_document
from . import rules, schema_data
from .runtime_rules import containerd_rules

MODES = ("metal", "cloud", "container")
# Accepted by Talos and left out of its schema, because there are better ways: field -> what to write instead.
_DEPRECATED = {
    "persist": "leave it out",
    "machine.network": "use the network documents (HostnameConfig, LinkConfig …) of Talos 1.12",
    "machine.disks": "use UserVolumeConfig",
    "machine.env": "use EnvironmentConfig (Talos 1.13)",
    "machine.time": "use TimeSyncConfig (Talos 1.12)",
    "machine.registries": "use RegistryMirrorConfig, RegistryAuthConfig and RegistryTLSConfig (Talos 1.12)",
    "machine.systemDiskEncryption": "use VolumeConfig",
    "machine.features.rbac": "it is always on",
    "machine.features.apidCheckExtKeyUsage": "it is always on",
    "machine.features.stableHostname": "the host name is the node's",
    "machine.install.extensions": "it has no effect since Talos 1.10: list the extensions in talosConfig.schematic",
    "machine.install.extraKernelArgs": "it has no effect since Talos 1.10 on UEFI: put them into the schematic of the image",
    "machine.install.bootloader": "leave it out",
}
_LOG_ENDPOINT = re.compile(r"machine\.logging\.destinations\[\d+\]\.endpoint")
_UNLISTED_KINDS = ("ImageVerificationConfig", *(kind for kind, since in rules.SINCE.items() if since >= (1, 14)))
_INSTEAD = {
    "machine.systemd": "there is no systemd; a service comes as a system extension in the image, with an ExtensionServiceConfig document",
    "machine.kubelet.registerWithTaints": "it belongs into machine.kubelet.extraConfig, and the pool's taints are written there anyway",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ValidationResult:
    """Why it cannot be used, and what is better written otherwise. One sentence each."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def check(
    documents: t.Sequence[Document], *, mode: str = "cloud", talos_version: str = DEFAULT_TALOS, kubernetes_version: str = ""
) -> ValidationResult:
    """Everything wrong with the documents of one worker.

    ``mode`` as in ``talosctl validate``: metal, cloud or container. ``kubernetes_version`` is the control plane's, "" = unknown.
    """
    if mode not in MODES:
        raise InvalidInput(f"mode {mode!r} must be {', '.join(MODES[:-1])} or {MODES[-1]}.")
    talos = minor(talos_version)
    errors: list[str] = []
    warnings: list[str] = []
    if talos is None or talos < OLDEST or talos[0] != 1:
        errors.append(f"Talos version {talos_version!r} is not supported: 1.{OLDEST[1]} is the oldest.")
        talos = (1, 13)
    elif talos > tables().newest:
        warnings.append(
            f"Talos {talos_version} is newer than what this collection knows; it was checked as for {text_of(tables().newest)}."
        )
    for document in documents:
        for fault in faults(document):
            _classify_fault(fault, document, talos, errors, warnings)
    errors.extend(rules.stream(documents, talos))
    runtime = containerd_rules(documents, talos)
    errors.extend(runtime.errors)
    warnings.extend(runtime.warnings)
    config = machine_document(documents)
    if config is not None:
        for sentences in (
            rules.identity(config),
            rules.joining(config),
            rules.cluster_network(config),
            rules.kubelet(config, talos, kubernetes_version),
            rules.marks(config),
            rules.files(config),
            rules.mode_rules(config, mode),
        ):
            errors.extend(sentences)
    return ValidationResult(tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)))


def problems(documents: t.Sequence[Document], *, mode: str = "cloud", talos_version: str = DEFAULT_TALOS) -> list[str]:
    """The errors of :func:`check`."""
    return list(check(documents, mode=mode, talos_version=talos_version).errors)


def _classify_fault(fault: SchemaFault, document: Document, talos: tuple[int, int], errors: list[str], warnings: list[str]) -> None:
    """A fault of the schema is an error, unless Talos itself still takes the field."""
    where = f"{document['kind']}: " if document.get("kind") else ""
    if not where and fault.path == "machine.network" and talos < (1, 12):
        return  # the documents that replace it do not exist yet
    if not where and fault.path.startswith("machine.features.") and fault.path in _DEPRECATED:
        value = at(document, fault.path)
        if value is not None and not isinstance(value, bool):
            errors.append(f"{fault.path} must be true or false; it is outdated: {_DEPRECATED[fault.path]}.")
            return
    if not where and fault.path in _DEPRECATED:
        warnings.append(f"{fault.path} is outdated: {_DEPRECATED[fault.path]}.")
    elif fault.keyword == "kind" and document.get("kind") in _UNLISTED_KINDS:
        warnings.append(f"{document['kind']} is not in the schema of Talos 1.13, which is used here; its fields were not checked.")
    elif fault.path == "machine.acceptedCAs" or fault.path == "cluster.acceptedCAs":
        return  # a list in truth; the schema describes one entry of it
    elif _LOG_ENDPOINT.fullmatch(fault.path) and re.search(r" and is text\.$", fault.text):
        return  # an address in truth; the schema describes what Talos makes of it
    elif not where and fault.path in _INSTEAD:
        errors.append(f"Talos has no field {fault.path}: {_INSTEAD[fault.path]}.")
    else:
        errors.append(where + fault.text)


# ---- the template of a class ---------------------------------------------------------------------------------------

_PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nplaceholder\n-----END CERTIFICATE-----\n").decode()
_SECRETS = ClusterSecrets(
    trustd_token="aaaaaa.aaaaaaaaaaaaaaaa",
    os_ca_crt=_PEM,
    k8s_ca_crt=_PEM,
    cluster_id="cGxhY2Vob2xkZXItaWQ=",
    cluster_secret="cGxhY2Vob2xkZXItc2VjcmV0",
)
_INSTALLER = f"factory.talos.dev/metal-installer/{'0' * 64}:v{DEFAULT_TALOS}"
_TUNNEL = Tunnel(
    private_key=base64.b64encode(b"placeholder of a private key....").decode(),
    address="192.0.2.11/24",
    hub_key=base64.b64encode(b"placeholder of the hub's key....").decode(),
    endpoint="198.51.100.1:51820",
    hub_address="192.0.2.1",
    allowed=("192.0.2.0/24",),
)
MISSING_TEMPLATE = (
    "talosConfig.machineConfigTemplate is missing: a class needs a complete Talos machine configuration template, "
    "inline or by reference."
)


def placeholder(talos_version: str = DEFAULT_TALOS, **facts: t.Any) -> NodeSpec:
    """A node that does not exist, for trying out a template."""
    values: dict[str, t.Any] = {
        "name": "tgp-placeholder-000000",
        "pool": "placeholder",
        "secrets": _SECRETS,
        "bootstrap_token": "aaaaaa.aaaaaaaaaaaaaaaa",
        "endpoint": "https://192.0.2.1:6443",
        "cluster_name": "placeholder",
        "auth_key": "placeholder-mesh-key",
        "lane": Lane.TALOS,
        "gpu_count": 1,
        "model": "A10",
        "instance_type": "placeholder",
        "region": "placeholder",
        "talos_version": talos_version,
        "kubernetes_version": f"1.{(tables().kubernetes(minor(talos_version)) or (0, tables().newest_kubernetes))[1]}.0",
    }
    if "mesh" in facts and facts["mesh"].backend == "wireguard":
        values["tunnel"] = _TUNNEL
    return NodeSpec(**{**values, **facts})


def template_result(template: str | None, talos_image: str = "", talos_version: str = "", **facts: t.Any) -> ValidationResult:
    """Everything wrong with a class's template (None or blank = missing) and its image, found by trying it out. ``facts`` are more of
    the class, as NodeSpec has them: ``patches``, ``registry_mirrors``, ``mesh``.

    What every node gets from the collection anyway (tokens, certificates, host name, taints, mesh service) need not be in it.
    The Talos version is the image's when it has one, else ``talos_version`` or the newest known.
    """
    image = [f"talosConfig.image: {sentence}" for sentence in image_problems(talos_image)] if talos_image else []
    if template is None or not template.strip():
        return ValidationResult((MISSING_TEMPLATE, *image), ())
    tagged = tag_of(talos_image) if talos_image else ""
    version = tagged if (minor(tagged) or (0, 0))[0] == 1 else talos_version or DEFAULT_TALOS
    try:
        documents = build(placeholder(version, **{**_install_facts(template), **facts}), template)
    except InvalidInput as error:
        return ValidationResult((*(error.problems or (error.message,)), *image), ())
    raw = machine_document(documents)
    mode = "metal" if raw is not None and isinstance(raw["machine"].get("install"), dict) else "cloud"
    result = check(documents, mode=mode, talos_version=version)
    return ValidationResult((*result.errors, *image), result.warnings)


def _install_facts(template: str) -> dict[str, str]:
    """Placeholders for the variables of an installation, for a template that uses them; else they would ask for an installation."""
    facts = {"InstallDisk": ("install_disk", "/dev/sda"), "InstallerImage": ("installer_image", _INSTALLER)}
    return {field: value for name, (field, value) in facts.items() if re.search(rf"\b({name}|{field})\b", template)}


def template_problems(template: str | None, talos_image: str = "", talos_version: str = "", **facts: t.Any) -> list[str]:
    """The errors of :func:`template_result`."""
    return list(template_result(template, talos_image, talos_version, **facts).errors)


# ---- what the published schema of Talos says about a document. The schema uses a dozen keywords; they are read here directly. That gives
# the path and the kind of each fault for sentences of our own, and costs a millisecond where importing a general validator costs a
# hundred. Tests hold it against such a validator

Schema = t.Mapping[str, t.Any]
_MISNAMED = {"KubeSpanEndpoints": "KubeSpanEndpointsConfig"}  # what the schema calls a kind -> what Talos does
KEYWORDS = frozenset({
    "$ref", "type", "properties", "patternProperties", "additionalProperties", "required", "items", "enum", "pattern", "oneOf",
})  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_WORDS = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
_WANTED = {
    "object": "a mapping", "array": "a list", "string": "text in quotes", "boolean": "true or false", "integer": "a whole number",
    "number": "a number", "null": "empty",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class SchemaFault:
    """One disagreement with the schema: ``path`` like "machine.files[0].path", ``keyword`` of the schema, ``text`` for people."""

    path: str
    keyword: str
    text: str


_decoding = threading.Lock()


def definitions() -> Schema:
    """The definitions of the schema, decoded once per process. Threads that need them at the same time wait for one of them: each would take
    as long, and Python's base85 fails where two threads use it for the first time."""
    with _decoding:
        return _definitions()


@functools.cache
def _definitions() -> Schema:
    return t.cast(Schema, json.loads(schema_data.text())["$defs"])


@functools.cache
def kinds() -> t.Mapping[str, str]:
    """Document kind -> name of its definition; "" is the machine configuration."""
    names = {"": "v1alpha1.Config"}
    for name, definition in definitions().items():
        for kind in definition.get("properties", {}).get("kind", {}).get("enum", ()):
            names[_MISNAMED.get(kind, kind)] = name
    return names


def faults(document: t.Mapping[str, t.Any]) -> list[SchemaFault]:
    """Everything the schema has against one document; a kind it does not know is one fault."""
    kind = str(document.get("kind", ""))
    name = kinds().get(kind)
    if name is None:
        close = difflib.get_close_matches(kind, kinds(), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return [SchemaFault("kind", "kind", f"Talos knows no document of kind {kind!r}.{hint}")]
    published = next((word for word, right in _MISNAMED.items() if right == kind), None)
    return list(_check({**document, "kind": published} if published else document, definitions()[name], ""))


def _check(value: t.Any, schema: Schema, path: str) -> t.Iterator[SchemaFault]:
    reference = schema.get("$ref")
    if reference is not None:
        yield from _check(value, definitions()[reference.rpartition("/")[2]], path)
    wanted = schema.get("type")
    if wanted is not None and not _is(value, wanted):
        yield SchemaFault(path, "type", f"{path} must be {_WANTED[wanted]} and is {_WORDS.get(type(value), 'empty')}.")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield SchemaFault(path, "enum", f"{path} must be {' or '.join(map(str, schema['enum']))}.")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield SchemaFault(path, "pattern", _pattern(path, schema["pattern"]))
    if "oneOf" in schema and sum(not any(True for _ in _check(value, option, path)) for option in schema["oneOf"]) != 1:
        yield SchemaFault(path, "oneOf", f"{path} must be {' or '.join(_WANTED[option['type']] for option in schema['oneOf'])}.")
    if isinstance(value, dict):
        yield from _mapping(value, schema, path)
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{number}]")


def _mapping(value: dict[str, t.Any], schema: Schema, path: str) -> t.Iterator[SchemaFault]:
    properties = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    others = schema.get("additionalProperties", True)
    dot = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield SchemaFault(f"{dot}{name}", "required", f"{dot}{name} is missing.")
    for key, item in value.items():
        inner = f"{dot}{key}"
        schemas = [properties[key]] if key in properties else []
        schemas += [option for pattern, option in patterns.items() if re.search(pattern, str(key))]
        if not schemas and others is False:
            close = difflib.get_close_matches(str(key), properties, n=1, cutoff=0.75)
            hint = f" Did you mean {close[0]}?" if close else ""
            yield SchemaFault(inner, "additionalProperties", f"Talos has no field {inner}.{hint}")
        elif not schemas and isinstance(others, dict):
            schemas = [others]
        for option in schemas:
            yield from _check(item, option, inner)


def _is(value: t.Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _pattern(path: str, pattern: str) -> str:
    if pattern == "^https://":
        return f"{path} must start with https://."
    return f"{path} has not the form that Talos wants ({pattern})."
