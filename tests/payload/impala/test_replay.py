from __future__ import annotations

import torch

from payload.impala.train_batch import FIRST, ReplayBuffer, Rows

ROWS = 4


def batch(number: int, length: int = 3) -> Rows:
    """Returns a train batch whose rows carry their own number in both columns."""
    rows = torch.arange(ROWS) + 10 * number
    return {FIRST: rows[:, None].repeat(1, length), "reward": rows.clone()}


def batches_in(columns: Rows) -> list[int]:
    """Returns the numbers of the batches in the columns, each as often as it occurs."""
    numbers = (columns["reward"] // 10).tolist()
    return sorted(numbers)[::ROWS]


def test_a_first_batch_comes_alone() -> None:
    new = batch(0)
    assert ReplayBuffer(2, 1, seed=1).add(new) is new


def test_a_new_batch_comes_whole_with_as_many_replayed_ones_as_asked_for() -> None:
    buffer = ReplayBuffer(8, 2, seed=1)
    for number in range(5):
        buffer.add(batch(number))
    found = buffer.add(batch(5))
    numbers = batches_in(found)
    assert len(set(numbers)) == len(numbers) == 3
    assert 5 in numbers
    assert sorted(found["reward"].tolist()) == sorted(
        row for number in numbers for row in batch(number)["reward"].tolist()
    )


def test_the_columns_of_a_row_stay_together() -> None:
    buffer = ReplayBuffer(2, 1, seed=1)
    buffer.add(batch(0))
    found = buffer.add(batch(1))
    assert (found[FIRST] == found["reward"][:, None]).all()


def test_rows_come_in_another_order_than_they_went_in() -> None:
    buffer = ReplayBuffer(2, 1, seed=1)
    torch.manual_seed(1)
    buffer.add(batch(0))
    orders = {tuple(buffer.add(batch(1))["reward"].tolist()) for _ in range(5)}
    assert len(orders) > 1


def test_only_the_last_batches_are_replayed() -> None:
    buffer = ReplayBuffer(2, 1, seed=1)
    seen: set[int] = set()
    for number in range(30):
        seen |= {number - other for other in batches_in(buffer.add(batch(number)))}
    assert seen == {0, 1, 2}


def test_without_a_proportion_nothing_is_replayed() -> None:
    buffer = ReplayBuffer(2, 0, seed=1)
    buffer.add(batch(0))
    assert batches_in(buffer.add(batch(1))) == [1]


def test_trajectories_of_another_length_begin_a_new_buffer() -> None:
    buffer = ReplayBuffer(4, 1, seed=1)
    buffer.add(batch(0))
    assert batches_in(buffer.add(batch(1, length=5))) == [1]
    assert batches_in(buffer.add(batch(2, length=5))) == [1, 2]
