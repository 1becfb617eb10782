"""Define the stream of a provider: the events of a response while it comes.

`Provider.complete` emits them with `await coordinator.hooks.emit(name, data)`, and returns the whole response at its
end. For each block of the response, in its order:

    llm:stream_block_start   request_id, block_index, block_type; `name` for a tool call
    llm:stream_block_delta   request_id, block_index, block_type, sequence, text
    llm:stream_block_end     request_id, block_index, block_type

* `request_id` is a text, the same in all events of one attempt. `block_index` counts the blocks of the attempt, and
  `sequence` the deltas of a block; both from 0.
* `block_type` is `text`, `thinking` or `tool_use`. A block ends before the next one starts. A `tool_use` block has no
  deltas: its input is whole in the response.
* `text` is never empty. The deltas of the text blocks, joined, are the text of the response.
* An attempt that fails after its first delta emits `llm:stream_aborted` with `request_id` and `error`, a mapping with
  `type` and `msg`. Its blocks are void: a loop forgets them. Another attempt begins at block 0.
* A cancelled `complete` closes its connection, emits nothing more and raises `CancelledError`. The loop keeps the text
  of the deltas so far.
* A request with `metadata={"stream": False}` gets a response without any of these events.

A loop repeats the blocks as `content_block:start` and `content_block:end`. `amplifier_core.testing.check_stream` checks
a provider. These names are not in `ALL_EVENTS`: a log of all events has the blocks, and not each piece of them.
"""

from __future__ import annotations

STREAM_BLOCK_START = "llm:stream_block_start"
STREAM_BLOCK_DELTA = "llm:stream_block_delta"
STREAM_BLOCK_END = "llm:stream_block_end"
STREAM_ABORTED = "llm:stream_aborted"

STREAM_EVENTS = (STREAM_BLOCK_START, STREAM_BLOCK_DELTA, STREAM_BLOCK_END, STREAM_ABORTED)
