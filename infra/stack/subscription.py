"""Resources that somebody else owns, in a subscription that need not be the stack's."""

import pulumi
from pulumi_azure_native import Provider, authorization


def provider_for(resource_id: str, name: str, parent: pulumi.Resource) -> Provider | None:
    """Returns a provider for a resource's subscription; None if that is the stack's own."""
    subscription = resource_id.split("/")[2]
    if subscription.lower() == authorization.get_client_config().subscription_id.lower():
        return None
    options = pulumi.ResourceOptions(parent=parent)
    return Provider(name, subscription_id=subscription, opts=options)
