# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""files/admission_policy.yml on a real API server: the run can do its work, and who has stolen its kubeconfig can do no more than that."""

from __future__ import annotations

import base64
import pathlib
import typing as t
from datetime import datetime, timezone

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens, csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import BOOTSTRAP_TOKEN_LABEL
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .plane import Plane
from .stage import shipped_account

pytestmark = pytest.mark.cluster
ROOT = pathlib.Path(__file__).resolve().parents[2]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
APPROVED = {"type": "Approved", "status": "True", "reason": "x", "message": "x"}
SECRETS = "/api/v1/namespaces/kube-system/secrets"


@pytest.fixture(scope="module")
def account(plane: Plane) -> t.Iterator[str]:
    """The kubeconfig of the shipped account, with both files applied; the policies are in force when this begins."""
    token = shipped_account(plane)
    options: t.Any = {"params": {"dryRun": "All"}, "headers": {"authorization": f"Bearer {token}"}}
    ask(plane, "probe", "control-plane-1", {})
    probe = plane.get(f"{csr.PATH}/probe")
    probe["status"] = {"conditions": [APPROVED]}
    del probe["metadata"]["resourceVersion"]  # the cluster notes something in it now and then
    made = [f"{csr.PATH}/probe"]

    def refused() -> bool:
        answers = [
            plane.http.post(SECRETS, json={"metadata": {"name": "opaque"}, "type": "Opaque"}, **options),
            plane.http.put(f"{csr.PATH}/probe/approval", json=probe, **options),
        ]
        return all("tgp-gpu" in one.json().get("message", "") and one.is_error for one in answers)

    try:
        for one in yaml.safe_load_all((ROOT / "files" / "admission_policy.yml").read_text(encoding="utf-8")):
            path = f"{ADMISSION}/{KINDS[one['kind']]}"
            plane.create(path, one)
            made.append(f"{path}/{one['metadata']['name']}")
        plane.until(refused, what="both policies to be in force")
        yield str(plane.write_kubeconfig("shipped-policy", {"token": token}))
    finally:
        for path in made:
            plane.http.delete(path)


@pytest.fixture
def ours(account: str, open_kube: t.Callable[[pathlib.Path], Kube]) -> Kube:
    return open_kube(pathlib.Path(account))


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.mark.parametrize("groups", [bootstrap_tokens.GROUPS, bootstrap_tokens.OWN_GROUP])
def test_the_run_makes_and_deletes_its_tokens(ours: Kube, groups: str, own: str) -> None:
    token = bootstrap_tokens.draw(own, now=now())
    assert bootstrap_tokens.put(ours, token, groups) and bootstrap_tokens.delete(ours, token.id)


def secret(**changes: t.Any) -> dict[str, t.Any]:
    """A token as the run makes it, with changes to its data, labels, name or type."""
    data = {
        "token-id": "abcde0", "token-secret": "0123456789abcdef", "expiration": "2099-01-01T00:00:00Z",
        "usage-bootstrap-authentication": "true", "auth-extra-groups": bootstrap_tokens.OWN_GROUP, **changes.get("data", {}),
    }  # fmt: skip
    meta = {"name": changes.get("name", "bootstrap-token-abcde0"), "labels": changes.get("labels", {BOOTSTRAP_TOKEN_LABEL: "true"})}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": changes.get("type", "bootstrap.kubernetes.io/token"), "metadata": meta,
        "stringData": {key: value for key, value in data.items() if value is not None},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": "Opaque"}, "bootstrap tokens only"),
        ({"labels": {}}, "with its own label"),
        ({"data": {"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token"}}, "is for system:bootstrappers:tgp"),
        (
            {"data": {"auth-extra-groups": f"{bootstrap_tokens.OWN_GROUP},system:bootstrappers:other"}},
            "is for system:bootstrappers:tgp",
        ),
        ({"data": {"auth-extra-groups": None}}, "is for system:bootstrappers:tgp"),
        ({"data": {"expiration": None}}, "has an end"),
        ({"data": {"usage-bootstrap-signing": "true"}}, "signs nothing"),
    ],
)
def test_a_thief_makes_no_other_secret(ours: Kube, changes: dict[str, t.Any], why: str) -> None:
    with pytest.raises(ApiError, match=why):
        ours.create(SECRETS, secret(**changes))


