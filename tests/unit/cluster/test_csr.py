# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is seen of a certificate request is what the cluster would sign, and an odd one is a stranger's, never the end of a run."""

from __future__ import annotations

import base64
import copy
import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Conflict, Forbidden
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

TOKEN, NODE = "abcdef", "gpu-1"
COMMON_NAME, ORGANIZATION, UNIT = (bytes.fromhex(f"06035504{last}") for last in ("03", "0a", "0b"))
TEXT, BITS = 0x0C, 0x03


def tlv(tag: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([0x81, size]) if size < 256 else bytes([0x82, size >> 8, size & 255])
    return bytes([tag]) + length + body


def attribute(oid: bytes, tag: int, value: bytes) -> bytes:
    return tlv(0x31, tlv(0x30, oid + tlv(tag, value)))


def block(node: str, *, version: int = 0, more: bytes = b"", line: int = 64, extensions: bytes = b"") -> bytes:
    """A request, signed, as PEM. ``more`` are further parts of its subject, ``extensions`` what it asks to stand in the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    subject = attribute(ORGANIZATION, TEXT, b"system:nodes") + more + attribute(COMMON_NAME, TEXT, f"system:node:{node}".encode())
    spec = tlv(0x30, tlv(0x02, bytes([version])) + tlv(0x30, subject) + public + tlv(0xA0, extensions))
    signature = key.sign(spec, ec.ECDSA(hashes.SHA256()))
    text = base64.b64encode(tlv(0x30, spec + bytes.fromhex("300a06082a8648ce3d040302") + tlv(0x03, b"\x00" + signature)))
    lines = [text[at : at + line] for at in range(0, len(text), line)]
    return b"\n".join([b"-----BEGIN CERTIFICATE REQUEST-----", *lines, b"-----END CERTIFICATE REQUEST-----", b""])


def other_name(*names: str) -> bytes:
    """The request for a subjectAltName with these DNS names."""
    listed = tlv(0x30, b"".join(tlv(0x82, one.encode()) for one in names))
    extension = tlv(0x30, bytes.fromhex("0603551d11") + tlv(0x04, listed))
    return tlv(0x30, bytes.fromhex("06092a864886f70d01090e") + tlv(0x31, tlv(0x30, extension)))


def raw_of(pem: bytes, **spec: t.Any) -> dict[str, t.Any]:
    usual = {
        "username": f"system:bootstrap:{TOKEN}", "signerName": csr.SIGNER, "request": base64.b64encode(pem).decode(),
        "usages": ["digital signature", "client auth"],
    }  # fmt: skip
    return {"metadata": {"name": "x", "creationTimestamp": "2026-11-21T12:00:00Z"}, "spec": {**usual, **spec}}


def parsed(pem: bytes, **spec: t.Any) -> csr.SigningRequest:
    return csr.parse(raw_of(pem, **spec))


def with_version(version: str, pem: bytes, **spec: t.Any) -> dict[str, t.Any]:
    raw = raw_of(pem, **spec)
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": version}}


class Server:
    """An API server that has one request, as it stands now. ``answers``: conditions that were written, by type. ``reads`` counts."""

    clock = SystemClock()

    def __init__(self, raw: dict[str, t.Any]) -> None:
        self.raw = raw
        self.answers: list[str] = []
        self.written: dict[str, t.Any] = {}
        self.reads = 0

    def get(self, _path: str) -> dict[str, t.Any]:
        self.reads += 1
        return copy.deepcopy(self.raw)

    def replace(self, path: str, body: dict[str, t.Any]) -> None:
        assert path == f"{csr.PATH}/x/approval"
        if body["metadata"].get("resourceVersion") != self.raw["metadata"].get("resourceVersion"):
            raise Conflict("the object has been modified", status=409)
        self.written = body
        self.answers += [one["type"] for one in body["status"]["conditions"]]


EXPECTED: dict[str, t.Any] = {"token_id": TOKEN, "node": NODE}


@pytest.mark.parametrize("pem", [block(NODE), block(NODE, line=4096), block(NODE).replace(b"\n", b"\r\n"), block(NODE) + b"\n \n"])
def test_a_kubelets_request_is_read(pem: bytes) -> None:
    assert csr.wrong(parsed(pem), token_id=TOKEN, node=NODE) == []


@pytest.mark.parametrize(
    "pem",
    [
        # Go begins a block at the beginning of a line only, and passes over one whose last line goes on
        b"x" + block(NODE) + block("control-plane"),
        block(NODE).rstrip() + b"junk\n" + block("control-plane"),
        block(NODE) + block("control-plane"),
        block("control-plane") + block(NODE),
        b"words\n" + block(NODE),
        block(NODE).replace(b"-----\n", b"-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
        block(NODE).replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"),
    ],
)
def test_what_two_readers_could_take_for_two_requests_is_nobodys(pem: bytes) -> None:
    """The cluster signs what its own reader finds: of these, that is the certificate of another node, or nothing."""
    request = parsed(pem)
    assert (request.common_name, request.organizations) == ("", ())
    assert csr.wrong(request, token_id=TOKEN, node=NODE)


@pytest.mark.parametrize(
    "pem",
    [
        block(NODE, version=1),
        block(NODE, more=attribute(UNIT, BITS, b"\x00")),
        block(NODE, more=attribute(UNIT, 0x01, b"\xff")),
        block(NODE, more=attribute(UNIT, 0x14, b"\xff")),
        b"",
        b"\xff\xfe",
    ],
)
def test_a_request_that_our_library_cannot_read_ends_nothing(pem: bytes) -> None:
    """The API server takes most of these: whoever may ask for certificates could stop every run that looks at requests."""
    assert parsed(pem).common_name == "" and csr.wrong(parsed(pem), token_id=TOKEN, node=NODE)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"usages": ["key encipherment", "digital signature", "client auth"]},
        {"expirationSeconds": 3600},
        {"expirationSeconds": 365 * 86400},
    ],
)
def test_a_kubelets_usages_and_lifetimes_are_approved(spec: dict[str, t.Any]) -> None:
    assert csr.wrong(parsed(block(NODE), **spec), token_id=TOKEN, node=NODE) == []


@pytest.mark.parametrize(
    ("extensions", "spec", "fault"),
    [
        (
            b"",
            {"usages": ["digital signature", "client auth", "server auth"]},
            "its usages are client auth, digital signature, server auth",
        ),
        (b"", {"usages": ["digital signature", "cert sign"]}, "its usages are cert sign, digital signature"),
        (b"", {"usages": ["client auth"]}, "its usages are client auth, not"),
        (b"", {"usages": []}, "its usages are none"),
        (b"", {"expirationSeconds": 10 * 365 * 86400}, "it asks for 315360000 seconds, more than a year"),
        (other_name("kubernetes.default.svc"), {}, "it asks for other names"),
    ],
)
def test_what_no_kubelet_asks_for_is_denied(extensions: bytes, spec: dict[str, t.Any], fault: str) -> None:
    """A token that was stolen must not give more than the one node certificate that it was made for."""
    faults = csr.wrong(parsed(block(NODE, extensions=extensions), **spec), token_id=TOKEN, node=NODE)
    assert len(faults) == 1 and faults[0].startswith(fault)


def test_other_names_that_nobody_can_read_are_nobodys() -> None:
    twice = other_name("a") + other_name("b")
    assert csr.wrong(parsed(block(NODE, extensions=twice)), token_id=TOKEN, node=NODE)


@pytest.mark.parametrize(
    ("pem", "spec", "fault"),
    [
        (
            block(NODE, more=attribute(ORGANIZATION, TEXT, b"system:masters")),
            {},
            "its organization is ('system:nodes', 'system:masters')",
        ),
        (block("control-plane"), {}, "its common name is 'system:node:control-plane'"),
        (block(NODE), {"username": "system:bootstrap:ffffff"}, "its username is 'system:bootstrap:ffffff'"),
        (block(NODE), {"username": "system:node:other"}, "its username is 'system:node:other'"),
        (block(NODE), {"signerName": "kubernetes.io/kube-apiserver-client"}, "its signer is 'kubernetes.io/kube-apiserver-client'"),
    ],
)
def test_who_asks_for_whom_has_to_be_exactly_as_expected(pem: bytes, spec: dict[str, t.Any], fault: str) -> None:
    """A token that was stolen must not become another node, or a member of another group."""
    faults = csr.wrong(parsed(pem, **spec), **EXPECTED)
    assert len(faults) == 1 and faults[0].startswith(fault)
    server = Server(raw_of(pem, **spec))
    with pytest.raises(Forbidden):
        csr.approve(server, parsed(pem, **spec), **EXPECTED)  # type: ignore[arg-type]
    assert server.answers == []


def test_a_request_is_answered_as_it_stands_now() -> None:
    """Its name may have been used again since it was read."""
    server = Server(raw_of(block("control-plane")))
    with pytest.raises(Forbidden):
        csr.approve(server, parsed(block(NODE)), **EXPECTED)  # type: ignore[arg-type]
    server.raw = raw_of(block(NODE))
    with pytest.raises(Forbidden):
        csr.deny(server, parsed(block("control-plane")), **EXPECTED)  # type: ignore[arg-type]
    assert server.answers == []


@pytest.mark.parametrize("pem", [block(NODE), block("control-plane")])
def test_requests_of_other_tokens_are_left_alone(pem: bytes) -> None:
    server = Server(raw_of(pem, username="system:bootstrap:ffffff"))
    request = csr.parse(server.raw)
    assert csr.answer(server, request, **EXPECTED) == ""  # type: ignore[arg-type]
    with pytest.raises(Forbidden):
        csr.deny(server, request, **EXPECTED)  # type: ignore[arg-type]
    assert server.answers == []


def test_a_request_is_answered_once_and_by_what_it_asks_for() -> None:
    for pem, verdict in ((block(NODE), "approved"), (block("control-plane"), "denied")):
        server = Server(raw_of(pem))
        request = csr.parse(server.raw)
        assert csr.answer(server, request, **EXPECTED) == verdict  # type: ignore[arg-type]
        assert server.answers == [verdict.capitalize()]
        server.raw["status"] = {"conditions": [{"type": "Denied", "reason": "a person"}]}
        assert csr.answer(server, request, **EXPECTED) == ""  # type: ignore[arg-type]
        assert len(server.answers) == 1, "somebody else was faster"


@pytest.mark.parametrize(("pem", "verdict"), [(block(NODE), "approved"), (block("control-plane"), "denied")])
def test_what_was_listed_is_judged_and_written_back_whole(pem: bytes, verdict: str) -> None:
    listed = with_version("1", pem, groups=["system:bootstrappers:tgp"])
    server = Server(copy.deepcopy(listed))
    assert csr.answer(server, csr.parse(listed), **EXPECTED) == verdict  # type: ignore[arg-type]
    assert server.reads == 0 and {key: server.written[key] for key in ("metadata", "spec")} == {
        key: server.raw[key] for key in ("metadata", "spec")
    }
    assert (server.written["kind"], server.written["apiVersion"]) == ("CertificateSigningRequest", "certificates.k8s.io/v1")
    assert "status" not in listed, "others look at it, too"


def test_the_object_that_is_written_is_judged_and_not_a_record_of_it() -> None:
    evil, good = csr.parse(with_version("1", block("control-plane"))), csr.parse(with_version("1", block(NODE)))
    server = Server(with_version("1", block("control-plane")))
    with pytest.raises(Forbidden):
        csr.approve(server, dataclasses.replace(good, raw=evil.raw), **EXPECTED)  # type: ignore[arg-type]
    assert server.answers == []


@pytest.mark.parametrize("version", ["", "2"])
def test_what_may_have_changed_since_it_was_listed_is_read_and_judged_again(version: str) -> None:
    """Another version of it, or one that does not say which it is: the API server could not refuse the answer to it."""
    listed = csr.parse(with_version(version and "1", block(NODE)))
    server = Server(with_version(version, block("control-plane")))
    with pytest.raises(Forbidden):
        csr.answer(server, listed, **EXPECTED)  # type: ignore[arg-type]
    assert (server.answers, server.reads) == ([], 1)
    server.raw = with_version(version, block(NODE))
    assert csr.answer(server, listed, **EXPECTED) == "approved"  # type: ignore[arg-type]
    assert server.reads == 2


def test_a_request_that_keeps_changing_is_left_to_the_next_pass() -> None:
    class Restless(Server):
        tries = 0

        def replace(self, path: str, body: dict[str, t.Any]) -> None:
            self.tries += 1
            self.raw = with_version(str(self.tries + 1), block(NODE))
            super().replace(path, body)

    server = Restless(with_version("1", block(NODE)))
    assert csr.answer(server, csr.parse(server.raw), **EXPECTED) == ""  # type: ignore[arg-type]
    assert (server.tries, server.reads, server.answers) == (2, 1, [])
