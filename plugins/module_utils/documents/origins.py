# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a document may say depends on who may have written it (L-28).

The operator's files may name commands (those that the run allows), files of the controller and any Secret. Objects of the cluster name neither
commands nor files; namespaced objects name Secrets of their own namespace only, and classes that allow their namespace. The tables name every
such field; a test walks the schemas and fails when a field is in none of them.
"""

from __future__ import annotations

import shlex
import typing as t

from ..model import NodeClass, Pool
from .faults import Document, DocumentOrigin
from .reading import Fault, Reader

Paths = t.Mapping[str, tuple[str, ...]]
_TEMPLATE_FILE = "spec.talosConfig.machineConfigTemplateFile"

# [] stands for each entry of a list, * for each value of a mapping
COMMANDS: Paths = {"GPUNodePool": ("spec.disruption.idleProbe.command",)}
FILES: Paths = {"GPUNodeClass": (_TEMPLATE_FILE,), "GPURequest": (_TEMPLATE_FILE,)}
SECRETS: Paths = {
    "GPUNodeClass": ("spec.providers[].credentialsRef", "spec.talosConfig.templateRef"),
    "GPUNodePool": ("spec.template.spec.service.environmentFrom.*",),
    "GPURequest": ("spec.credentialsRef", "spec.talosConfig.templateRef"),
}
ACCOUNT: Paths = {"GPUNodeClass": ("spec.providers[].settings.registry",)}  # credentials that lie at a cloud, by their id
EVERY = "*"
_RANK = {DocumentOrigin.OPERATOR: 0, DocumentOrigin.CLUSTER: 1, DocumentOrigin.NAMESPACE: 2}


def is_allowed(command: t.Sequence[str], allowed: t.Sequence[str]) -> bool:
    """Whether one of ``allowed``, lines of shell words, is the beginning of the command."""
    for line in allowed:
        try:
            words = shlex.split(line)
        except ValueError:  # an open quote: nothing begins so
            continue
        if words and list(command[: len(words)]) == words:
            return True
    return False


def by_origin(documents: t.Sequence[Document]) -> list[Document]:
    """The operator's documents first: of two with one name, the fault is that of the object of the cluster."""
    return sorted(documents, key=lambda document: _RANK[document.origin])


def forbidden(kind: str, document: Document, allow_commands: t.Sequence[str]) -> list[Fault]:
    """What the document says and whoever wrote it may not say. The document is valid by its schema."""
    of_operator = document.origin is DocumentOrigin.OPERATOR
    faults = []
    for place, command in _named(COMMANDS, kind, document):
        if not of_operator:
            text = (
                "an object of the cluster cannot name a program of the controller. Use url, or give this pool to the run as a file."
            )
            faults.append(Fault(document.place, text, place))
        elif not is_allowed(command, allow_commands):
            text = (
                "this program would run on the controller, and allow_commands does not allow it. "
                f"Add {shlex.join(command)!r} to the option allow_commands, or its first words."
            )
            faults.append(Fault(document.place, text, place))
    for place, _file in () if of_operator else _named(FILES, kind, document):
        out = "Write the text as machineConfigTemplate"
        other = ", or put it into a Secret and name that in templateRef" if kind == "GPUNodeClass" else ""
        text = f"an object of the cluster cannot name a file of the controller. {out}{other}."
        faults.append(Fault(document.place, text, place))
    if document.origin is DocumentOrigin.NAMESPACE:
        faults.extend(_foreign_secrets(kind, document))
    return faults


def _foreign_secrets(kind: str, document: Document) -> t.Iterator[Fault]:
    own = namespace_of(document)
    for place, ref in _named(SECRETS, kind, document):
        if not own:
            text = (
                f"a {kind} object has no namespace of its own, so it cannot name a Secret. "
                "Remove it, or give this document to the run as a file."
            )
            yield Fault(document.place, text, place)
        elif ref.get("namespace", own) != own:
            text = f"{ref['namespace']} is not the namespace of this object. Put the Secret into {own}, and remove namespace."
            yield Fault(document.place, text, f"{place}.namespace")


def namespace_of(document: Document) -> str:
    """The namespace of a namespaced object; empty for all else."""
    return str(document.mapping["metadata"].get("namespace", "")) if document.origin is DocumentOrigin.NAMESPACE else ""


def allowed_namespaces(document: t.Mapping[str, t.Any]) -> tuple[str, ...] | None:
    """The namespaces whose pools may use a class; None = all. A class that says nothing about it is for all, unless it has credentials of
    its own."""
    given: list[str] | None = document["spec"].get("allowedNamespaces")
    if given is None:
        return () if any(_values(document, paths, "GPUNodeClass") for paths in (COMMANDS, SECRETS, ACCOUNT)) else None
    return None if EVERY in given else tuple(given)


def check_class(document: Document, pool: Pool, node_class: NodeClass | None, reader: Reader) -> None:
    """A fault when a namespaced pool names a class that does not allow its namespace."""
    if document.origin is not DocumentOrigin.NAMESPACE or node_class is None or node_class.allowed_namespaces is None:
        return
    if pool.namespace not in node_class.allowed_namespaces:
        reader.fault(
            "spec.nodeClassRef.name",
            f"class {node_class.name} does not allow namespace {pool.namespace}. "
            f"Add {pool.namespace} to spec.allowedNamespaces of that GPUNodeClass, or use another class.",
        )


def _named(paths: Paths, kind: str, document: Document) -> list[tuple[str, t.Any]]:
    return _values(document.mapping, paths, kind)


def _values(mapping: t.Mapping[str, t.Any], paths: Paths, kind: str) -> list[tuple[str, t.Any]]:
    return [value for path in paths.get(kind, ()) for value in _at(mapping, path.replace("[]", ".[]").split("."), "")]


def _at(value: t.Any, steps: t.Sequence[str], place: str) -> t.Iterator[tuple[str, t.Any]]:
    """Every value at a path, with its place as people write it."""
    if not steps:
        yield place, value
        return
    first, rest = steps[0], steps[1:]
    if first == "[]":
        for number, entry in enumerate(value if isinstance(value, list) else ()):
            yield from _at(entry, rest, f"{place}[{number}]")
    elif isinstance(value, dict):
        for key in value if first == "*" else [first] if first in value else ():
            yield from _at(value[key], rest, f"{place}.{key}".strip("."))
