"""Keys by name: in a keyring, or in a private file; the environment comes first."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_core.utils.secrets import redact_text
from amplifier_foundation.settings.keys import (
    KeyNotFound,
    KeysUnreadable,
    find_key,
    forget_key,
    keep_key,
    keys_file,
    list_kept,
    locate_key,
)

KEY = "key-of-the-tests-0123456789"
BACKEND = '''
import json, os
from collections.abc import Iterator
from pathlib import Path
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class FolderKeyring(KeyringBackend):
    """A keyring in a file; locked while there is a file `locked` beside it."""

    priority = 5

    def _read(self):
        place = Path(os.environ["KEYRING_OF_THE_TESTS"])
        if place.with_name("locked").exists():
            raise KeyringLocked("it is locked")
        return place, json.loads(place.read_text()) if place.exists() else {}

    def get_password(self, service, name):
        return self._read()[1].get(f"{service}/{name}")

    def set_password(self, service, name, password):
        place, known = self._read()
        place.write_text(json.dumps({**known, f"{service}/{name}": password}))

    def delete_password(self, service, name):
        place, known = self._read()
        if known.pop(f"{service}/{name}", None) is None:
            raise PasswordDeleteError(name)
        place.write_text(json.dumps(known))
'''


@pytest.fixture(autouse=True)
def _no_keys(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOUSE_API_KEY", raising=False)


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real keyring with a back end of its own; its file."""
    import keyring

    (tmp_path / "folder_keyring.py").write_text(BACKEND, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KEYRING_OF_THE_TESTS", str(tmp_path / "ring.json"))
    before = keyring.get_keyring()
    import folder_keyring  # type: ignore[import-not-found]  # it was written just now

    keyring.set_keyring(folder_keyring.FolderKeyring())
    yield tmp_path / "ring.json"
    keyring.set_keyring(before)
    sys.modules.pop("folder_keyring")


def test_without_a_keyring_a_private_file_keeps_the_key() -> None:
    assert keep_key("HOUSE_API_KEY", KEY) == "keys.json"
    assert stat.S_IMODE(keys_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(keys_file().parent.stat().st_mode) == 0o700
    assert (list_kept(), locate_key("HOUSE_API_KEY")) == ({"HOUSE_API_KEY": "keys.json"}, "keys.json")
    assert find_key("HOUSE_API_KEY") == KEY
    assert forget_key("HOUSE_API_KEY")
    assert KEY not in keys_file().read_text()
    assert not forget_key("HOUSE_API_KEY")


def test_a_keyring_keeps_the_key_and_the_file_its_name_alone(ring: Path) -> None:
    assert keep_key("HOUSE_API_KEY", KEY) == "keyring"
    assert json.loads(keys_file().read_text()) == {"keys": {"HOUSE_API_KEY": {}}}
    assert json.loads(ring.read_text()) == {"amplifier/HOUSE_API_KEY": KEY}
    assert find_key("HOUSE_API_KEY") == KEY
    assert forget_key("HOUSE_API_KEY")
    assert json.loads(ring.read_text()) == {}


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    monkeypatch.setenv("HOUSE_API_KEY", "from-the-environment\n")
    assert (find_key("HOUSE_API_KEY"), locate_key("HOUSE_API_KEY")) == ("from-the-environment", "environment")


def test_a_locked_keyring_is_told_and_a_new_key_goes_into_the_file(
    ring: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    ring.with_name("locked").touch()
    with pytest.raises(KeyNotFound, match=r"the keyring does not give it \(it is locked\). Keep it with: amplifier"):
        find_key("HOUSE_API_KEY")
    assert keep_key("OTHER_API_KEY", KEY) == "keys.json"
    assert "the keyring does not take OTHER_API_KEY: it is locked" in caplog.text


def test_a_key_that_left_its_keyring_is_told(ring: Path) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    ring.unlink()
    with pytest.raises(KeyNotFound, match="it is no longer in the keyring"):
        find_key("HOUSE_API_KEY")
    assert forget_key("HOUSE_API_KEY")


def test_a_key_that_is_nowhere_is_told_with_the_command() -> None:
    with pytest.raises(KeyNotFound, match="there is no key HOUSE_API_KEY: .* amplifier auth login HOUSE_API_KEY"):
        find_key("HOUSE_API_KEY")


def test_a_file_open_to_others_is_made_private(caplog: pytest.LogCaptureFixture) -> None:
    keep_key("HOUSE_API_KEY", KEY)
    keys_file().chmod(0o644)
    assert find_key("HOUSE_API_KEY") == KEY
    assert stat.S_IMODE(keys_file().stat().st_mode) == 0o600
    assert "was open to others (mode 0644), is now private (0600)" in caplog.text


@pytest.mark.parametrize(
    ("text", "cause"), [("{", "is not JSON"), ("[]", "is not {"), ('{"keys": {"A": 1}}', "is not {")]
)
def test_a_damaged_file_is_told_with_the_remedy(home: Path, text: str, cause: str) -> None:
    home.mkdir(mode=0o700)
    keys_file().write_text(text)
    keys_file().chmod(0o600)
    with pytest.raises(KeysUnreadable, match=f"keys.json: {cause}.*Repair it, or remove it"):
        find_key("HOUSE_API_KEY")
    with pytest.raises(KeysUnreadable):
        keep_key("HOUSE_API_KEY", KEY)
    assert keys_file().read_text() == text


def test_a_kept_key_is_hidden_in_texts() -> None:
    keep_key("HOUSE_API_KEY", KEY)
    find_key("HOUSE_API_KEY")
    assert redact_text(f"the service said {KEY}") == "the service said [REDACTED]"


def test_nothing_imports_the_keyring_before_a_key_is_in_it(home: Path) -> None:
    code = (
        "import sys; from amplifier_foundation.settings.keys import list_kept, locate_key; "
        "list_kept(); locate_key('HOUSE_API_KEY'); print('keyring' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
