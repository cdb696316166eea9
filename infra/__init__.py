"""What is declared: a Ray cluster on Azure."""
