"""Hide the secrets in what a person is asked to trust: commands, their arguments and variables, and settings.

Only commands are read by a shell, and what may be code in them is shown. Everywhere else a secret is hidden whole; its
mark says when it may be code.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = frozenset({"command", "commands", "run", "exec", "shell"})
"""Keys of texts for a shell."""
_BEFORE_CODE = re.compile(r"-\w*[ce]|--?(?:command|eval|exec|execute|print)", re.IGNORECASE)
"""Options before an argument with code: `sh -c`, `node --eval`."""
_STEERING = re.compile(
    r"(?:LD|DYLD)_.*|.*PATH|PYTHON.*|PERL5.*|RUBY(?:OPT|LIB)|NODE_OPTIONS|BASH_ENV|ENV|SHELL|IFS|.*_SHELL"
    r"|.*(?:EDITOR|PAGER|BROWSER|ASKPASS|PRELOAD|WRAPPER)"
    r"|GIT_.*|SSH_.*|BASH_.*|SHELLOPTS|LESS(?:OPEN|CLOSE)|NPM_CONFIG_.*|PIP_.*|UV_.*|CARGO_.*|RUST.*|MAKEFLAGS"
    r"|.*_(?:COMMAND|CMD|OPTIONS|OPTS|ARGS|FLAGS)",
    re.IGNORECASE,
)
"""Variables with paths, options or commands for the code of a program."""


def redact_arguments(words: Sequence[str]) -> str:
    """Return the words of a command that no shell reads as one line, without secrets."""
    from amplifier_core.utils import find_option_values
    from amplifier_core.utils.command_secrets import redact_commands, redact_words

    code = {index for index in range(1, len(words)) if _BEFORE_CODE.fullmatch(words[index - 1])}
    shown = [redact_words(each) if index in code else redact_commands(each) for index, each in enumerate(words)]
    for index in find_option_values(words):
        shown[index] = _mark(words[index])
    line = shlex.join(shown)
    return redact_words(line) if code else redact_commands(line)


def redact_settings(value: Any, key: str = "") -> Any:
    """Return a copy of the value at a key of a configuration without secrets, by their keys and by their forms."""
    from amplifier_core.utils import redact_secrets

    return _redact(redact_secrets(value) if key != "env" else value, key)


def _redact(value: Any, key: str) -> Any:
    from amplifier_core.utils.command_secrets import redact_commands, redact_words

    from ..sources.uris import redact_uris

    if isinstance(value, dict):
        if key == "env":
            return {name: redact_variable(str(name), each) for name, each in value.items()}
        return {name: _redact(each, str(name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(each, key) for each in value]
    if not isinstance(value, str):
        return value
    if key in _COMMANDS:
        return redact_words(value)
    shown = redact_commands(value)
    return redact_uris(shown) if "://" in shown else shown


def redact_variable(name: str, value: Any) -> Any:
    """Return the value of a variable without secrets; what changes the programs that run is shown."""
    from amplifier_core.utils.command_secrets import redact_words
    from amplifier_core.utils.secrets import is_secret_variable

    if not isinstance(value, str):
        return _redact(value, name)
    if is_secret_variable(name):
        return value if re.fullmatch(r"\$\{\w+\}|secret://[\w.-]+", value) else _mark(value)
    return redact_words(value) if _STEERING.fullmatch(name) else _redact(value, "")


def _mark(secret: str) -> str:
    from amplifier_core.utils.command_secrets import HIDDEN_CODE, holds_code
    from amplifier_core.utils.secrets import HIDDEN

    return HIDDEN_CODE if holds_code(secret) else HIDDEN
