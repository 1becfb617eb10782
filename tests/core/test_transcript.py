"""The history of a session: a sequence like any other, whose forks share and never disturb each other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amplifier_core.transcript import Transcript

Message = dict[str, Any]
Pair = tuple[Transcript, list[Message]]
"""A transcript, and the plain list that it must equal."""


def said(number: int) -> Message:
    return {"role": "user", "content": str(number)}


def history(length: int) -> Transcript:
    transcript = Transcript()
    transcript.extend(said(number) for number in range(length))
    return transcript


def segments(transcript: Transcript) -> int:
    count, segment = 1, transcript._tail
    while segment.base is not None:
        count, segment = count + 1, segment.base
    return count


def assert_same(transcript: Transcript, expected: list[Message]) -> None:
    found = list(transcript)
    assert len(transcript) == len(expected)
    assert found == expected
    assert all(one is other for one, other in zip(found, expected, strict=True))


# against plain lists


class Family:
    """Forks of forks of one transcript, each beside a plain list, under random operations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.members: list[Pair] = [(Transcript(), [])]
        self.written = 0

    def step(self) -> None:
        transcript, expected = self.random.choice(self.members)
        self.random.choices(
            [self.append, self.extend, self.fork, self.replace, self.look_up, self.cut, self.read_since],
            weights=[10, 3, 4, 1, 4, 4, 4],
        )[0](transcript, expected)

    def new(self, most: int = 1) -> list[Message]:
        self.written += most
        return [said(self.written + number) for number in range(self.random.randint(1, most))]

    def append(self, transcript: Transcript, expected: list[Message]) -> None:
        [message] = self.new()
        transcript.append(message)
        expected.append(message)

    def extend(self, transcript: Transcript, expected: list[Message]) -> None:
        messages = self.new(most=5)
        transcript.extend(iter(messages))
        expected.extend(messages)

    def fork(self, transcript: Transcript, expected: list[Message]) -> None:
        at = self.random.choice([None, self.random.randint(0, len(expected))])
        self.members.append((transcript.fork(at), expected[:at]))

    def replace(self, transcript: Transcript, expected: list[Message]) -> None:
        messages = self.new(most=4)
        transcript.replace(messages)
        assert list(transcript) == messages
        expected[:] = transcript

    def look_up(self, transcript: Transcript, expected: list[Message]) -> None:
        if expected:
            position = self.random.randint(-len(expected), len(expected) - 1)
            assert transcript[position] is expected[position]

    def cut(self, transcript: Transcript, expected: list[Message]) -> None:
        ends = [None, *range(-len(expected) - 2, len(expected) + 3)]
        part = slice(self.random.choice(ends), self.random.choice(ends), self.random.choice([None, 1, 2, -1, -3]))
        assert list(map(id, transcript[part])) == list(map(id, expected[part])), part

    def read_since(self, transcript: Transcript, expected: list[Message]) -> None:
        start = self.random.randint(0, len(expected) + 2)
        assert list(map(id, transcript.since(start))) == list(map(id, expected[start:]))


@pytest.mark.parametrize("seed", range(25))
def test_a_family_of_forks_behaves_like_a_family_of_lists(seed: int) -> None:
    family = Family(seed)
    for _ in range(400):
        family.step()
    for transcript, expected in family.members:
        assert_same(transcript, expected)
    assert len(family.members) > 10


# sharing


def test_a_fork_shares_every_message_and_copies_none() -> None:
    source = history(1_000)
    fork = source.fork()
    assert_same(fork, list(source))
    assert fork._tail is source._tail


def test_a_fork_at_a_point_shares_what_lies_before_it() -> None:
    source = history(10)
    assert_same(source.fork(4), list(source)[:4])
    assert source.fork(4)._tail is source._tail


def test_a_fork_never_writes_to_its_source() -> None:
    source = history(5)
    before = list(source)
    for point in (None, 0, 3, 5):
        fork = source.fork(point)
        fork.append(said(100))
        fork.extend([said(101), said(102)])
        fork.replace([said(103)])
        assert_same(source, before)


def test_a_source_that_goes_on_is_not_seen_by_its_forks() -> None:
    source = history(3)
    now, earlier = source.fork(), source.fork(1)
    shared = list(source)
    source.append(said(3))
    assert_same(now, shared)
    assert_same(earlier, shared[:1])


def test_source_and_fork_that_both_go_on_share_only_what_they_had() -> None:
    source = history(2)
    fork = source.fork()
    fork.append(said(10))
    source.append(said(20))
    assert [message["content"] for message in fork] == ["0", "1", "10"]
    assert [message["content"] for message in source] == ["0", "1", "20"]
    assert fork[1] is source[1]


