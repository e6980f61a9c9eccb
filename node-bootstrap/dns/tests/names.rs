//! What each name of the specification answers: records, absence of a type, absence of a name.

#![allow(clippy::unwrap_used, reason = "all of this is tests, their helpers too")]

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use wheelhouse_dns::answer::{Decision, Origin, decide, decode, encode_datagram};
use wheelhouse_dns::{Endpoint, ServiceRecord, Zone};

fn service(zone: &mut Zone, yaml: &str) {
    let service = serde_norway::from_str(yaml).unwrap();
    let (name, record) = ServiceRecord::of(&service);
    zone.set_service(name, record);
}

fn slice(zone: &mut Zone, yaml: &str) {
    let slice: k8s_openapi::api::discovery::v1::EndpointSlice = serde_norway::from_str(yaml).unwrap();
    let (service, endpoints) = Endpoint::of(&slice).unwrap();
    zone.set_slice(service, slice.metadata.name.as_deref().unwrap(), Some(endpoints));
}

fn zone() -> Zone {
    let mut zone = Zone::default();
    service(
        &mut zone,
        "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: web}, spec: {clusterIP: 10.96.0.5, clusterIPs: [10.96.0.5, 'fd00:96::5'], ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}}",
    );
    service(
        &mut zone,
        "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: db}, spec: {clusterIP: None, clusterIPs: [None], ports: [{name: sql, port: 5432}]}}",
    );
    service(&mut zone, "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: idle}, spec: {clusterIP: None, clusterIPs: [None]}}");
    service(&mut zone, "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: out}, spec: {type: ExternalName, externalName: example.org}}");
    service(
        &mut zone,
        "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: inner}, spec: {type: ExternalName, externalName: web.d.svc.cluster.local}}",
    );
    slice(
        &mut zone,
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {namespace: d, name: db-1, labels: {kubernetes.io/service-name: db}},
          ports: [{name: sql, port: 5432, protocol: TCP}],
          endpoints: [{addresses: [10.244.1.2], hostname: db-0}, {addresses: [10.244.2.2]}, {addresses: [10.244.2.3], hostname: db-9, conditions: {ready: false}}]}",
    );
    zone
}

