"""How long an episode may be that would not end by itself."""

MAX_EPISODE_FRAMES = 108_000
"""Of an Atari game: half an hour, the usual limit (Machado et al. 2018)."""
MAX_EPISODE_STEPS = MAX_EPISODE_FRAMES // 4
"""Of any other environment in an evaluation: as many steps, with a frame skip of 4."""
