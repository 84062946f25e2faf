# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a configuration changes in containerd, above all the default runtime ``nvidia`` (S4-06). No release needs it: NVIDIA's toolkit extension
registers the runtime, and pods name it by their RuntimeClass. Up to Talos 1.12 it works all the same; from 1.13 on it harms."""

from __future__ import annotations

import tomllib
import typing as t

from ..releases.tables import text_of
from ..template import Document, items_at

CRI_PART = "/etc/cri/conf.d/20-customization.part"
_RUNTIME = "io.containerd.cri.v1.runtime"  # the section of containerd's configuration of version 3
_OLD_RUNTIME = "io.containerd.grpc.v1.cri"
_CDI = (1, 13)


class RuntimeFindings(t.NamedTuple):
    """One sentence each."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def containerd_rules(documents: t.Sequence[Document], talos: tuple[int, int]) -> RuntimeFindings:
    """What is wrong with the changes of containerd's configuration, and what is not needed of them."""
    errors: list[str] = []
    warnings: list[str] = []
    for where, content in _parts(documents):
        try:
            plugins = tomllib.loads(content).get("plugins", {})
        except tomllib.TOMLDecodeError as error:
            errors.append(f"{where} is not TOML ({error}), so containerd would not start.")
            continue
        if _OLD_RUNTIME in plugins:
            errors.append(
                f"{where}: containerd of Talos {text_of(talos)} does not read [plugins.{_OLD_RUNTIME!r}], which is of configuration version 2; "
                f"write [plugins.{_RUNTIME!r}]."
            )
        if _default_runtime(plugins) != "nvidia":
            continue
        if talos >= _CDI:
            errors.append(
                f"{where}: the default runtime nvidia is refused for Talos 1.13 and newer. There a container gets its GPUs by CDI: by the "
                "resource nvidia.com/gpu, or by runtimeClassName nvidia. With this default, every pod of the node would start through "
                "NVIDIA's wrapper, and none where the wrapper fails. Leave it out."
            )
        else:
            warnings.append(
                f"{where}: the default runtime nvidia is not needed. The toolkit extension registers the runtime; name it by runtimeClassName "
                "nvidia, and leave this out before you upgrade to Talos 1.13."
            )
    return RuntimeFindings(tuple(errors), tuple(warnings))


def _parts(documents: t.Sequence[Document]) -> t.Iterator[tuple[str, str]]:
    """The places with changes of containerd's configuration, and their text."""
    for document in documents:
        if document.get("kind") == "CRICustomizationConfig":
            yield f"CRICustomizationConfig {document.get('name', '')}: content", str(document.get("content") or "")
        elif "kind" not in document:
            for number, file in enumerate(items_at(document, "machine.files")):
                if isinstance(file, dict) and file.get("path") == CRI_PART:
                    yield f"machine.files[{number}].content", str(file.get("content") or "")


def _default_runtime(plugins: t.Mapping[str, t.Any]) -> t.Any:
    value: t.Any = plugins.get(_RUNTIME)
    for field in ("containerd", "default_runtime_name"):
        value = value.get(field) if isinstance(value, dict) else None
    return value
