# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile

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
