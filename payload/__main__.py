"""python -m payload train | tune | evaluate | plot | run, on a head; people type `volley`."""

import os
import sys

from payload.command_line import Parser
from payload.commands.arguments import add_evaluate, add_plot, add_run, add_train, add_tune
from payload.errors import TemporaryError, UserError, first_line
from payload.may_pass import may_pass


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit code: 2 after a UserError, 75 after what may pass."""
    try:
        options = _parser().parse_args(argv)
        if options.verb == "train":
            from payload.commands.train import train as command
        elif options.verb == "tune":
            from payload.commands.tune import tune as command
        elif options.verb == "plot":
            from payload.commands.plot import plot as command
        elif options.verb == "run":
            from payload.commands.run_script import run_script as command
        else:
            from payload.commands.evaluate import evaluate as command
        return command(options)
    except UserError as error:
        print(f"payload: {error}", file=sys.stderr)
        return 2
    except (TemporaryError, OSError) as error:
        if isinstance(error, OSError) and not may_pass(error):
            raise
        print(f"payload: {first_line(error)}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except KeyboardInterrupt:
        return 130


def _parser() -> Parser:
    parser = Parser(
        prog="python -m payload",
        description="Train, tune and evaluate agents; run scripts. IMPALA, APPO and PQN are "
        "volley's own; PPO, DQN and SAC are RLlib's.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        title="commands",
        metavar="train | tune | evaluate | plot | run",
        dest="verb",
        required=True,
        parser_class=Parser,
    )
    add_train(commands)
    add_tune(commands)
    add_evaluate(commands)
    add_plot(commands)
    add_run(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
