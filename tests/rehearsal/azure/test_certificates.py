"""The certificates of Azure's stand-in, checked by OpenSSL as a machine's programs do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rehearsal.azure.certificates import authority, server_certificate

HOUR_S = 3600

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("late_s", [0, HOUR_S, -HOUR_S])
def test_a_machine_trusts_them_whose_clock_is_an_hour_late_or_early(
    tmp_path: Path, late_s: int
) -> None:
    certificate, _ = server_certificate(tmp_path, ["results.example"], ["127.0.0.1"])
    now = int(certificate.stat().st_mtime)
    strict = ["-x509_strict", "-purpose", "sslserver", "-attime", str(now - late_s)]
    for name in (["-verify_hostname", "results.example"], ["-verify_ip", "127.0.0.1"]):
        subprocess.run(
            ["openssl", "verify", "-CAfile", authority(tmp_path), *strict, *name, certificate],
            check=True,
        )
