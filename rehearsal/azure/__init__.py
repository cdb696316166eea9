"""azure-native for Pulumi's engine, with a cloud of our own behind it."""
