//! Networks of addresses, in either family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::Family;

/// A network in CIDR notation; host bits are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    family_is_v6: bool,
    /// Low bits of the number for IPv4.
    first: u128,
    length: u8,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not a network in CIDR notation")]
pub struct CidrError(String);

impl Cidr {
    pub fn family(&self) -> Family {
        if self.family_is_v6 { Family::V6 } else { Family::V4 }
    }

    /// Prefix length.
    pub fn length(&self) -> u8 {
        self.length
    }

    fn width(&self) -> u8 {
        if self.family_is_v6 { 128 } else { 32 }
    }

    /// How many addresses there are; `u128::MAX` for all of IPv6.
    pub fn size(&self) -> u128 {
        1u128.checked_shl(u32::from(self.width() - self.length)).unwrap_or(u128::MAX)
    }

    /// The address at `offset`, where that lies within.
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        (offset < self.size()).then(|| self.address(self.first + offset))
    }

    /// Where `address` lies from the first one.
    pub fn offset(&self, address: &IpAddr) -> Option<u128> {
        let (number, is_v6) = number(address);
        let offset = number.checked_sub(self.first)?;
        (is_v6 == self.family_is_v6 && offset < self.size()).then_some(offset)
    }

    pub fn contains(&self, address: &IpAddr) -> bool {
        self.offset(address).is_some()
    }

    /// The first address: the network's own.
    pub fn first(&self) -> IpAddr {
        self.address(self.first)
    }

    /// The address that the node has within its pod network.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.nth(1)
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.family_is_v6 {
            true => IpAddr::V6(Ipv6Addr::from(number)),
            // The number of an IPv4 network's address fits.
            false => IpAddr::V4(Ipv4Addr::from(number as u32)),
        }
    }
}

fn number(address: &IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(ip) => (u128::from(u32::from(*ip)), false),
        IpAddr::V6(ip) => (u128::from(*ip), true),
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let parsed = text.split_once('/').and_then(|(ip, length)| Some((ip.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?)));
        let Some((ip, length)) = parsed else { return Err(CidrError(text.to_owned())) };
        let (number, family_is_v6) = number(&ip);
        let width = if family_is_v6 { 128 } else { 32 };
        if length > width {
            return Err(CidrError(text.to_owned()));
        }
        let mask = u128::MAX.checked_shl(u32::from(width - length)).unwrap_or(0);
        Ok(Self { family_is_v6, first: number & mask, length })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.length)
    }
}

/// `address` with the mask that leaves it alone: how a pod's interface has it.
pub fn alone(address: &IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_both_families() {
        let four: Cidr = "10.244.1.77/24".parse().unwrap();
        assert_eq!((four.to_string().as_str(), four.size()), ("10.244.1.0/24", 256));
        assert_eq!(four.gateway(), Some("10.244.1.1".parse().unwrap()));
        assert_eq!((four.offset(&"10.244.1.9".parse().unwrap()), four.offset(&"10.244.2.0".parse().unwrap())), (Some(9), None));
        let six: Cidr = "fd00:244:0:1::/64".parse().unwrap();
        assert_eq!(six.nth(256).unwrap().to_string(), "fd00:244:0:1::100");
        assert!(!six.contains(&"10.244.1.9".parse().unwrap()));
        assert_eq!("0.0.0.0/0".parse::<Cidr>().unwrap().size(), 1 << 32);
        for bad in ["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/-1"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
