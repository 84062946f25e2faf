#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: offer_info
short_description: What the clouds would rent now, and for how much
description:
  - Asks the clouds side by side and returns their offers, cheapest first.
  - A cloud that fails is a warning and an entry in RV(failed), the offers of the others stand. When none answers, the module fails.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  clouds:
    description: Clouds to ask, by any of their names. Default is all for which a key or machines are given.
    type: list
    elements: str
    default: []
  gpu_type:
    description: Only these models, by any of their names. V(A100) means every form of it, V(A100 80GB) also its memory.
    type: list
    elements: str
    default: []
  gpu_count:
    description: Only machines with exactly so many GPUs.
    type: int
  region:
    description: Only these regions, standard ones (V(us-west)) or a cloud's own (V(us-west-1)).
    type: list
    elements: str
    default: []
  max_price:
    description: Only what costs at most so many dollars per hour, as text.
    type: str
  spot:
    description: Only interruptible machines, or only others. Default is both.
    type: bool
  sold_out:
    description: Also list what nobody can rent just now.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.clouds
  - tgp.gpu.attributes.info
seealso:
  - module: tgp.gpu.lambda_instance
"""

EXAMPLES = r"""
- name: The three cheapest A100 machines in America's west
  tgp.gpu.offer_info:
    clouds: [lambda]
    gpu_type: [A100]
    region: [us-west]
  register: market

- name: Print them
  ansible.builtin.debug:
    msg: "{{ item.price_hour }} $/h {{ item.instance_type }} {{ item.cloud_region }}"
  loop: "{{ market.offers[:3] }}"
  loop_control:
    label: "{{ item.id }}"
"""

RETURN = r"""
offers:
  description: What fits, cheapest first.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its cloud., type: str, returned: always, sample: lambda}
    id: {description: Names the offer within its cloud., type: str, returned: always, sample: gpu_1x_a10@us-east-1}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: gpu_1x_a10}
    model: {description: GPU model; empty without GPU., type: str, returned: always, sample: A10}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    gpu_memory_mib: {description: Memory per GPU., type: int, returned: always, sample: 24576}
    price_hour: {description: Dollars per hour for the whole machine., type: str, returned: always, sample: "1.29"}
    region: {description: Standard region., type: str, returned: always, sample: us-east}
    cloud_region: {description: The cloud's region; empty when sold out., type: str, returned: always, sample: us-east-1}
    available: {description: "How many; 0 is sold out, none is not counted.", type: int, returned: always, sample: 0}
    spot: {description: Whether it can be taken back., type: bool, returned: always, sample: false}
    vcpus: {description: Processors., type: int, returned: always, sample: 30}
    memory_mib: {description: Memory of the machine., type: int, returned: always, sample: 204800}
    disk_gib: {description: Local disk., type: int, returned: always, sample: 1400}
    arch: {description: amd64 or arm64., type: str, returned: always, sample: amd64}
    lanes: {description: What it can become., type: list, elements: str, returned: always, sample: [kubelet]}
failed:
  description: Clouds that did not answer.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its name., type: str, returned: always, sample: lambda}
    msg: {description: What happened., type: str, returned: always, sample: "lambda: no API key is given."}
    kind: {description: Kind of failure., type: str, returned: always, sample: auth}
"""

from collections.abc import Callable

from ..module_utils.clouds.registry import CLOUDS_SPEC
from ..module_utils.clouds.results import offer_result
from ..module_utils.clouds.survey import survey
from ..module_utils.errors import InvalidInput
from ..module_utils.fleet import gpus
from ..module_utils.fleet.model import Offer
from ..module_utils.fleet.money import parse_money
from ..module_utils.fleet.regions import region_matches
from ..module_utils.task import Task, main

SPEC = dict(
    argument_spec=dict(
        clouds=dict(type="list", elements="str", default=[]),
        gpu_type=dict(type="list", elements="str", default=[]),
        gpu_count=dict(type="int"),
        region=dict(type="list", elements="str", default=[]),
        max_price=dict(type="str"),
        spot=dict(type="bool"),
        sold_out=dict(type="bool", default=False),
        **CLOUDS_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    for text in task.params["gpu_type"]:
        if gpus.canonical(text) is None:
            near = gpus.suggestions(text)
            raise InvalidInput(f"{text!r} is no GPU we know.", remedy=f"Did you mean {' or '.join(near)}?" if near else "")
    fits = _filter(task)
    answers = survey(task, task.params["clouds"], lambda cloud: [offer for offer in cloud.offers() if fits(offer)])
    offers = sorted(answers.found, key=lambda one: (one.price_hour is None, one.price_hour or 0, one.cloud, one.id))
    return dict(changed=False, offers=[offer_result(offer) for offer in offers], failed=answers.failed)


def _filter(task: Task) -> Callable[[Offer], bool]:
    """A function that says whether an offer is asked for."""
    params = task.params
    limit = parse_money(params["max_price"]) if params["max_price"] else None

    def fits(offer: Offer) -> bool:
        models, regions = params["gpu_type"], params["region"]
        return (
            (params["sold_out"] or offer.available != 0)
            and (not models or any(gpus.matches(wish, offer.model, offer.gpu_memory_mib) for wish in models))
            and params["gpu_count"] in (None, offer.gpu_count)
            and (not regions or any(region_matches(wish, offer.region, offer.cloud_region) for wish in regions))
            and (limit is None or (offer.price_hour is not None and offer.price_hour <= limit))
            and params["spot"] in (None, offer.spot)
        )

    return fits


if __name__ == "__main__":
    main(SPEC, run)
