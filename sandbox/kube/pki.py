# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's certificate authority: signs the server's certificate and the kubelets' requests, and checks client certificates."""

from __future__ import annotations

import ipaddress
import typing as t
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1")


class Certificates(t.NamedTuple):
    """PEM texts: the authority's certificate, the server's certificate and key."""

    ca: str
    cert: str
    key: str


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _window(now: datetime, lifetime: timedelta) -> tuple[datetime, datetime]:
    """Valid for the simulated clock and, because TLS libraries look at the machine's, for real time as well."""
    real = datetime.now(timezone.utc)
    return min(now, real) - timedelta(minutes=5), max(now, real) + lifetime


class Authority:
    """A self-signed certificate authority. ``pem`` is its certificate."""

    def __init__(self, now: datetime) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        start, end = _window(now, timedelta(days=3650))
        builder = x509.CertificateBuilder().subject_name(self._name).issuer_name(self._name).public_key(self._key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage), critical=True
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = _pem(self._certificate)

    def _sign(
        self, subject: x509.Name, public_key: t.Any, usages: list[x509.ObjectIdentifier], names: x509.SubjectAlternativeName | None,
        now: datetime, lifetime: timedelta,
    ) -> str:  # fmt: skip
        start, end = _window(now, lifetime)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(public_key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()))

    def serving(self, now: datetime) -> Certificates:
        """A server certificate for loopback and the cluster's own service address."""
        names: list[x509.GeneralName] = []
        for name in SERVER_NAMES:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                names.append(x509.DNSName(name))
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        alternatives = x509.SubjectAlternativeName(names)
        cert = self._sign(subject, key.public_key(), [ExtendedKeyUsageOID.SERVER_AUTH], alternatives, now, timedelta(days=365))
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        return Certificates(self.pem, cert, text)

    def sign_request(self, request: x509.CertificateSigningRequest, usages: list[str], now: datetime, lifetime: timedelta) -> str:
        """Sign as asked; ``usages`` are those of the CertificateSigningRequest object."""
        purposes = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}
        chosen = [oid for name, oid in purposes.items() if name in usages]
        try:
            names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            names = None
        return self._sign(request.subject, request.public_key(), chosen, names, now, lifetime)

    def identify(self, pem: str, now: datetime) -> tuple[str, list[str]] | None:
        """User and groups of a client certificate of ours that is valid now; else None."""
        try:
            certificate = x509.load_pem_x509_certificate(pem.encode())
            certificate.verify_directly_issued_by(self._certificate)
            usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return None
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
            return None
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            return None
        return subject(certificate.subject)


def subject(name: x509.Name) -> tuple[str, list[str]] | None:
    """Common name and organizations; None without a common name."""
    common = [str(part.value) for part in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(part.value) for part in name.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return (common[0], groups) if common else None


def new_request(user: str, groups: t.Sequence[str]) -> tuple[str, str]:
    """(private key PEM, certificate request PEM) as a kubelet makes them: one organization per group."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    name = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return text.decode(), request.public_bytes(serialization.Encoding.PEM).decode()
