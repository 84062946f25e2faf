# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module talos_boot_media as Ansible calls it, against the sandbox's Image Factory."""

from __future__ import annotations

import json
import pathlib
import typing as t

import httpx
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.talos.images.schematic import canonical_text, schematic_id
from ansible_collections.tgp.gpu.plugins.modules import talos_boot_media

from sandbox import image_factory
from sandbox.clock import SimClock
from sandbox.world import World
from tests.fixtures.talos_nodes import BUNDLE, NODE_KEY, NODE_TOKEN

BootMedia = t.Callable[..., dict[str, t.Any]]
SCHEMATIC = {"customization": {"extraKernelArgs": ["net.ifnames=0"]}}
SECRETS = (NODE_KEY, NODE_TOKEN, BUNDLE["trustdinfo"]["token"], BUNDLE["cluster"]["secret"], "/once/")


@pytest.fixture(scope="module")
def factory() -> httpx.Client:
    """A factory that knows one schematic, with an argument of its own."""
    transport = httpx.WSGITransport(app=image_factory.app(World(SimClock(speed=2000.0))))
    client = httpx.Client(transport=transport, base_url="https://factory.test")
    client.post("/schematics", content=canonical_text(SCHEMATIC)).raise_for_status()
    return client


@pytest.fixture
def schematic() -> str:
    """The id of that schematic."""
    return schematic_id(SCHEMATIC)


@pytest.fixture
def boot_media(factory: httpx.Client, schematic: str, tmp_path: pathlib.Path) -> BootMedia:
    """One call; files go to the folder boot below ``tmp_path``. Secrets and addresses below /once/ must not be in the result."""

    def called(*, check: bool = False, diff: bool = False, warnings: list[str] | None = None, **params: t.Any) -> dict[str, t.Any]:
        spec = {key: value for key, value in talos_boot_media.SPEC.items() if key != "supports_check_mode"}
        given = {"schematic_id": schematic, "dest": str(tmp_path / "boot"), "image_factory_url": "https://factory.test", **params}
        read = ArgumentSpecValidator(**spec).validate(given)
        assert not read.error_messages, read.error_messages
        task = Task(
            params=read.validated_parameters,
            check_mode=check,
            diff_mode=diff,
            warn=(warnings if warnings is not None else []).append,
            transport=lambda _url: factory._transport,
        )
        result = execute(talos_boot_media.SPEC, talos_boot_media.run, task)
        assert not any(secret in json.dumps(result) for secret in SECRETS)
        return result

    return called
