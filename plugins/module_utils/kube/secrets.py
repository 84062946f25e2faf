# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads one key of a Kubernetes Secret."""

from __future__ import annotations

import base64
import binascii

from ..core.errors import InvalidInput, NotFound
from ..core.redact import register
from .client import Kube


def read_secret(kube: Kube, namespace: str, name: str, key: str) -> str:
    """The text of ``key`` in Secret ``namespace/name``, registered for redaction. NotFound when Secret or key is missing."""
    path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
    try:
        data = kube.get(path).get("data") or {}
    except NotFound as error:
        raise NotFound(
            f"The Secret {namespace}/{name} does not exist.",
            remedy=f"Create it with the key {key}, or correct the reference.",
            service="kubernetes",
            status=404,
        ) from error
    if key not in data:
        raise NotFound(
            f"The Secret {namespace}/{name} has no key {key}.",
            remedy=f"Keys there: {', '.join(sorted(data)) or 'none'}.",
            service="kubernetes",
            status=404,
        )
    register(str(data[key]))
    try:
        text = base64.b64decode(data[key], validate=True).decode("utf-8").strip()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        raise InvalidInput(f"The Secret {namespace}/{name}: the value of {key} is not text.") from None
    if not text:
        raise InvalidInput(f"The Secret {namespace}/{name}: the value of {key} is empty.")
    register(text)
    return text
