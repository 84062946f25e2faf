# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects as the client asked for them: plain, as metadata only, or as a table for people."""

from __future__ import annotations

import typing as t
from datetime import datetime

from . import table
from .events import shown
from .resources import Resource
from .store import Item, encode

Json = dict[str, t.Any]


class Form:
    """What the Accept header asks for."""

    def __init__(self, accept: str) -> None:
        self.table = self.metadata_only = False
        for choice in accept.split(","):
            if "as=Table" in choice:
                self.table = True
            elif "as=PartialObjectMetadata" in choice:
                self.metadata_only = True
            else:
                continue
            break


def _bare(item: Item, resource: Resource) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item.obj["metadata"]}


def single(resource: Resource, item: Item, form: Form, now: datetime, include: str = "Metadata") -> bytes:
    if form.table:
        return encode(table.table(resource, [item], now, include, {"resourceVersion": str(item.rv)}))
    if form.metadata_only:
        return encode(_bare(item, resource))
    return plain(resource, item)


def plain(resource: Resource, item: Item) -> bytes:
    """With kind and apiVersion, which lists of built-in kinds leave out."""
    if resource.custom:
        return item.text()
    return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode() + _text(resource, item)[1:]


def _text(resource: Resource, item: Item) -> bytes:
    return item.text() if resource.shares is None else encode(shown(item.obj))


def collection(
    resource: Resource, items: list[Item], metadata: Json, form: Form, now: datetime, include: str = "Metadata"
) -> bytes:
    if form.table:
        return encode(table.table(resource, items, now, include, metadata))
    if form.metadata_only:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return encode({**head, "items": [_bare(item, resource) for item in items]})
    if resource.custom:
        metadata = {"continue": "", **metadata}  # lists of custom kinds always show it
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return encode(head)[:-1] + b',"items":[' + b",".join([_text(resource, item) for item in items]) + b"]}\n"
