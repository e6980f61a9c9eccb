//! From a query to a reply, or to the decision to ask somebody else. Pure.

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use wheelhouse_net::Cidr;

use crate::zone::{Meaning, SrvTarget, Zone};

/// Seconds that a resolver may keep an answer of the zone. Short: the server is on the same node, and endpoints change.
pub const TTL: u32 = 5;

/// The version of the specification that names follow.
const SPECIFICATION: &str = "1.1.0";

/// The largest datagram that is sent: what passes everywhere without fragments (DNS Flag Day 2020).
pub const MAX_DATAGRAM: usize = 1232;

/// A datagram without EDNS (RFC 1035, section 4.2.1).
const PLAIN_DATAGRAM: usize = 512;

/// Service records with more targets than this carry no addresses beside them: the answer is long enough.
const MAX_ADDITIONAL: usize = 64;

/// What the zone is called and where it is served.
pub struct Origin {
    /// `cluster.local.`
    name: Name,
    labels: Vec<String>,
    addresses: Vec<IpAddr>,
    /// Networks whose addresses belong to the cluster: nobody else knows names of theirs.
    networks: Vec<Cidr>,
}

#[derive(Debug)]
pub enum Decision {
    Reply(Box<Message>),
    /// For somebody else: the question and the start of the reply, where an alias of the zone leads outside.
    Forward {
        question: Query,
        reply: Box<Message>,
    },
    /// Not a query: silence, since an answer to an answer would go on for ever.
    Ignore,
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no name of a zone")]
pub struct OriginError(String);

impl Origin {
    pub fn new(zone: &str, addresses: Vec<IpAddr>, networks: &[String]) -> Result<Self, OriginError> {
        let name = Name::from_ascii(format!("{}.", zone.trim_end_matches('.'))).map_err(|_| OriginError(zone.to_owned()))?.to_lowercase();
        let labels = labels_of(&name);
        Ok(Self { name, labels, addresses, networks: networks.iter().filter_map(|text| text.parse().ok()).collect() })
    }

    fn absolute(&self, labels: &[String]) -> Option<Name> {
        Name::from_labels(labels.iter().map(String::as_bytes)).ok()?.append_name(&self.name).ok()
    }

    fn soa(&self) -> Record {
        let server = self.absolute(&["ns".into(), "dns".into()]).unwrap_or_else(|| self.name.clone());
        let contact = self.absolute(&["hostmaster".into()]).unwrap_or_else(|| self.name.clone());
        // Nobody transfers the zone, so its serial and its other times mean nothing. Minimum is how long absence may be remembered.
        Record::from_rdata(self.name.clone(), TTL, RData::SOA(SOA::new(server, contact, 1, 7200, 1800, 86_400, TTL)))
    }
}

fn labels_of(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}

/// Decodes a request. What cannot be decoded but has a header is answered with FORMERR.
pub fn decode(bytes: &[u8]) -> Result<Message, Option<Box<Message>>> {
    Message::from_vec(bytes).map_err(|_| {
        let [high, low, flags, ..] = bytes else { return None };
        // Only queries are answered.
        let complaint = || Message::error_msg(u16::from_be_bytes([*high, *low]), OpCode::Query, ResponseCode::FormErr);
        (bytes.len() >= 12 && flags & 0x80 == 0).then(|| Box::new(complaint()))
    })
}

/// Decides what to do about a request. `zone` is none while it is not known yet.
pub fn decide(request: &Message, zone: Option<&Zone>, origin: &Origin) -> Decision {
    if request.metadata.message_type != MessageType::Query {
        return Decision::Ignore;
    }
    let mut reply = start(request);
    let refuse = |mut reply: Message, code| {
        reply.metadata.response_code = code;
        Decision::Reply(Box::new(reply))
    };
    if request.metadata.op_code != OpCode::Query {
        return refuse(reply, ResponseCode::NotImp);
    }
    if request.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return refuse(reply, ResponseCode::BADVERS);
    }
    let [question] = request.queries.as_slice() else { return refuse(reply, ResponseCode::FormErr) };
    if question.query_class != DNSClass::IN {
        return refuse(reply, ResponseCode::Refused);
    }
    if matches!(question.query_type, RecordType::AXFR | RecordType::IXFR) {
        return refuse(reply, ResponseCode::Refused);
    }
    let labels = labels_of(&question.name);
    if let Some(below) = labels.strip_suffix(origin.labels.as_slice()) {
        let Some(zone) = zone else { return refuse(reply, ResponseCode::ServFail) };
        reply.metadata.authoritative = true;
        return in_zone(question, below, zone, origin, reply);
    }
    if let Some(address) = reverse_address(&labels) {
        return reverse(question, address, zone, origin, reply);
    }
    Decision::Forward { question: question.clone(), reply: Box::new(reply) }
}

