# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same objects as a folder for kustomize (S4-07): one file per object, and kustomization.yaml."""

from __future__ import annotations

import json
import typing as t

from ..core.errors import lazy
from ..kube.client import Json

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")


def kustomize_folder(objects: t.Sequence[Json]) -> dict[str, str]:
    """File names and their text. The namespace stands in each object, so that kubectl apply --filename works on single files, too."""
    names = [f"{one['kind'].lower()}-{one['metadata']['name']}.yaml" for one in objects]
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    found = dict(zip(names, map(_text, objects), strict=True))
    return {"kustomization.yaml": _text(kustomization), **found}


def _text(document: Json) -> str:
    plain = json.loads(json.dumps(document))  # without Ansible's own types of text and numbers, which YAML does not know
    return "---\n" + t.cast(str, yaml.dump(plain, Dumper=_dumper(), sort_keys=False))


def _dumper() -> t.Any:
    """Texts of several lines, as the configurations are, stand as they are."""
    dumper_of_texts: t.Any = type("Readable", (yaml.SafeDumper,), {})  # the library is loaded here, not before

    def text(dumper: t.Any, value: str) -> t.Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    dumper_of_texts.add_representer(str, text)
    return dumper_of_texts
