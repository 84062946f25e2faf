# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documents of a Talos configuration: taken apart as Talos's decoder does, and held against the published schema of 1.13."""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

import jsonschema
import yaml

from . import payload as p

_SCHEMA = pathlib.Path(__file__).parent.parent / "schemas" / "talos-config.schema.json"
# Accepted by Talos with a warning, but left out of its published schema.
_DEPRECATED = {
    "": {"persist"},
    "machine": {"network", "disks", "env", "time", "registries", "systemDiskEncryption"},
    "machine.features": {"rbac", "stableHostname", "apidCheckExtKeyUsage"},
    "machine.install": {"extensions", "extraKernelArgs", "bootloader"},
}
_NAMED = {
    "ExtensionServiceConfig",
    "KmsgLogConfig",
    "NetworkRuleConfig",
    "PCIDriverRebindConfig",
    "TrustedRootsConfig",
    "UserVolumeConfig",
    "WireguardConfig",
}


def refuse(message: str) -> p.Refused:
    return p.Refused("config", f"failed to validate config acquired via platform: {message}")


class _OneOfEach(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, as Talos's decoder does."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode, deep: bool = False) -> dict[t.Any, t.Any]:
    keys = [loader.construct_object(key, deep=True) for key, _value in node.value]  # type: ignore[no-untyped-call]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, "mapping key already defined", node.start_mark)
    return {key: loader.construct_object(value, deep=True) for key, (_key, value) in zip(keys, node.value, strict=True)}  # type: ignore[no-untyped-call]


_OneOfEach.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse(text: str) -> list[dict[str, t.Any]]:
    try:
        documents = [_without_nulls(document) for document in yaml.load_all(text, Loader=_OneOfEach) if document is not None]
    except yaml.YAMLError as error:
        raise p.Refused("config", f"failed to parse config: yaml: {p.yaml_fault(error)}") from error
    except TypeError as error:  # an unhashable key
        raise p.Refused("config", f"failed to parse config: yaml: {error}") from error
    seen: set[tuple[str, str]] = set()
    for document in documents:
        if not isinstance(document, dict):
            raise p.Refused("config", "failed to parse config: a document is not a mapping")
        kind = document.get("kind", "")
        key = (str(kind), str(document.get("name", "")) if str(kind) in _NAMED else "")
        if key in seen:
            raise p.Refused("config", f"failed to parse config: duplicate document: {kind or 'v1alpha1'} {key[1]}".rstrip())
        seen.add(key)
    return documents


@functools.cache
def _definitions() -> tuple[dict[str, t.Any], dict[str, str]]:
    """The schema's definitions, and which belongs to which kind."""
    whole = json.loads(_SCHEMA.read_text(encoding="utf-8"))["$defs"]
    kinds = {"": "v1alpha1.Config"}
    for name, definition in whole.items():
        kind = definition.get("properties", {}).get("kind", {})
        for value in [kind["const"]] if "const" in kind else kind.get("enum", []):
            kinds[value] = name
    return whole, kinds


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    whole, _kinds = _definitions()
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": whole})


def against_schema(document: dict[str, t.Any]) -> None:
    kind = str(document.get("kind", ""))
    _whole, kinds = _definitions()
    if kind not in kinds:
        raise p.Refused("config", f'failed to parse config: "{kind}" "{document.get("apiVersion", "")}": not registered')
    for error in sorted(_validator(kinds[kind]).iter_errors(document), key=lambda error: len(error.path)):
        where = ".".join(str(part) for part in error.absolute_path)
        if _is_for_editors(error, where):
            continue
        if error.validator == "additionalProperties":
            unknown = (
                set(error.instance)
                - set(error.schema.get("properties", {}))
                - (_DEPRECATED.get(where, set()) if not kind else set())
            )
            if not unknown:
                continue
            listed = ", ".join(f"{where}.{key}".lstrip(".") for key in sorted(map(str, unknown)))
            raise p.Refused("config", f"failed to parse config: unknown keys found during decoding: {listed}")
        raise refuse(f"{where or kind}: should be of {error.validator} {str(error.validator_value)[:80]}")


def _is_for_editors(error: jsonschema.ValidationError, where: str) -> bool:
    """What the schema minds and Talos's decoder does not: it takes any scalar as text and looks at some choices only when it uses them."""
    scalar = isinstance(error.instance, (str, int, float))
    match error.validator:
        case "pattern":
            return True
        case "type":
            return scalar and error.validator_value == "string"
        case "oneOf":
            return scalar
        case "enum":
            late = where == "version" or (where == "machine.type" and not error.instance)
            return scalar and (late or (where.startswith("machine.files.") and where.endswith(".op")))
    return False


def _without_nulls(value: t.Any) -> t.Any:
    """Talos's decoder takes an empty field as one that is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value if item is not None] if isinstance(value, list) else value
