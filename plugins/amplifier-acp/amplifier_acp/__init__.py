"""Speak the Agent Client Protocol: an editor uses every bundle as an agent.

Where things are:

    command.py                 the command `amplifier acp`
    wire.py, peer.py           lines on stdin and stdout; JSON-RPC on them
    agent.py, params.py        the methods of the protocol; what they take
    editor_session.py          one session that the editor uses
    opening.py, trusting.py    its bundle, once that is trusted
    updates.py, replaying.py   a turn, and a stored history, as `session/update`
    tool_calls.py, contents.py tool calls and content blocks, as the protocol has them
    approving.py, options.py   permissions, modes, providers and models
    following.py               sessions of other processes, and their approvals

Version 1 of the protocol is spoken by hand: importing the models of the official SDK alone takes longer than an editor
should wait for `initialize`, and its router lets `_meta` replace parameters and ends at a frame that is no object. Its
client, and that of the official TypeScript SDK, prove in the tests what is spoken here.
"""
