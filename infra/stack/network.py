"""The network: a vnet, a subnet for the head and one for the workers, and their NSG rules."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

import pulumi
from pulumi_azure_native import network

from infra.config.check_network import width_of_subnet
from infra.config.stack_settings import StackSettings
from infra.ports import SSH, TO_EVERY_NODE, TO_HEAD, OpenPorts
from infra.stack import vm_arguments as parts
from infra.stack.naming import Naming


@dataclass(frozen=True)
class Rule:
    """One inbound TCP rule of an NSG."""

    name: str
    source: pulumi.Input[str] | list[str]
    """A CIDR, or several."""
    ports: tuple[str, ...]
    reason: str


def head_rules(settings: StackSettings, worker_cidr: pulumi.Input[str]) -> list[Rule]:
    """Returns the head's inbound rules: SSH from the administrator, Ray from the workers."""
    return [
        Rule(
            "ssh-from-admin",
            _merged(settings.admin_cidrs),
            (str(SSH),),
            "The administrators' shell",
        ),
        *_ray_rules("workers", worker_cidr, TO_HEAD),
    ]


def worker_rules(head_cidr: pulumi.Input[str], worker_cidr: pulumi.Input[str]) -> list[Rule]:
    """Returns a worker's inbound rules: Ray from the head and from the other workers."""
    return [
        *_ray_rules("head", head_cidr, TO_EVERY_NODE),
        *_ray_rules("workers", worker_cidr, TO_EVERY_NODE),
    ]


def _ray_rules(source: str, cidr: pulumi.Input[str], opened: tuple[OpenPorts, ...]) -> list[Rule]:
    return [
        Rule(f"{open_.name}-from-{source}", cidr, open_.ports, open_.reason) for open_ in opened
    ]


def security_rules(rules: list[Rule]) -> list[network.SecurityRuleArgs]:
    """Returns the rules in order, and a last one that denies everything else.

    Azure's own AllowVnetInBound (priority 65000) would let all machines of the virtual
    network reach every port.
    """
    allowed = [
        network.SecurityRuleArgs(
            name=rule.name,
            description=rule.reason,
            priority=100 + 10 * place,
            direction="Inbound",
            access="Allow",
            protocol="Tcp",
            **_source(rule),
            source_port_range="*",
            destination_address_prefix="*",
            destination_port_ranges=list(rule.ports),
        )
        for place, rule in enumerate(rules)
    ]
    denied = network.SecurityRuleArgs(
        name="deny-all-else",
        description="Azure's defaults would open every port between the subnets",
        priority=4096,
        direction="Inbound",
        access="Deny",
        protocol="*",
        source_address_prefix="*",
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range="*",
    )
    return [*allowed, denied]


def _source(rule: Rule) -> dict[str, Any]:
    if isinstance(rule.source, list):
        return {"source_address_prefixes": rule.source}
    return {"source_address_prefix": rule.source}


def _merged(cidrs: Iterable[str]) -> str | list[str]:
    """Returns networks of which none overlaps another: Azure refuses a rule with such."""
    merged = [str(network) for network in collapse_addresses(map(IPv4Network, cidrs))]
    return merged if len(merged) > 1 else merged[0]


