# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's file of release tables (option ``release_tables``): read, checked, and laid over the built-in rows (B-19)."""

from __future__ import annotations

import re
import typing as t
from datetime import date

from ..core.errors import InvalidInput, lazy
from ..core.task import Task
from ..documents.faults import line_of, schema_faults
from ..talos.releases.tables import BUILT_IN, TRACKS, Minor, ReleaseTables, TableOrigin, TalosRelease, use

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

Row = t.Mapping[str, t.Any]
_MINOR: dict[str, t.Any] = {
    "type": "string",
    "pattern": r"^1\.\d+$",
    "description": 'a minor release in quotes, like "1.16"',
}
_PATCH = {"type": "string", "pattern": r"^1\.\d+\.\d+(-[a-z]+\.\d+)?$", "description": 'a release in quotes, like "1.16.0"'}
_BRANCH = {"type": "integer", "minimum": 1, "description": "the branch of the driver, like 595"}
SCHEMA: dict[str, t.Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["asOf", "source", "talosReleases"],
    "properties": {
        "asOf": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$", "description": "a day like 2026-12-20"},
        "source": {"type": "string", "minLength": 1},
        "talosReleases": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["release", "seen"],
                "properties": {
                    "release": _MINOR,
                    "seen": _PATCH,
                    "kubernetes": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["oldest", "newest"],
                        "properties": {"oldest": _MINOR, "newest": _MINOR},
                    },
                    "drivers": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {track: _BRANCH for track in TRACKS},
                    },
                },
            },
        },
    },
}


def use_release_tables(task: Task) -> None:
    """Let the rows of the task's file count beside the built-in ones; without a file, the built-in ones alone.

    InvalidInput lists every fault of the file with its line and field.
    """
    path = task.params.get("release_tables")
    use(extended(BUILT_IN, _text(path), path) if path else BUILT_IN)


def extended(built_in: ReleaseTables, text: str, path: str) -> ReleaseTables:
    """The tables with the rows of a file's ``text``. ``path`` names it in faults and in what is shown of its rows."""
    content = _content(text, path)
    faults = schema_faults(SCHEMA, content)
    if not faults:
        faults = [
            *_day(content),
            *(fault for place, row in enumerate(content["talosReleases"]) for fault in _row_faults(built_in, place, row)),
        ]
    if faults:
        problems = [f"{path}:{line_of(text, 1, fault.partition(': ')[0]) or 1}: {fault}" for fault in faults]
        raise InvalidInput(
            "The release tables cannot be used; nothing was done.",
            problems=problems,
            remedy="docs/reference/releases.md describes the file.",
        )
    origin = TableOrigin(path, date.fromisoformat(content["asOf"]), content["source"])
    rows = dict(_row(built_in, row, origin) for row in content["talosReleases"])
    return built_in.extended(rows, origin)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"release_tables: {path} cannot be read: {error}.", remedy="Give the path of a YAML file.") from error


def _content(text: str, path: str) -> dict[str, t.Any]:
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"release_tables: {path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise InvalidInput(f"release_tables: {path} is not a mapping with asOf, source and talosReleases.")
    if isinstance(content.get("asOf"), date):  # YAML reads a day without quotes as a date
        content["asOf"] = content["asOf"].isoformat()[:10]
    return content


def _day(content: Row) -> t.Iterator[str]:
    try:
        date.fromisoformat(content["asOf"])
    except ValueError:
        yield f"asOf: {content['asOf']!r} is not a day. Write it like 2026-12-20."


def _row_faults(built_in: ReleaseTables, place: int, row: Row) -> t.Iterator[str]:
    """What a schema cannot say of a row."""
    where, release = f"talosReleases[{place}]", _minor(row["release"])
    if _minor(row["seen"]) != release:
        yield f"{where}.seen: {row['seen']} is not a release of Talos {row['release']}."
    if release not in built_in.releases:
        for field in ("kubernetes", "drivers"):
            if not row.get(field):
                yield f"{where}.{field}: Talos {row['release']} has no built-in row, so this field is needed."
    bounds = row.get("kubernetes")
    if bounds and _minor(bounds["oldest"]) > _minor(bounds["newest"]):
        yield f"{where}.kubernetes.oldest: {bounds['oldest']} is newer than {bounds['newest']}, the newest."


def _row(built_in: ReleaseTables, row: Row, origin: TableOrigin) -> tuple[Minor, TalosRelease]:
    """A row of the file; what it does not say is that of the built-in row."""
    release = _minor(row["release"])
    bounds = row.get("kubernetes")
    kubernetes = (_minor(bounds["oldest"])[1], _minor(bounds["newest"])[1]) if bounds else built_in.releases[release].kubernetes
    drivers = {**built_in.drivers(release), **(row.get("drivers") or {})}
    return release, TalosRelease(kubernetes, drivers, row["seen"], origin)


def _minor(text: str) -> Minor:
    """Of a text that the schema has let through."""
    match = re.match(r"1\.(\d+)", text)
    return (1, int(match[1])) if match else (0, 0)
