# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the documents of a story stand: files of a folder, one file, or objects of the cluster (L-25, L-28).

A document is there (state ""), ``gone``, or broken (``yaml``, ``field``). The whole source is there (""), ``empty`` or ``missing``.
"""

from __future__ import annotations

import copy
import json
import shutil
import typing as t
from decimal import Decimal
from pathlib import Path

from tests.fixtures.former_kinds import former_definitions

from .objects import FOREIGN
from .sight import CLASS_OF

if t.TYPE_CHECKING:
    from .stage import Stage

Json = dict[str, t.Any]
LATER, LATER_CLASS = "later", "demo-later"  # documents that appear
_MODELS = {
    "gcp": "T4",
    "lambda": "QUADRO-RTX6000",
    "paperspace": "A4000",
    "vast": "RTX4090",
    "vultr": "A16",
}  # what a GPURequest asks for: within every limit
_PAIRED = "A6000"  # where machines have two GPUs
_OF_MACHINES = ("talosConfig", "tailscaleConfig", "wireguardConfig")  # fields that a GPURequest has as a class has them
_NO_YAML = "kind: [GPUNodePool\nmetadata: }\n"
_WRONG = {"yaml": "some-time", "field": "some-dollars"}  # values that a definition lets through
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PLURALS = {"GPUNodeClass": "gpunodeclasses", "GPUNodePool": "gpunodepools", "GPURequest": "gpurequests"}


def name_of(document: Json) -> str:
    """The names of all documents of a story differ."""
    return str(document["metadata"]["name"])


class Source:
    """Of which kind it is; ``states`` of documents that are not as they should be, by name; ``whole``: the state of all of it."""

    kind = ""
    broken: t.Mapping[str, str] = {}  # what a run says of a broken document, by its state
    unread: tuple[str, ...] = ()  # what a run says of a source that tells nothing
    believed: tuple[str, ...] = ()  # states of the whole source in which a run finds all documents gone

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: dict[str, str] = {}
        self.whole = ""

    @property
    def mark(self) -> str:
        """The ingredient."""
        return f"documents from {'the' if self.kind == 'cluster' else 'a'} {self.kind}"

    def params(self) -> dict[str, t.Any]:
        """Options of every module."""
        raise NotImplementedError

    def write(self, stage: Stage, documents: t.Sequence[Json]) -> None:
        """Make the source what it is to be."""
        raise NotImplementedError

    def delete(self, stage: Stage, name: str) -> None:
        """A person deletes the document; a class together with its pools."""
        for one in with_pools(stage, name):
            self.states[one] = "gone"

    def bring_back(self, stage: Stage, name: str) -> None:
        """It is there again, as it was; with its class and its pools, where they went together."""
        self.states.pop(name, None)

    def gone(self, _documents: t.Sequence[Json]) -> set[str]:
        """Names of documents that a run which reads the source finds gone."""
        return {name for name, state in self.states.items() if state in ("gone", "deleted")}

    def unreadable(self, documents: t.Sequence[Json]) -> set[str]:
        """Names of documents that no run can read."""
        return {name_of(one) for one in documents} if self.whole else set(self.states)

    def _there(self, documents: t.Sequence[Json]) -> list[Json]:
        return [one for one in documents if self.states.get(name_of(one)) not in ("gone", "deleted")]


class Files(Source):
    """Files of the controller, which every run is given as ``entry`` of the story's folder."""

    entry = ""
    broken = {"yaml": "is not valid YAML", "field": "maxHourlyPrce"}

    @property
    def path(self) -> Path:
        return self.folder / self.entry

    def params(self) -> dict[str, t.Any]:
        return {"documents": [str(self.path)]}

    def gone(self, documents: t.Sequence[Json]) -> set[str]:
        """None where no document is left: what holds nothing is not believed (L-25)."""
        return super().gone(documents) if self._there(documents) else set()

    def _text(self, document: Json) -> str:
        """The document as it stands in a file; JSON is YAML."""
        state = self.states.get(name_of(document), "")
        if state == "yaml":
            return _NO_YAML
        wrong = {"maxHourlyPrce": "1"} if state == "field" else {}
        return json.dumps({**document, "spec": {**document["spec"], **wrong}}) + "\n"


