# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sandboxes for the end-to-end tests: one for each file that shares one, or one of a test's own."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from .box import NOTHING, Sandbox

Start = t.Callable[..., Sandbox]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Start]:
    """Starts a sandbox that lives until the file's tests are over: ``start(speed=..., scenario=..., seed=...)``. A wrong answer of an emulator
    is an error at the end of the file."""
    with contextlib.ExitStack() as started:

        def begin(**options: t.Any) -> Sandbox:
            sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"), **options)
            started.callback(sandbox.close)
            return sandbox

        yield begin


@pytest.fixture(scope="module")
def shared(start: Start) -> Sandbox:
    """The file's common sandbox. A test that uses it leaves nothing behind, or says so."""
    return start()


@pytest.fixture
def sandbox(shared: Sandbox) -> t.Iterator[Sandbox]:
    """The common sandbox, with faults cleared afterwards."""
    yield shared
    shared.clear_faults()


@pytest.fixture
def clean(sandbox: Sandbox) -> t.Iterator[Sandbox]:
    """The common sandbox; whatever a test leaves is given back by destroy.yml."""
    yield sandbox
    sandbox.clear_faults()
    if sandbox.claims():
        sandbox.playbook("destroy", extra_vars={"everything": True, "force": True})
    assert sandbox.left() == NOTHING
