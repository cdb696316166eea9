"""What holds for all tests."""

from __future__ import annotations

import hypothesis

# The same examples in every run: what was green stays green until the code changes.
hypothesis.settings.register_profile("volley", deadline=None, derandomize=True)
hypothesis.settings.load_profile("volley")