class Folder(Files):
    """One file for each document."""

    kind, entry = "folder", "documents"
    unread = ("No document file at",)

    def write(self, stage: Stage, documents: t.Sequence[Json]) -> None:
        if self.path.exists():
            shutil.rmtree(self.path)
        if self.whole == "missing":
            return
        self.path.mkdir()
        for one in self._there(documents) if self.whole != "empty" else ():
            (self.path / f"{name_of(one)}.yml").write_text(self._text(one))


class File(Files):
    """All of them in one file, the classes first. What stands behind a syntax error is not read."""

    kind, entry = "file", "documents.yml"
    unread = ("No document file at", "holds no document")

    def write(self, stage: Stage, documents: t.Sequence[Json]) -> None:
        if self.whole == "missing":
            self.path.unlink(missing_ok=True)
        else:
            texts = [] if self.whole else [f"---\n{self._text(one)}" for one in self._in_order(documents)]
            self.path.write_text("".join(["# What we rent.\n", *texts]))

    def unreadable(self, documents: t.Sequence[Json]) -> set[str]:
        names = [name_of(one) for one in self._in_order(documents)]
        first = next((place for place, name in enumerate(names) if self.states.get(name) == "yaml"), len(names))
        return super().unreadable(documents) | set(names[first:])

    def _in_order(self, documents: t.Sequence[Json]) -> list[Json]:
        return sorted(self._there(documents), key=lambda one: one["kind"] != "GPUNodeClass")


