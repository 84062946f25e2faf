# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of manifests: files that are installed with the collection are printed, written into a folder, or applied to the cluster."""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing as t
from pathlib import Path

from ..core.errors import InvalidInput, lazy
from ..core.task import Task
from ..kube.auth.credentials import connect
from ..kube.client import Json
from ..kube.server_side_apply import apply_for
from ..operations.write_files import NewFile, write_files

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

DEFAULT = ["rbac"]
# names that are shorter than a path
_SHORT = {
    "rbac": "files/rbac.yml",
    "admission_policy": "files/admission_policy.yml",
    "guard": "files/guard.yml",
    "crds": "schemas/crds.yaml",
    "prometheus_rules": "monitoring/prometheus_rules.yml",
    "dashboards": "monitoring/dashboards",
    "requirements": "requirements.txt",
    "requirements-controller": "requirements-controller.txt",
}
_FOLDERS = ("examples", "files", "monitoring", "schemas")


@dataclasses.dataclass(frozen=True)
class InstalledFile:
    """A file of the collection. ``path`` is its place below the collection's folder."""

    path: str
    data: bytes
    executable: bool

    @property
    def target(self) -> str:
        """Its place below the user's folder: the collection's own first folder is left out."""
        first, _separator, rest = self.path.partition("/")
        return rest or first

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")


def manifests_run(task: Task) -> dict[str, t.Any]:
    """Print, write or apply the chosen files."""
    root = _collection()
    paths = _paths(root)
    names = _names(paths)
    chosen = _chosen(task, root, paths, names)
    folder = task.params["path"]
    if folder and task.params["apply"]:
        raise InvalidInput(
            f"{task.called('apply')} and {task.called('path')} exclude each other.", remedy="Use one of them per run."
        )
    result: dict[str, t.Any] = {
        "changed": False,
        "files": [{"source": file.path, "content": file.text} for file in chosen],
        "objects": [],
        "available": names,
    }
    if task.params["apply"]:
        return {**result, **_apply(task, chosen)}
    if folder:
        places = {file: Path(folder).expanduser() / file.target for file in chosen}
        rows = [{**row, "path": str(place)} for row, place in zip(result["files"], places.values(), strict=True)]
        return {
            **result,
            "files": rows,
            **write_files(task, {place: NewFile(file.data, file.executable) for file, place in places.items()}),
        }
    for file in chosen:
        for line in (f"# {file.path}", *file.text.splitlines(), ""):
            task.progress(line)
    return result


# ---- what there is


def _collection() -> Path:
    """The folder of the collection. A module that was sent alone to another process has none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / _SHORT["rbac"]).is_file():
        raise InvalidInput(
            "The files of the collection are not beside its modules.",
            remedy="Run the task without async, on a controller that has tgp.gpu.",
        )
    return root


def _paths(root: Path) -> list[str]:
    """Every file that can be chosen, below the collection's folder."""
    found = [path for folder in _FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    inner = [path.relative_to(root).as_posix() for path in found if path.suffix not in (".py", ".pyc")]
    return sorted([*inner, _SHORT["requirements"], _SHORT["requirements-controller"]])


def _names(paths: t.Sequence[str]) -> list[str]:
    """Every name that can be given, the short ones first: of files, and of folders for all that is in them."""
    folders = {folder.as_posix() for path in paths for folder in Path(path).parents if folder.as_posix() != "."}
    return [*_SHORT, *sorted({*folders, *paths} - set(_SHORT.values()))]


def _chosen(task: Task, root: Path, paths: t.Sequence[str], names: t.Sequence[str]) -> list[InstalledFile]:
    """The files of the given names, each once. InvalidInput lists what there is when one is unknown."""
    chosen: dict[str, None] = {}
    for name in task.params["manifests"]:
        wanted = _SHORT.get(name, name.strip("/"))
        matches = [path for path in paths if path == wanted or path.startswith(f"{wanted}/")]
        if not matches:
            near = difflib.get_close_matches(name, names, 1)
            raise InvalidInput(
                f"{task.called('manifests')}: unknown name {name!r}.",
                remedy=(f"Did you mean {near[0]}? " if near else "") + f"Names: {', '.join(names)}.",
            )
        chosen.update(dict.fromkeys(matches))
    return [InstalledFile(path, (root / path).read_bytes(), os.access(root / path, os.X_OK)) for path in chosen]


# ---- into the cluster


def _apply(task: Task, chosen: t.Sequence[InstalledFile]) -> dict[str, t.Any]:
    objects = [one for file in chosen for one in _objects(file)]
    kube = connect(task)
    try:
        return apply_for(task, kube, objects, what="the manifest", otherwise="Keep them by leaving the manifest out")
    finally:
        kube.close()


def _objects(file: InstalledFile) -> list[Json]:
    """The Kubernetes objects of a file. InvalidInput when it holds anything else."""
    if file.path.endswith((".yml", ".yaml")):
        documents = [one for one in yaml.safe_load_all(file.text) if one is not None]
        if documents and all(_is_object(one) for one in documents):
            return documents
    raise InvalidInput(
        f"{file.path} is not a Kubernetes manifest and cannot be applied.", remedy="Leave it out, or write it into a folder."
    )


def _is_object(document: t.Any) -> bool:
    return isinstance(document, dict) and {"apiVersion", "kind", "metadata"} <= set(document) and "name" in document["metadata"]
