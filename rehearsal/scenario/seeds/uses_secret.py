"""A script that needs a secret from its submitter."""

import os

print("the secret has", len(os.environ["TEAM_TOKEN"]), "characters")
