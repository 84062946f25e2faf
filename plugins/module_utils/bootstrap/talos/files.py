# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files for their owner alone, written whole or not at all, and what of them may be shown."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import typing as t

from ...core.errors import InvalidInput


@dataclasses.dataclass(frozen=True, slots=True)
class Private:
    """A file to be, or not to be (``content`` None). ``secret``: its content is never shown, not even as a difference. ``same`` decides
    whether what lies there is as good, where equal bytes would ask too much."""

    path: str
    content: bytes | None = dataclasses.field(repr=False)
    secret: bool = True
    same: t.Callable[[bytes], bool] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """``changed``: it was, or would be, written or taken away. ``diff`` as Ansible takes it, without secrets; empty when nothing changes."""

    path: str
    bytes: int
    sha256: str
    changed: bool
    diff: t.Mapping[str, str]


def write(files: t.Sequence[Private], check_mode: bool) -> list[Written]:
    """Put the files there with mode 0600, in folders of mode 0700 where there are none. InvalidInput when that fails."""
    return [_one(file, check_mode) for file in files]


def _one(file: Private, check_mode: bool) -> Written:
    before, private = _present(file.path)
    content = file.content
    if before is not None and content is not None and file.same is not None and file.same(before):
        content = before
    changed = content != before or not private and before is not None
    if changed and not check_mode:
        _put(file.path, content)
    diff = {}
    if changed:
        texts = {"before": _shown(file, before), "after": _shown(file, content)}
        diff = {"before_header": file.path, "after_header": f"{file.path} (0600)", **texts}
    told = content or b""
    return Written(file.path, len(told), hashlib.sha256(told).hexdigest(), changed, diff)


def _present(path: str) -> tuple[bytes | None, bool]:
    """What lies there, and whether its owner alone may read it."""
    try:
        with open(path, "rb") as file:
            return file.read(), not os.fstat(file.fileno()).st_mode & 0o077
    except FileNotFoundError:
        return None, False
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _put(path: str, content: bytes | None) -> None:
    temporary = f"{path}.{os.getpid()}.new"
    try:
        if content is None:
            os.unlink(path)
            return
        _folder(os.path.dirname(path))
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def _folder(path: str) -> None:
    """The folder and all above it; the mode that os.makedirs takes counts for the last one only."""
    if path and not os.path.isdir(path):
        _folder(os.path.dirname(path))
        os.mkdir(path, 0o700)


def _shown(file: Private, content: bytes | None) -> str:
    if content is None:
        return ""
    if file.secret:
        return f"a secret of {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}\n"
    return content.decode("utf-8", "replace")
