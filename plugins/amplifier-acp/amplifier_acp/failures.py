"""Turn errors into those of the protocol: one line without secrets."""

from __future__ import annotations

from amplifier_core.errors import (
    AmplifierError,
    CommandFailed,
    CommandMissing,
    InvalidSessionId,
    SessionConflict,
    SessionNotFound,
)

from .peer import AUTH_REQUIRED, INTERNAL_ERROR, INVALID_REQUEST, NOT_FOUND, RpcError


def unknown_session(session_id: str) -> RpcError:
    """Return the error about a session that nobody knows."""
    return RpcError(NOT_FOUND, f"there is no session '{session_id}'", {"sessionId": session_id})


def explain(error: Exception) -> RpcError:
    """Return the error of the protocol for an error of a handler."""
    from amplifier_core.utils.secrets import redact_text
    from amplifier_foundation.cli.advice import with_advice
    from amplifier_foundation.sessions.failures import describe_failure, find_provider_error

    if isinstance(error, SessionNotFound | InvalidSessionId):
        return unknown_session(str(getattr(error, "session_id", "")))
    if isinstance(error, SessionConflict | CommandFailed | CommandMissing):
        return RpcError(INVALID_REQUEST, redact_text(str(error)))
    if (failure := find_provider_error(error)) is not None:
        code = AUTH_REQUIRED if type(failure).__name__ == "AuthenticationError" else INTERNAL_ERROR
        return RpcError(code, redact_text(describe_failure(error)))
    if isinstance(error, AmplifierError):
        return RpcError(INTERNAL_ERROR, redact_text(with_advice(error)))
    return RpcError(INTERNAL_ERROR, redact_text(describe_failure(error)))
