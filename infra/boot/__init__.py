"""The unit files and scripts of a machine, and the code that packs them."""
