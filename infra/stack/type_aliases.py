"""Leaves out the aliases that azure-native gives every resource: half of a preview's computing."""

import pulumi


def without_type_aliases(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult:
    """Returns a resource as declared, without its type's names at explicit API versions.

    azure-native lists up to 60 such names a type, for states that were written by programs that
    name an API version (azure-native:network/v20230201:Subnet). No stack of volley's has one: the
    program declares the types without a version, whose names stay when azure-native is upgraded.
    """
    options = pulumi.ResourceOptions.merge(args.opts, None)
    options.aliases = None
    return pulumi.ResourceTransformationResult(args.props, options)
