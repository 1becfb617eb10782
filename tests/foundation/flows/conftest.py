"""Run workflows with an agent that answers with everything it was told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.plugins import Plugins
from amplifier_core.storage import DurableStore
from amplifier_foundation.flows.runs import RunResult, run_workflow
from amplifier_foundation.flows.tasks import Step, Workflow

MakeRun = Callable[..., Awaitable[RunResult]]
ECHO = """
from amplifier_core import ChatResponse, ProviderInfo, TextBlock, Usage

class Echo:
    name, priority = "echo", 1
    def get_info(self):
        return ProviderInfo(id="echo", display_name="Echo")
    async def list_models(self):
        return []
    def parse_tool_calls(self, response):
        return []
    async def complete(self, request, **kwargs):
        said = [m.content if isinstance(m.content, str) else "".join(b.text for b in m.content if b.type == "text")
                for m in request.messages if m.role in ("user", "assistant")]
        text = said[-1][4:] if said[-1].startswith("say ") else " > ".join(said)
        if said[-1].startswith("Your answer does not fit"):
            text = 'Sorry: {"n": 1}'
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        return ChatResponse(content=[TextBlock(text=text)], usage=usage)

async def mount(coordinator, config):
    await coordinator.mount("providers", Echo())
"""


@pytest.fixture
def run(make_bundle: Any, store: DurableStore, plugins: Plugins, tmp_path: Path) -> MakeRun:
    """Run a step as a workflow; its agents answer with all that was said, or with what follows `say`."""
    (tmp_path / "echo.py").write_text(ECHO)
    provider = {"module": "provider-echo", "source": str(tmp_path / "echo.py")}
    agents = {"critic": {"description": "Reads."}}

    async def run(step: Step, hooks: Sequence[dict[str, Any]] = (), **options: Any) -> RunResult:
        prepared = make_bundle("flows", providers=[provider], agents=agents, hooks=list(hooks))
        workflow = Workflow("work", step, options.pop("defaults", {}))
        return await run_workflow(workflow, prepared, store, plugins, working_dir=tmp_path, **options)

    return run
