# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets plays begin with modules that are compiled already.

Ansible's importer compiles the text of every module of a collection anew in each play: for ours a fifth of a second. Python's own importer
keeps the result in ``__pycache__`` and looks at the text's time and size. So ours are left to that one. Where nothing can or shall be
written (a read-only image, PYTHONDONTWRITEBYTECODE) it compiles them as before; PYTHONPYCACHEPREFIX names another place.
"""

from __future__ import annotations

import contextlib
import sys
import typing as t
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader

_PLUGINS = __name__.rpartition("module_utils.")[0]
_OURS = (f"{_PLUGINS}module_utils.", f"{_PLUGINS}modules.")


class KeptFinder:
    """Finds modules of this collection for Python's own importer; of anything else it knows nothing."""

    def __init__(self) -> None:
        self._folders: dict[str, FileFinder] = {}

    def find_spec(self, name: str, path: t.Sequence[str] | None = None, _target: t.Any = None) -> ModuleSpec | None:
        """As importlib asks for it. A folder without an ``__init__.py`` is left to Ansible."""
        if not name.startswith(_OURS):
            return None
        for folder in path or ():
            if folder not in self._folders:
                self._folders[folder] = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = self._folders[folder].find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def keep() -> None:
    """From now on, for this process and its forks. Modules that were imported before stay as they are."""
    if not any(isinstance(one, KeptFinder) for one in sys.meta_path):
        sys.meta_path.insert(0, KeptFinder())


@contextlib.contextmanager
def kept() -> t.Iterator[None]:
    """For a while: a plugin that is only being loaded leaves the process's ways of importing as it found them."""
    before = list(sys.meta_path)
    keep()
    try:
        yield
    finally:
        sys.meta_path[:] = before