class Cluster(Source):
    """Custom resources. ``missing``: nobody has installed their definitions, so no run can read any. ``empty``: a list that can be read and
    has no object is believed (L-25), so all of them are gone. The definitions are those of a cluster that was not upgraded, so that there
    can be objects which the reader refuses."""

    kind = "cluster"
    broken = _WRONG
    unread = ("CRD is not installed",)
    believed = ("empty",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.coming: set[str] = set()  # documents that are wanted again, and whose objects are still being deleted

    def params(self) -> dict[str, t.Any]:
        return {"documents": [], "documents_from_cluster": True}

    def gone(self, documents: t.Sequence[Json]) -> set[str]:
        return {name_of(one) for one in documents} if self.whole == "empty" else super().gone(documents)

    def delete(self, stage: Stage, name: str) -> None:
        for one in with_pools(stage, name):
            self.states[one] = "deleted"
            self.coming.discard(one)
            stage.sight.deleted.add(one)

    def bring_back(self, stage: Stage, name: str) -> None:
        """One that is being deleted comes when it is gone, as a GitOps controller would have it; a class and its pools come together."""
        names = with_pools(stage, name) if self.states.get(name) == "deleted" else [name]
        if set(names) & set(stage.going.values()):
            self.coming.update(names)
            return
        for one in names:
            self.states.pop(one, None)
            stage.sight.deleted.discard(one)

    def _see_off(self, stage: Stage) -> None:
        """Objects that have gone, and documents that come again for that."""
        for path, name in list(stage.going.items()):
            status, found = stage.api.request("GET", path)
            stays = self.whole != "missing" and self.states.get(name) != "gone"
            if status == 200 and stays and set(found["metadata"].get("finalizers") or ()) - {FOREIGN}:
                continue
            if status == 200:
                let_go(stage, path)
            del stage.going[path]
        if self.coming and not self.coming & set(stage.going.values()):
            for name in self.coming:
                self.states.pop(name, None)
                stage.sight.deleted.discard(name)
            self.coming.clear()
            stage.see_documents()

    def write(self, stage: Stage, documents: t.Sequence[Json]) -> None:
        self._see_off(stage)
        wanted = {path_of(one): self._object(one) for one in ([] if self.whole else self._there(documents))}
        for cluster in (stage, *t.cast("list[Stage]", stage.twins)):
            self._bring(cluster, wanted)

    def _bring(self, stage: Stage, wanted: t.Mapping[str, Json]) -> None:
        """``written`` of the stage is what stands there."""
        if self.whole == "missing":
            for path in stage.written:
                let_go(stage, path)
            for plural in _PLURALS.values():
                stage.api.request("DELETE", f"{_CRDS}/{plural}.tgp.io")
            stage.written.clear()
            return
        if stage.api.request("GET", f"{_CRDS}/gpunodepools.tgp.io")[0] == 404:
            for definition in former_definitions():
                stage.kube("POST", _CRDS, definition)
        for path in [one for one in stage.written if one not in wanted]:
            name = path.rpartition("/")[2]
            if self.states.get(name) == "deleted" and not stage.is_twin:
                stage.going[path] = name
            else:
                let_go(stage, path)
            stage.kube("DELETE", path)
            del stage.written[path]
        for path, document in wanted.items():
            known = stage.written.get(path)
            if known is None:
                stage.kube("POST", path.rpartition("/")[0], document)
            elif known != document["spec"]:
                stage.kube("PUT", path, {**stage.kube("GET", path), "spec": document["spec"]})
            stage.written[path] = copy.deepcopy(document["spec"])

    def _object(self, document: Json) -> Json:
        """An object names no file of the controller: its template stands in it."""
        found = copy.deepcopy(document)
        found["metadata"]["finalizers"] = [FOREIGN]
        talos, state = found["spec"].get("talosConfig", {}), self.states.get(name_of(document), "")
        if file := talos.pop("machineConfigTemplateFile", ""):
            talos["machineConfigTemplate"] = Path(file).read_text()
        if state and found["kind"] == "GPUNodeClass":
            found["spec"]["providers"].append({"name": _WRONG[state]})
        elif state:
            field = {"yaml": "maxLifetime" if found["kind"] == "GPURequest" else "drainTimeout", "field": "maxHourlyPrice"}[state]
            found["spec"][field] = _WRONG[state]
        return found


def with_pools(stage: Stage, name: str) -> list[str]:
    """The document, and where it is a class the pools that use it; where it is a pool that was deleted with its class, that class."""
    users = [pool for pool, node_class in CLASS_OF.items() if node_class == name]
    owner = [CLASS_OF[name]] if stage.source.states.get(CLASS_OF.get(name, "")) == "deleted" else []
    there = {name_of(one) for one in stage.documents}
    return [one for one in (name, *users, *owner) if one in there or one == name]


def let_go(stage: Stage, path: str) -> None:
    """Objects vanish here, as after a restore of the cluster: no finalizer tells a run of it (L-33). As a person does it by a patch."""
    stage.kube("PATCH", path, {"metadata": {"finalizers": None}})


def path_of(document: Json) -> str:
    """Of the object at the API server."""
    meta = document["metadata"]
    place = f"namespaces/{meta['namespace']}/" if document["kind"] == "GPUNodePool" else ""
    return f"/apis/tgp.io/v1/{place}{_PLURALS[document['kind']]}/{meta['name']}"


def request(stage: Stage) -> list[Json]:
    """A GPURequest for the first cloud of the ground."""
    cloud = stage.ground.clouds()[0].cloud
    spec: Json = {
        "gpuType": _MODELS[cloud] if stage.ground.gpus == 1 else _PAIRED,
        "gpuCount": stage.ground.gpus,
        "provider": cloud,
        "maxHourlyPrice": str(min(Decimal("4.00"), stage.sight.limits.cost_hour)),
        "maxLifetime": "2h",
        "idleTimeout": "20m",
    }
    spec |= {key: copy.deepcopy(stage.demo_class[key]) for key in _OF_MACHINES if key in stage.demo_class}
    return [{"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": LATER}, "spec": spec}]


def pool(stage: Stage) -> list[Json]:
    """A GPUNodePool that wants a machine, with a class of its own; they say what the first ones say, but for budgets."""
    node_class = {**stage.document("GPUNodeClass", "demo"), "metadata": {"name": LATER_CLASS}}
    found = [node_class, {**stage.document("GPUNodePool", "training"), "metadata": {"name": LATER, "namespace": "default"}}]
    found = copy.deepcopy(found)
    for one in found:
        one["spec"].pop("budget", None)
    found[1]["spec"] |= {"nodeClassRef": {"kind": "GPUNodeClass", "name": LATER_CLASS}, "minNodes": 1}
    found[1]["spec"].pop("orphanedPolicy", None)
    return found


SOURCES: dict[str, type[Source]] = {one.kind: one for one in (Folder, File, Cluster)}
