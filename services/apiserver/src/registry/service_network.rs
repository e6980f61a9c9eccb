//! The range of addresses and node ports that Services get theirs from.

use std::net::Ipv4Addr;

/// The cluster's Service network; fixed when the cluster is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceNetwork {
    /// The first address of the range.
    pub base: Ipv4Addr,
    /// From 8 to 30, so that there is something to allocate and host numbers fit.
    pub prefix: u8,
    pub first_node_port: u16,
    pub last_node_port: u16,
}

impl Default for ServiceNetwork {
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 96, 0, 0), prefix: 16, first_node_port: 30_000, last_node_port: 32_767 }
    }
}

impl ServiceNetwork {
    /// Host numbers that can be allocated: neither the network's own address nor the last one.
    pub(super) fn hosts(&self) -> u32 {
        (1u32 << (32 - u32::from(self.prefix.clamp(8, 30)))) - 2
    }

    /// Host `number` of the range, counted from 1.
    pub fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base).wrapping_add(number))
    }

    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        (1..=self.hosts()).contains(&self.number(address))
    }

    /// The network's own address and the last one, which are inside and cannot be had.
    pub(super) fn is_edge(&self, address: Ipv4Addr) -> bool {
        let number = self.number(address);
        number == 0 || number == self.hosts() + 1
    }

    fn number(&self, address: Ipv4Addr) -> u32 {
        u32::from(address).wrapping_sub(u32::from(self.base))
    }

    /// Fixed addresses are chosen from this many at the beginning: a sixteenth of the range, between 16 and 256.
    pub(super) fn reserved_addresses(&self) -> u32 {
        (self.hosts() / 16).clamp(16, 256).min(self.hosts() / 2)
    }

    pub(super) fn ports(&self) -> u32 {
        u32::from(self.last_node_port) - u32::from(self.first_node_port) + 1
    }

    /// The same for ports: a thirty-second, between 16 and 128.
    pub(super) fn reserved_ports(&self) -> u32 {
        (self.ports() / 32).clamp(16, 128).min(self.ports() / 2)
    }
}