def test_who_appends_first_after_a_fork_goes_on_in_the_shared_segment() -> None:
    source = history(1_000)
    fork = source.fork()
    fork.append(said(1_000))
    assert (segments(fork), segments(source)) == (1, 1)
    source.append(said(1_001))
    assert (segments(fork), segments(source)) == (1, 2)


def test_many_forks_of_one_source_stand_on_one_segment() -> None:
    source = history(100)
    forks = [source.fork() for _ in range(1_000)]
    for fork in forks:
        fork.append(said(100))
    assert {segments(fork) for fork in forks} == {1, 2}
    assert sum(len(tail.messages) for tail in {id(fork._tail): fork._tail for fork in forks}.values()) == 1_100
    assert segments(source) == 1


def test_one_branch_costs_one_segment_however_much_is_appended() -> None:
    source = history(10)
    fork = source.fork(5)
    fork.extend(said(number) for number in range(500))
    assert segments(fork) == 2


def test_a_fork_inside_the_shared_part_does_not_hold_what_came_after() -> None:
    source = history(4)
    child = source.fork(2)
    child.extend([said(10), said(11)])
    grandchild = child.fork(1)
    assert grandchild._tail is source._tail
    assert_same(grandchild, list(source)[:1])


def test_forks_of_forks_share_what_all_of_them_had() -> None:
    generations = [history(2)]
    for number in range(50):
        fork = generations[-1].fork(len(generations[-1]) - 1)
        fork.extend([said(1_000 + number), said(2_000 + number)])
        generations.append(fork)
    youngest = generations[-1]
    assert [message["content"] for message in youngest] == ["0", *(str(1_000 + n) for n in range(50)), "2049"]
    for number, ancestor in enumerate(generations[:-1]):
        assert all(ancestor[place] is youngest[place] for place in range(number + 1))
    assert segments(youngest) == 51


def test_a_lineage_of_many_thousand_forks_can_be_read_and_freed() -> None:
    transcript = history(2)
    for number in range(20_000):
        transcript = transcript.fork(1 + number)
        transcript.extend([said(number), said(number)])
    assert segments(transcript) == 20_001
    assert len(list(transcript)) == 20_002
    assert transcript[0] == said(0)
    del transcript


@pytest.mark.parametrize("at", [-1, 4, 1_000])
def test_a_fork_point_outside_the_history_is_refused(at: int) -> None:
    with pytest.raises(IndexError, match=f"fork point {at} is not within 0 and 3"):
        history(3).fork(at)


def test_a_fork_of_nothing_is_empty_and_begins_anew() -> None:
    source = history(3)
    fork = source.fork(0)
    assert list(fork) == []
    fork.append(said(7))
    assert list(fork) == [said(7)]
    assert list(source) == [said(0), said(1), said(2)]


# settled histories


def calls(*ids: str) -> Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": each, "tool": "t", "arguments": {}} for each in ids],
    }


def result(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


@pytest.mark.parametrize(
    ("messages", "settled"),
    [
        ([], 0),
        ([said(0)], 1),
        ([said(0), calls("a")], 1),
        ([said(0), calls("a"), result("a")], 3),
        ([said(0), calls("a", "b"), result("b")], 1),
        ([said(0), calls("a", "b"), result("b"), result("a")], 4),
        ([said(0), calls("a", "b"), result("b"), said(1)], 1),
        ([said(0), calls("a"), result("a"), calls("b")], 3),
        ([said(0), calls("a"), result("a"), {"role": "assistant", "content": "done"}, said(1)], 5),
        ([calls("a")], 0),
        ([{"role": "assistant", "content": "", "tool_calls": None}], 1),
    ],
)
def test_a_settled_history_ends_before_a_tool_call_that_has_no_result(messages: list[Message], settled: int) -> None:
    assert Transcript(messages).settled_length() == settled


def test_what_lies_after_a_fork_point_settles_nothing_before_it() -> None:
    transcript = Transcript([said(0), calls("a", "b"), result("a"), result("b"), said(1)])
    assert [transcript.fork(at).settled_length() for at in range(6)] == [0, 1, 1, 1, 4, 5]


def test_settling_reads_no_further_back_than_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = history(1_000)
    transcript.extend([calls("a"), result("a")])
    read: list[int] = []
    look_up = Transcript.__getitem__

    def counted(self: Transcript, index: int) -> Any:
        read.append(index)
        return look_up(self, index)

    monkeypatch.setattr(Transcript, "__getitem__", counted)
    assert transcript.settled_length() == 1_002
    assert read == [1_001, 1_000]


# a sequence like any other


def test_beginning_anew_leaves_forks_what_they_share() -> None:
    source = history(3)
    fork, shared = source.fork(2), list(source)
    source.replace([said(9)])
    source.append(said(10))
    assert [message["content"] for message in source] == ["9", "10"]
    assert_same(fork, shared[:2])


def test_a_transcript_may_be_replaced_by_a_part_of_itself() -> None:
    transcript = history(5)
    transcript.replace(transcript[-2:])
    assert list(transcript) == [said(3), said(4)]


def test_a_transcript_made_of_messages_copies_each_and_append_keeps_the_object() -> None:
    first, second = said(0), said(1)
    transcript = Transcript([first])
    transcript.append(second)
    assert transcript[0] == first
    assert transcript[0] is not first
    assert transcript[1] is second


def test_reading_that_has_begun_does_not_see_what_is_appended_meanwhile() -> None:
    transcript = history(2)
    reading = iter(transcript)
    seen = [next(reading)]
    transcript.append(said(2))
    seen.extend(reading)
    assert seen == [said(0), said(1)]


def test_the_messages_since_a_point_before_the_beginning_are_all() -> None:
    assert history(2).since(-7) == [said(0), said(1)]


@pytest.mark.parametrize("index", [3, -4])
def test_a_position_outside_the_history_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match=f"message {index} of 3"):
        history(3)[index]


