"""volley-head, the command that `volley` runs on the head over SSH."""
