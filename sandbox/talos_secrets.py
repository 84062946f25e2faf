# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The secrets bundle of the sandbox's Talos cluster, in the form ``talosctl gen secrets`` writes."""

from __future__ import annotations

import base64
import datetime
import os
import secrets
import string
import typing as t

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_ALPHABET = string.ascii_lowercase + string.digits


class TalosSecrets:
    """Random, except for the Kubernetes CA, which is that of the cluster. ``os_ca`` is PEM. Of the Kubernetes CA only the certificate is
    there: its key never leaves the cluster."""

    def __init__(self, kubernetes_ca: str) -> None:
        self.kubernetes_ca = kubernetes_ca
        self.trustd_token = _token()
        self.bootstrap_token = _token()
        self.cluster_id = base64.urlsafe_b64encode(os.urandom(32)).decode()
        self.cluster_secret = base64.b64encode(os.urandom(32)).decode()
        self.os_ca, self.os_key = _authority()

    def bundle(self) -> dict[str, t.Any]:
        return {
            "cluster": {"id": self.cluster_id, "secret": self.cluster_secret},
            "secrets": {
                "bootstraptoken": self.bootstrap_token,
                "secretboxencryptionsecret": base64.b64encode(os.urandom(32)).decode(),
            },
            "trustdinfo": {"token": self.trustd_token},
            "certs": {
                "k8s": {"crt": _b64(self.kubernetes_ca)},
                "os": {"crt": _b64(self.os_ca), "key": _b64(self.os_key)},
            },
        }

    def write(self, path: str) -> None:
        """As YAML, for its owner alone."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(self.bundle(), file)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _token() -> str:
    """Six characters, a dot, sixteen characters."""
    return ".".join("".join(secrets.choice(_ALPHABET) for _ in range(length)) for length in (6, 16))


def _authority() -> tuple[str, str]:
    """(certificate, key) of a new authority, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "talos")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=3650))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, key.private_bytes(*form).decode()
