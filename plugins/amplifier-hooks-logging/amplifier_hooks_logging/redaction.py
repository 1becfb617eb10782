"""Replace keys, passwords and tokens inside texts by "[REDACTED]", as far as their form gives them away."""

from __future__ import annotations

import re

REDACTED = "[REDACTED]"

_NAME = r"(?:api[_-]?key|access[_-]?key|private[_-]?key|password|passwd|secret|token|credentials?|authorization)"
_ENVIRONMENT = ("KEY=", "TOKEN=", "SECRET=", "PASSWORD=", "PASSWD=", "CREDENTIALS=")

# A pattern is tried only if the text has one of its marks: the search for a mark takes a tenth of the time.
# A repetition is bounded, or begins at the start of a word, so the time grows only with the length of any text.
_SECRETS: list[tuple[tuple[str, ...], str]] = [
    (("://",), r"(://[^\s:/@\"'\\]*:)[^\s/@\"'\\]+(?=@)"),
    (("?", "&"), rf"((?i:[?&](?:[\w-]{{0,60}}{_NAME}|key|sig|signature)=))[^\s&#\"'\\]+"),
    (
        ("earer", "EARER", "asic", "ASIC"),
        r"((?i:\b(?:bearer|basic)\s{1,9}))(?=[\w.~+/-]{0,200}[\d=])[\w.~+/=-]{8,}",
    ),
    (_ENVIRONMENT, rf"((?<![A-Za-z0-9_])[A-Z0-9_]{{0,60}}(?:{'|'.join(_ENVIRONMENT)})[\"']?)[^\s\"'\\]+"),
    (
        ("':", '":', "' :", '" :'),
        rf"((?i:[\"'](?:[\w-]{{0,60}}[_-])?{_NAME}\\{{0,9}}[\"']\s{{0,9}}:\s{{0,9}}\\{{0,9}}[\"']))[^\"'\\]+",
    ),
    (("-----BEGIN",), r"()-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?s:.*?)(?:-----END|\Z)"),
    # the keys of OpenAI, Anthropic and Stripe; of GitHub, GitLab, Hugging Face and Slack; of Amazon and Google; JWT
    (("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"), r"()(?<![\w-])[spr]k[-_](?=[A-Za-z_-]{0,200}\d)[\w-]{16,}"),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "xox"),
        r"()(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeoprs]-)[\w-]{16,}",
    ),
    (("AKIA", "ASIA", "AIza"), r"()(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,})"),
    (("eyJ",), r"()(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"),
]
"""Forms of secrets: marks, and a pattern with a group that stays."""
_COMPILED = [(marks, re.compile(pattern)) for marks, pattern in _SECRETS]
_SHORTEST = 8


def redact_text(text: str) -> str:
    """Return `text` without secrets of a known form; others are not recognised."""
    if len(text) < _SHORTEST:
        return text
    for marks, pattern in _COMPILED:
        for mark in marks:
            if mark in text:
                text = pattern.sub(rf"\1{REDACTED}", text)
                break
    return text
