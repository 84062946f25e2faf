# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the images of Talos of this cluster cost. They are in no ledger, so their providers are asked, where a class of the documents boots one;
images that were removed are not known any more."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

from ..core.clock import to_text
from ..core.errors import TgpError
from ..model import CloudChoice
from ..observe.clients import cloud_credential
from ..observe.context import Context
from ..operations.talos_image import account_images
from ..planner.cost.cost import add_up
from ..planner.cost.spend_report import to_cents
from ..providers.disk_images import DiskImage, month_cost, storage_cost
from ..providers.registry import ENTRIES


@dataclasses.dataclass(frozen=True, slots=True)
class ImageCost:
    """Dollars of one image: in the time of the report, and for a month. None = its size or its age is not known."""

    cloud: str
    name: str
    created: datetime | None
    cost: Decimal | None
    month: Decimal | None
    basis: str


@dataclasses.dataclass(frozen=True, slots=True)
class ImageCosts:
    """``problems``: why the images of an account are not known, one sentence each."""

    images: tuple[ImageCost, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def total(self) -> Decimal:
        return add_up(image.cost for image in self.images if image.cost is not None)

    @property
    def month(self) -> Decimal:
        return add_up(image.month for image in self.images if image.month is not None)

    @property
    def whole(self) -> bool:
        return not self.problems and all(image.cost is not None for image in self.images)

    def data(self) -> dict[str, t.Any]:
        """JSON-safe. The ``cost`` of the images is in whole cents, and adds up to the ``total`` in whole cents."""
        known = {f"{image.cloud}/{image.name}": image.cost for image in self.images if image.cost is not None}
        cents = to_cents(known, self.total)
        return {
            "whole": self.whole,
            "total": str(_cents(self.total)),
            "month": str(_cents(self.month)),
            "images": [
                {
                    "cloud": image.cloud,
                    "name": image.name,
                    "created": to_text(image.created) if image.created else None,
                    "cost": None if image.cost is None else str(cents[f"{image.cloud}/{image.name}"]),
                    "month_cost": None if image.month is None else str(image.month),
                    "price_basis": image.basis,
                }
                for image in self.images
            ],
            "problems": list(self.problems),
        }

    def sentence(self) -> str:
        """For people; empty when nothing is to be said."""
        if not self.images:
            return "; ".join(self.problems)
        least, number = "" if self.whole else "at least ", len(self.images)
        amounts = f"{least}${_cents(self.total)} in this time, ${_cents(self.month)} a month"
        unverified = sorted({image.cloud for image in self.images if image.basis == "unverified"})
        basis = f" (the price of {', '.join(unverified)} is unverified)" if unverified else ""
        text = f"{number} image{'s' * (number != 1)} of Talos {'are' if number != 1 else 'is'} not in these sums: {amounts}{basis}"
        return "; ".join((text, *self.problems))


def image_costs(context: Context, since: datetime | None, until: datetime) -> ImageCosts:
    """Those with the stamp of this cluster, and those that its classes name. One account that cannot be read hides no other."""
    found: list[ImageCost] = []
    problems: list[str] = []
    for (cloud, _project), (choice, named) in sorted(_accounts(context).items()):
        try:
            credential = cloud_credential(context.task, context.kube, cloud, choice)
            images, price, basis = account_images(context.task, choice, credential)
        except TgpError as error:
            problems.append(f"what images of Talos cost at {cloud} is unknown: {error.message}")
            continue
        own = [image for image in images if image.of.cluster == context.cluster_id or {image.id, image.link} & named]
        found += [_cost(cloud, image, price, basis, since, until) for image in own]
    return ImageCosts(tuple(found), tuple(problems))


def _accounts(context: Context) -> dict[tuple[str, str], tuple[CloudChoice, set[str]]]:
    """By cloud and project: how the account is reached, and the images that classes name in it."""
    accounts: dict[tuple[str, str], tuple[CloudChoice, set[str]]] = {}
    for choice in (choice for one in context.specs.classes.values() for choice in one.clouds if choice.enabled):
        setting = ENTRIES[choice.cloud].image_setting if choice.cloud in ENTRIES else ""
        if not setting or not {"imagePolicy", setting} & set(choice.settings):
            continue
        _choice, named = accounts.setdefault((choice.cloud, str(choice.settings.get("project") or "")), (choice, set()))
        named.update({str(choice.settings[setting])} if setting in choice.settings else ())
    return accounts


def _cost(cloud: str, image: DiskImage, price: Decimal, basis: str, since: datetime | None, until: datetime) -> ImageCost:
    cost = storage_cost(image.size, price, image.created, since, until)
    return ImageCost(cloud, image.name, image.created, cost, month_cost(image.size, price), basis)


def _cents(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"), ROUND_HALF_UP)
