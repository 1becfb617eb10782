"""The program `amplifier`."""

import signal

# Until the command line can answer it in one line, Ctrl-C ends the program without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Run the command line."""
    from amplifier_foundation.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
