# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the user's documents together: files, folders, inline mappings, the cluster's own objects, and S2's node groups."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import typing as t

from ..core.clock import from_text
from ..core.errors import ApiError, InvalidInput, NotFound, lazy
from ..core.task import Task
from ..documents.faults import Document, DocumentOrigin, line_of
from ..documents.node_pool import REQUEST_NAMESPACE
from ..documents.objects import Skipped, items_of, report, skipped
from ..documents.parse import refuse, understand
from ..documents.wireguard import HubProblem, resolved
from ..kube.client import Kube, secret_data, text_of
from ..model import Machine, NodeClass, SecretRef, Source, Specs, StatusObject
from ..model.labels import API_PATH, API_VERSION
from ..providers.webhook.machines import groups_from_environment, usable_groups

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")


_SWITCHED_ON_BY = "_SCALE_UP_ENDPOINT"  # a variable of that name is nobody else's; others end in _GPU_COUNT, too
_KINDS = {"gpunodeclasses": "GPUNodeClass", "gpunodepools": "GPUNodePool", "gpurequests": "GPURequest"}


def load(task: Task, kube: Kube | None, *, strict: bool = True) -> Specs:
    """All documents of this call, checked. ``strict``: InvalidInput lists every fault of every document with its place, and every file,
    folder or list that could not be read. Else both are listed in the specs, beside all that is good (L-25)."""
    collected = _Found()
    for entry in task.params.get("documents") or []:
        if isinstance(entry, dict):
            collected.inline(entry)
        else:
            collected.path(str(entry))
    if task.params.get("documents_from_cluster"):
        if kube is None:
            raise InvalidInput("documents_from_cluster needs a cluster connection.")
        collected.cluster(kube)
    documents, values = _split(collected.documents)
    machines, machines_from, warnings = collected.node_groups(values, documents)
    specs, more = understand(
        documents,
        machines=machines,
        allow_commands=task.params.get("allow_commands") or (),
        machines_from=machines_from,
        sources=collected.sources,
    )
    specs = dataclasses.replace(specs, faults={**collected.faults, **specs.faults}, objects=tuple(collected.objects))
    specs, more = collected.with_lines(specs, [*collected.notes, *warnings, *more])
    specs = collected.with_places(specs)
    if strict:
        unread = [source.problem for name, source in collected.sources.items() if source.problem and not source.quiet]
        refuse([*unread, *(sentence for sentences in specs.faults.values() for sentence in sentences)])
    for warning in more:
        task.warn(warning)
    return specs


class _InFile(t.NamedTuple):
    """Where a document stands: number from 1, and place in a List."""

    path: str
    number: int
    inner: str = ""


