# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates for a control plane that lives as long as one test run."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=7)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: pathlib.Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _usage(**set_bits: bool) -> x509.KeyUsage:
    bits = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    bits += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**{bit: set_bits.get(bit, False) for bit in bits})


class Authority:
    """A certificate authority whose files lie in ``folder``: ca.crt, ca.key, and NAME.crt, NAME.key for each issued certificate."""

    def __init__(self, folder: pathlib.Path, name: str = "kubernetes") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        self._save("ca", certificate.add_extension(_usage(key_cert_sign=True, crl_sign=True), True), self._key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        # A certificate that is valid from this very second fails on a machine whose clock was just set back.
        begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )

    def _save(self, name: str, certificate: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> None:
        signed = certificate.sign(self._key, hashes.SHA256())
        _write(self.folder / f"{name}.crt", signed.public_bytes(serialization.Encoding.PEM))
        _write(self.folder / f"{name}.key", _pem(key))

    def serving(self, name: str, hosts: list[str], addresses: list[str]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(subject, key).add_extension(x509.SubjectAlternativeName(names), False)
        self._save(name, certificate.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False), key)

    def client(self, name: str, user: str, group: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        self._save(name, self._builder(subject, key).add_extension(usage, False), key)


def signing_pair(folder: pathlib.Path, name: str) -> None:
    """NAME.key and NAME.pub, with which service account tokens are signed and checked."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write(folder / f"{name}.key", _pem(key))
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write(folder / f"{name}.pub", public)
