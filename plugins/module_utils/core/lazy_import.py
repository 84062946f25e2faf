# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Third-party libraries, imported when first used.

A module must be importable without them (documentation tools and sanity checks do that), a missing one must be named with
its remedy, and an unused one must not cost start-up time. Usage: ``httpx = lazy("httpx")``.
"""

from __future__ import annotations

import importlib
import typing as t

from .errors import MissingLibrary


class _Lazy:
    def __init__(self, name: str, package: str) -> None:
        self._name = name
        self._package = package

    def __getattr__(self, attribute: str) -> t.Any:
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            raise MissingLibrary(
                f"The Python library {self._package} is needed and could not be imported: {error}.",
                remedy=f"Install it into the interpreter that runs the module: pip install {self._package}.",
                library=self._package,
            ) from error
        return getattr(module, attribute)


def lazy(name: str, package: str = "") -> t.Any:
    """A stand-in for the module ``name`` that imports it at the first use. ``package`` is its name on the package index."""
    return _Lazy(name, package or name.partition(".")[0])


def is_there(package: str) -> bool:
    """Whether an optional library can be imported."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True
