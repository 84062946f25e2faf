# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E402
from __future__ import annotations

DOCUMENTATION = r"""
module: dummy_instance
short_description: Rent or give back one machine of a cloud that does not exist
description:
  - One machine of one name.
options:
  name: {description: Its name., type: str, required: true}
  state: {description: Whether it shall be there., type: str, choices: [present, absent], default: present}
  kind: {description: The cloud's word for the kind of machine., type: str}
  wait: {description: Wait until it runs., type: bool, default: true}
  dummy_api_url: {description: Where its API is., type: str}
  dummy_api_key: {description: The key., type: str}
author:
  - The tgp.gpu contributors (@tgp-gpu)
"""

EXAMPLES = r"""
- name: Rent one
  tgp.gpu.dummy_instance: {name: tgp-demo, kind: small}
"""

RETURN = r"""
instance: {description: The machine., returned: always, type: dict}
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.model import LaunchRequest, Offer
from ..module_utils.providers.dummy.cloud import ENTRY
from ..module_utils.providers.ensure_instance import NamedInstance
from ..module_utils.providers.registry import connect

SPEC = dict(
    argument_spec=dict(
        name=dict(type="str", required=True),
        state=dict(type="str", choices=["present", "absent"], default="present"),
        kind=dict(type="str"),
        wait=dict(type="bool", default=True),
        **ENTRY.spec,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    params = task.params
    cloud = connect("dummy", task)
    try:
        named = NamedInstance(task, cloud, params["name"], 900.0 if params["wait"] else None)
        if params["state"] == "absent":
            return named.absent(unmarked=False)
        return named.present(lambda: [_request(task, cloud.offers())], lambda _found: "")
    finally:
        cloud.close()


def _request(task: Task, offers: list[Offer]) -> LaunchRequest:
    for offer in offers:
        if offer.instance_type == task.params["kind"] and offer.available:
            return LaunchRequest(name=task.params["name"], offer=offer, marks={"by": "hand"})
    raise InvalidInput(f"There is no {task.params['kind']!r} now.")


if __name__ == "__main__":
    main(SPEC, run)