/// A reply without records: the question, and EDNS where the asker has it.
fn start(request: &Message) -> Message {
    let mut reply = Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    reply.metadata = Metadata::response_from_request(&request.metadata);
    reply.metadata.recursion_available = true;
    reply.add_queries(request.queries.iter().cloned());
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(MAX_DATAGRAM as u16);
        reply.set_edns(edns);
    }
    reply
}

fn in_zone(question: &Query, below: &[String], zone: &Zone, origin: &Origin, mut reply: Message) -> Decision {
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let record = |data| Record::from_rdata(question.name.clone(), TTL, data);
    let asked = question.query_type;
    match zone.meaning(&below) {
        Meaning::Nothing => reply.metadata.response_code = ResponseCode::NXDomain,
        Meaning::Empty => {}
        Meaning::Apex => match (asked, origin.absolute(&["ns".into(), "dns".into()])) {
            (RecordType::SOA, _) => {
                reply.add_answer(origin.soa());
            }
            (RecordType::NS, Some(server)) => {
                reply.add_answer(record(RData::NS(NS(server))));
            }
            _ => {}
        },
        Meaning::Version if asked == RecordType::TXT => {
            reply.add_answer(record(RData::TXT(TXT::new(vec![SPECIFICATION.to_owned()]))));
        }
        Meaning::Version => {}
        Meaning::NameServer => {
            reply.add_answers(addresses(&question.name, asked, &origin.addresses));
        }
        Meaning::Addresses(list) => {
            let mut records = addresses(&question.name, asked, &list);
            // Clients mostly take the first: each is first for some.
            if !records.is_empty() {
                let turn = usize::from(reply.metadata.id) % records.len();
                records.rotate_left(turn);
            }
            reply.add_answers(records);
        }
        Meaning::Services(targets) if asked == RecordType::SRV => services(question, &targets, origin, &mut reply),
        Meaning::Services(_) => {}
        Meaning::Alias(target) => {
            if let Ok(target) = Name::from_ascii(format!("{}.", target.trim_end_matches('.'))) {
                reply.add_answer(record(RData::CNAME(CNAME(target.clone()))));
                return alias(asked, target, zone, origin, reply);
            }
        }
    }
    if reply.answers.is_empty() {
        reply.add_authority(origin.soa());
    }
    Decision::Reply(Box::new(reply))
}

/// Goes on where an alias leads: one step within the zone, or outside.
fn alias(asked: RecordType, target: Name, zone: &Zone, origin: &Origin, mut reply: Message) -> Decision {
    if asked == RecordType::CNAME {
        return Decision::Reply(Box::new(reply));
    }
    match labels_of(&target).strip_suffix(origin.labels.as_slice()) {
        Some(below) => {
            let below: Vec<&str> = below.iter().map(String::as_str).collect();
            // An alias of an alias is left to the asker: following it could go in a circle.
            if let Meaning::Addresses(list) = zone.meaning(&below) {
                reply.add_answers(addresses(&target, asked, &list));
            }
            Decision::Reply(Box::new(reply))
        }
        None => Decision::Forward { question: Query::query(target, asked), reply: Box::new(reply) },
    }
}

fn services(question: &Query, targets: &[SrvTarget], origin: &Origin, reply: &mut Message) {
    // Weights of equal targets add up to 100, as far as integers do.
    let weight = (100 / targets.len().max(1)).max(1) as u16;
    for target in targets {
        let Some(name) = origin.absolute(&target.labels) else { continue };
        reply.add_answer(Record::from_rdata(question.name.clone(), TTL, RData::SRV(SRV::new(0, weight, target.port, name.clone()))));
        if targets.len() <= MAX_ADDITIONAL {
            let both = [RecordType::A, RecordType::AAAA];
            reply.add_additionals(both.into_iter().flat_map(|kind| addresses(&name, kind, &target.addresses)));
        }
    }
}

