# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same question to several clouds at once. A cloud that fails is named; the answers of the others stand."""

from __future__ import annotations

import typing as t
from concurrent.futures import ThreadPoolExecutor

from ..core import errors
from ..core.task import Task
from .base import Cloud
from .registry import ENTRIES, canonical_cloud, connect

_T = t.TypeVar("_T")
_R = t.TypeVar("_R")


class Survey(t.NamedTuple):
    """``found`` of all clouds that answered, and ``unanswered`` as {cloud, msg, kind} for each that did not
    (``failed`` is Ansible's own word for a task that failed as a whole)."""

    found: list[t.Any]
    unanswered: list[dict[str, str]]


def survey(task: Task, names: t.Sequence[str], ask: t.Callable[[Cloud], t.Sequence[_T]]) -> Survey:
    """Ask the clouds ``names`` (empty: all that are configured). When none can answer, the first failure is raised."""

    def ask_cloud(name: str) -> list[_T]:
        cloud = connect(name, task)
        try:
            return list(ask(cloud))
        finally:
            cloud.close()

    answers = each(chosen(task, names), ask_cloud)
    failed = failures(task, answers)
    items = [item for answer in answers.values() if not isinstance(answer, errors.TgpError) for item in answer]
    return Survey(items, failed)


def chosen(task: Task, names: t.Sequence[str]) -> list[str]:
    """The clouds ``names`` by their canonical names (empty: all that are configured). InvalidInput when that is none."""
    clouds = list(dict.fromkeys(canonical_cloud(name) or name for name in names)) or configured(task)
    if not clouds:
        raise errors.InvalidInput(
            "No cloud is configured.",
            remedy=f"Give {task.called('clouds')} ({', '.join(ENTRIES)}), or a key or machines by option or environment.",
        )
    return clouds


def each(names: t.Sequence[str], ask: t.Callable[[str], _R]) -> dict[str, _R | errors.TgpError]:
    """``ask(name)`` for all names side by side; a failure stands in the place of the answer."""

    def answer_of(name: str) -> _R | errors.TgpError:
        try:
            return ask(name)
        except errors.TgpError as error:
            return error

    with ThreadPoolExecutor(max_workers=max(len(names), 1), thread_name_prefix="survey") as pool:
        return dict(zip(names, pool.map(answer_of, names), strict=True))


def failures(task: Task, answers: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """The clouds that did not answer, each a warning; when none did, the first failure is raised."""
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, errors.TgpError)}
    if failed and len(failed) == len(answers):
        raise next(iter(failed.values()))
    for error in failed.values():
        task.warn(str(error))
    return [{"cloud": name, "msg": str(error), "kind": error.kind} for name, error in failed.items()]


def configured(task: Task) -> list[str]:
    """Clouds for which something was given, by option or environment."""
    return [name for name, entry in ENTRIES.items() if entry.is_configured(task)]
