"""A throw-away certificate authority, and its certificates for servers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rehearsal.host_shell import run

CURVE = "ec_paramgen_curve:prime256v1"
DAYS = 365
OPENSSL = """
[req]
distinguished_name = subject
prompt = no
[subject]
CN = Rehearsal
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = {names}
"""


def authority(folder: Path) -> Path:
    """Returns the certificate of a folder's authority; makes the authority if it is missing."""
    certificate = folder / "ca.pem"
    if not certificate.exists():
        _make(folder, "ca", "authority", "IP:127.0.0.1")
    return certificate


def server_certificate(
    folder: Path, names: Iterable[str], addresses: Iterable[str], ca: Path | None = None
) -> tuple[Path, Path]:
    """Makes a certificate for names and addresses; returns it and its key.

    `ca`, with its key beside it, signs it; by default the folder's authority does.
    """
    ca = ca or authority(folder)
    alternatives = [
        *(f"IP:{address}" for address in addresses),
        *(f"DNS:{name}" for name in names),
    ]
    return _make(folder, "server", "server", ",".join(alternatives), ca)


def _make(
    folder: Path, name: str, extensions: str, alternatives: str, ca: Path | None = None
) -> tuple[Path, Path]:
    """Makes a key and its certificate; the certificate comes last, when both are complete."""
    configuration = folder / "openssl.cnf"
    configuration.write_text(OPENSSL.format(names=alternatives))
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    aside = folder / f".{name}.new"
    signed_by = ("-CA", ca, "-CAkey", ca.with_suffix(".key")) if ca else ()
    new_key = ("-newkey", "ec", "-pkeyopt", CURVE, "-nodes", "-keyout", key)
    what = ("-config", configuration, "-extensions", extensions, "-days", str(DAYS))
    run("openssl", "req", "-x509", *new_key, *what, *signed_by, "-out", aside)
    aside.replace(certificate)
    return certificate, key
