# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of this collection, imported with Python's bytecode cache.

Ansible's import hook for collections compiles each file again in each process, which takes more time than all the rest of our imports.
Python's own loader keeps the bytecode in ``__pycache__`` beside the files. Ansible uses that loader for plugins, but not for what they
import.
"""

from __future__ import annotations

import functools
import sys
import typing as t
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader

_PLUGINS = __name__.partition(".module_utils.")[0] + "."


class _Cached:
    """A finder for ``sys.meta_path``. What it does not find is left to Ansible's."""

    @staticmethod
    def find_spec(name: str, path: t.Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        if not name.startswith(_PLUGINS):
            return None
        for folder in path or ():
            spec = _finder(folder).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


@functools.cache
def _finder(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def use_bytecode_cache() -> None:
    """For all imports from here on. Plugins call it before they import most of what they need. Nothing is done where Ansible's finder, the
    only one that it stands in for, is not in use."""
    for place, finder in enumerate(sys.meta_path):
        if finder is _Cached:
            return
        if type(finder).__name__ == "_AnsibleCollectionFinder":
            sys.meta_path.insert(place, _Cached)
            return
