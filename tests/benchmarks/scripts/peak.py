"""Run a command of `amplifier`, or nothing, and write the peak of its memory in kB to the file `argv[1]`.

A process on Linux inherits the peak that `wait4` tells from the one that made it; `VmHWM` begins with the program.
"""

import re
import resource
import sys
from pathlib import Path

code = 0
if len(sys.argv) > 2:
    from amplifier_foundation.cli import invoke

    code = invoke(sys.argv[2:])
status = Path("/proc/self/status")
if status.exists():
    peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
Path(sys.argv[1]).write_text(str(peak))
sys.exit(code)