fn origin() -> Origin {
    Origin::new("cluster.local", vec!["10.96.0.10".parse().unwrap()], &["10.244.0.0/16".into(), "10.96.0.0/16".into()]).unwrap()
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

/// Code, answers and what stands beside them, in short.
fn ask(name: &str, kind: RecordType) -> String {
    match decide(&query(name, kind), Some(&zone()), &origin()) {
        Decision::Ignore => "ignore".into(),
        Decision::Forward { question, reply } => format!("{}forward {} {}", records(&reply), question.name, question.query_type),
        Decision::Reply(reply) => {
            assert!(reply.metadata.authoritative && reply.metadata.recursion_available && reply.metadata.recursion_desired);
            // Absence carries the record that says for how long.
            assert_eq!(reply.answers.is_empty(), reply.authorities.len() == 1, "{name}");
            let code = match reply.metadata.response_code {
                ResponseCode::NoError if reply.answers.is_empty() => "nodata".into(),
                ResponseCode::NoError => String::new(),
                ResponseCode::NXDomain => "nxdomain".into(),
                other => format!("{other:?}"),
            };
            format!("{code}{}", records(&reply)).trim_end().to_owned()
        }
    }
}

fn records(reply: &Message) -> String {
    let mut texts: Vec<String> = reply.answers.iter().map(|record| format!("{} {}", record.record_type(), record.data)).collect();
    texts.sort();
    texts.extend(reply.additionals.iter().map(|record| format!("+{} {} {}", record.name, record.record_type(), record.data)));
    texts.iter().map(|text| format!("{text}; ")).collect()
}

#[test]
fn services() {
    use RecordType::{A, AAAA, CNAME, MX, NS, SOA, SRV, TXT};
    let expected = [
        ("web.d.svc.cluster.local.", A, "A 10.96.0.5;"),
        ("WEB.d.SVC.Cluster.Local.", A, "A 10.96.0.5;"),
        ("web.d.svc.cluster.local.", AAAA, "AAAA fd00:96::5;"),
        ("web.d.svc.cluster.local.", MX, "nodata"),
        (
            "_http._tcp.web.d.svc.cluster.local.",
            SRV,
            "SRV 0 100 80 web.d.svc.cluster.local.; +web.d.svc.cluster.local. A 10.96.0.5; +web.d.svc.cluster.local. AAAA fd00:96::5;",
        ),
        ("_http._tcp.web.d.svc.cluster.local.", A, "nodata"),
        ("_http._udp.web.d.svc.cluster.local.", SRV, "nxdomain"),
        ("_udp.web.d.svc.cluster.local.", A, "nodata"),
        ("_sctp.web.d.svc.cluster.local.", A, "nxdomain"),
        ("none.d.svc.cluster.local.", A, "nxdomain"),
        ("x.web.d.svc.cluster.local.", A, "nxdomain"),
        ("d.svc.cluster.local.", A, "nodata"),
        ("none.svc.cluster.local.", A, "nxdomain"),
        ("svc.cluster.local.", A, "nodata"),
        // Headless: all that are ready, each under its own name.
        ("db.d.svc.cluster.local.", A, "A 10.244.1.2; A 10.244.2.2;"),
        ("db.d.svc.cluster.local.", AAAA, "nodata"),
        ("db-0.db.d.svc.cluster.local.", A, "A 10.244.1.2;"),
        ("10-244-2-2.db.d.svc.cluster.local.", A, "A 10.244.2.2;"),
        ("db-9.db.d.svc.cluster.local.", A, "nxdomain"),
        (
            "_sql._tcp.db.d.svc.cluster.local.",
            SRV,
            "SRV 0 50 5432 10-244-2-2.db.d.svc.cluster.local.; SRV 0 50 5432 db-0.db.d.svc.cluster.local.; \
             +db-0.db.d.svc.cluster.local. A 10.244.1.2; +10-244-2-2.db.d.svc.cluster.local. A 10.244.2.2;",
        ),
        ("idle.d.svc.cluster.local.", A, "nxdomain"),
        // Aliases.
        ("out.d.svc.cluster.local.", CNAME, "CNAME example.org.;"),
        ("out.d.svc.cluster.local.", A, "CNAME example.org.; forward example.org. A"),
        ("inner.d.svc.cluster.local.", A, "A 10.96.0.5; CNAME web.d.svc.cluster.local.;"),
        // Pods.
        ("10-244-7-9.d.pod.cluster.local.", A, "A 10.244.7.9;"),
        ("fd00--2.d.pod.cluster.local.", AAAA, "AAAA fd00::2;"),
        ("10-244-7-9.none.pod.cluster.local.", A, "nxdomain"),
        ("10-244-7.d.pod.cluster.local.", A, "nxdomain"),
        // The zone itself.
        ("dns-version.cluster.local.", TXT, "TXT 1.1.0;"),
        ("cluster.local.", NS, "NS ns.dns.cluster.local.;"),
        ("cluster.local.", A, "nodata"),
        ("cluster.local.", SOA, "SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5;"),
        ("ns.dns.cluster.local.", A, "A 10.96.0.10;"),
        ("nothing.cluster.local.", A, "nxdomain"),
    ];
    for (name, kind, answer) in expected {
        assert_eq!(ask(name, kind), answer, "{name} {kind}");
    }
}

#[test]
fn addresses_have_names() {
    use RecordType::{A, PTR};
    let expected = [
        ("5.0.96.10.in-addr.arpa.", PTR, "PTR web.d.svc.cluster.local.;"),
        ("2.1.244.10.in-addr.arpa.", PTR, "PTR db-0.db.d.svc.cluster.local.;"),
        ("2.1.244.10.in-addr.arpa.", A, "nodata"),
        ("9.1.244.10.in-addr.arpa.", PTR, "nxdomain"),
        ("1.2.0.192.in-addr.arpa.", PTR, "forward 1.2.0.192.in-addr.arpa. PTR"),
        ("244.10.in-addr.arpa.", PTR, "forward 244.10.in-addr.arpa. PTR"),
        ("5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa.", PTR, "PTR web.d.svc.cluster.local.;"),
    ];
    for (name, kind, answer) in expected {
        assert_eq!(ask(name, kind), answer, "{name} {kind}");
    }
}

#[test]
fn names_go_with_what_they_stand_for() {
    let mut zone = zone();
    service(&mut zone, "{apiVersion: v1, kind: Service, metadata: {namespace: d, name: db}, spec: {clusterIP: 10.96.0.9, clusterIPs: [10.96.0.9]}}");
    let names = |zone: &Zone, ip: &str| zone.names_of(&ip.parse().unwrap()).count();
    assert_eq!((names(&zone, "10.244.1.2"), names(&zone, "10.96.0.9")), (0, 1));
    zone.retain_services(&Default::default());
    zone.retain_slices(&Default::default());
    assert_eq!((names(&zone, "10.96.0.9"), names(&zone, "10.96.0.5")), (0, 0));
    assert_eq!(zone.meaning(&["web", "d", "svc"]), wheelhouse_dns::Meaning::Nothing);
}

#[test]
fn odd_requests_get_the_right_code_or_silence() {
    let code = |request: &Message| match decide(request, Some(&zone()), &origin()) {
        Decision::Reply(reply) => Some(reply.metadata.response_code),
        _ => None,
    };
    let plain = || query("web.d.svc.cluster.local.", RecordType::A);
    let mut update = plain();
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update), Some(ResponseCode::NotImp));
    let mut answer = plain();
    answer.metadata.message_type = MessageType::Response;
    assert_eq!(code(&answer), None);
    let mut two = plain();
    two.add_query(two.queries[0].clone());
    assert_eq!(code(&two), Some(ResponseCode::FormErr));
    let mut version = plain();
    let mut edns = Edns::new();
    edns.set_version(1);
    version.set_edns(edns);
    assert_eq!(code(&version), Some(ResponseCode::BADVERS));
    assert_eq!(code(&query("cluster.local.", RecordType::AXFR)), Some(ResponseCode::Refused));
    // Before the lists have arrived nothing is denied.
    let Decision::Reply(early) = decide(&plain(), None, &origin()) else { panic!("no reply") };
    assert_eq!(early.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(decode(b"\x12\x34\x01\x00\x00\x05\x00\x00\x00\x00\x00\x00").unwrap_err().unwrap().metadata.response_code, ResponseCode::FormErr);
    assert!(decode(b"\x12\x34\x81\x00\x00\x05\x00\x00\x00\x00\x00\x00").unwrap_err().is_none());
    assert!(decode(b"\x12").unwrap_err().is_none());
}

#[test]
fn long_answers_are_cut_and_say_so() {
    let mut zone = zone();
    let endpoints: Vec<String> = (0..200).map(|n| format!("{{addresses: [10.244.3.{n}]}}")).collect();
    slice(
        &mut zone,
        &format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{namespace: d, name: db-2, labels: {{kubernetes.io/service-name: db}}}}, ports: [], endpoints: [{}]}}",
            endpoints.join(", ")
        ),
    );
    let mut request = query("db.d.svc.cluster.local.", RecordType::A);
    let cut = |request: &Message| {
        let Decision::Reply(reply) = decide(request, Some(&zone), &origin()) else { panic!("no reply") };
        assert_eq!(reply.answers.len(), 202);
        let bytes = encode_datagram(&reply, request).unwrap();
        let message = Message::from_vec(&bytes).unwrap();
        assert!(message.metadata.truncation);
        (bytes.len(), message.answers.len())
    };
    let (length, answers) = cut(&request);
    assert!(length <= 512 && answers >= 25, "{length} {answers}");
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    request.set_edns(edns);
    let (length, answers) = cut(&request);
    assert!(length <= 1232 && answers >= 65, "{length} {answers}");
}