/// The records of type `asked` among `addresses`.
fn addresses(name: &Name, asked: RecordType, addresses: &[IpAddr]) -> Vec<Record> {
    let data = addresses.iter().filter_map(|address| match (address, asked) {
        (IpAddr::V4(ip), RecordType::A | RecordType::ANY) => Some(RData::A(A(*ip))),
        (IpAddr::V6(ip), RecordType::AAAA | RecordType::ANY) => Some(RData::AAAA(AAAA(*ip))),
        _ => None,
    });
    data.map(|data| Record::from_rdata(name.clone(), TTL, data)).collect()
}

/// The address that a name below `in-addr.arpa` or `ip6.arpa` stands for; none for a part of one.
fn reverse_address(labels: &[String]) -> Option<IpAddr> {
    match labels {
        [digits @ .., zone, arpa] if arpa == "arpa" && zone == "in-addr" && digits.len() == 4 => {
            let parts: Vec<&str> = digits.iter().rev().map(String::as_str).collect();
            parts.join(".").parse().ok()
        }
        [digits @ .., zone, arpa] if arpa == "arpa" && zone == "ip6" && digits.len() == 32 => {
            let mut bits = 0u128;
            for digit in digits.iter().rev() {
                bits = (bits << 4) | u128::from(digit.parse::<char>().ok()?.to_digit(16)?);
            }
            Some(IpAddr::V6(bits.into()))
        }
        _ => None,
    }
}

fn reverse(question: &Query, address: IpAddr, zone: Option<&Zone>, origin: &Origin, mut reply: Message) -> Decision {
    let is_ours = origin.networks.iter().any(|network| network.contains(&address));
    let names: Vec<Name> = zone.into_iter().flat_map(|zone| zone.names_of(&address)).filter_map(|labels| origin.absolute(labels)).collect();
    if names.is_empty() && !is_ours {
        return Decision::Forward { question: question.clone(), reply: Box::new(reply) };
    }
    if zone.is_none() {
        reply.metadata.response_code = ResponseCode::ServFail;
        return Decision::Reply(Box::new(reply));
    }
    reply.metadata.authoritative = true;
    if names.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
    } else if matches!(question.query_type, RecordType::PTR | RecordType::ANY) {
        reply.add_answers(names.into_iter().map(|name| Record::from_rdata(question.name.clone(), TTL, RData::PTR(PTR(name)))));
    }
    if reply.answers.is_empty() {
        let mut soa = origin.soa();
        soa.name = question.name.base_name();
        reply.add_authority(soa);
    }
    Decision::Reply(Box::new(reply))
}

/// The reply's bytes for a datagram: as many records as fit, and the truncation bit where not all do. A resolver without TCP, as some
/// containers have, still gets addresses.
pub fn encode_datagram(reply: &Message, request: &Message) -> Option<Vec<u8>> {
    let limit = request.edns.as_ref().map_or(PLAIN_DATAGRAM, |edns| usize::from(edns.max_payload()).clamp(PLAIN_DATAGRAM, MAX_DATAGRAM));
    let whole = reply.to_vec().ok()?;
    if whole.len() <= limit {
        return Some(whole);
    }
    let mut part = reply.clone();
    part.additionals.clear();
    if !part.answers.is_empty() {
        part.authorities.clear();
    }
    // What stands beside the answer may go without a word.
    let without_extras = part.to_vec().ok()?;
    if without_extras.len() <= limit && !part.answers.is_empty() {
        return Some(without_extras);
    }
    part.metadata.truncation = true;
    part.authorities.clear();
    let (mut fits, mut too_many) = (0, part.answers.len());
    let all = std::mem::take(&mut part.answers);
    while fits + 1 < too_many {
        let middle = fits + (too_many - fits) / 2;
        part.answers = all[..middle].to_vec();
        if part.to_vec().ok()?.len() <= limit { fits = middle } else { too_many = middle }
    }
    part.answers = all[..fits].to_vec();
    part.to_vec().ok()
}
