//! The chains that services share. A chain's name says all about its rules, so equal needs meet in one chain.

use wheelhouse_net::{Chain, Family};

use crate::facts::Protocol;

/// Asks for masquerading in postrouting: the bit that kube-proxy has always used.
pub const MASQUERADE_BIT: u32 = 0x4000;

/// Marks below [`MASQUERADE_BIT`] are ids of endpoints on their way between two lookups; those of local endpoints have this bit too.
pub const LOCAL_BIT: u32 = 0x2000;

/// Slots of local endpoints begin here, those of all endpoints at zero: one map holds both, and no service has so many endpoints.
pub const LOCAL_SLOTS: u32 = 0x8000;

/// Which of a service's endpoints a chain picks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pool {
    All,
    Local,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedChain {
    /// One of `count` endpoints at random.
    Pick { pool: Pool, count: u32 },
    /// The endpoint that the client had within the last `seconds`, else one at random, remembered.
    Stick { pool: Pool, count: u32, seconds: u32, masquerade: bool },
    /// Cluster IPs. Who does not come from a pod is masqueraded, so that the answer comes back through this node.
    Internal { pool: Pool, count: u32, affinity: Option<u32> },
    /// Addresses that the outside reaches, any endpoint: always masqueraded.
    External { count: u32, affinity: Option<u32> },
    /// Addresses that the outside reaches, with the policy `Local`: pods and this node itself get any endpoint, the outside a local one
    /// and keeps its address. With no local endpoint it is dropped; a load balancer's health check keeps it away.
    Split { count: u32, local: u32, affinity: Option<u32> },
}

impl SharedChain {
    /// The chain that ends in an endpoint without marking anything before.
    fn end(pool: Pool, count: u32, affinity: Option<u32>) -> Self {
        match affinity {
            None => SharedChain::Pick { pool, count },
            Some(seconds) => SharedChain::Stick { pool, count, seconds, masquerade: false },
        }
    }

    pub fn name(&self) -> String {
        let word = |pool: &Pool| if *pool == Pool::All { "all" } else { "local" };
        let suffix = |affinity: &Option<u32>| affinity.map(|seconds| format!("-sticky-{seconds}")).unwrap_or_default();
        match self {
            SharedChain::Pick { pool, count } => format!("pick-{}-{count}", word(pool)),
            SharedChain::Stick { pool, count, seconds, masquerade } => {
                format!("stick-{}-{count}-{seconds}{}", word(pool), if *masquerade { "-masquerade" } else { "" })
            }
            SharedChain::Internal { pool, count, affinity } => format!("internal-{}-{count}{}", word(pool), suffix(affinity)),
            SharedChain::External { count, affinity } => format!("external-{count}{}", suffix(affinity)),
            SharedChain::Split { count, local, affinity } => format!("split-{count}-{local}{}", suffix(affinity)),
        }
    }

    /// The chains that its rules go to.
    pub fn needs(&self) -> Vec<SharedChain> {
        match *self {
            SharedChain::Pick { .. } | SharedChain::Stick { .. } => Vec::new(),
            SharedChain::Internal { pool, count, affinity: None } => vec![SharedChain::Pick { pool, count }],
            SharedChain::Internal { pool, count, affinity: Some(seconds) } => {
                [false, true].map(|masquerade| SharedChain::Stick { pool, count, seconds, masquerade }).to_vec()
            }
            SharedChain::External { count, affinity: None } => vec![SharedChain::Pick { pool: Pool::All, count }],
            SharedChain::External { count, affinity: Some(seconds) } => {
                vec![SharedChain::Stick { pool: Pool::All, count, seconds, masquerade: true }]
            }
            SharedChain::Split { count, local, affinity } => {
                let mut needs = vec![SharedChain::end(Pool::All, count, affinity), SharedChain::External { count, affinity }];
                needs.extend((local > 0).then(|| SharedChain::end(Pool::Local, local, affinity)));
                needs
            }
        }
    }

    pub fn chain(&self, family: Family) -> Chain {
        Chain::plain(self.rules(family))
    }

    fn rules(&self, family: Family) -> Vec<String> {
        let ip = family.keyword();
        let mark = format!("meta mark set meta mark | {MASQUERADE_BIT:#x}");
        let goto = |chain: &SharedChain| format!("goto {}", chain.name());
        let needs = self.needs();
        match self {
            SharedChain::Pick { pool, count } => {
                // One rule and one map per protocol: nft 1.0.6 takes a map's `th dport` for another protocol's when it reads the map back.
                let rule = |protocol: Protocol| {
                    let word = protocol.keyword();
                    format!("meta l4proto {word} dnat {ip} to {} map @{}", slot(*pool, *count), protocol.endpoints_map())
                };
                Protocol::ALL.map(rule).to_vec()
            }
            SharedChain::Stick { pool, count, seconds, masquerade } => stick(family, *pool, *count, *seconds, *masquerade),
            SharedChain::Internal { affinity: None, .. } => vec![format!("{ip} saddr != @pods {mark}"), goto(&needs[0])],
            SharedChain::Internal { affinity: Some(_), .. } => vec![format!("{ip} saddr != @pods {}", goto(&needs[1])), goto(&needs[0])],
            SharedChain::External { affinity: None, .. } => vec![mark, goto(&needs[0])],
            SharedChain::External { affinity: Some(_), .. } => vec![goto(&needs[0])],
            SharedChain::Split { .. } => vec![
                format!("{ip} saddr @pods {}", goto(&needs[0])),
                format!("fib saddr type local {}", goto(&needs[1])),
                needs.get(2).map_or("drop".to_owned(), goto),
            ],
        }
    }
}

fn dnat(family: Family, destination: &str) -> String {
    format!("meta l4proto {{ tcp, udp, sctp }} dnat {} to {destination}", family.keyword())
}

/// Service id and a random slot: the key of the maps of endpoints and of `affinity-ids`.
fn slot(pool: Pool, count: u32) -> String {
    let offset = if pool == Pool::Local { format!(" offset {LOCAL_SLOTS}") } else { String::new() };
    format!("meta priority . numgen random mod {count}{offset}")
}

/// A client's endpoint is remembered as an id, not as an address: an endpoint that went away has no address under its id any more, so that lookup
/// misses and the packet falls through to a fresh choice, for which the old memory goes first (an update alone keeps an element's value). Ids ride in the mark, which a later chain cleans before routing sees it.
fn stick(family: Family, pool: Pool, count: u32, seconds: u32, masquerade: bool) -> Vec<String> {
    let ip = family.keyword();
    let remember = format!("update @affinity {{ {ip} saddr . meta priority timeout {seconds}s : meta mark }}");
    let with_mark = masquerade.then(|| format!("meta mark set meta mark | {MASQUERADE_BIT:#x}"));
    let go = dnat(family, "meta priority . meta mark map @affinity-endpoints");
    let mut rules =
        vec!["meta mark set 0".to_owned(), format!("meta mark set {ip} saddr . meta priority map @affinity"), format!("meta mark != 0 {remember}")];
    rules.extend(with_mark.clone());
    rules.push(go.clone());
    rules.push(format!("delete @affinity {{ {ip} saddr . meta priority : meta mark }}"));
    rules.push(format!("meta mark set {} map @affinity-ids", slot(pool, count)));
    rules.push(remember);
    rules.extend(with_mark);
    rules.push(go);
    rules
}
