# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Paperspace offers: types gathered from its templates, prices from our list, capacity asked for type by type."""

from __future__ import annotations

import dataclasses

from ...core import errors
from ...core.clock import Clock
from ...model import Capability, Offer, OfferQuery
from ...planner.offers import gpu_models
from ..readable import Warn, once, readable, silent
from .api import REFUSED, Calls, answered
from .launch import choose_template, invalid
from .records import Template, to_offers, to_template

_MOST_QUESTIONS = 16  # about capacity, one call each


class Market:
    """``template`` (id) and ``region`` narrow it; empty = any."""

    def __init__(self, calls: Calls, facts: Capability, clock: Clock, template: str, region: str, warn: Warn = silent) -> None:
        self._calls, self._facts, self._clock, self._warn = calls, facts, clock, once(warn)
        self._template, self._region = template, region
        self._known: list[Template] | None = None

    def offers(self, query: OfferQuery) -> list[Offer]:
        if query.spot is True or (query.lanes and not set(query.lanes) & set(self._facts.lanes)):
            return []
        now, labels = self._clock.now(), self._labels()
        found = [
            offer for label in labels for offer in to_offers(label, query.disk_gib, self._facts, now) if self._in_region(offer)
        ]
        return self._with_capacity(found, query)

    def _labels(self) -> list[str]:
        """All types that some template names and that could be booted."""
        templates = self._templates()
        own = next((one for one in templates if one.id == self._template), None)
        if own is not None and own.fits is not None:
            return sorted(own.fits)
        labels = sorted({label for one in templates for label in one.labels})
        return labels if self._template else [label for label in labels if choose_template(templates, label)]

    def _in_region(self, offer: Offer) -> bool:
        return not self._region or offer.cloud_region == self._region

    def _with_capacity(self, offers: list[Offer], query: OfferQuery) -> list[Offer]:
        """Ask for capacity where it matters: what fits the query, cheapest first, one call each. What was not asked for, or cannot be
        asked here, is left to the launch."""
        asked = sorted(
            (one for one in offers if _wanted(one, query)), key=lambda one: (one.price_hour is None, one.price_hour or 0)
        )
        empty: set[str] = set()
        for offer in asked[:_MOST_QUESTIONS]:
            try:
                answer = self._calls.get("/machine-availability", machineType=offer.instance_type, region=offer.cloud_region)
            except errors.NotFound:
                break
            except errors.ApiError as error:
                if error.status not in REFUSED or not answered(error):
                    raise
                continue  # it does not know this type there; neither do we
            if answer.get("available") is False:  # any other word is left to the launch
                empty.add(offer.id)
        return [dataclasses.replace(one, available=0) if one.id in empty else one for one in offers]

    def _templates(self) -> list[Template]:
        if self._known is None:
            what = "GET /os-templates"
            entries = self._calls.pages("/os-templates")
            self._known = readable("paperspace", entries, lambda one: to_template(self._calls.api, one, what), self._warn)
        return self._known

    def template_for(self, label: str, wish: str | None) -> str:
        """The id of the template to boot a machine of this type with. LaunchRefused when none fits."""
        chosen = wish or self._template
        if chosen:
            return chosen
        found = choose_template(self._templates(), label)
        if found is None:
            raise invalid(f"no Ubuntu server template fits {label}", "Name one in the setting templateId.")
        return found.id


def _wanted(offer: Offer, query: OfferQuery) -> bool:
    """Whether an offer is one that the query is about."""
    return (
        (not query.models or any(gpu_models.matches(wish, offer.model, offer.gpu_memory_mib) for wish in query.models))
        and (not query.gpu_counts or offer.gpu_count in query.gpu_counts)
        and (query.min_gpu_memory_mib is None or (offer.gpu_memory_mib or 0) >= query.min_gpu_memory_mib)
        and (query.max_price_hour is None or (offer.price_hour is not None and offer.price_hour <= query.max_price_hour))
    )
