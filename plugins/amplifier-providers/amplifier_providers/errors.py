"""Make the kernel's errors of an SDK's: the status and the service's words in one line, and a remedy.

No secret is in them: the API key, other keys and tokens, and a password in an address, read "[REDACTED]".
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from email.utils import mktime_tz, parsedate_tz
from math import isfinite
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from amplifier_core.llm_errors import (
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    NetworkError,
    QuotaExceededError,
    StreamError,
)

from .redirects import Redirected

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

try:
    from amplifier_core.utils.secrets import redact_text
except ModuleNotFoundError:  # the published kernel has no redactor of texts
    _FORMS = re.compile(
        r"(?i)()(?<=://)[^/@\s]+(?=@)"
        r"|(\bbearer\s+|(?:api[-_]?key|token|secret|password)[\"']?\s?[=:]\s?[\"']?)[\w.~+/=-]{6,}"
    )

    def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
        """Return `text` without secrets of the commonest forms."""
        return _FORMS.sub(r"\1\2[REDACTED]", text)


T = TypeVar("T")
LONGEST, LONGEST_REASON = 600, 450
"""Characters of an error, and of the service's words in it; the rest is left out."""
_SEARCHED = 4_000
"""Characters that are searched for secrets, and for what is too long."""
LONGEST_WAIT = 86_400
"""Seconds of the longest wait that an error tells: a service whose clock is wrong may ask for thousands of years."""
SHORTEST_SECRET = 8
"""Characters of the shortest key that is looked for: one that a local server takes, as "none", is a word."""


_TOO_LONG = re.compile(
    r"prompt is too long|\binput is too long for (?:the )?requested model"  # Anthropic, Bedrock
    r"|exceed(?:s|ed)? (?:the |your )?(?:available |max(?:imum)? )?context (?:length|limit|size|window)"  # most
    r"|context (?:length|size|window) (?:has been )?exceed(?:s|ed)"  # llama.cpp within an answer, MiniMax, Z.ai
    r"|max(?:imum)? (?:allowed )?(?:context|input|model|prompt) length"  # vLLM, OpenRouter, Mistral, xAI, DeepSeek
    r"|(?:greater|longer) than the (?:model'?s )?context length"  # LM Studio, Together, SGLang
    r"|context length of only|truncate prompt with n keep"  # LM Studio
    r"|too long to fit into the model|exceeded model token limit|context size is \d"  # vLLM, Kimi, ds4
    r"|(?:input|prompt) token count\b[^.]* (?:exceeds|only supports)"  # Gemini, GitHub Copilot
    r"|range of input length should be"  # Qwen
    r"|reduce the length of the (?:input|messages|prompt)"  # Groq
    r"|`inputs`.* must (?:be <=|have less than)"  # text-generation-inference
)
_TOO_LONG_FOR_A_MINUTE = re.compile(r"request too large for .*\btokens per min")  # OpenAI and Groq
_CODES = re.compile(r"max prompt tokens exceeded|tokens limit reached")  # GitHub
_WINDOW = re.compile(r"(?:maximum context length (?:is|of)|must be <=) (\d+)")
_ANSWER = re.compile(
    r"max (?:completion |new |output )?tokens\W? is too large: (\d+)"  # OpenAI, vLLM
    r"|requested (\d+) output tokens|(\d+) `max new tokens`"  # vLLM, text-generation-inference
    r"|(\d+) (?:tokens )?(?:in|for) the (?:completion|output)"  # SGLang, OpenRouter, DeepSeek
)
"""The tokens of the longest answer that a request has asked for, as a refusal tells them."""
_QUOTATION = re.compile(r"input value=|[\"'](?:input|content|messages|text)\\?[\"']: ?")
"""What a refusal quotes of the request begins here, as pydantic's errors do: its words are not the service's."""

STATUS_OF = {
    "overload": 529,
    "time_?out": 504,
    "rate_?limit|too_many_requests": 429,
    "authentication|api_key|deactivated": 401,
    "permission|denied": 403,
    "^not_found|model_not_found": 404,
    "server_error|internal|upstream": 500,
    "invalid|bad_?request|unsupported|image|residency|policy|parameter": 400,
}
"""The status of an error within a stream, which began with 200, by a part of its code or its type: the first counts.

No other word says that the request was wrong: the service has a problem, and another attempt may be answered.
"""


class Kind(NamedTuple):
    """A class of error, and the remedy."""

    error: type[LLMError]
    remedy: str


ANSWER_TOO_LONG = Kind(InvalidRequestError, "Set max_tokens of the provider's config lower.")
"""The longest answer that is asked for is more than the service takes."""


