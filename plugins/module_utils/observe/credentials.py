# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds credentials: module option or its environment variable, then the class's ``credentialsRef``, then the common Secret.

Values are registered for redaction the moment they are read and are never written anywhere.
"""

from __future__ import annotations

from ..core.errors import NotFound, TgpError
from ..core.redact import register
from ..core.task import Task
from ..kube.client import Kube
from ..kube.secrets import read_secret
from ..model import CloudChoice, Wishes
from ..providers.registry import ENTRIES

NAMESPACE = "tgp-system"


def cloud_credential(task: Task, kube: Kube, cloud: str, choice: CloudChoice | None) -> str | None:
    """The API key of a cloud, or None when it was given as an option (the cloud's own connect reads that) or is nowhere."""
    entry = ENTRIES[cloud]
    if entry.option(task, entry.key):
        return None
    if choice is not None and choice.credentials is not None:
        ref = choice.credentials
        return _registered(read_secret(kube, ref.namespace, ref.name, ref.key))
    for key in entry.facts.credential_env:
        value = _from_common_secret(task, kube, key)
        if value:
            return value
    return None


def unused(task: Task, kube: Kube, cloud: str, wishes: Wishes) -> bool:
    """Whether nobody named the cloud and nothing of it is configured anywhere, so that nobody expects it to be asked.

    A Secret that cannot be read is no proof of that.
    """
    choices = [
        choice for node_class in wishes.classes.values() for choice in node_class.clouds if choice.cloud == cloud and choice.enabled
    ]
    if not all(choice.implicit for choice in choices) or ENTRIES[cloud].is_configured(task):
        return False
    try:
        return cloud_credential(task, kube, cloud, None) is None
    except TgpError:
        return False


def mesh_credentials(task: Task, kube: Kube) -> dict[str, str]:
    """OAuth client id and secret of the common Secret, for callers to whom neither option nor variable gave a mesh credential."""
    client_id = _from_common_secret(task, kube, "client-id")
    client_secret = _from_common_secret(task, kube, "client-secret")
    return {"client_id": client_id, "client_secret": client_secret} if client_id and client_secret else {}


def notify_token(task: Task, kube: Kube) -> str | None:
    """The bearer token of notify_url in the common Secret; None when there is none, or it cannot be read."""
    try:
        return _from_common_secret(task, kube, "notify-token")
    except TgpError:
        return None


def _from_common_secret(task: Task, kube: Kube, key: str) -> str | None:
    name = task.params.get("credentials_secret")
    if not name:
        return None
    try:
        return _registered(read_secret(kube, NAMESPACE, name, key))
    except NotFound:
        return None


def _registered(value: str) -> str:
    register(value)
    return value
