"""Hide secrets in texts: in errors, log lines, stored values, and whatever is shown.

A secret is known by its value or by its form. Values come from the environment, from the configuration of a bundle,
and from `hide_secret`; they are found raw, and in base64, hexadecimal, URL-quoted and JSON. Forms are the keys of
well-known services, private keys, passwords in addresses, and values of sensitive names. A pattern is compiled at the
first text with one of its marks.
"""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .secret_patterns import (
    AT_NAMES,
    DATABASE,
    KEYS,
    LONGEST_PREFIX,
    NAME_BEGINS,
    NAME_ENDS,
    NAME_MARKS,
    OTHERS,
    SIGNED_IN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..models import HookResult

HIDDEN = "[REDACTED]"
SHORTEST = 8
"""Characters of the shortest secret that is looked for by its value: shorter ones are words."""
SHORTEST_REST = 4
"""Characters of the shortest end of a secret that is hidden where its beginning was not seen."""
CAUSES = 10
"""Causes of an error looked at."""
REMEMBERED = 256
"""Characters of the longest text whose redacted form is remembered."""
_VARIABLE = (
    r"(?:.*_)?(?:PASS|PAT|JWT|BEARER|COOKIE|CREDS?|AUTH_KEY)|SSHPASS|.+_PWD|.*(?:PASSWORD|PASSWD|PASSPHRASE|TOKEN|APIKEY)"
    r"|(?:.*_)?(?:SECRET|API_KEY|PRIVATE_KEY|ACCESS_KEY)(?:_(?!.*(?:FILE|PATH|DIR|NAME|NAMESPACE|ARN|ID|URL|URI|TYPE)$).*)?"
)
"""Names of variables beyond those of sensitive keys, without a number at the end."""

_secrets_of_process: set[str] = set()


def hide_secret(secret: str) -> None:
    """Hide a secret in every text from now on: it came from elsewhere than the environment and the bundle."""
    _secrets_of_process.add(secret.strip())


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with "[REDACTED]" in place of secrets.

    Secrets are `secrets`, those of `hide_secret`, the values of sensitive environment variables (`OPENAI_API_KEY`; see
    `SENSITIVE_KEYS`), keys of well-known services, passwords in URLs, and what follows `Bearer` or `api_key=`.
    """
    return _redact(text, known_forms(secrets))


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Return `redact_text` for many texts at once: the known secrets are collected now."""
    forms = known_forms(secrets)
    return lambda text: _redact(text, forms)


def hide_known(text: str) -> str:
    """Return `text` with "[REDACTED]" in place of the secrets known by value; forms of secrets stay.

    It is for the words of a model, which may write a password of its own invention.
    """
    return hide_forms(text, known_forms())


def redact_error(error: BaseException, secrets: Iterable[str] = ()) -> None:
    """Hide the secrets in the texts of an error and of its causes, in place: it may be shown anywhere afterwards."""
    forms = known_forms(secrets)
    current: BaseException | None = error
    for _ in range(CAUSES):
        if current is None:
            return
        changed = tuple(_redact(each, forms) if isinstance(each, str) else each for each in current.args)
        if changed != current.args:
            current.args = changed
        for name in ("strerror", "filename", "__notes__"):  # an `OSError` shows these, and not its arguments
            value = getattr(current, name, None)
            if value and (hidden := _redact_texts(value, forms)) != value:
                setattr(current, name, hidden)
        current = current.__cause__ or current.__context__


def redact_all(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a copy of a value without secrets, by key (`redact_secrets`) or by form (`redact_text`)."""
    from . import redact_secrets

    return _redact_texts(redact_secrets(value), known_forms(secrets))


async def redact_result(event: str, data: dict[str, Any]) -> HookResult | None:
    """Handle `tool:post`: put a result without secrets in place of one with secrets (`session.redact`)."""
    result = data.get("result")
    redacted = redact_all(result)
    if redacted == result:
        return None
    from ..models import HookResult

    return HookResult(action="modify", data={**data, "result": redacted})


def holds_key(text: str) -> bool:
    """Return whether a text contains a key of a well-known service, or a URL with a password."""
    if len(text) < SHORTEST:
        return False
    url = _compile(SIGNED_IN).search(text) if "://" in text else None
    if url is not None and "${" not in text[url.start() : text.index("@", url.end())]:
        return True
    return _replace(text, _lower(text), _KEYS) != text


def secrets_of(config: Any) -> Iterator[str]:
    """Yield the secrets of a configuration: texts at sensitive keys, passwords in URLs, and variables they name."""
    from . import REFERENCE, find_option_values, is_sensitive

    waiting, known = [config], set[int]()  # and no recursion: a plan is looked through for each session
    for current in waiting:
        if id(current) in known:  # a program's configuration may hold itself
            continue
        known.add(id(current))
        if isinstance(current, dict):
            for key, value in current.items():
                if not isinstance(value, str):
                    waiting.append(value)
                elif not isinstance(key, str) or not is_sensitive(key):
                    yield from _find_password(value)
                elif not REFERENCE.fullmatch(value):
                    yield from _read_variables(value)
        elif isinstance(current, list | tuple):
            waiting += current
            yield from (current[index] for index in find_option_values(current))


def _read_variables(value: str) -> Iterator[str]:
    """Yield a secret of a configuration: the value itself, or those of the variables in it (`${NAME}`)."""
    names = re.findall(r"\$\{(\w+)", value) if "${" in value else []
    yield from (os.environ[name] for name in names if name in os.environ)
    if not names:
        yield value


def _find_password(value: str) -> Iterator[str]:
    for form in (SIGNED_IN, DATABASE) if "://" in value and "@" in value else ():
        if found := _compile(form).search(value):
            yield found[0].removeprefix(found[1]).partition(":")[2]
            return


class StreamRedactor:
    """Hides known secrets in a text that comes in pieces.

    A piece that may begin a secret is held back until the next ones decide. `has_secrets` says whether there is
    anything to hide. Secrets are known by value alone: `secrets`, and those that `redact_text` knows. With `is_late`,
    earlier pieces were not seen: the text may begin within a secret, and the rest of that is hidden, too.
    """

    def __init__(self, secrets: Iterable[str] = (), *, is_late: bool = False) -> None:
        self._forms = known_forms(secrets)
        self._by_first: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_first.setdefault(form[0], []).append(form)
        self._longest = len(self._forms[0]) if self._forms else 0
        self._held = ""
        self._is_late = is_late

    @property
    def has_secrets(self) -> bool:
        """Whether there is a known secret to hide."""
        return bool(self._forms)

    def feed(self, piece: str) -> str:
        """Take the next piece, and return the text that is safe to show."""
        text = self._held + piece if self._held else piece
        if self._is_late:
            rest = self._find_rest(text)
            if rest is None:
                self._held = text
                return ""
            self._is_late, text = False, text[rest:]
        end = self._find_safe_end(text)
        self._held = text[end:]
        return hide_forms(text[:end], self._forms)

    def flush(self) -> str:
        """Return the rest: no more pieces come."""
        rest, self._held = self._held, ""
        if self._is_late and rest:
            self._is_late, rest = False, "" if len(rest) >= SHORTEST_REST else rest
        return hide_forms(rest, self._forms)

    def _find_rest(self, text: str) -> int | None:
        """Return how much of a text is the rest of a secret that began before; None: a later piece decides."""
        longest = 0
        for form in self._forms:
            start = form.find(text[:1], 1)
            while 0 < start <= len(form) - SHORTEST_REST:
                rest = form[start:]
                if text.startswith(rest):
                    longest = max(longest, len(rest))
                elif rest.startswith(text):
                    return None
                start = form.find(text[:1], start + 1)
        return longest

    def _find_safe_end(self, text: str) -> int:
        """Return how much of a text no later piece can make part of a secret."""
        end = len(text)
        for start in range(max(0, end - self._longest + 1), end):
            forms = self._by_first.get(text[start])
            rest = text[start:]
            if any(len(form) > len(rest) and form.startswith(rest) for form in forms or ()):
                end = start
                break
        if end == len(text) or not end:
            return end
        for form in self._forms:  # a whole secret across the end is not cut in two
            start = text.find(form, max(0, end - len(form) + 1), end + len(form) - 1)
            end = min(end, start) if start >= 0 else end
        return end


def known_forms(secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the known secrets in all forms in which they are looked for, the longest first."""
    given = (*secrets, *_secrets_of_process, *_secrets_of_environment())
    return _collect_forms(frozenset(value for each in given if len(value := each.strip()) >= SHORTEST))


@lru_cache(maxsize=64)
def _collect_forms(values: frozenset[str]) -> tuple[str, ...]:
    from .secret_forms import encode_secret

    forms = {form for value in values for form in encode_secret(value)}
    return tuple(sorted(forms, key=lambda each: (-len(each), each)))


class _Environment(NamedTuple):
    """Hold the secrets of an environment, and the variables in which they were found."""

    variables: Mapping[Any, Any]
    secrets: tuple[str, ...]


_seen = _Environment({}, ())


def _secrets_of_environment() -> tuple[str, ...]:
    """Return the secrets among the variables of this moment; they are looked for when a variable has changed."""
    global _seen
    # As stored, in one comparison of dicts: to read each variable by `os.environ` takes forty times as long.
    variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    seen = _seen
    if seen.variables != variables:
        variables = dict(variables)  # first: what another thread changes from here on makes a difference the next time
        long = [(name, value) for name, value in os.environ.items() if len(value) >= SHORTEST]
        seen = _seen = _Environment(variables, tuple(each for found in long for each in _read_secret(*found)))
    return seen.secrets


def is_secret_variable(name: str) -> bool:
    """Return whether the name of an environment variable says that its value is a secret."""
    from . import is_sensitive

    return is_sensitive(name) or re.fullmatch(_VARIABLE, re.sub(r"_?\d+$", "", name.upper())) is not None


@lru_cache(maxsize=1024)
def _read_secret(name: str, value: str) -> tuple[str, ...]:
    """Return the secret of an environment variable, if any; the path of a file is none (`PWD`, `…_CREDENTIALS`)."""
    if name.upper().endswith("_PROXY"):
        return tuple(_find_proxy_password(value))
    if is_secret_variable(name):
        return () if os.path.isabs(value) and os.path.exists(value) else (value,)  # noqa: PTH110, PTH117 - pathlib is slow
    return tuple(_find_password(value))


def _find_proxy_password(address: str) -> Iterator[str]:
    """Yield the password of a proxy: whole, unquoted, in the pieces of readers of addresses; or its user, a token."""
    from urllib.parse import unquote

    user, _, password = address.rpartition("@")[0].split("://", 1)[-1].partition(":")
    if password:
        first = re.split("[#/?]", password)[0]
        yield from (password, unquote(password), f"{user}:{first}", *re.split("[#/?]", password))
    elif len(user) >= 16 and re.search(r"\d", user):  # no name of a person
        yield from (user, unquote(user))


def _redact(text: str, forms: Sequence[str]) -> str:
    if len(text) < SHORTEST:
        return text
    text = hide_forms(text, forms)
    return _hide_shapes_again(text) if len(text) <= REMEMBERED else _hide_shapes(text)


def hide_forms(text: str, forms: Sequence[str]) -> str:
    """Return a text without the secrets that `known_forms` returned."""
    for form in forms:
        if form in text:
            text = text.replace(form, HIDDEN)
    return text


_Form = tuple[str, tuple[tuple[str, tuple[tuple[int, str], ...]], ...]]


def _by_sign(forms: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[_Form, ...]:
    """Return (sign, ((mark, numbered patterns), …)) of forms: most texts lack the sign of many marks, such as `_`."""
    signs: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for number, (marks, patterns) in enumerate(forms):
        for mark in marks:
            sign = next((each for each in mark if not each.isalnum()), "")
            numbered = ((100 * number + index, each) for index, each in enumerate(patterns))
            signs.setdefault(sign, {}).setdefault(mark, []).extend(numbered)
    return tuple((sign, tuple((mark, tuple(each)) for mark, each in marks.items())) for sign, marks in signs.items())


_KEYS, _KEYS_AND_OTHERS = _by_sign(KEYS), _by_sign((*KEYS, *OTHERS))


def _replace(text: str, small: str, forms: Sequence[_Form]) -> str:
    found = [patterns for sign, marks in forms if sign in small for mark, patterns in marks if mark in small]
    for _, pattern in sorted({each for patterns in found for each in patterns}):
        text = _compile(pattern).sub(rf"\1{HIDDEN}", text)
    return text


def _hide_shapes(text: str) -> str:
    """Hide keys of services and what is signed in, then the values of sensitive names.

    Most patterns of the latter are tried at the names alone: to try them at each character takes ten times as long.
    """
    small = _lower(text)
    shown = _replace(text, small, _KEYS_AND_OTHERS)
    text, small = shown, small if shown == text else _lower(shown)
    if not any(mark in small for mark in NAME_MARKS):
        return text
    starts = _find_names(text, small)
    for begins_with_name, patterns in AT_NAMES:
        for pattern in patterns:
            compiled = _compile(pattern)
            hidden = _sub_at(starts, compiled, text) if begins_with_name else compiled.sub(rf"\1{HIDDEN}", text)
            if hidden != text:
                text, starts = hidden, _find_names(hidden, _lower(hidden))
    return text


_hide_shapes_again = lru_cache(maxsize=1024)(_hide_shapes)


def _find_names(text: str, small: str) -> list[int]:
    """Return where the sensitive names begin that a value may follow; `small` is the text in small letters."""
    begins = _compile(NAME_BEGINS)
    return sorted(
        {
            found.start()
            for end in _compile(NAME_ENDS).finditer(small)
            for found in begins.finditer(text, max(0, end.start() - LONGEST_PREFIX), end.end())
        }
    )


def _sub_at(starts: Sequence[int], pattern: re.Pattern[str], text: str) -> str:
    """Return what `pattern.sub` returns for a pattern that matches at `starts` alone."""
    parts, end = [], 0
    for start in starts:
        if start >= end and (found := pattern.match(text, start)):
            parts += [text[end:start], found[1], HIDDEN]
            end = found.end()
    return "".join([*parts, text[end:]])


def _lower(text: str) -> str:
    """Return a text with its ASCII letters in small: of the same length, as `str.lower` is not."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _redact_texts(value: Any, forms: Sequence[str]) -> Any:
    if isinstance(value, dict):
        return {key: _redact_texts(each, forms) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_texts(each, forms) for each in value]
    return _redact(value, forms) if isinstance(value, str) else value
