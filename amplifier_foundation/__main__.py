"""The program `amplifier`."""

import signal

# Until the command line can answer it in one line, Ctrl-C ends the program without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)


REMEDY = "pip uninstall amplifier-core && pip install --force-reinstall --no-deps amplifier"


def main() -> None:
    """Run the command line."""
    if not _kernel_is_ours():
        raise SystemExit(
            "amplifier: the package amplifier_core that Python finds is not this program's: another distribution "
            f"(amplifier-core, most likely) was installed over it. Mend it with: {REMEDY}"
        )
    from amplifier_foundation.cli import main as command_line

    command_line()


def _kernel_is_ours() -> bool:
    try:
        import amplifier_core
    except ImportError:
        return False
    return getattr(amplifier_core, "DISTRIBUTION", None) == "amplifier"


if __name__ == "__main__":
    main()
