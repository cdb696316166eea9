"""What runs on a machine: real unit files and scripts, and the code that packs them."""
