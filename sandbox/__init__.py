# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world in a box: clouds, a tailnet and a Kubernetes cluster on loopback, for demonstrations and tests."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path


def _find_collection() -> None:
    """Make the code of the installed collection importable, which ``ansible-galaxy collection install`` leaves to Ansible's own loader."""
    collections = Path(__file__).resolve().parent.parent.parent.parent
    if collections.name != "ansible_collections":  # a checkout; the Makefile links it
        return
    try:
        found = importlib.util.find_spec("ansible_collections.tgp.gpu")
    except ModuleNotFoundError:
        found = None
    if found is None:
        sys.path.append(str(collections.parent))
        importlib.invalidate_caches()
        package = importlib.import_module("ansible_collections")
        if str(collections) not in package.__path__:  # PyPI's package "ansible" has collections of its own
            package.__path__.append(str(collections))


_find_collection()
