# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for a machine that has its network and does not become a Node: the way to the API server, trust, token, certificate."""

from __future__ import annotations

from .facts import Findings, JoinRequest, ProbableCause, quoted

OTHER_NODE = "TgpOtherNode"
"""The reason that kube.csr gives for a request that it denies."""
MADE_FOR = "asked by the bootstrap token made for "
"""How the words begin with which kube.csr answers a request."""
_STRANGE_CA = r"(?i)unknown authority|not of the cluster's CA|unable to get local issuer|self[- ]signed certificate"
_UNAUTHORIZED = r"(?i)Unauthorized|does not know the bootstrap token|answers 401\b"
_NO_ANSWER = (
    r"(?i)API server \S+ cannot be reached",
    r"(?i)dial tcp \S+: .*(i/o timeout|connection refused|no route to host|network is unreachable)",
    r"(?i)name \S+ of the API server is known neither",
    r"(?i)error resolving|no such host",
)
_WAY = "Check the mesh's policy (a grant for tcp of that port from the node's tag to the control plane), control_plane_endpoint, and firewalls."


def _no_request(findings: Findings) -> bool:
    return not findings.requests and findings.node is None


def _endpoint(findings: Findings) -> str:
    return f"the API server ({findings.endpoint})" if findings.endpoint else "the API server (port 6443)"


def _wrong_ca(findings: Findings) -> ProbableCause | None:
    line = findings.says(_STRANGE_CA) if _no_request(findings) else ""
    if not line or "apid" in line or "sign API server CSR" in line:
        return None
    return ProbableCause(
        "wrong_ca",
        "The machine does not trust the API server: its certificate is not of the CA that the machine was given.",
        "Give talos_secrets of this very cluster (its cluster CA), and check that control_plane_endpoint leads to it and not to a proxy.",
        (quoted(line), _token_line(findings)),
    )


def _blocked(findings: Findings) -> ProbableCause | None:
    line = findings.says(*_NO_ANSWER) if _no_request(findings) else ""
    if not line or "50001" in line:
        return None
    return ProbableCause(
        "blocked_6443",
        f"The machine cannot reach {_endpoint(findings)}.",
        _WAY,
        (quoted(line), _mesh_line(findings), "no certificate request came" if findings.requests_read else ""),
    )


def _wrong_token(findings: Findings) -> ProbableCause | None:
    if not _no_request(findings) or not findings.token_id:
        return None
    line = findings.says(_UNAUTHORIZED)
    gone = findings.token_found is False
    token_known = findings.token_found is not None and findings.token_expires is not None
    over = token_known and findings.token_expires is not None and findings.token_expires <= findings.now
    if not (line or gone or over):
        return None
    if over and findings.token_expires is not None:
        why, state = (
            "expired before the machine used it",
            f"the token {findings.token_id} expired at {findings.token_expires:%H:%M:%SZ}",
        )
    elif gone:
        why, state = "was deleted before the machine used it", f"kube-system has no Secret bootstrap-token-{findings.token_id}"
    else:
        why, state = (
            "is not the one in the cluster",
            f"the token {findings.token_id} exists and is valid; the machine shows another",
        )
    return ProbableCause(
        "wrong_token",
        f"The API server does not accept the machine's bootstrap token: it {why}.",
        "Rent again: each machine gets a token of its own. If it repeats, see who changes Secrets in kube-system, and that the API server has "
        "--enable-bootstrap-token-auth.",
        (quoted(line), state, _mesh_line(findings)),
        certain=bool(line) or gone or over,
    )


def _requests(findings: Findings) -> ProbableCause | None:
    """Its requests, the worst first."""
    if findings.node is not None or not findings.requests:
        return None
    by_state = {request.state: request for request in findings.requests}
    if misused := next(
        (request for request in findings.requests if request.state == "denied" and request.reason == OTHER_NODE), None
    ):
        return ProbableCause(
            "token_misused",
            "Its bootstrap token was used to ask for something else than this node's certificate: it was made for "
            f"{misused.message.removeprefix(MADE_FOR)}.",
            "Take its host for hostile or its image for wrong: nothing was issued, and the token goes with the machine. See who else could "
            "read the user data, and block the offer (docs/explanation/marketplace_hosts.md).",
            (_line(misused),),
        )
    if refused := by_state.get("denied") or by_state.get("failed"):
        return ProbableCause(
            "request_refused",
            f"Its certificate request was {refused.state}: {refused.message or 'no reason is given'}.",
            "See which approver or policy denies requests of bootstrap tokens; the signer is kubernetes.io/kube-apiserver-client-kubelet.",
            (_line(refused),),
        )
    if "issued" not in by_state:
        request = next(iter(by_state.values()))
        return ProbableCause(
            "request_pending",
            "Nobody approved or signed its certificate request.",
            "A machine of lane kubelet is approved by the run that waits for it, as long as it waits. Other requests Talos clusters approve by "
            "themselves: see that the ClusterRoleBinding system-bootstrap-approve-node-client-csr exists and that "
            "kube-controller-manager runs its CSR signer.",
            (_line(request),),
        )
    failed = findings.says(r"(?i)kubelet: .*|^fail ")
    return ProbableCause(
        "no_node",
        "It has its certificate and never registered a Node.",
        "Read the kubelet's log (`journalctl -u kubelet`, `talosctl logs kubelet`): it could not write its Node, or ended.",
        (_line(by_state["issued"]), quoted(failed)),
        certain=bool(failed),
    )


def _silent(findings: Findings) -> ProbableCause | None:
    if not _no_request(findings) or not (findings.requests_read and (findings.device is not None or not findings.uses_mesh)):
        return None
    if findings.instance is None and findings.device is None:
        return None
    failed = findings.says(r"^fail |\bfail [a-z-]+:")
    return ProbableCause(
        "no_request",
        "Its own program stopped before it asked for a certificate." if failed else
        f"It never asked for a certificate: {_endpoint(findings)} is blocked, or its CA or token is wrong; nothing tells which.",
        "Read its log by hand (/var/log/tgp-bootstrap.log, kubelet's log). " + _WAY,
        (quoted(failed), _mesh_line(findings), _token_line(findings)),
        certain=bool(failed),
    )  # fmt: skip


def _line(request: JoinRequest) -> str:
    return f"{request.name} of {request.username} is {request.state} {request.message}".rstrip()


def _mesh_line(findings: Findings) -> str:
    device = findings.device
    return f"mesh: {device.name or device.hostname} is {'online' if device.online else 'not online'}" if device is not None else ""


def _token_line(findings: Findings) -> str:
    return f"the token {findings.token_id} exists, unused" if findings.token_found else ""


RULES = (_wrong_ca, _blocked, _wrong_token, _requests, _silent)
