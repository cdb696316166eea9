"""Azure's resources, as Pulumi's engine creates, reads, updates and deletes them."""
