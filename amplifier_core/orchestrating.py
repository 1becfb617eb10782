"""Call the orchestrator and the context of a session, and check what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import NoProviderMounted
from .raised import blame
from .transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from .session import AmplifierSession


def start_turn(session: AmplifierSession, prompt: str, without_key: Sequence[str]) -> Awaitable[Any]:
    """Call the orchestrator; `without_key` are the reasons of providers that mounted none.

    Raises `RuntimeError` without orchestrator, context or provider, and `TypeError` for other parameters of `execute`.
    """
    mounted = session.coordinator.mount_points
    orchestrator, context, providers = mounted["orchestrator"], mounted["context"], mounted["providers"]
    if orchestrator is None:
        raise RuntimeError("No orchestrator module mounted")
    if context is None:
        raise RuntimeError("No context manager mounted")
    if not providers:
        failed = [each for each in session.load_failures if each.kind == "provider"]
        lacks_key = bool(without_key) or any(each.lacks_key for each in failed)
        causes = [*(f"{each.module_id}: {each.error}" for each in failed), *without_key]
        raise NoProviderMounted(session.session_id, causes, lacks_key=lacks_key)
    try:
        answer: Awaitable[Any] = orchestrator.execute(
            prompt=prompt,
            context=context,
            providers=providers,
            tools=mounted["tools"],
            hooks=session.coordinator.hooks,
            coordinator=session.coordinator,
        )
    except TypeError as error:
        raise blame(error, orchestrator.execute, _name_orchestrator(session)) from None
    return answer


def refuse_answer(session: AmplifierSession, answer: object) -> TypeError:
    """Return the error for an answer that is not text; it names the orchestrator."""
    text = f"{_name_orchestrator(session)} must answer with text, not with {type(answer).__name__}"
    return blame(TypeError(text), session.coordinator.mount_points["orchestrator"].execute)


async def copy_history(context: Any) -> Transcript:
    """Return a copy of the messages of a context. Raises `TypeError` for anything but messages."""
    messages = await context.get_messages()
    try:
        return Transcript(messages)
    except (TypeError, ValueError):
        text = f"the context manager must return a list of messages, not {type(messages).__name__}"
        raise blame(TypeError(text), context.get_messages) from None


def _name_orchestrator(session: AmplifierSession) -> str:
    spec = session.config["session"]["orchestrator"]
    return f"orchestrator '{spec.get('module') if isinstance(spec, dict) else spec}'"
