"""The `polysweep` command before anything heavy is imported: a signal is answered from the first milliseconds on."""

from __future__ import annotations

from polysweep.sweeps.worker.signals import Interruption


def main() -> None:
    """Entry point of the installed command and of `python -m polysweep`."""
    interruption = Interruption.of_process()
    interruption.install(for_process=True)
    try:
        from polysweep.cli import main as run
    except BaseException:  # a signal can interrupt an import anywhere, and become another error
        if interruption.signal:
            interruption.exit()
        raise
    run()


if __name__ == "__main__":
    main()
