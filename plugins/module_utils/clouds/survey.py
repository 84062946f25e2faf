# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same question to several clouds at once. A cloud that fails is named; the answers of the others stand."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from .. import errors
from ..task import Task
from .base import Cloud
from .registry import ENTRIES, canonical_cloud, connect

_T = t.TypeVar("_T")


class Survey(t.NamedTuple):
    """``found`` of all clouds that answered, and ``failed`` as {cloud, msg, kind} for each that did not."""

    found: list[t.Any]
    failed: list[dict[str, str]]


def survey(task: Task, names: t.Sequence[str], ask: t.Callable[[Cloud], t.Sequence[_T]]) -> Survey:
    """Ask the clouds ``names`` (empty: all that are configured). When none can answer, the first failure is raised."""
    clouds = list(dict.fromkeys(canonical_cloud(name) or name for name in names)) or configured(task)
    if not clouds:
        raise errors.InvalidInput(
            "No cloud is configured.", remedy=f"Give clouds ({', '.join(ENTRIES)}), or a key or machines by option or environment."
        )

    def one(name: str) -> list[_T] | errors.TgpError:
        try:
            cloud = connect(name, task)
            try:
                return list(ask(cloud))
            finally:
                cloud.close()
        except errors.TgpError as error:
            return error

    with ThreadPoolExecutor(max_workers=len(clouds), thread_name_prefix="survey") as pool:
        answers = list(pool.map(one, clouds))
    failures = [(name, answer) for name, answer in zip(clouds, answers, strict=True) if isinstance(answer, errors.TgpError)]
    if len(failures) == len(clouds):
        raise failures[0][1]
    for _name, error in failures:
        task.warn(str(error))
    found = [item for answer in answers if not isinstance(answer, errors.TgpError) for item in answer]
    return Survey(found, [{"cloud": name, "msg": str(error), "kind": error.kind} for name, error in failures])


def configured(task: Task) -> list[str]:
    """Clouds for which something was given, by option or environment."""
    return [name for name, entry in ENTRIES.items() if entry.is_configured(task)]
