"""The current return against the true one, in a game of points whose length depends on its policy.

As in Pong, the first to reach 21 points wins. A policy that wins 21 to 0 has short games; those of
an even policy take twice as long, so its finished games say nothing about them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.run.progress import Progress
from payload.tracking.report import TrainResult

GAMES = 64
STEPS = 20_000 // GAMES
"""Steps of each game in one iteration."""
POINTS = 21
NOISE = 6.0
"""Four standard deviations of an even policy's return over RECENT_STEPS, in points."""


class Points:
    """Many games at once; a policy is `p`, its probability of winning a point."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.won, self.lost = np.zeros((2, GAMES), np.int64)
        self.lengths = np.zeros(GAMES)
        self.next_point = np.full(GAMES, 40.0)

    def play(self, p: float) -> TrainResult:
        """Plays STEPS steps of each game."""
        left = np.full(GAMES, float(STEPS))
        rewards, returns, lengths = 0, [], []
        while (scoring := np.flatnonzero(self.next_point <= left)).size:
            left[scoring] -= self.next_point[scoring]
            self.lengths[scoring] += self.next_point[scoring]
            wins = self.random.random(scoring.size) < p
            self.won[scoring] += wins
            self.lost[scoring] += ~wins
            rewards += 2 * wins.sum() - wins.size
            # A bad player loses a point in half the time.
            duration = np.interp(p, [0, 0.5, 1], [43, 88, 81])
            self.next_point[scoring] = duration * self.random.uniform(0.6, 1.4, scoring.size)
            over = np.maximum(self.won, self.lost) == POINTS
            returns += (self.won - self.lost)[over].tolist()
            lengths += self.lengths[over].tolist()
            self.won[over] = self.lost[over] = self.lengths[over] = 0
        self.next_point -= left
        self.lengths += left
        return TrainResult(
            rewards_sampled=float(rewards),
            steps_sampled=float(GAMES * STEPS),
            returns=returns,
            lengths=lengths,
            return_so_far_min=float((self.won - self.lost).min()),
            return_so_far_max=float((self.won - self.lost).max()),
        )


def true_return(p: float) -> float:
    """Returns the mean return of a policy, as a sum over the loser's points."""
    return sum(
        math.comb(POINTS - 1 + loser, loser)
        * (POINTS - loser)
        * (p**POINTS * (1 - p) ** loser - (1 - p) ** POINTS * p**loser)
        for loser in range(POINTS)
    )


def current_returns(policies: list[float], seed: int = 0) -> list[float]:
    """Returns the current return after each iteration."""
    games, progress = Points(seed), Progress()
    return [
        progress.advance(games.play(p), seconds=5.0, env_runners=2).current_return for p in policies
    ]


CONSTANT = (0.02, 0.4, 0.5, 0.6, 0.9, 0.98)


@pytest.mark.parametrize("p", CONSTANT)
def test_the_current_return_of_a_constant_policy_is_its_mean_return(p: float) -> None:
    settled = current_returns([p] * 300)[50:]
    assert np.mean(settled) == pytest.approx(true_return(p), abs=0.5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("before", "after"),
    [(0.02, 0.98), (0.5, 0.98), (0.02, 0.4), (0.4, 0.6), (0.6, 0.9), (0.98, 0.5)],
)
def test_a_switch_of_the_policy_shows_nothing_beyond_both_of_them(
    before: float, after: float, seed: int
) -> None:
    switched = current_returns([before] * 60 + [after] * 60, seed)[40:]
    assert max(switched) < max(true_return(before), true_return(after)) + NOISE


@pytest.mark.parametrize("seed", range(3))
def test_while_it_learns_the_current_return_follows_within_three_iterations(seed: int) -> None:
    policies = 1 / (1 + np.exp(-np.linspace(-4, 4, 60)))
    current = current_returns([0.02] * 30 + policies.tolist(), seed)[30:]
    truth = [true_return(p) for p in policies]
    assert max(np.subtract(current, truth)) < NOISE
    assert max(np.subtract(truth[:-3], current[3:])) < NOISE


@given(st.lists(st.floats(0, 1), min_size=5, max_size=60), st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_the_current_return_is_one_that_a_game_can_have(policies: list[float], seed: int) -> None:
    known = [value for value in current_returns(policies, seed) if not math.isnan(value)]
    assert all(-POINTS <= value <= POINTS for value in known)
