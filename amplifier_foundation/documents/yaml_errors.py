"""Explain the syntax errors of YAML in plain words, with the corrected line where quotes are missing."""

from __future__ import annotations

import json
import re
from typing import Any

from .secrets import may_hold_secret

MAX_LINE = 200
"""Characters; a longer line is not repeated in a message."""
MAX_TEXT = 64 * 1024
"""Characters; in a longer text no quotes are tried."""
TRIALS = 3
"""Keys of the line whose values are tried in quotes, besides the first one."""

_MEANINGS = {
    "mapping values are not allowed in this context": "': ' is not possible here",
    "found character that cannot start any token": "text cannot begin with this character",
    "did not find expected alphabetic or numeric character": "'*' and '&' begin an alias or anchor",
    "did not find expected ',' or ']'": "',' or ']' is missing",
    "did not find expected ',' or '}'": "',' or '}' is missing",
    "found unexpected end of stream": "the closing quote is missing",
    "could not find expected ':'": "':' is missing after a key",
    "did not find expected key": "a key is missing here, or the indentation is wrong",
    "did not find expected '-' indicator": "'- ' is missing here, or the indentation is wrong",
    "block sequence entries are not allowed in this context": "a list begins on a line of its own",
    "did not find expected node content": "a value is missing here",
    "did not find expected comment or line break": "text after '|' or '>' begins on the next line",
    "found unknown escape character": "unknown escape in double quotes; use single quotes",
}
"""The messages of libyaml, and ours."""
_VALUE = re.compile(r"(?P<key>^\s*(?:- +)*|[\s{\[,])(?P<name>[\w.-]+): +(?=[^\s])")
_FLOW_END = re.compile(r"[\],}]")


def explain(yaml: Any, error: Any, text: str) -> tuple[int, str]:
    """Return the index in `text` and the message for an error of the module `yaml`.

    A missing pair of quotes is found by trial: the message has the line with quotes if YAML reads on with them.
    """
    index = min(error.problem_mark.index, len(text))
    begin = text.rfind("\n", 0, index) + 1
    end = text.find("\n", begin)
    line = text[begin : len(text) if end < 0 else end]
    message = _MEANINGS.get(error.problem or "", error.problem or "cannot be parsed")
    for start in _candidates(line, index - begin) if len(text) <= MAX_TEXT else ():
        fixed = _quote(line, start)
        if fixed and _reads_on(yaml, text, begin, line, fixed):
            shown = len(fixed) <= MAX_LINE and not may_hold_secret(line)
            return begin + start, f"{message}; quote it{f': {fixed.strip()}' if shown else ''}"
    return index, message


def _candidates(line: str, column: int) -> list[int]:
    """Return the columns at which an unquoted text may begin: at the error, before it, and after each key."""
    near = [at for at in (column, column - 1) if 0 <= at < len(line) and line[at] in "*&@`%!"]
    values = [found.end() for found in _VALUE.finditer(line[: column + 1])]
    return [*near, *values[:1], *values[1:][-TRIALS:]]


def _quote(line: str, start: int) -> str:
    """Return the line with the text from `start` on in quotes: to the end of its list or mapping, or of the line."""
    before, text = line[:start], re.split(r"\s#", line[start:])[0]
    is_flow = sum(before.count(each) for each in "[{") > sum(before.count(each) for each in "]}")
    end = _FLOW_END.search(text) if is_flow else None
    value = (text[: end.start()] if end else text).rstrip()
    if not value or value[0] in "\"'[]{},|>" or value.startswith("- "):
        return ""
    is_plain = "'" in value or not set(value) & set('\\"')
    quoted = json.dumps(value, ensure_ascii=False) if is_plain else f"'{value}'"
    return before + quoted + line[start + len(value) :]


def _reads_on(yaml: Any, text: str, begin: int, line: str, fixed: str) -> bool:
    """Whether YAML has no error up to the end of the line with `fixed` in place of `line`."""
    changed = text[:begin] + fixed + text[begin + len(line) :]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(changed)
    try:
        while loader.get_event() is not None:
            pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return mark is not None and mark.index > begin + len(fixed)
    finally:
        loader.dispose()
    return True
