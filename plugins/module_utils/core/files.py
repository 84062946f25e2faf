# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomic file writes, what can be read of a file, and CSV."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import typing as t

from .errors import InvalidInput


def replace(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write ``data`` beside ``path`` and rename it into place; the folder (0700) is made when it is missing. InvalidInput naming the
    path when that is not possible."""
    folder = os.path.dirname(os.path.abspath(path))
    temporary = ""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.", remedy="Name another path or folder.") from error


def readable_text(path: str) -> str:
    """What can be read of a file, with a replacement character for what is not UTF-8; empty when it cannot be opened."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def csv_text(header: t.Sequence[str], rows: t.Iterable[t.Sequence[t.Any]]) -> str:
    """The rows below their header as CSV; each line ends with a line feed alone, so that line tools read it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


# ---- where files of this user lie


def state_folder(params: t.Mapping[str, t.Any]) -> str:
    """The folder for files of this user: option ``state_dir``, ``TGP_STATE_DIR``, else ~/.local/state/tgp (XDG_STATE_HOME counts)."""
    chosen = params.get("state_dir") or os.environ.get("TGP_STATE_DIR")
    base = os.environ.get("XDG_STATE_HOME") or os.path.join("~", ".local", "state")
    return os.path.abspath(os.path.expanduser(chosen or os.path.join(base, "tgp")))


def events_path(params: t.Mapping[str, t.Any]) -> str:
    """The event log: option ``events_file``, ``TGP_EVENTS_FILE``, else ``events.jsonl`` in the state folder; empty for ``none``."""
    chosen = str(params.get("events_file") or os.environ.get("TGP_EVENTS_FILE") or "")
    if chosen.lower() == "none":
        return ""
    return os.path.abspath(os.path.expanduser(chosen)) if chosen else os.path.join(state_folder(params), "events.jsonl")


def rbac_file() -> str:
    """The manifest that grants what the playbooks need, as it can be given to kubectl on this machine."""
    path = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", "files", "rbac.yml"))
    return path if os.path.isfile(path) else "files/rbac.yml (of the collection tgp.gpu)"  # a module that was sent alone has none
