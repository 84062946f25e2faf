# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the user's documents together: files, folders, inline mappings, the cluster's own objects, and S2's node groups."""

from __future__ import annotations

import glob
import os
import typing as t

from ..clock import from_text
from ..clouds.webhook_machines import groups_from_environment, usable_groups
from ..cluster.kube import Kube
from ..documents.document import Document, Origin
from ..documents.parse import parse
from ..errors import InvalidInput, NotFound
from ..fleet.model import Machine, Wishes
from ..libs import lazy
from ..task import Task

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

_KINDS = {"gpunodeclasses": "GPUNodeClass", "gpunodepools": "GPUNodePool", "gpurequests": "GPURequest"}


def load(task: Task, kube: Kube | None) -> Wishes:
    """All documents of this call, checked; InvalidInput lists every fault of every document with its place."""
    found: list[Document] = []
    for entry in task.params.get("documents") or []:
        found.extend(_inline(entry) if isinstance(entry, dict) else _from_path(str(entry)))
    if task.params.get("documents_from_cluster"):
        if kube is None:
            raise InvalidInput("documents_from_cluster needs a cluster connection.")
        found.extend(_from_cluster(kube))
    documents, values = _split(found)
    machines, warnings = _node_groups(values, documents)
    wishes, more = parse(documents, machines=machines, allow_commands=task.params.get("allow_commands") or ())
    for warning in (*warnings, *more):
        task.warn(warning)
    return wishes


def _inline(entry: t.Mapping[str, t.Any]) -> list[Document]:
    return [Document("inline document", entry)]


def _from_path(path: str) -> list[Document]:
    """Documents of a file, of all YAML files of a folder, or of a glob pattern; ``~`` is understood."""
    full = os.path.expanduser(path)
    if os.path.isdir(full):
        files = sorted(glob.glob(os.path.join(glob.escape(full), "*.y*ml")))
    else:
        files = [full] if os.path.isfile(full) else sorted(glob.glob(full))
    if not files:
        raise InvalidInput(f"No document file at {path}.", remedy="Give the path of a YAML file or of a folder with YAML files.")
    source = f"file:{os.path.abspath(full)}"
    return [document for file in files for document in _read(file, source)]


def _read(path: str, source: str) -> t.Iterator[Document]:
    try:
        with open(path, encoding="utf-8") as file:
            for number, document in enumerate(yaml.safe_load_all(file), start=1):
                if document is None:
                    continue
                if not isinstance(document, dict):
                    raise InvalidInput(f"{path}: document {number} is not a mapping but a {type(document).__name__}.")
                yield Document(f"{path}#{number}", document, source=source)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error


def _from_cluster(kube: Kube) -> t.Iterator[Document]:
    """Objects of the three kinds; a kind whose CRD is not installed has none."""
    for plural, kind in _KINDS.items():
        try:
            for item in kube.pages(f"/apis/tgp.io/v1/{plural}"):
                meta = item["metadata"]
                kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
                document = {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": kept, "spec": item.get("spec", {})}
                deletion = from_text(meta["deletionTimestamp"]) if meta.get("deletionTimestamp") else None
                yield Document(
                    f"{kind} {meta.get('namespace', '')}/{meta['name']} of the cluster",
                    document,
                    Origin.CLUSTER if kind == "GPUNodeClass" else Origin.NAMESPACE,
                    f"cluster:{plural}",
                    str(meta.get("uid", "")),
                    deletion,
                )
        except NotFound:
            continue


def _split(found: list[Document]) -> tuple[list[Document], list[Document]]:
    """Documents proper, and Helm values with ``nodeGroups``."""
    values = [one for one in found if "nodeGroups" in one.mapping and "kind" not in one.mapping]
    return [one for one in found if one not in values], values


def _node_groups(values: list[Document], documents: list[Document]) -> tuple[tuple[Machine, ...], list[str]]:
    """Own machines given the way k8s-gpu-autoprovision takes them; the environment is read only when a class asks for webhook
    machines and lists none."""
    machines: list[Machine] = []
    warnings: list[str] = []
    for value in values:
        usable, left_out = usable_groups(value.mapping)
        machines.extend(usable)
        warnings.extend(left_out)
    if not machines and _asks_for_groups(documents) and any(name.endswith("_GPU_COUNT") for name in os.environ):
        found, skipped = groups_from_environment(os.environ)
        return tuple(found), list(skipped)
    return tuple(machines), warnings


def _asks_for_groups(documents: list[Document]) -> bool:
    specs = (document.mapping.get("spec") for document in documents)  # of any form yet: what is wrong with it is told later
    listed = (spec.get("providers") for spec in specs if isinstance(spec, dict))
    providers = [one for entries in listed if isinstance(entries, list) for one in entries if isinstance(one, dict)]
    return any(one.get("name") == "webhook" and not one.get("machines") and not one.get("nodeGroups") for one in providers)
