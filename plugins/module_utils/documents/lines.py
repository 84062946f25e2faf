# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which line of a file a fault stands."""

from __future__ import annotations

import typing as t

from ..core.lazy_import import lazy

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")


def line_of(text: str, number: int, path: str) -> int | None:
    """The line of ``path`` in the document ``number`` (from 1) of a file; of what is around it where that is missing."""
    for place, node in enumerate(yaml.compose_all(text, Loader=yaml.SafeLoader), start=1):
        if place == number:
            return None if node is None else _line(node, path, node)
    return None


def _line(node: t.Any, path: str, key: t.Any) -> int:
    """``key``: the node of the name under which ``node`` stands; its line is the one that people look for."""
    rest = path.removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        for name, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
            after = rest.removeprefix(str(name.value))
            if rest.startswith(str(name.value)) and after[:1] in ("", ".", "[", " "):
                return _line(value, after, name)
    elif isinstance(node, yaml.SequenceNode) and rest.startswith("["):
        step, _bracket, after = rest[1:].partition("]")
        if step.isdigit() and int(step) < len(node.value):
            return _line(node.value[int(step)], after, node.value[int(step)])
    return int(key.start_mark.line) + 1
