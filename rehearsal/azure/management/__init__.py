"""management.azure.com: what the head and the laptop ask Azure Resource Manager by REST."""