def test_a_thief_deletes_no_other_secret(plane: Plane, ours: Kube, own: str) -> None:
    plane.create(SECRETS, {"metadata": {"name": own}, "type": "Opaque"})
    foreign = secret(labels={})
    plane.create(SECRETS, foreign)
    for name in (own, foreign["metadata"]["name"]):
        with pytest.raises(ApiError, match="makes and deletes"):
            ours.delete(f"{SECRETS}/{name}")
        plane.http.delete(f"{SECRETS}/{name}").raise_for_status()


def ask(
    plane: Plane, name: str, node: str, headers: dict[str, str], usages: t.Sequence[str] = ("digital signature", "client auth")
) -> None:
    """A certificate request of whoever has these headers."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    made = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    pem = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    body = {"metadata": {"name": name}, "spec": {"request": pem, "signerName": csr.SIGNER, "usages": list(usages)}}
    plane.http.post(csr.PATH, json=body, headers=headers).raise_for_status()


def test_the_run_answers_what_its_own_tokens_ask_for_and_nothing_else(plane: Plane, ours: Kube, own: str) -> None:
    token = bootstrap_tokens.draw(own, now=now())
    assert bootstrap_tokens.put(ours, token, bootstrap_tokens.OWN_GROUP)
    bearer = {"authorization": f"Bearer {token.text}"}
    plane.until(lambda: plane.http.get("/version", headers=bearer).status_code == 200, what="the token to be known")
    ask(plane, own, own, bearer)
    [request] = csr.requests(ours, token_id=token.id)
    assert csr.answer(ours, request, token_id=token.id, node=own) == "approved"
    ask(plane, f"{own}-foreign", "control-plane-1", {})
    raw = ours.get(f"{csr.PATH}/{own}-foreign")
    raw["status"] = {"conditions": [APPROVED]}
    del raw["metadata"]["resourceVersion"]  # the cluster notes something in it now and then
    with pytest.raises(ApiError, match=r"tgp-gpu answers only what a bootstrap token"):
        ours.replace(f"{csr.PATH}/{own}-foreign/approval", raw)
    assert bootstrap_tokens.delete(ours, token.id)
    for name in (own, f"{own}-foreign"):
        plane.http.delete(f"{csr.PATH}/{name}").raise_for_status()


def test_of_documents_the_account_changes_finalizers_only(plane: Plane, ours: Kube, crds: None) -> None:
    path = "/apis/tgp.io/v1/namespaces/default/gpunodepools"
    spec = {"nodeClassRef": {"name": "a"}}
    plane.create(path, {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": "admitted"}, "spec": spec})
    one = f"{path}/admitted"
    wrong: list[tuple[dict[str, t.Any], str]] = [
        ({"spec": {"maxHourlyPrice": "99"}}, "changes no spec of a document"),
        ({"metadata": {"annotations": {"tgp.io/paused": "true"}}}, "changes no label, annotation or owner"),
        ({"metadata": {"finalizers": ["example.org/hold"]}}, "only finalizers of tgp.io"),
    ]
    for body, sentence in wrong:
        plane.until(lambda body=body, sentence=sentence: sentence in refusal(ours, one, body), what=f"the refusal: {sentence}")
    held = ours.patch(one, {"metadata": {"finalizers": ["tgp.io/gpunodepool-finalizer"]}})
    assert held["metadata"]["finalizers"] == ["tgp.io/gpunodepool-finalizer"]
    ours.patch(f"{one}/status", {"status": {"ready": 0}})
    ours.patch(one, {"metadata": {"finalizers": []}})
    plane.delete(one)


def refusal(kube: Kube, path: str, body: dict[str, t.Any]) -> str:
    """What the server says against a change; empty when it makes it, which a dry run undoes."""
    try:
        kube.patch(path, body, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def test_the_definition_of_claims_stays_while_one_exists(plane: Plane, account: str, crds: None) -> None:
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodeclaims.tgp.io"
    claims = "/apis/tgp.io/v1/namespaces/tgp-system/gpunodeclaims"
    dry: t.Any = {"params": {"dryRun": "All"}}
    plane.create(claims, {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClaim", "metadata": {"name": "held"}, "record": {}})

    def told() -> str:
        return str(plane.http.delete(definition, **dry).json().get("message", ""))

    plane.until(lambda: "GPUNodeClaim held is the record of a machine" in told(), what="the refusal while a claim exists")
    plane.delete(f"{claims}/held")
    plane.until(lambda: plane.http.delete(definition, **dry).status_code == 200, what="the removal without a claim")
