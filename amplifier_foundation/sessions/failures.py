"""Tell the failure of a session in one line: of a provider's error its status, its text and the remedy."""

from __future__ import annotations

import os
from asyncio import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amplifier_core.errors import NoProviderMounted
    from amplifier_core.llm_errors import LLMError
    from amplifier_core.session import AmplifierSession

CAUSES = 10
"""Causes of an error looked at."""
LONGEST = 500
"""Characters of a provider's text in a line."""

_REMEDIES = {
    "AccessDeniedError": "The key does not allow this: check its permissions",
    "AuthenticationError": "Check the key",
    "QuotaExceededError": "The account has nothing left: check its plan and billing",
    "RateLimitError": "Try again later",
    "ContextLengthError": "Begin a new session, or limit the history: 'max_tokens' of context-simple",
    "ContentFilterError": "Ask in other words",
    "InvalidRequestError": "Check the configuration of the provider and its model",
    "NetworkError": "Check the network and the provider's address, and try again",
    "NotFoundError": "Check the model and the provider's address",
    "ConfigurationError": "Check the configuration of the provider",
}
"""Remedies by class; a subclass without its own has that of its base."""


def causes_of(error: BaseException | None, *, handled: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes; with `handled`, also errors in whose handling another one was raised."""
    for _ in range(CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or (error.__context__ if handled else None)


def find_provider_error(error: BaseException | None) -> LLMError | None:
    """Return the error of a provider that ended a session, or None; an orchestrator may have wrapped it."""
    from amplifier_core.llm_errors import LLMError

    return next((each for each in causes_of(error) if isinstance(each, LLMError)), None)


def describe_failure(error: BaseException, session: AmplifierSession | None = None) -> str:
    """Return a failure in one line: `anthropic: 401 invalid x-api-key. Check the key in ANTHROPIC_API_KEY`.

    Secrets are hidden. `session` is asked for the variables of its provider; later calls with the same error know them.
    An error of this program is its own text; any other one that is no provider's has the name of its class,
    and of the module that raised it.
    """
    from amplifier_core.errors import AmplifierError, NoProviderMounted
    from amplifier_core.raised import describe_at, find_origin
    from amplifier_core.utils.secrets import redact_text

    if isinstance(error, CancelledError) and "cancel scope" in str(error):
        error = CancelledError()  # anyio's text shows its own tasks
    problem = find_provider_error(error)
    if problem is None and isinstance(error, AmplifierError) and str(error):
        remedy = f". {advise_on_providers(error)}" if isinstance(error, NoProviderMounted) else ""
        return redact_text(f"{error}{remedy}")
    if problem is None:
        title, place = find_origin(error)
        text = describe_at(error, place)
        return redact_text(f"{title}: {text}" if title else text)
    if problem.remedy is None:
        problem.remedy = _choose_remedy(problem, _find_variables(problem, session))
    text = " ".join(str(problem).split())[:LONGEST].rstrip(".") or type(problem).__name__
    status = f"{problem.status_code} " if problem.status_code and str(problem.status_code) not in text else ""
    return redact_text(f"{problem.provider or 'provider'}: {status}{text}. {problem.remedy}")


def advise_on_providers(error: NoProviderMounted) -> str:
    """Return what helps where no provider was mounted; a check of the bundle does not run the code that failed."""
    if not error.causes and not error.lacks_key:
        return "Add one under 'providers' of the bundle, or to a turn with: amplifier run --provider NAME"
    remedy = "See: amplifier bundle validate"
    if error.causes and not error.lacks_key:
        return f"{remedy}. If it finds nothing, correct the provider's 'config' in the bundle, or update its package"
    return remedy


def describe_with_login(error: BaseException) -> str:
    """Return a failure in one line; of a missing or refused key, with the command that keeps one.

    A key of the environment comes before a kept one: the command would not help. It knows installed providers by name.
    """
    from amplifier_core.llm_errors import AccessDeniedError, AuthenticationError

    from ..bundle.credentials import PREFIX, find_key_names, locate_first_key, module_source

    problem, line = find_provider_error(error), describe_failure(error)
    if not isinstance(problem, AuthenticationError) or isinstance(problem, AccessDeniedError) or not problem.provider:
        return line
    module = f"{PREFIX}{problem.provider}"
    names, found = find_key_names(module), locate_first_key(module)
    if not names or (found is not None and found[1] == "environment"):
        return line
    return f"{line.rstrip('.')}, or run: amplifier auth login {problem.provider if module_source(module) else names[0]}"


def _choose_remedy(error: LLMError, variables: Sequence[str]) -> str:
    known = (_REMEDIES.get(each.__name__) for each in type(error).__mro__)
    remedy = next(filter(None, known), "Try again" if error.retryable else "See the provider's documentation")
    if error.retryable and error.retry_after:
        return f"Try again in {error.retry_after:g} s"
    names = " or ".join(variables)
    if names and remedy in (_REMEDIES["AuthenticationError"], _REMEDIES["ConfigurationError"]):
        is_set = any(os.environ.get(name) for name in variables)
        return f"Check the key in {names}" if is_set else f"Set the key: {names}"
    return remedy


def _find_variables(error: LLMError, session: AmplifierSession | None) -> list[str]:
    """Return the environment variables with the key of the failed provider."""
    providers: dict[str, Any] = session.coordinator.get("providers") if session is not None else {}
    provider: Any = providers.get(error.provider or "") or (
        next(iter(providers.values())) if len(providers) == 1 else None
    )
    with suppress(Exception):  # it is the code of others, and the error matters more
        return [str(name) for name in provider.get_info().credential_env_vars]
    return []
