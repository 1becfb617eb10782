"""Secrets that are written into bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.utils.secrets import holds_key, redact_all
from amplifier_foundation.bundle import BundleProblemsError, load_bundle_sync
from amplifier_foundation.documents.secrets import may_hold_secret

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk-ant-" + "a1B2" * 8


def warned(bundle: Any) -> list[tuple[str, int, int, str]]:
    return [
        (problem.file, problem.line, problem.column, problem.path)
        for problem in bundle.problems
        if problem.code == "AMP113"
    ]


def test_a_secret_is_told_where_its_value_stands_and_not_repeated(write: Any) -> None:
    path = write(
        "providers:\n  - module: provider-x\n    config:\n      api_key: hunter2\n      GITHUB_TOKEN: 'abc'\n"
        "tools: [{module: tool-x, config: {credentials: {user: me, password: [one, two]}}}]\n"
    )
    bundle = load_bundle_sync(path)
    assert warned(bundle) == [
        ("bundle.md", 6, 16, "providers[0].config.api_key"),
        ("bundle.md", 7, 21, "providers[0].config.GITHUB_TOKEN"),
        ("bundle.md", 8, 70, "tools[0].config.credentials.password[0]"),
        ("bundle.md", 8, 75, "tools[0].config.credentials.password[1]"),
    ]
    assert {problem.severity for problem in bundle.problems} == {"warning"}
    assert "hunter2" not in "".join(map(str, bundle.problems))
    with pytest.raises(BundleProblemsError, match="AMP113"):
        load_bundle_sync(path, strict=True)


def test_a_secret_that_is_an_argument_is_told(write: Any) -> None:
    path = write(
        "tools: [{module: tool-x, config: {args: [--password, hunter2, --token, '${TOKEN}', --auth, basic]}}]\n"
    )
    assert [path for *_, path in warned(load_bundle_sync(path))] == ["tools[0].config.args[1]"]


def test_what_is_filled_in_later_is_no_secret(write: Any) -> None:
    bundle = load_bundle_sync(
        write(
            "providers:\n  - module: provider-x\n    config:\n"
            '      api_key: ${KEY}\n      token: "Bearer ${KEY:-none}"\n      password: $PASSWORD\n'
            '      secret: "{secret}"\n      auth: ""\n      token_limit: many\n      max_tokens: 5\n'
            "      private_key:\n      credentials: {type: file}\n"
            "      schema: {properties: {token: {type: string}}}\n"
            "      url: https://${USER}:${PASSWORD}@host/x\n"
        )
    )
    assert bundle.problems == []


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"Bearer {KEY}",
        "ghp_" + "x" * 36,
        "github_pat_" + "x" * 30,
        "AKIA" + "A7" * 8,
        "AIza" + "x" * 35,
        "xoxb-1234567890-abc",
        "-----BEGIN RSA PRIVATE KEY-----",
        "https://me:hunter2@host/x",
        "git+https://:token@host/x",
    ],
)
def test_keys_of_well_known_services_are_known_wherever_they_stand(text: str, write: Any) -> None:
    assert holds_key(text)
    assert warned(load_bundle_sync(write(f"tools: [{{module: tool-x, config: {{note: '{text}'}}}}]\n")))
    shown = str(redact_all({"note": text}))
    assert text not in shown
    assert "hunter2" not in shown


def test_ordinary_text_is_shown_as_it_is() -> None:
    plain = {"note": "task-force sk-1", "url": "https://host/a@b:c", "ssh": "git+ssh://git@host/x", "lines": ["a\nb"]}
    assert redact_all(plain) == plain
    assert not any(holds_key(str(value)) for value in plain.values())
    assert redact_all({"api_key": {"any": "thing"}}) == {"api_key": "[REDACTED]"}


def test_lines_that_name_a_sensitive_key_are_not_shown() -> None:
    assert may_hold_secret('  "api_key" : "abc')
    assert may_hold_secret(f"say: {KEY}")
    assert not may_hold_secret("max_tokens: 5")


def test_a_secret_in_an_agents_file_is_told_too(write: Any, folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "one.md").write_text(
        "---\nmeta: {name: one}\ntools: [{module: tool-x, config: {token: abc}}]\n---\n"
    )
    assert warned(load_bundle_sync(write("agents: {include: [one]}\n"))) == [
        ("agents/one.md", 3, 42, "tools[0].config.token")
    ]
