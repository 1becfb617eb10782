"""Gives clients one certificate authority instead of all: each reads them, and asks a server without TLS."""

from __future__ import annotations

from collections.abc import Iterator

import certifi
import pytest

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the clients of a file of tests read one certificate: all of them take longer than most tests."""
    path = tmp_path_factory.mktemp("authorities") / "one.pem"
    path.write_text(certifi.contents().partition(END)[0] + END, encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield
