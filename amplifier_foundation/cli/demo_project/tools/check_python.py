"""A tool that compiles Python source and says what is wrong with it."""

from amplifier_core import ToolResult


class CheckPython:
    name = "check_python"
    description = "Compile Python source and report the first error."
    input_schema = {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "source": {"type": "string"}},
        "required": ["file_path", "source"],
    }

    async def execute(self, input):
        path = input["file_path"]
        try:
            compile(input["source"], path, "exec")
        except SyntaxError as error:
            return ToolResult(output={"ok": False, "verdict": f"{path}, line {error.lineno}: {error.msg}"})
        return ToolResult(output={"ok": True, "verdict": f"{path} compiles."})


async def mount(coordinator, config):
    await coordinator.mount("tools", CheckPython())