def test_transcripts_are_equal_by_their_messages_whatever_their_segments() -> None:
    source = history(2)
    fork = source.fork(1)
    fork.append(said(1))
    assert fork == source == [said(0), said(1)]
    assert source != [said(0)]
    assert source != "01"
    with pytest.raises(TypeError, match="unhashable"):
        hash(source)


def test_what_every_sequence_can_do_works() -> None:
    transcript = history(3)
    assert list(reversed(transcript)) == [said(2), said(1), said(0)]
    assert said(1) in transcript
    assert transcript.index(said(2)) == 2
    assert transcript.count(said(0)) == 1
    assert not Transcript()
    assert repr(transcript) == "<Transcript of 3 messages>"


class Pages(list[dict[str, object]]):
    """A history that notes which messages were asked for."""

    def __init__(self, count: int) -> None:
        super().__init__({"role": "user", "content": str(number)} for number in range(count))
        self.asked: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        chosen = super().__getitem__(index)
        self.asked += [int(str(m["content"])) for m in (chosen if isinstance(index, slice) else [chosen])]
        return chosen


def test_a_transcript_over_a_stored_history_reads_only_what_is_asked_for() -> None:
    pages = Pages(1000)
    transcript = Transcript.over(pages)
    transcript.append({"role": "user", "content": "new"})
    assert len(transcript) == 1001
    assert [message["content"] for message in transcript.since(998)] == ["998", "999", "new"]
    assert transcript[-2]["content"] == "999"
    fork = transcript.fork(3)
    assert len(fork) == 3
    assert set(pages.asked) == {998, 999}
    assert [message["content"] for message in fork] == ["0", "1", "2"]
    assert list(transcript)[:1000] == list(pages)
    assert len(pages) == 1000


def test_a_fork_shows_no_continuation_id_of_what_it_shares() -> None:
    said = {"role": "assistant", "content": "a", "metadata": {"openai:response_id": "r1", "timestamp": "t", "n": 1}}
    nested = {"role": "assistant", "content": "b", "metadata": {"openai": {"previous_response_id": "r0", "k": 2}}}
    transcript = Transcript([said, nested])
    fork = transcript.fork()
    own = {"role": "assistant", "content": "c", "metadata": {"response_id": "r2"}}
    fork.append(own)
    expected = [
        {**said, "metadata": {"timestamp": "t", "n": 1}},
        {**nested, "metadata": {"openai": {"k": 2}}},
        own,
    ]
    assert list(fork) == expected
    assert [fork[0], fork[1], fork[2]] == expected
    assert fork.since(1) == expected[1:]
    assert fork[:2] == expected[:2]
    assert list(transcript) == [said, nested]
    assert list(fork.fork(2)) == expected[:2]
    assert fork.fork()[2]["metadata"] == {}


def test_what_a_stored_fork_said_itself_keeps_its_ids() -> None:
    stored = [{"role": "assistant", "content": str(n), "metadata": {"response_id": f"r{n}"}} for n in range(4)]
    transcript = Transcript.over(stored, forked_at=2)
    assert [message["metadata"] for message in transcript] == [{}, {}, {"response_id": "r2"}, {"response_id": "r3"}]
