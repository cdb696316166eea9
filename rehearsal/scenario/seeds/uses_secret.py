"""A script that needs a secret of whoever submits it."""

import os

print("the secret has", len(os.environ["TEAM_TOKEN"]), "characters")
