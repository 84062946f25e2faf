# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what one machine must be to the create calls that may be tried for it, cheapest first: what vast_instance does."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from decimal import Decimal

from ...core import errors
from ...model import Container, Instance, InstanceState, Lane, LaunchRequest, Offer, OfferQuery, Quality
from ...planner.offers import gpu_models, ranking
from ...planner.offers.requirements import good_enough, region_matches
from ..results import check_region, too_small, wrong_region
from .regions import PLACES

_MOST = 10  # offers that are tried; each refusal costs 4.5 s
_MARGIN = Decimal("0.1")
NODE_QUALITY = Quality(
    min_reliability=Decimal("0.95"), min_bandwidth=200
)  # of virtual machines, unless something else is asked for
_PORT = re.compile(r"(\d{1,5})(?:/(tcp|udp))?")


@dataclasses.dataclass(frozen=True)
class Requirements:
    """``ports`` are reachable from outside when it is ready, like "8000/tcp". ``image`` empty = the stock image of virtual machines.
    ``start`` is the start script, already in the form in which it is carried, with ``environment``."""

    name: str
    gpu_type: str
    gpu_count: int = 1
    region: str = ""
    spot: bool = False
    vm: bool = True
    disk_gib: int = 64
    max_price_hour: Decimal | None = None
    quality: Quality = Quality()
    image: str = ""
    start: str = dataclasses.field(default="", repr=False)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    ports: tuple[str, ...] = ()
    marks: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def query(self) -> OfferQuery:
        """What the market is asked. InvalidInput for an unknown model."""
        models = tuple(model for model in gpu_models.known() if gpu_models.matches(self.gpu_type, model))
        if not models:
            near = gpu_models.suggestions(self.gpu_type)
            raise errors.InvalidInput(
                f"There is no GPU model {self.gpu_type!r}.", remedy=f"Did you mean {' or '.join(near)}?" if near else ""
            )
        return OfferQuery(
            models=models,
            gpu_counts=(self.gpu_count,),
            max_price_hour=self.max_price_hour,
            disk_gib=self.disk_gib,
            spot=self.spot,
            lanes=(Lane.KUBELET,) if self.vm else (Lane.SERVICE,),
        )

    def requests(self, offers: t.Sequence[Offer]) -> list[LaunchRequest]:
        """The create calls in the order in which they are tried. LaunchRefused when nothing fits."""
        fitting = [ranking.priced(offer, _MARGIN, self.max_price_hour) for offer in offers if self._fits(offer)]
        if self.max_price_hour is not None:
            fitting = [offer for offer in fitting if offer.price_hour is not None and offer.price_hour <= self.max_price_hour]
        if not fitting:
            check_region("Vast.ai", self.region, offers, PLACES)
            raise errors.LaunchRefused(
                f"Vast.ai has no {self} now{self._hosts()}.",
                reason="capacity",
                remedy="Ask for less, of the machine or of its host, pay more, or try again later.",
            )
        fitting.sort(key=lambda offer: (offer.price_hour is None, offer.price_hour, -(offer.reliability or 0), offer.id))
        return [self._request(offer) for offer in fitting[:_MOST]]

    def __str__(self) -> str:
        kind = "virtual machine" if self.vm else "container"
        limits = [f" in {self.region}" if self.region else "", f" for {self.max_price_hour} $/h" if self.max_price_hour else ""]
        return f"{'spot ' if self.spot else ''}{kind} with {self.gpu_count} x {self.gpu_type}{''.join(limits)}"

    def _hosts(self) -> str:
        """What is asked of the host, as the end of a sentence."""
        least = [f"a reliability of {self.quality.min_reliability} or more"] if self.quality.min_reliability else []
        least += [f"{self.quality.min_bandwidth} Mbit/s or more"] if self.quality.min_bandwidth else []
        return f" on a host with {' and '.join(least)}" if least else ""

    def _fits(self, offer: Offer) -> bool:
        if self.region and not region_matches(self.region, offer.region, offer.cloud_region):
            return False
        if not good_enough(offer, self.quality):
            return False
        if int(float(offer.traits.get("ports", len(self.ports)))) < len(self.ports):
            return False
        return gpu_models.matches(self.gpu_type, offer.model, offer.gpu_memory_mib)

    def _request(self, offer: Offer) -> LaunchRequest:
        mapped = {f"-p {port.partition('/')[0]}:{port.removesuffix('/tcp')}": "1" for port in self.ports if port != "22/tcp"}
        environment = {**self.environment, **mapped}
        common: dict[str, t.Any] = {
            "name": self.name,
            "offer": offer,
            "marks": self.marks,
            "max_price_hour": self.max_price_hour,
            "settings": self.settings,
        }
        if not self.vm:
            return LaunchRequest(**common, container=Container(self.image, self.start, environment))
        if self.image:
            common["settings"] = {**self.settings, "vmImage": self.image}
        return LaunchRequest(**common, user_data=self.start or None, environment=environment)

    def ready(self, instance: Instance) -> bool:
        """Whether it runs, has an address, and all its ports are reachable from outside."""
        return instance.state is InstanceState.RUNNING and bool(instance.ip) and set(self.ports) <= set(instance.ports)

    def differs(self, instance: Instance) -> str:
        """Why an existing machine is not the wanted one, empty if it is."""
        if instance.interrupted:
            return "was stopped by Vast.ai: outbid, out of money or at its end, and its disk is billed"
        if instance.model and not gpu_models.matches(self.gpu_type, instance.model):
            return f"has {instance.model}, not {self.gpu_type}"
        if instance.gpu_count is not None and instance.gpu_count != self.gpu_count:
            return f"has {instance.gpu_count} GPUs, not {self.gpu_count}"
        if instance.spot is not None and instance.spot is not self.spot:
            return f"is {'' if instance.spot else 'no '}spot"
        return wrong_region(instance, self.region, PLACES) or too_small(instance, self.disk_gib)


def port(text: str) -> str:
    """ "8000" and "8000/tcp" as "8000/tcp", "41641/udp" as it is. InvalidInput for anything else."""
    match = _PORT.fullmatch(text.strip().lower())
    if match is None or not 0 < int(match[1]) < 65536:
        raise errors.InvalidInput(f"{text!r} is not a port.", remedy="Write 8000, 8000/tcp or 41641/udp.")
    return f"{int(match[1])}/{match[2] or 'tcp'}"
