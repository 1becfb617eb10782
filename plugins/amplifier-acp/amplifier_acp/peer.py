"""Speak JSON-RPC 2.0 with the editor: answer its requests, hear its notifications, and ask it in turn."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from amplifier_core.cancellation import call_guarded, own_failure

from .wire import LONGEST_LINE, LineTooLong, Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    Params = dict[str, Any]
    Handler = Callable[[Params], Coroutine[Any, Any, Any]]

logger = logging.getLogger(__name__)

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REQUEST_CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32800, -32000, -32002
CANCEL = "$/cancel_request"
LONGEST_ERROR = 4_000
"""Characters of the message of an error; it may quote what it was asked for."""


class RpcError(Exception):
    """An error as the protocol has it: `code`, a message, and perhaps `data`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    def to_dict(self) -> dict[str, Any]:
        """Return it as the member `error` of an answer."""
        text = str(self)
        told = {"code": self.code, "message": text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}…"}
        return told if self.data is None else {**told, "data": self.data}


class Peer:
    """The editor at the other end. `requests` and `notifications` are called with checked parameters: an object."""

    def __init__(self, requests: Mapping[str, Handler], notifications: Mapping[str, Handler]) -> None:
        self._requests = requests
        self._notifications = {**notifications, CANCEL: self._cancel}
        self._running: dict[Any, asyncio.Task[Any]] = {}
        self._notified: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._withdrawn: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._count = 0
        self._ended = asyncio.Event()
        self._wire: Wire | None = None
        self.explain: Callable[[Exception], RpcError] = lambda error: RpcError(INTERNAL_ERROR, type(error).__name__)
        """Turns an error of a handler into one of the protocol."""

    async def serve(self, reading: int, writing: int, until: Awaitable[Any]) -> None:
        """Speak until the editor closes its end, or `until` is done; then cancel what runs."""
        self._wire = wire = Wire(reading, writing, self._take)
        wire.start()
        ending = [asyncio.ensure_future(until), asyncio.ensure_future(self._ended.wait())]
        try:
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*ending, *self._running.values(), *self._notified):
                task.cancel()
            for future in self._asked.values():
                future.cancel()
            await asyncio.gather(*ending, *self._running.values(), *self._notified, return_exceptions=True)

    def close(self) -> None:
        """Write what was sent."""
        if self._wire is not None:
            self._wire.close()

    def notify(self, method: str, params: Params) -> None:
        """Send a notification; any thread may call this."""
        assert self._wire is not None  # nobody notifies before `serve`
        self._wire.send({"jsonrpc": "2.0", "method": method, "params": params})

    def update(self, session_id: str, update: Params) -> None:
        """Send an update of a session; any thread may call this."""
        self.notify("session/update", {"sessionId": session_id, "update": update})

    async def settle(self) -> None:
        """Wait until the editor has read most of what was sent; any loop may await this."""
        wire = self._wire
        if wire is not None and wire.is_full:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wire.drain(), wire.loop))

    def order(self, method: str, params: Params) -> str:
        """Ask the editor, and wait for no answer; return the number of the question. Call it in the loop of `serve`."""
        assert self._wire is not None
        self._count += 1
        number = f"amplifier-{self._count}"
        self._wire.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    async def request(
        self, method: str, params: Params, *, take_late: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """Ask the editor. Raises `RpcError` for its refusal; a cancellation withdraws the question.

        An editor that answers all the same has done what it was asked: `take_late` gets that answer.
        """
        number = self.order(method, params)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        try:
            result = await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self.notify(CANCEL, {"requestId": number})
                if take_late is not None:
                    self._withdrawn[number] = take_late
            elif take_late is not None and answer.exception() is None:  # it came just before the cancellation
                _hand_over(answer.result(), take_late)
            raise
        finally:
            del self._asked[number]
        return result if isinstance(result, dict) else {}

    # what comes

    def _take(self, line: bytes | LineTooLong | None) -> None:
        assert self._wire is not None
        self._wire.handled()
        if line is None:
            self._ended.set()
            return
        try:
            self._dispatch(_read(line))
        except RpcError as error:
            self._answer(None, error=error.to_dict())

    def _dispatch(self, message: dict[str, Any]) -> None:
        number, method = message.get("id"), message.get("method")
        if method is None and "id" in message and ("result" in message or "error" in message):
            self._settle(number, message)
            return
        is_request = "id" in message
        if (isinstance(number, bool) or not isinstance(number, str | int | None)) or not isinstance(method, str):
            raise RpcError(INVALID_REQUEST, "a message has a text as its `method`, and a text or number as its `id`")
        if message.get("jsonrpc") != "2.0":
            self._refuse(is_request, number, RpcError(INVALID_REQUEST, 'the member `jsonrpc` must be "2.0"'))
            return
        params = message.get("params")
        if not is_request:
            if (handler := self._notifications.get(method)) is not None and isinstance(params, dict | None):
                self._start(self._hear(handler, method, params or {}))
            return
        known = self._requests.get(method)
        if known is None:
            self._refuse(True, number, RpcError(METHOD_NOT_FOUND, f"there is no method '{method}'", {"method": method}))
        elif not isinstance(params, dict | None):
            self._refuse(True, number, RpcError(INVALID_PARAMS, "the member `params` must be an object"))
        elif number in self._running:
            self._refuse(True, number, RpcError(INVALID_REQUEST, f"the id {number!r} is in use by a running request"))
        else:
            self._running[number] = task = asyncio.create_task(call_guarded(known, params or {}))
            task.add_done_callback(partial(self._finish, number))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._notified.add(task)
        task.add_done_callback(self._notified.discard)

    async def _hear(self, handler: Handler, method: str, params: Params) -> None:
        try:
            await handler(params)
        except BaseException as raised:  # nobody waits for an answer
            error = own_failure(raised)
            logger.warning("%s: %s", method, self.explain(error) if not isinstance(error, RpcError) else error)

    def _finish(self, number: Any, task: asyncio.Task[Any]) -> None:
        """Answer a request; also one that was cancelled before its handler began."""
        del self._running[number]
        if task.cancelled():
            self._answer(number, error=RpcError(REQUEST_CANCELLED, "cancelled").to_dict())
        elif (error := task.exception()) is None:
            self._answer(number, result=task.result())
        else:
            assert isinstance(error, Exception)  # the loop has ended for any other
            logger.debug("a request failed", exc_info=error)
            told = error if isinstance(error, RpcError) else self.explain(error)
            self._answer(number, error=told.to_dict())

    async def _cancel(self, params: Params) -> None:
        number = params.get("requestId")
        task = self._running.get(number) if isinstance(number, str | int) else None
        if task is not None:
            task.cancel()

    def _settle(self, number: Any, message: dict[str, Any]) -> None:
        if not isinstance(number, str):
            return
        take_late = self._withdrawn.pop(number, None)
        if take_late is not None:
            _hand_over(message.get("result"), take_late)
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result"))
        else:
            code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, error)
            answer.set_exception(RpcError(code if isinstance(code, int) else INTERNAL_ERROR, str(text)))

    def _refuse(self, is_request: bool, number: Any, error: RpcError) -> None:
        if is_request:
            self._answer(number, error=error.to_dict())

    def _answer(self, number: Any, **told: Any) -> None:
        assert self._wire is not None
        self._wire.send({"jsonrpc": "2.0", "id": number, **told})


def _hand_over(result: Any, take_late: Callable[[dict[str, Any]], None]) -> None:
    if isinstance(result, dict):
        take_late(result)


def _read(line: bytes | LineTooLong) -> dict[str, Any]:
    """Return the message of a line. Raises `RpcError`."""
    if isinstance(line, LineTooLong):
        raise RpcError(INVALID_REQUEST, f"a message has at most {LONGEST_LINE} bytes")
    try:
        message = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"a line is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "a line must hold one JSON object; there are no batches")
    return message


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
