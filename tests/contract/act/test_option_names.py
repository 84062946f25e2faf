# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A message calls an option what its reader typed: the variable of the playbook, or the option of the module."""

from __future__ import annotations

import importlib
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.core.variables import called

from tests.repository.tree import ROOT

from .rig import MODULES, RENTED, Rig, option_of

UUID = "00000000-0000-4000-8000-000000000000"
NO_CLOUD = {"webhook_url": None, **{option_of(cloud): None for cloud in RENTED}}
# playbook, module, options, what the message says; each ~option~ is the name of an option
CASES: list[tuple[str, str, dict[str, t.Any], list[str]]] = [
    ("prices", "offer_info", {"max_price": "cheap"}, ['~max_price~: "cheap" is not an amount.']),
    ("prices", "offer_info", {"max_price": "-1"}, ['~max_price~: "-1" is not a possible amount.']),
    ("prices", "offer_info", {"min_gpu_memory": "lots"}, ["~min_gpu_memory~: 'lots' is not an amount of memory."]),
    ("prices", "offer_info", {"documents": ["x.yml"]}, ["~documents~ are given and no ~pool~."]),
    ("prices", "offer_info", NO_CLOUD, ["Give ~clouds~ (gcp, lambda,"]),
    ("prices", "offer_info", {"pool": "training", "clouds": ["vast"]}, ["Leave it out of ~clouds~, or"]),
    ("prices", "offer_info", {"clouds": ["lambda"], "purchase_price": "1,5"}, ['~purchase_price~: "1,5" is not an amount.']),
    (
        "prices",
        "offer_info",
        {"clouds": ["lambda"], "purchase_price": "1", "power_price": "x"},
        ['~power_price~: "x" is not an amount.'],
    ),
    ("report", "fleet_report", {"format": "html"}, ["Give ~path~, for example report.html."]),
    ("report", "fleet_report", {"since": "2026-02-02", "until": "2026-01-01"}, ["~since~ 2026-02-02 is not before ~until~ 2026-01-01."]),
    ("report", "fleet_report", {"since": "soon"}, ["~since~: "]),
    ("report", "fleet_report", {"time_zone": "Mars"}, ["~time_zone~: 'Mars' is not a time zone."]),
    ("report", "fleet_report", {"purchase_price": "x"}, ['~purchase_price~: "x" is not an amount.']),
    ("status", "fleet_info", {"purchase_price": "x"}, ['~purchase_price~: "x" is not an amount.']),
    ("status", "fleet_info", {"time_zone": "Mars"}, ["~time_zone~: 'Mars' is not a time zone."]),
    ("archive", "fleet_archive", {"older_than_days": 3}, ["~older_than_days~ is 3;"]),
    ("archive", "fleet_archive", {"path": "/proc/no/file", "older_than_days": 400}, ["Correct ~path~."]),
    ("adopt", "fleet_adopt", {"generation": "x"}, ["~generation~ must be a UUID in lower case, got 'x'."]),
    ("adopt", "fleet_adopt", {"generation": UUID}, ["Run without ~generation~: all are listed."]),
    ("pause", "fleet_pause", {"pools": ["x"]}, ["~pools~: there is no pool x."]),
    ("pause", "fleet_pause", {"classes": ["x"]}, ["~classes~: there is no class x."]),
    ("pause", "fleet_pause", {"state": "resumed", "reason": "x"}, ["Leave ~reason~ out to resume."]),
    ("autoscale", "fleet_loop", {"interval": 0}, ["~interval~ is 0."]),
    ("autoscale", "fleet_loop", {"full_interval": 0}, ["~full_interval~ is 0."]),
    ("autoscale", "fleet_loop", {"documents": [], "ticks": 1}, ["Give ~documents~ (a file or folder"]),
    ("provision", "fleet_plan", {"mode": "provision", "nodes": "many"}, ["~nodes~ for "]),
    ("plan", "fleet_plan", {"mode": "autoscale", "pools": ["training"]}, ["~pools~ cannot be used in mode autoscale.", "~pools~ is for"]),
    ("destroy", "fleet_plan", {"mode": "destroy"}, ["Set ~names~, ~pools~, or ~all~: true."]),
]  # fmt: skip


def words_of(playbook: str) -> list[str]:
    (play,) = yaml.safe_load((ROOT / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
    return t.cast("list[str]", play["vars"]["tgp_variables"])


@pytest.mark.parametrize("in_playbook", [True, False], ids=["playbook", "module"])
@pytest.mark.parametrize(("playbook", "module", "params", "says"), CASES)
def test_a_message_names_options_as_they_were_typed(
    rig: Rig, playbook: str, module: str, params: dict[str, t.Any], says: list[str], in_playbook: bool
) -> None:
    names = called(importlib.import_module(f"{MODULES}.{module}").SPEC["argument_spec"], words_of(playbook) if in_playbook else ())

    def run(code: t.Any, task: Task) -> dict[str, t.Any]:
        task.variables = names
        return t.cast("dict[str, t.Any]", code.run(task))

    rig.call = run
    if module == "offer_info":
        params = {"documents": rig.documents if params.get("pool") else [], "cache": "none", "history": "none", **params}
    try:
        message = str(rig.run(module.removeprefix("fleet_"), **params)["msg"])
    except InvalidInput as error:
        message = str(error)
    for sentence in says:
        pieces = sentence.split("~")
        expected = "".join(names.get(one, one) if number % 2 else one for number, one in enumerate(pieces))
        assert expected in message, message
        assert ("tgp_" in expected) == in_playbook
