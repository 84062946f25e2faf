# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of any form are answered with a sentence."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.observe.documents import load


@pytest.mark.parametrize("spec", ["text", ["text"], 5, {"providers": 5}, {"providers": "webhook"}, {"providers": [5]}])
def test_a_spec_of_another_form_is_told(spec: t.Any) -> None:
    wrong = {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClass", "metadata": {"name": "c"}, "spec": spec}
    task: t.Any = types.SimpleNamespace(params={"documents": [wrong]}, warn=lambda _text: None)
    with pytest.raises(InvalidInput) as told:
        load(task, None)
    assert "inline document: spec" in str(told.value)
