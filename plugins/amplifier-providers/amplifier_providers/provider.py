"""Answer requests by the SDK of a service: one client for all requests of a session."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from amplifier_core.events import LLM_REQUEST, LLM_RESPONSE, PROVIDER_RETRY
from amplifier_core.llm_errors import (
    AuthenticationError,
    ConfigurationError,
    LLMError,
    LLMTimeoutError,
    ProviderUnavailableError,
)
from amplifier_core.utils.retry import RetryConfig, retry_with_backoff

from .call_ids import with_own_ids, with_single_ids
from .environment import explain_environment
from .silence import heard
from .streaming import BlockStream
from .texts import well_formed
from .usages import add_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from concurrent.futures import Future

    from amplifier_core import ChatRequest, ChatResponse, HookRegistry, ToolCall
    from amplifier_core.message_models import Usage

    from .config import BaseSettings
    from .errors import BaseTranslator

Client = TypeVar("Client")
T = TypeVar("T")
BROKEN_OFF = (
    *("error", "failed", "abort", "aborted", "cancelled", "canceled", "timeout"),
    *("network_error", "insufficient_system_resource"),  # GLM, DeepSeek
)
"""The reasons, in small letters, that a service gives for the end of an answer when it fails itself."""


class SDKProvider(ABC, Generic[Client]):
    """A provider. `complete` emits the events, limits the time and repeats attempts; a subclass asks once."""

    name: ClassVar[str]
    sdk: ClassVar[str]
    """The name of the SDK, for pip."""
    key_variable: ClassVar[str]
    place: ClassVar[str] = "base_url and the provider's config"
    """What to check when the address cannot be used."""

    def __init__(
        self, settings: BaseSettings, hooks: HookRegistry | None, *, key: str | None, address: str | None
    ) -> None:
        self.priority = settings.priority
        self._limits = settings
        self._hooks = hooks
        self._key, self._address, self._unset = key, address, settings.find_unset()
        self._building: Future[Client] | None = None

    def begin(self, build: Callable[..., Client], *args: Any) -> None:
        """Begin to make the client in a thread: to import an SDK takes a second."""
        threads = ThreadPoolExecutor(1, thread_name_prefix=f"import-{self.name}")
        self._building = threads.submit(build, *args)
        threads.shutdown(wait=False)

    # what a provider tells of its service

    @abstractmethod
    def translator(self, model: str) -> BaseTranslator:
        """Return the translator of errors for a request to this model."""

    @abstractmethod
    def make_call(self, request: ChatRequest, *, with_thinking: bool = True) -> Any:
        """Return a request in the form of the service, with its `model`; without thinking, none of earlier answers."""

    @abstractmethod
    async def stream(self, client: Client, call: Any, blocks: BlockStream) -> ChatResponse:
        """Ask once, and pass on the pieces of the answer. Leaving closes the connection, however it happens."""

    @abstractmethod
    async def close_client(self, client: Client) -> None:
        """Close the connections of the client."""

    def spell_id(self, call_id: str) -> str:
        """Return the id of a call, which another service may have given, as this one takes it."""
        return call_id

    def refuses_thinking(self, call: Any, error: LLMError) -> bool:
        """Return whether the call was refused for its thinking: without it, the service may answer."""
        return False

    # what the kernel asks

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Return the model's answer, and emit its pieces meanwhile.

        A failure of the service is followed by further attempts, unless it asks for a longer pause than
        `max_retry_delay`. Raises an `LLMError`.
        """
        started, request_id = perf_counter(), str(uuid4())
        request = self.make_sendable(request)
        call = self.make_call(request)
        about = {"provider": self.name, "model": call.model, "request_id": request_id}
        await self._emit(LLM_REQUEST, {**about, "message_count": len(request.messages)})
        is_heard = (request.metadata or {}).get("stream") is not False
        blocks = BlockStream(self._hooks if is_heard else None, request_id)
        spent: list[Usage] = []
        try:
            response = with_own_ids(await self._answer_in_time(request, call, about, blocks, spent), request)
        except (LLMError, asyncio.CancelledError) as error:
            usage = {"usage": add_up(spent)} if spent else {}
            if usage or isinstance(error, LLMError):
                problem = {"type": type(error).__name__, "msg": str(error)}
                took = round((perf_counter() - started) * 1000)
                failed = {**about, "status": "error", "error": problem, **usage, "duration_ms": took}
                await self._emit(LLM_RESPONSE, failed)
            raise
        took = round((perf_counter() - started) * 1000)
        await self._emit(LLM_RESPONSE, {**about, "status": "ok", "usage": add_up(spent), "duration_ms": took})
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        """Return the tool calls of a response, in order."""
        return list(response.tool_calls or ())

    async def close(self) -> None:
        """Close the connections."""
        building = self._building
        if building is None or building.cancel():
            return
        try:
            client = await asyncio.shield(asyncio.wrap_future(building))
        except Exception:  # there is none: a request has told why, or there was no request
            return
        await self.close_client(client)

    # one answer

    async def _answer_in_time(
        self, request: ChatRequest, call: Any, about: dict[str, Any], blocks: BlockStream, spent: list[Usage]
    ) -> ChatResponse:
        limit = request.timeout or self._limits.timeout
        translator = self.translator(call.model)
        await self._open(translator)  # the import is no part of the answer
        try:
            async with asyncio.timeout(limit):
                return await self._answer(request, call, about, translator, blocks, spent)
        except TimeoutError:
            late = translator.make(
                LLMTimeoutError, f"no whole answer in {limit:g} s (timeout)", "Try again, or raise it."
            )
            if blocks.has_begun:
                vars(late)["has_answered"] = True  # the service is there: events do not wait for it
            await blocks.abort(late)
            raise late from None

    async def _answer(
        self,
        request: ChatRequest,
        call: Any,
        about: dict[str, Any],
        translator: BaseTranslator,
        blocks: BlockStream,
        spent: list[Usage],
    ) -> ChatResponse:
        limits = self._limits
        attempts = RetryConfig(
            max_retries=limits.max_retries, initial_delay=limits.min_retry_delay, max_delay=limits.max_retry_delay
        )
        latest, with_thinking = call, True

        async def attempt() -> ChatResponse:
            nonlocal latest, with_thinking
            blocks.usage = None
            try:
                response = await self.ask(lambda client: self.stream(client, latest, blocks), translator)
                blocks.usage = response.usage = response.usage or blocks.usage
                if (reason := response.finish_reason or "").lower() in BROKEN_OFF:
                    problem = f"the service broke the answer off ({reason})"
                    raise translator.make(ProviderUnavailableError, problem, "Try again.")
                return well_formed(response)
            except LLMError as error:
                await blocks.abort(error)
                if not (with_thinking and self.refuses_thinking(latest, error)):
                    raise
                with_thinking = False
            finally:
                if blocks.usage is not None:
                    spent.append(blocks.usage)
            latest = self.make_call(request, with_thinking=False)
            return await attempt()

        async def note(number: int, delay: float, error: LLMError) -> None:
            if delay > limits.max_retry_delay:
                raise error
            tried = {"attempt": number, "max_retries": limits.max_retries, "delay": delay}
            what = {"error_type": type(error).__name__, "error_message": str(error), "retry_after": error.retry_after}
            await self._emit(PROVIDER_RETRY, {**about, **tried, **what})

        return await retry_with_backoff(attempt, attempts, on_retry=note)

    def make_sendable(self, request: ChatRequest) -> ChatRequest:
        """Return a request of well-formed texts, in which each call has an id of its own."""
        return with_single_ids(well_formed(request), self.spell_id)

    async def ask(self, function: Callable[[Client], Awaitable[T]], translator: BaseTranslator) -> T:
        """Await `function(client)`, and translate its errors."""
        try:
            return await function(await self._open(translator))
        except Exception as error:
            raise translator.translate(error) from None

    @asynccontextmanager
    async def limit_silence(self, *, within: bool) -> AsyncIterator[Callable[[], None]]:
        """Limit the seconds until the answer begins, and those of silence in it.

        It yields a function to call at the beginning, and `within` an answer for each piece; without it, the bytes of a
        client with the hook `hear_bytes` end the silence. Raises `LLMTimeoutError`.
        """
        limits, loop = self._limits, asyncio.get_running_loop()
        has_begun = False

        def hear() -> None:
            nonlocal has_begun
            has_begun = True
            limit.reschedule(loop.time() + limits.idle_timeout)

        def hear_byte() -> None:
            if has_begun and not limit.expired():
                hear()

        token = heard.set(None if within else hear_byte)
        try:
            async with asyncio.timeout(limits.first_token_timeout) as limit:
                yield hear
        except TimeoutError:
            if not limit.expired():
                raise
            if has_begun:
                late = f"the answer fell silent for {limits.idle_timeout:g} s (idle_timeout)"
            else:
                late = f"the answer did not begin in {limits.first_token_timeout:g} s (first_token_timeout)"
            raise LLMTimeoutError(late) from None
        finally:
            heard.reset(token)

    async def _open(self, translator: BaseTranslator) -> Client:
        """Return the client, made in a thread with its SDK."""
        if self._unset is not None:
            key, name = self._unset
            problem = f"{key} names the variable {name}, which is not set"
            remedy = f"Set {name}, or correct {key} in the provider's config."
            unset = translator.make(ConfigurationError, problem, remedy)
            unset.lacks_key = key == "api_key"  # events wait for a key
            raise unset
        if self._building is None:
            remedy = f"Set {self.key_variable}, or api_key in the provider's config."
            raise translator.make(AuthenticationError, "there is no API key", remedy)
        if self._key and (not (self._key.isascii() and self._key.isprintable()) or " " in self._key):
            remedy = f"Check {self._limits.name_key(self.key_variable)}."
            raise translator.make(AuthenticationError, "the API key has odd characters", remedy)
        try:
            if self._address:  # one of the environment is not checked before
                self._limits.check_address(self._address)
            return await asyncio.shield(asyncio.wrap_future(self._building))
        except Exception as error:
            if (explained := explain_environment(error)) is not None:
                made = translator.make(ConfigurationError, *explained)
                vars(made)["is_of_environment"] = True  # events wait until it is mended
                raise made from None
            if isinstance(error, ImportError):
                remedy = f"Run: pip install --force-reinstall {self.sdk}"
                raise translator.make(ConfigurationError, f"its SDK cannot be imported: {error}", remedy) from None
            address = f"the address {self._address}" if self._address else "the service"
            problem = f"{address} cannot be used: {error}"
            raise translator.make(ConfigurationError, problem, f"Check {self.place}.") from None

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        if self._hooks is not None:
            await self._hooks.emit(event, data)
