"""The display of a search: a live table or plain lines, and the ranking at the end."""

import math
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from payload.experiment.settings import EPISODE_RETURN_MEAN
from payload.run.panel import PLAIN_LINE_EVERY_S, View, clock, number
from payload.search.ranking import Ranked, Record, ranking
from payload.search.search_plan import in_words

STYLES = {"TRAINING": "bold", "FAILED": "red", "WAITING": "dim", "STARTING": "dim"}
LINES_BESIDE = 8
"""Lines of a terminal that do not show trials."""
PIPE_WIDTH = 160
"""Columns of the ranking without a terminal."""


class SearchView(View):
    _lines_at = -math.inf

    @property
    def score(self) -> str:
        """What trials are compared by, in a word."""
        metric = self.experiment.search_metric
        return "return" if metric == EPISODE_RETURN_MEAN else metric.rpartition("/")[2]

    def show(self, records: Sequence[Record]) -> None:
        """Shows the trials' states: a table on a terminal, a line now and then elsewhere."""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, refresh_per_second=2)
                self._live.start()
            self._live.update(Group(self._table(records), f"[dim]{escape(self.where)}[/dim]"))
        elif time.monotonic() - self._lines_at >= PLAIN_LINE_EVERY_S:
            self._lines_at = time.monotonic()
            self.say(summary(records, self.score))

    def ended(self, record: Record) -> None:
        """Prints how a trial ended, unless the table shows it."""
        if not self.console.is_terminal:
            trial = f"{record.trial.name} {in_words(record.trial.values)}".rstrip()
            self.say(
                f"{trial}: {record.state}, {self.score} "
                f"{number(record.return_mean)} at {record.env_steps:,} steps ({record.reason})"
            )

    def _table(self, records: Sequence[Record]) -> Table:
        order = {"TRAINING": 0, "STARTING": 1}
        shown = sorted(records, key=lambda r: (order.get(r.state, 2), -_or_least(r.return_mean)))
        room = max(5, self.console.height - LINES_BESIDE)
        more = f", {len(shown) - room} trials not shown" if len(shown) > room else ""
        table = Table(
            title=escape(summary(records, self.score) + more), title_justify="left", box=None
        )
        keys = list(records[0].trial.values)
        for name in ("trial", *keys, "seed", "state", "steps", self.score, "time"):
            table.add_column(escape(name), overflow="fold")
        for record in shown[:room]:
            table.add_row(
                record.trial.name,
                *(str(record.trial.values[key]) for key in keys),
                str(record.trial.seed),
                record.state,
                f"{record.env_steps:,}",
                number(record.return_mean),
                clock(record.time_total_s),
                style=STYLES.get(record.state, ""),
            )
        return table

    def show_ranking(self, settings: Sequence[Ranked]) -> None:
        """Prints the settings, the best one first."""
        keys = list(settings[0].values)
        table = Table(box=None)
        for name in ("rank", *keys, self.score, "of each seed", "steps", "ended by"):
            table.add_column(escape(name), overflow="fold")
        for rank, setting in enumerate(settings, 1):
            records = setting.records
            table.add_row(
                str(rank),
                *(str(setting.values[key]) for key in keys),
                "-" if math.isinf(setting.score) else number(setting.score),
                "  ".join(number(record.return_mean) for record in records),
                "  ".join(f"{record.env_steps:,}" for record in records),
                escape("; ".join(dict.fromkeys(r.reason or r.state.lower() for r in records))),
            )
        terminal = self.console.is_terminal
        output = self.console if terminal else Console(file=self.console.file, width=PIPE_WIDTH)
        output.print(table, soft_wrap=False)


def summary(records: Sequence[Record], score: str = "return") -> str:
    """Returns "3 of 8 trials ended, 2 train, best return 123.40 (lr=0.001)"."""
    over = sum(record.state in ("FINISHED", "FAILED") for record in records)
    training = sum(record.state == "TRAINING" for record in records)
    best = ranking(records)[0]
    line = f"{over} of {len(records)} trials ended, {training} train"
    if math.isinf(best.score):
        return line
    if not best.values:
        return f"{line}, mean {score} {best.score:.2f}"
    return f"{line}, best {score} {best.score:.2f} ({in_words(best.values)})"


def _or_least(value: float) -> float:
    return -math.inf if math.isnan(value) else value
