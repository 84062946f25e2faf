# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator, in process."""

from __future__ import annotations

import itertools
import typing as t

import httpx
import pytest

from sandbox.kube import KubeApi

_numbers = itertools.count(1)


@pytest.fixture
def api() -> t.Iterator[KubeApi]:
    api = KubeApi(seed=1).start()
    yield api
    api.stop()


@pytest.fixture
def kube(api: KubeApi) -> t.Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {api.admin_token}"}
    with httpx.Client(transport=httpx.WSGITransport(app=api.app), base_url="https://kube.test", headers=headers) as client:
        yield client


@pytest.fixture
def space(kube: httpx.Client) -> str:
    """A namespace of one's own."""
    name = f"probe{next(_numbers)}"
    assert kube.post("/api/v1/namespaces", json={"metadata": {"name": name}}).status_code == 201
    return name