class _Found:
    """Documents as they stand, what they were read from, and what of that could not be read or is not a document."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.sources: dict[str, Source] = {}
        self.faults: dict[str, tuple[str, ...]] = {}
        self.objects: list[StatusObject] = []
        self.notes: list[str] = []
        self._files: dict[str, _InFile] = {}  # by the place of a document
        self._skipped: list[tuple[str, Skipped]] = []  # since the last note

    def inline(self, mapping: t.Mapping[str, t.Any]) -> None:
        """A document written inline, or a List of them."""
        self._objects("inline document", mapping)
        self._note("inline documents")

    def path(self, path: str) -> None:
        """Documents of a file, of all YAML files of a folder, or of a glob pattern; ``~`` is understood."""
        full = os.path.expanduser(path)
        if os.path.isdir(full):
            files = sorted(glob.glob(os.path.join(glob.escape(full), "*.y*ml")))
        else:
            files = [full] if os.path.isfile(full) else sorted(glob.glob(full))
        source = f"file:{os.path.abspath(full)}"
        if not files:
            text = f"No document file at {path}. Give the path of a YAML file or of a folder with YAML files."
            self.sources[source] = Source(problem=text)
            return
        before = len(self.documents)
        whole = all([self._file(file, source) for file in files])
        note = self._note(path)
        if not whole:
            self.sources[source] = Source(problem=f"{path} could not be read in whole.", quiet=True)  # its faults are reported
        elif len(self.documents) == before:
            self.sources[source] = Source(problem=f"{path} holds no document{f' of ours. {note}' if note else '.'}")
        else:
            self.sources.setdefault(source, Source())

    def _file(self, path: str, source: str) -> bool:
        """Add what the file holds; False when it could not be read to its end."""
        whole = True
        try:
            with open(path, encoding="utf-8") as file:
                for number, document in enumerate(yaml.safe_load_all(file), start=1):
                    if document is None:
                        continue
                    if not isinstance(document, dict):
                        self._fault(path, f"document {number} is not a mapping but a {type(document).__name__}.")
                        return False
                    whole &= self._objects(f"{path}#{number}", document, source, _InFile(path, number))
        except (OSError, UnicodeDecodeError) as error:
            self._fault(path, f"cannot be read: {error}.")
            return False
        except yaml.YAMLError as error:
            self._fault(path, f"is not valid YAML: {' '.join(str(error).split())}.")
            return False
        return whole

    def _objects(self, place: str, mapping: t.Mapping[str, t.Any], source: str = "", file: _InFile | None = None) -> bool:
        """Add the document, or each item of a List; False when the List is not one. Objects of other programs are left out."""
        if file is not None:
            self._files[place] = file
        try:
            for path, item in items_of(mapping):
                spot = f"{place} {path}" if path else place
                if file is not None:
                    self._files[spot] = file._replace(inner=path)
                if (other := skipped(item, file.path if file else "")) is not None:
                    self._skipped.append((spot, other))
                else:
                    field = functools.partial(self._field, spot) if file is not None else None
                    self.documents.append(Document(spot, item, source=source, field=field))
        except InvalidInput as error:
            self._fault(place, str(error))
            return False
        return True

    def _note(self, path: str) -> str:
        """The line on what was skipped there; empty when nothing was."""
        if not self._skipped:
            return ""
        folder = os.path.expanduser(path)
        folder = folder if os.path.isdir(folder) else os.path.dirname(folder)
        places = [(place.removeprefix(os.path.join(folder, "")), entry) for place, entry in self._skipped]
        self._skipped = []
        self.notes.append(report(path, places))
        return self.notes[-1]

    def _fault(self, place: str, sentence: str) -> None:
        self.faults[place] = (*self.faults.get(place, ()), f"{place}: {sentence}")

    def with_lines(self, specs: Specs, warnings: list[str]) -> tuple[Specs, list[str]]:
        """The same with the line in front of each sentence about a file, in the order of the lines."""
        faults, replacements = {}, dict[str, str]()
        for place, sentences in specs.faults.items():
            lines = [(self._line(place, sentence), sentence) for sentence in sentences]
            if place in self._files:
                lines.sort(key=lambda pair: pair[0])
            replacements |= {sentence: self._placed(place, line, sentence) for line, sentence in lines}
            faults[place] = tuple(replacements[sentence] for _line, sentence in lines)
        paused = {key: _replaced(why, replacements) for key, why in specs.paused.items()}
        places = [(next((file for file in self._files if text.startswith(f"{file}: ")), ""), text) for text in warnings]
        more = [self._placed(place, self._line(place, text), text) for place, text in places]
        return dataclasses.replace(specs, faults=faults, paused=paused), more

    def with_places(self, specs: Specs) -> Specs:
        """The same with the line in the place of each section of a hub that is still to be read from Secrets."""
        classes = dict(specs.classes)
        for name, node_class in specs.classes.items():
            secrets = node_class.mesh.hub_secrets
            if secrets is not None and secrets.place in self._files:
                placed = dataclasses.replace(secrets, place=self._field(secrets.place, secrets.path))
                classes[name] = dataclasses.replace(node_class, mesh=dataclasses.replace(node_class.mesh, hub_secrets=placed))
        return dataclasses.replace(specs, classes=classes)

    def _line(self, place: str, sentence: str) -> int:
        """Zero where there is none."""
        if place not in self._files:
            return 0
        path, number, inner = self._files[place]
        try:
            with open(path, encoding="utf-8") as file:
                where = sentence.removeprefix(f"{place}: ").removeprefix("The group ").partition(": ")[0]
                return line_of(file.read(), number, f"{inner}.{where}" if inner else where) or 0
        except (OSError, UnicodeDecodeError, yaml.YAMLError):  # it was whole a moment ago: another process writes to it
            return 0

    def _placed(self, place: str, line: int, sentence: str) -> str:
        return f"{self._files[place].path}:{line}{sentence.removeprefix(place)}" if line else sentence

    def _field(self, place: str, path: str) -> str:
        """Where a field of a document of a file stands, for people."""
        return self._placed(place, self._line(place, f"{place}: {path}"), place)

    def cluster(self, kube: Kube) -> None:
        """Objects of the three kinds. A kind whose CRD is not installed has none, which says nothing about objects it had before."""
        for plural, kind in _KINDS.items():
            source = f"cluster:{plural}"
            try:
                items = list(kube.pages(f"{API_PATH}/{plural}"))
            except NotFound:
                self.sources[source] = Source(
                    problem=f"The cluster does not know {kind} objects: its CRD is not installed.", quiet=True
                )
            except ApiError as error:
                self.sources[source] = Source(problem=f"The {kind} objects of the cluster could not be listed: {error}")
            else:
                self.sources[source] = Source()
                self.documents.extend(_object(item, kind, source) for item in items)
                self.objects.extend(_status_object(item, kind, plural) for item in items)

    def _nothing_given(self) -> bool:
        """No document, no folder, no list of the cluster: as k8s-gpu-autoprovision is started, with variables alone."""
        return not self.documents and not self.sources and not self.faults

    def node_groups(self, values: list[Document], documents: list[Document]) -> tuple[tuple[Machine, ...], str, list[str]]:
        """Own machines given the way k8s-gpu-autoprovision takes them, with the source of the first; the environment is read when a
        class asks for webhook machines and lists none, or when nothing else is given at all."""
        machines: list[Machine] = []
        warnings: list[str] = []
        machines_from = ""
        for value in values:
            try:
                usable, left_out = usable_groups(value.mapping)
            except InvalidInput as error:
                for text in error.problems or (str(error),):
                    self._fault(value.place, text)
                continue
            machines_from = machines_from or value.source
            machines.extend(usable)
            warnings.extend(left_out)
        asked = _asks_for_groups(documents) or self._nothing_given() and any(name.endswith(_SWITCHED_ON_BY) for name in os.environ)
        if not machines and asked and any(name.endswith("_GPU_COUNT") for name in os.environ):
            try:
                grouped, skipped = groups_from_environment(os.environ)
            except InvalidInput as error:
                self._fault("environment", str(error))
            else:
                return tuple(grouped), "environment", list(skipped)
        return tuple(machines), machines_from, warnings


def _place(kind: str, meta: t.Mapping[str, t.Any]) -> str:
    return f"{kind} {meta.get('namespace', '')}/{meta['name']} of the cluster"


def _status_object(item: t.Mapping[str, t.Any], kind: str, plural: str) -> StatusObject:
    meta = item["metadata"]
    name, namespace = meta["name"], meta.get("namespace", "")
    return StatusObject(
        kind=kind,
        key=name if kind == "GPUNodeClass" else f"{namespace or REQUEST_NAMESPACE}/{name}",
        path=f"{API_PATH}/{f'namespaces/{namespace}/' if namespace else ''}{plural}/{name}",
        place=_place(kind, meta),
        uid=str(meta.get("uid", "")),
        generation=meta.get("generation") or 0,
        version=str(meta.get("resourceVersion", "")),
        status=item.get("status") or {},
        deleted=bool(meta.get("deletionTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
    )


def _object(item: t.Mapping[str, t.Any], kind: str, source: str) -> Document:
    meta = item["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
    return Document(
        _place(kind, meta),
        {"apiVersion": API_VERSION, "kind": kind, "metadata": kept, "spec": item.get("spec", {})},
        DocumentOrigin.CLUSTER if kind == "GPUNodeClass" else DocumentOrigin.NAMESPACE,
        source,
        str(meta.get("uid", "")),
        from_text(meta["deletionTimestamp"]) if meta.get("deletionTimestamp") else None,
    )


def _replaced(text: str, replacements: t.Mapping[str, str]) -> str:
    for sentence, placed in replacements.items():
        text = text.replace(sentence, placed)
    return text


def _split(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """Documents proper, and Helm values with ``nodeGroups``."""
    values = [document for document in documents if "nodeGroups" in document.mapping and "kind" not in document.mapping]
    return [document for document in documents if document not in values], values


def _asks_for_groups(documents: list[Document]) -> bool:
    specs = (document.mapping.get("spec") for document in documents)  # of any form yet: what is wrong with it is reported later
    listed = (spec.get("providers") for spec in specs if isinstance(spec, dict))
    providers = [entry for entries in listed if isinstance(entries, list) for entry in entries if isinstance(entry, dict)]
    return any(
        provider.get("name") == "webhook" and not provider.get("machines") and not provider.get("nodeGroups")
        for provider in providers
    )


# ---- hubs of which some stands in Secrets (documents/wireguard.py). One that cannot be read is unknown: nothing is launched for its class, and
# nothing ends for that


def with_hubs(specs: Specs, kube: Kube) -> Specs:
    """The specs with the hubs as their Secrets say now. A class whose hub is unknown stays, and its pools are held: each with the reason, which
    is a fault of the document, too."""
    classes, stopped, faults = dict(specs.classes), dict[str, str](), dict(specs.faults)
    known: dict[tuple[str, str], dict[str, t.Any]] = {}

    def read(ref: SecretRef) -> str:
        place = (ref.namespace, ref.name)
        if place not in known:
            known[place] = secret_data(kube, *place, ref.key)
        return text_of(known[place], *place, ref.key)

    for name, node_class in specs.classes.items():
        secrets = node_class.mesh.hub_secrets
        if secrets is None:
            continue
        found = resolved(secrets, read)
        if isinstance(found, HubProblem):
            stopped[name] = sentence = f"{secrets.place}: {found.sentence}"
            faults[secrets.place] = (*faults.get(secrets.place, ()), sentence)
            mesh = dataclasses.replace(node_class.mesh, hub_secrets=dataclasses.replace(secrets, problem=sentence))
        else:
            mesh = dataclasses.replace(node_class.mesh, hub=found)
        classes[name] = dataclasses.replace(node_class, mesh=mesh)
    if classes == specs.classes:
        return specs
    held = tuple(pool for pool in specs.pools if pool.node_class in stopped)
    paused = {pool.key: f"its class {pool.node_class} cannot be used: {stopped[pool.node_class]}" for pool in held}
    return dataclasses.replace(
        specs,
        classes=classes,
        pools=tuple(pool for pool in specs.pools if pool.node_class not in stopped),
        held=(*specs.held, *held),
        paused={**specs.paused, **paused},
        faults=faults,
    )


def hub_secrets(classes: t.Iterable[NodeClass]) -> tuple[SecretRef, ...]:
    """The keys of Secrets that hubs of the classes are read from."""
    found = (node_class.mesh.hub_secrets for node_class in classes)
    return tuple(dict.fromkeys(ref for secrets in found if secrets is not None for ref in secrets.refs.values()))
