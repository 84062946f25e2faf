# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast's official Python package in a virtual environment of its own, made once and kept in the repository's cache folder."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PACKAGE = "vastai==1.9.1"
CACHE = pathlib.Path(__file__).resolve().parents[3] / ".cache" / "witness"
_INSTALL_SECONDS = 600
_tried: dict[str, str] = {}


def folder() -> pathlib.Path:
    """The environment's ``bin``. Where the package index cannot be reached the test is skipped; in CI that is a failure."""
    CACHE.mkdir(parents=True, exist_ok=True)
    home = CACHE / f"{PACKAGE.replace('==', '-')}-py{sys.version_info.major}{sys.version_info.minor}"
    done = home / "complete"
    with (CACHE / f"{home.name}.lock").open("w") as lock:  # test processes beside this one wait for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            problem = _tried.get(PACKAGE, "")  # once is enough for all tests of this process
            if not problem:
                shutil.rmtree(home, ignore_errors=True)
                problem = _tried[PACKAGE] = _install(home)
            if problem and os.environ.get("CI"):
                pytest.fail(problem, pytrace=False)
            if problem:
                pytest.skip(problem)
            done.touch()
    return home / "bin"


def _install(home: pathlib.Path) -> str:
    """What went wrong, in one line."""
    make = [sys.executable, "-m", "venv", str(home)]
    fill = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--retries", "1", PACKAGE]
    for command in (make, fill):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{PACKAGE} could not be installed: {error}"
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            return f"{PACKAGE} could not be installed: {said[-1]}"
    return ""
