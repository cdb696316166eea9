"""What runs on a machine: unit files and scripts, and the code that packs them."""
