# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A document with faults without them, so that the rest of it can be read as well and every fault is told in one run."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

from ..model.labels import API_VERSION
from .faults import dotted, validator
from .schemas import KINDS

_Steps = tuple[t.Union[str, int], ...]
_MOST_ROUNDS = 8  # what is removed may have been required by what is around it
_STAND_INS: t.Mapping[_Steps, t.Any] = {
    ("apiVersion",): API_VERSION,
    ("metadata",): {"name": "unknown"},
    ("metadata", "name"): "unknown",
    ("spec", "nodeClassRef"): {"name": "unknown"},
    ("spec", "nodeClassRef", "name"): "unknown",
    ("spec", "gpuType"): "A100",
}


@dataclasses.dataclass(frozen=True, slots=True)
class SoundParts:
    """``mapping`` is valid by the schema of its kind. ``left_out``: the places of what is not in it, or stands in for something else."""

    mapping: t.Mapping[str, t.Any]
    left_out: frozenset[str]

    def says(self, path: str) -> bool:
        """Whether a fault at ``path`` is one of the document, and not of what was left out."""
        return not any(_within(path, one) or _within(one, path) for one in self.left_out)


def sound_parts(kind: str, document: t.Mapping[str, t.Any]) -> SoundParts | None:
    """What is right by the schema; None when too little is."""
    made = t.cast("dict[str, t.Any]", _with_text_keys(document))
    left_out: set[str] = set()
    for _round in range(_MOST_ROUNDS):
        wrong = {steps for error in validator(KINDS[kind]).iter_errors(made) for steps in _wrong(error)}
        if not wrong:
            return SoundParts(made, frozenset(left_out))
        for steps in sorted(wrong, key=len, reverse=True):
            if not _leave_out(made, steps):
                return None
            left_out.add(dotted(steps))
    return None


def _with_text_keys(value: t.Any) -> t.Any:
    """A copy without the keys that YAML takes for something else than text (on, yes, 1): their own fault is told."""
    if isinstance(value, t.Mapping):
        return {key: _with_text_keys(inner) for key, inner in value.items() if isinstance(key, str)}
    return [_with_text_keys(one) for one in value] if isinstance(value, list) else copy.deepcopy(value)


def _wrong(error: t.Any) -> t.Iterator[_Steps]:
    """What has to go for this error to go: the field, or the whole list in which it is, so that no other place changes."""
    at: _Steps = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        yield from ((*at, name) for name in set(error.instance) - set(error.schema.get("properties", {})))
        return
    if error.validator == "required":
        missing = [(*at, name) for name in error.validator_value if name not in error.instance]
        if all(steps in _STAND_INS for steps in missing):
            yield from missing
            return
    while at and isinstance(at[-1], int):
        at = at[:-1]
    yield at


def _leave_out(document: dict[str, t.Any], steps: _Steps) -> bool:
    """False when nothing would be left, or it is gone already with something around it."""
    if not steps or steps == ("spec",):
        return False
    here: t.Any = document
    for step in steps[:-1]:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            return True
    if not isinstance(here, dict):
        return True
    here.pop(steps[-1], None)
    if steps in _STAND_INS:
        here[t.cast(str, steps[-1])] = copy.deepcopy(_STAND_INS[steps])
    return True


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))