class BaseTranslator(ABC):
    """Translates the errors of one request, and knows what to hide in them."""

    provider: ClassVar[str]
    keys: ClassVar[re.Pattern[str] | None] = None
    """The form of the service's keys."""

    def __init__(self, model: str, secrets: Iterable[str | None]) -> None:
        self.model = model
        self._secrets = [secret for secret in secrets if secret and len(secret) >= SHORTEST_SECRET]

    @abstractmethod
    def translate_foreign(self, error: Exception) -> LLMError | None:
        """Return the kernel's error for one of the SDK or of its HTTP client; None for another error."""

    def translate(self, error: Exception) -> LLMError:
        """Return the kernel's error for any error of a request."""
        if isinstance(error, LLMError):
            if error.provider is not None:
                return error
            error.provider, error.model = self.provider, self.model
            error.args = (self.hide(str(error)),)
            return add_remedy(error, "Try again.")
        for each in (error, error.__cause__):
            if isinstance(each, Redirected):
                return self.make(each.kind, str(each), each.remedy)
            if each is not None and "remedy" in vars(each):  # the transport explains it
                facts, text = vars(each), f"no connection: {each}"
                made = self.make(NetworkError, text, facts["remedy"], retryable=not facts.get("is_lasting"))
                vars(made)["is_of_environment"] = facts.get("is_of_environment", False)
                return made
        found = self.translate_foreign(error)
        if found is not None:
            return found
        problem = f"{type(error).__name__}: {error}"
        if any(frame.f_globals.get("__name__") == "json.encoder" for frame, _ in walk_tb(error.__traceback__)):
            remedy = "Correct the value that is not JSON: in the provider's config, or of a tool."
            return self.make(InvalidRequestError, f"the request cannot be written ({problem})", remedy)
        made = self.make(StreamError, f"the answer cannot be read ({problem})", "Check base_url, and try again.")
        vars(made)["has_answered"] = True  # the service is there: events do not wait for it
        return made

    def hide(self, text: str, longest: int = LONGEST) -> str:
        """Return a text in one line, at most `longest` characters, without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[REDACTED]")
        text = " ".join(text[:_SEARCHED].split())
        text = self.keys.sub("[REDACTED]", text) if self.keys else text
        text = redact_text(text, self._secrets)
        return text if len(text) <= longest else text[: longest - 1] + "…"

    def make(self, kind: type[LLMError], text: str, remedy: str, **facts: Any) -> LLMError:
        """Return an error of this provider and model."""
        return add_remedy(kind(self.hide(text), provider=self.provider, model=self.model, **facts), remedy)

    def refuse(self, kind: Kind, status: int, said: str, wait: float | None) -> LLMError:
        """Return the error of a refused request: the words of the service, and the seconds that it asks to wait."""
        reason = self.hide(said or "no reason given", LONGEST_REASON).rstrip(".")
        waits = wait and wait <= LONGEST_WAIT and not issubclass(kind.error, QuotaExceededError | ContextLengthError)
        remedy = f"Try again in {wait:g} s." if waits else kind.remedy
        return self.make(kind.error, f"{status}: {reason}", remedy, status_code=status, retry_after=wait)


def name_cause(error: BaseException) -> str:
    """Return the text of an error, or its class for one without a text."""
    return str(error).strip() or type(error).__name__


def add_remedy(error: LLMError, remedy: str) -> LLMError:
    """Give an error its remedy: beside its text if the kernel tells remedies, else at its end."""
    if hasattr(LLMError, "remedy"):
        vars(error)["remedy"] = remedy
    else:
        error.args = (f"{error}. {remedy}",)
    return error


def find_excess(status: int | None, said: str, too_long: Kind, codes: Iterable[str] = ()) -> Kind | None:
    """Return `too_long` if a refusal says that the request is longer than the service takes; None for another cause.

    Few services have a code for it, and each has its own words. Where the longest answer that is asked for has no
    place in the context window, a shorter history does not help: `ANSWER_TOO_LONG`. Within a stream, there may be no
    `status`. Other refusals than those of a wrong request are what their status says, whatever their words.
    """
    if status not in (None, 400, 413, 422, 429, 500):
        return None
    words = _QUOTATION.split(said[:_SEARCHED].lower().replace("_", " "), maxsplit=1)[0]
    if _TOO_LONG_FOR_A_MINUTE.search(words):
        return too_long
    if status == 429:
        return None
    answer, window = _ANSWER.search(words), _WINDOW.search(words)
    if answer and (not window or int(answer[answer.lastindex or 0]) >= int(window[1])):
        return ANSWER_TOO_LONG
    names = " ".join(codes).lower().replace("_", " ")
    return too_long if _TOO_LONG.search(f"{names} {words}") or _CODES.search(names) else None


def find_part(table: Mapping[str, T], names: list[str]) -> T | None:
    """Return what a table has for the first pattern that any of the names has; None without one."""
    return next((found for part, found in table.items() if any(re.search(part, name) for name in names)), None)


def find_number(names: list[str]) -> int | None:
    """Return the first of the names that is the status of an error, as gateways tell it; None without one."""
    return next((int(name) for name in names if re.fullmatch("[45][0-9]{2}", name)), None)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a service asks to wait: of `retry-after-ms`, or of `retry-after`, a number or a date.

    None stands for neither, also for a date beyond the year 9999.
    """
    milliseconds, given = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, unit in ((milliseconds, 1000), (given, 1)):
        try:
            seconds = float(text or "") / unit
        except ValueError:
            continue
        if isfinite(seconds):
            return max(0.0, seconds)
    try:
        date = parsedate_tz(given) if given else None
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    except (ValueError, OverflowError):  # a year that no calendar has
        return None
