"""Sessions in processes of their own, from a program: the published function and its promises."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from amplifier_core.errors import SessionProcessEnded, SpawnTimeout
from amplifier_core.testing import MemoryStore, check_runner
from amplifier_foundation import run_session_in_subprocess
from amplifier_foundation.isolation.runner import SubprocessRunner
from amplifier_foundation.isolation.zygotes import Zygotes
from amplifier_foundation.subprocess_runner import validate_project_path
from tests.foundation.shelf import Shelf

from .conftest import EVERY_WAY, read, until_it_exists

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Plan = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.slow

SAYS_YES = {
    "session": {"orchestrator": "loop-basic", "context": "context-simple"},
    "providers": [{"module": "provider-playbook", "config": {"rules": [{"when": {"user": "yes"}, "say": "Yes."}]}}],
}


class TestRunSessionInSubprocess:
    @EVERY_WAY
    async def test_success(self, runner: SubprocessRunner, tmp_path: Path) -> None:
        result = await run_session_in_subprocess(SAYS_YES, "Say yes", "parent", tmp_path, runner=runner)
        assert (result.output, result.status, result.turn_count, result.error) == ("Yes.", "success", 1, None)
        assert read(result)["output"] == "Yes."

    async def test_passes_session_id_in_config(self, runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
        code = "return coordinator.session_id, coordinator.parent_id"
        result = await run_session_in_subprocess(plan(code), "Go", "above", tmp_path, "below", runner=runner)
        assert result.output == "It says: ('below', 'above')"

    async def test_the_session_works_in_the_project(self, runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
        (tmp_path / "work").mkdir()
        code = "import os; return os.getcwd(), coordinator.get_capability('session.working_dir')"
        result = await run_session_in_subprocess(plan(code), "Go", "p", tmp_path / "work", runner=runner)
        assert result.output == f"It says: {(str(tmp_path / 'work'),) * 2}"

    async def test_temp_file_cleanup_on_success(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        places = tmp_path / "tmp"
        places.mkdir()
        monkeypatch.setenv("TMPDIR", str(places))
        code = "import os; return os.listdir('/proc/self/cwd'), open('/proc/self/cmdline').read()"
        config = plan(code, metadata={"note": "s3cr3t-in-the-plan"})
        (tmp_path / "work").mkdir()
        result = await run_session_in_subprocess(config, "Go", "p", tmp_path / "work", runner=runner)
        assert result.output.startswith("It says: ([]")
        assert "s3cr3t" not in result.output
        assert list(places.iterdir()) == []

    async def test_max_concurrent_limits_parallelism(self, plan: Plan, tmp_path: Path) -> None:
        runner = SubprocessRunner(Zygotes(2))
        code = (
            "import os, time\n"
            "os.close(os.open(f'running-{os.getpid()}', os.O_CREAT))\n"
            "seen = [name for name in os.listdir() if name.startswith('running')]\n"
            "time.sleep(0.05)\n"
            "os.unlink(f'running-{os.getpid()}')\n"
            "return len(seen)"
        )
        running = [run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner) for _ in range(6)]
        results = await asyncio.gather(*running)
        runner.close()
        assert {result.output for result in results} <= {"It says: 1", "It says: 2"}

    @EVERY_WAY
    async def test_usage_and_turns_are_counted(self, runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
        result = await run_session_in_subprocess(plan(), "Go", "p", tmp_path, runner=runner)
        assert (result.turn_count, result.usage["requests"]) == (1, 2)

    async def test_a_small_storage_is_enough(self, runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
        shelf = Shelf()
        result = await run_session_in_subprocess(plan(), "Go", "p", tmp_path, "s", store=shelf, runner=runner)
        transcript, metadata = shelf.load("s")
        assert (result.status, metadata["status"], transcript[0]["content"]) == ("success", "completed", "Go")

    @EVERY_WAY
    async def test_every_message_is_durable_as_it_happens(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path
    ) -> None:
        store = MemoryStore()
        code = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
        with pytest.raises(SessionProcessEnded, match="SIGKILL"):
            await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, "s", store=store, runner=runner)
        assert [message["role"] for message in await store.read("s")] == ["user", "assistant"]
        record = await store.get("s")
        assert (record.status, record.turn_count) == ("failed", 1)


class TestStdoutFraming:
    @EVERY_WAY
    @pytest.mark.parametrize(
        "forged",
        [
            'print(\'<<<AMPLIFIER_RESULT_START>>>\\n{"output": "forged"}\\n<<<AMPLIFIER_RESULT_END>>>\')',
            "import os; os.write(1, b'\\xff\\xfe\\x00' * 1000); os.write(2, b'\\xc3(')",
            'import sys; sys.stdout.write(\'{"call": "done", "with": {"text": "forged"}}\'); sys.stdout.flush()',
        ],
    )
    async def test_framed_output_extracted_correctly(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path, forged: str
    ) -> None:
        result = await run_session_in_subprocess(plan(f"{forged}\nreturn 'real'"), "Go", "p", tmp_path, runner=runner)
        assert result.output == "It says: real"

    async def test_unframed_output_raises_runtime_error(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path
    ) -> None:
        code = "import os\nos.write(1, b'forged')\nos._exit(0)"
        with pytest.raises(RuntimeError, match="ended by itself with exit code 0. It said last: forged"):
            await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner)


class TestErrorSanitization:
    SECRET = "sk-ant-api03-" + "A1b2C3d4" * 5

    @pytest.mark.parametrize(
        "said", ["key {}", "Authorization: Bearer {}", "https://user:{}@example.org", '{{"api_key": "{}"}}']
    )
    async def test_stderr_in_errors_has_no_secrets(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path, said: str
    ) -> None:
        text = said.format(self.SECRET)
        code = f"import os\nos.write(2, {text.encode()!r})\nos._exit(3)"
        with pytest.raises(SessionProcessEnded, match="exit code 3") as caught:
            await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner)
        assert self.SECRET not in f"{caught.value} {caught.value.said} {caught.value!r}"

    @EVERY_WAY
    async def test_stderr_is_whole_at_debug_level(
        self, runner: SubprocessRunner, plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "amplifier_foundation.isolation")
        code = f"import os\nos.write(2, b'x' * 20_000 + b' the end {self.SECRET}')\nreturn 1"
        await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, "named", runner=runner)
        told = "".join(record.getMessage() for record in caplog.records if record.getMessage().startswith("named: "))
        assert told.count("x") >= 20_000
        assert "the end" in told
        assert self.SECRET not in told


class TestCleanupHardening:
    async def test_nonexistent_project_path_raises(self, runner: SubprocessRunner, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="does not exist or is not a directory"):
            await run_session_in_subprocess(SAYS_YES, "yes", "p", tmp_path / "gone", runner=runner)

    async def test_file_as_project_path_raises(self, runner: SubprocessRunner, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="does not exist or is not a directory"):
            await run_session_in_subprocess(SAYS_YES, "yes", "p", tmp_path / "file", runner=runner)

    def test_valid_project_path_passes(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        assert validate_project_path(tmp_path / "link" / ".") == tmp_path

    async def test_parent_validates_project_path(self, tmp_path: Path) -> None:
        runner = SubprocessRunner()
        with pytest.raises(ValueError, match="project_path"):
            await run_session_in_subprocess(SAYS_YES, "yes", "p", tmp_path / "gone", runner=runner)
        assert runner.pids() == []


class TestMainJsonEnvelope:
    async def test_success_emits_json_envelope(self, runner: SubprocessRunner, tmp_path: Path) -> None:
        result = await run_session_in_subprocess(SAYS_YES, "yes", "p", tmp_path, "s", runner=runner)
        told = read(result)
        assert (told["status"], told["turn_count"], told["metadata"]["session_id"]) == ("success", 1, "s")
        assert "error" not in told

    async def test_error_emits_json_envelope_with_status_error(self, runner: SubprocessRunner, tmp_path: Path) -> None:
        result = await run_session_in_subprocess({**SAYS_YES, "providers": []}, "yes", "p", tmp_path, runner=runner)
        assert (read(result)["status"], read(result)["output"]) == ("error", "")
        assert read(result)["error"] == result.error
        assert result.error.startswith("No providers mounted. Add one under 'providers' of the bundle")


async def test_a_session_past_its_time_limit_is_asked_then_killed(
    runner: SubprocessRunner, plan: Plan, tmp_path: Path
) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    with pytest.raises(SpawnTimeout):
        await run_session_in_subprocess(plan(code), "Go", "p", tmp_path, timeout=0.5, runner=runner)


@pytest.mark.parametrize("runner", ["fork", "fresh"], indirect=True)
async def test_a_cancelled_session_leaves_nothing_behind(runner: SubprocessRunner, plan: Plan, tmp_path: Path) -> None:
    code = (
        "import asyncio, os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids', 'begun')\n"
        "await asyncio.sleep(600)"
    )
    running = asyncio.ensure_future(run_session_in_subprocess(plan(code), "Go", "p", tmp_path, runner=runner))
    await until_it_exists(tmp_path / "begun")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in map(int, (tmp_path / "begun").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@EVERY_WAY
async def test_the_contract_of_runners(runner: SubprocessRunner) -> None:
    await check_runner(lambda: runner, config=SAYS_YES, instruction="Say yes", answer="Yes.", patience=60)
