"""A search over settings, on Ray Tune: the settings drawn, a trial of each, and their ranking."""
