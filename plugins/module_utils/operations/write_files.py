# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes files into a user's folder. What is there with another content is replaced only by force."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ..core import files
from ..core.errors import InvalidInput
from ..core.task import Task


class NewFile(t.NamedTuple):
    """A file's whole content, and whether it is a program."""

    data: bytes
    executable: bool = False


def write_files(task: Task, places: t.Mapping[Path, NewFile]) -> dict[str, t.Any]:
    """The part of a result that says what changed: ``changed``, and ``diff`` if it was asked for. Files that are there with the same content
    stay. One with another content is the user's own: InvalidInput unless the option ``force`` is set."""
    before = {place: _read(place) for place in places}
    missing = [place for place, content in before.items() if content is None]
    different = [place for place, content in before.items() if content not in (None, places[place].data)]
    if different and not task.params["force"]:
        raise InvalidInput(
            f"{', '.join(map(str, different))}: the file exists with another content.",
            remedy=f"Choose another folder, or replace the file with {task.called('force')}=true.",
        )
    for place in (*missing, *different):
        if not task.check_mode:
            _folder(place.parent)
            files.replace(str(place), places[place].data, 0o755 if places[place].executable else 0o644)
        task.progress(f"  {'would write' if task.check_mode else 'written'} {place}")
    for place, content in before.items():
        if content == places[place].data:
            task.progress(f"  unchanged {place}")
    result: dict[str, t.Any] = {"changed": bool(missing or different)}
    if task.diff_mode:
        result["diff"] = [
            {
                "before_header": str(place),
                "after_header": str(place),
                "before": (before[place] or b"").decode("utf-8", "replace"),
                "after": places[place].data.decode("utf-8"),
            }
            for place in (*missing, *different)
        ]
    return result


def _folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be made: {error.strerror}.", remedy="Choose another folder.") from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.", remedy="Choose another folder.") from error
