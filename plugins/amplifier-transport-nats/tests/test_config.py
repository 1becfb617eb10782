"""Test the configuration, and what stands where in subjects."""

from __future__ import annotations

from typing import Any

import pytest

from amplifier_transport_nats import make_nats
from amplifier_transport_nats.config import read_config
from amplifier_transport_nats.subjects import filters_of, parse_subject, subject_of

SERVERS = {"servers": ["nats://127.0.0.1:4222"]}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "servers: Field required"),
        ({"servers": []}, "servers: List should have at least 1 item"),
        ({"servers": ["127.0.0.1"]}, "servers.0: an address is nats://HOST:PORT"),
        ({**SERVERS, "stram": "x"}, "unknown key 'stram'. Known: servers, stream, max_age"),
        ({**SERVERS, "stream": "a.b"}, "stream: String should match pattern"),
        ({**SERVERS, "token": "t0p-s3cret", "user": "me"}, "token or user and password: a site has one of them"),
        ({**SERVERS, "user": "me"}, "user and password belong together"),
        ({**SERVERS, "tls": {"cert_file": "c"}}, "tls: cert_file and key_file belong together"),
        ({**SERVERS, "tls": {"cafile": "c"}}, "unknown key 'tls.cafile'. Known: ca_file, cert_file"),
        ({**SERVERS, "replicas": 9}, "replicas: Input should be less than or equal to 5"),
        ({**SERVERS, "max_age": "soon"}, "soon"),
        ({**SERVERS, "max_age": 1e30}, "max_age: must be at most 3155760000"),
        ({**SERVERS, "token": ["t0p-s3cret"]}, "token: Input should be a valid string"),
    ],
)
def test_a_config_that_cannot_work_is_refused_with_its_key_and_without_its_secret(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match="^transport-nats: ") as told:
        make_nats(config)
    assert said in str(told.value)
    assert "s3cret" not in str(told.value)


def test_a_stream_keeps_events_for_a_week_unless_the_config_says_else() -> None:
    assert read_config(SERVERS).age == 7 * 86_400
    assert read_config({**SERVERS, "max_age": "36h"}).age == 36 * 3_600


@pytest.mark.parametrize("name", ["work:done", "work", "a:b:c", "a::b", "work:", ":", "ü mlaut", "v1.2:*>", "50%", "%"])
def test_a_name_comes_back_from_its_subject(name: str) -> None:
    subject = subject_of("amplifier", "berlin", name)
    assert parse_subject(subject) == ("berlin", name)
    assert all(token and not set(token) & set(" \t*>") for token in subject.split("."))


@pytest.mark.parametrize(
    ("names", "filters"),
    [
        (["work:*"], ["s.*.work.>"]),
        (["work:done"], ["s.*.work.done"]),
        (["work:*", "work:done", "heard:done"], ["s.*.heard.done", "s.*.work.>"]),
        (["wor*", "work:done"], ["s.*.>"]),
        (["*", "work:*"], ["s.*.>"]),
        (["work", "work:*"], ["s.*.work", "s.*.work.>"]),
        (["a:b:*", "a:*"], ["s.*.a.>"]),
    ],
)
def test_the_broker_filters_by_the_wanted_names(names: list[str], filters: list[str]) -> None:
    assert filters_of("s", names) == filters
