"""management.azure.com: Azure Resource Manager's REST API for the head and the laptop."""