class Network(pulumi.ComponentResource):
    """The vnet with two subnets; with existing subnets, the NSGs only.

    Machines reach the internet through a NAT gateway; only the head may have a public address.
    In existing subnets the NSGs are attached to the machines' network interfaces.
    """

    head_subnet: pulumi.Output[str]
    """Resource id of the subnet."""
    worker_subnet: pulumi.Output[str]
    head_nsg: pulumi.Output[str] | None
    """NSG of the head's network interface; None where the NSG is on the subnet."""
    worker_nsg: pulumi.Output[str] | None

    def __init__(self, naming: Naming, settings: StackSettings) -> None:
        super().__init__("volley:infra:Network", naming.name("network"), opts=naming.in_cluster)
        self._naming = naming
        if settings.head_subnet_id:
            self._use(settings, settings.head_subnet_id, settings.worker_subnet_id)
        else:
            self._make(settings)
        self.register_outputs({"headSubnet": self.head_subnet, "workerSubnet": self.worker_subnet})

    def _use(self, settings: StackSettings, head_subnet: str, worker_subnet: str) -> None:
        self.head_subnet = pulumi.Output.from_input(head_subnet)
        self.worker_subnet = pulumi.Output.from_input(worker_subnet)
        head_cidr, worker_cidr = _cidr_of(head_subnet), _cidr_of(worker_subnet)
        head_cidr.apply(lambda cidr: _warn_of_width("headSubnetId", cidr))
        worker_cidr.apply(lambda cidr: _warn_of_width("workerSubnetId", cidr))
        self.head_nsg = self._nsg("head", head_rules(settings, worker_cidr)).id
        self.worker_nsg = self._nsg("workers", worker_rules(head_cidr, worker_cidr)).id

    def _make(self, settings: StackSettings) -> None:
        vnet = network.VirtualNetwork(
            self._naming.name("vnet"),
            **self._naming.in_group,
            virtual_network_name=self._naming.name("vnet"),
            address_space=network.AddressSpaceArgs(address_prefixes=[settings.vnet_cidr]),
            opts=self._naming.options(self),
        )
        nat = self._nat_gateway(settings)
        head_cidr, worker_cidr = settings.head_subnet_cidr, settings.worker_subnet_cidr
        head_nsg = self._nsg("head", head_rules(settings, worker_cidr))
        worker_nsg = self._nsg("workers", worker_rules(head_cidr, worker_cidr))
        head = self._subnet("head", vnet, head_cidr, head_nsg, nat, after=[])
        # Azure changes a vnet's subnets one at a time.
        workers = self._subnet("workers", vnet, worker_cidr, worker_nsg, nat, after=[head])
        self.head_subnet, self.worker_subnet = head.id, workers.id
        self.head_nsg = self.worker_nsg = None

    def _nsg(self, what: str, rules: list[Rule]) -> network.NetworkSecurityGroup:
        return network.NetworkSecurityGroup(
            self._naming.name(f"{what}-nsg"),
            **self._naming.in_group,
            network_security_group_name=self._naming.name(f"{what}-nsg"),
            security_rules=security_rules(rules),
            opts=self._naming.options(self),
        )

    def _nat_gateway(self, settings: StackSettings) -> network.NatGateway:
        address = network.PublicIPAddress(
            self._naming.name("nat-ip"),
            **self._naming.in_group,
            public_ip_address_name=self._naming.name("nat-ip"),
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            zones=parts.zones(settings),
            public_ip_allocation_method="Static",
            # Azure adds it with the gateway; after a refresh `up` would take it away.
            opts=self._naming.options(self, ignore_changes=["natGateway"]),
        )
        return network.NatGateway(
            self._naming.name("nat"),
            **self._naming.in_group,
            nat_gateway_name=self._naming.name("nat"),
            sku=network.NatGatewaySkuArgs(name="Standard"),
            zones=parts.zones(settings),
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            opts=self._naming.options(self),
        )

    def _subnet(
        self,
        what: str,
        vnet: network.VirtualNetwork,
        cidr: str,
        nsg: network.NetworkSecurityGroup,
        nat: network.NatGateway,
        after: list[pulumi.Resource],
    ) -> network.Subnet:
        return network.Subnet(
            self._naming.name(f"{what}-subnet"),
            resource_group_name=self._naming.group,
            virtual_network_name=vnet.name,
            subnet_name=self._naming.name(f"{what}-subnet"),
            address_prefix=cidr,
            network_security_group=network.NetworkSecurityGroupArgs(id=nsg.id),
            nat_gateway=network.SubResourceArgs(id=nat.id),
            default_outbound_access=False,
            # The results account allows these two subnets only.
            service_endpoints=[
                network.ServiceEndpointPropertiesFormatArgs(service="Microsoft.Storage")
            ],
            opts=self._naming.options(self, depends_on=after),
        )


def _warn_of_width(key: str, cidr: str) -> None:
    if text := width_of_subnet(key, cidr):
        pulumi.log.warn(text)


def _cidr_of(subnet_id: str) -> pulumi.Output[str]:
    """Looks up the CIDR of an existing subnet."""
    parts = subnet_id.split("/")
    subnet = network.get_subnet_output(
        resource_group_name=parts[4], virtual_network_name=parts[8], subnet_name=parts[10]
    )
    # Azure returns one prefix or a list, depending on how the subnet was created.
    cidr: pulumi.Output[str] = subnet.apply(
        lambda answer: str(answer.address_prefix or answer.address_prefixes[0])
    )
    return cidr
