"""Virtual networks, NSGs and private endpoints, as they are declared and as they are evaluated."""
