"""A throw-away certificate authority, and its certificates for servers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
"""Before and after it is made: like Azure's, it is valid on a machine whose clock is late."""
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Rehearsal")])


def authority(folder: Path) -> Path:
    """Returns the certificate of a folder's authority; makes the authority if it is missing."""
    certificate = folder / "ca.pem"
    if not certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(key).add_extension(x509.BasicConstraints(True, None), critical=True)
        _write(builder.add_extension(_usage(ca=True), critical=True), key, key, certificate)
    return certificate


def server_certificate(
    folder: Path, names: Iterable[str], addresses: Iterable[str], ca: Path | None = None
) -> tuple[Path, Path]:
    """Makes a certificate for names and addresses; returns it and its key.

    `ca`, with its key beside it, signs it; by default the folder's authority does.
    """
    pem = (ca or authority(folder)).with_suffix(".key").read_bytes()
    signing = serialization.load_pem_private_key(pem, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey), "_write makes no others"
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = [
        *(x509.IPAddress(ip_address(address)) for address in addresses),
        *(x509.DNSName(name) for name in names),
    ]
    builder = (
        _builder(key)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    )
    certificate = folder / "server.pem"
    _write(builder, key, signing, certificate)
    return certificate, certificate.with_suffix(".key")


def _builder(key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
    certificate: Path,
) -> None:
    """Writes a key and its certificate; the certificate comes last, when both are complete."""
    pkcs8 = serialization.PrivateFormat.PKCS8
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = certificate.with_suffix(".key")
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(pem, pkcs8, plain))
    aside = certificate.with_suffix(".new")
    aside.write_bytes(builder.sign(signing, hashes.SHA256()).public_bytes(pem))
    aside.replace(certificate)
