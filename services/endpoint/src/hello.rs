//! The server name in a TLS ClientHello, read from the first bytes of a connection however they are cut.
//!
//! Pure: bytes in, verdict out. The parser reads lengths and skips; it keeps no state between calls, since a hello is small and arrives in
//! one or two segments. RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3.

/// The longest hello that is waited for, record headers included. With post-quantum key shares a hello has about 2 KB; a long ticket adds some.
pub const MAX_HELLO: usize = 32 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME_EXTENSION: u16 = 0;
const HOST_NAME: u8 = 0;
/// A record carries at most 2^14 bytes in the clear.
const MAX_RECORD: usize = 1 << 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed to tell.
    Incomplete,
    /// A whole ClientHello; `None` when it names no server. Lower case, without a trailing dot.
    ServerName(Option<String>),
    /// Not TLS but a plain HTTP request.
    PlainHttp,
    /// Neither.
    Malformed,
}

/// Reads what has arrived so far.
pub fn parse(received: &[u8]) -> Hello {
    if received.first().is_some_and(|b| *b != HANDSHAKE_RECORD) {
        return plain(received);
    }
    match handshake_bytes(received) {
        Ok((message, ended)) => client_hello(&message, ended),
        Err(Bad) => Hello::Malformed,
    }
}

/// HTTP methods begin with a capital letter, and so does HTTP/2's preface.
fn plain(received: &[u8]) -> Hello {
    const METHODS: [&[u8]; 9] = [b"GET ", b"PUT ", b"POST ", b"HEAD ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI "];
    let shared = |method: &[u8]| {
        let length = method.len().min(received.len());
        method[..length] == received[..length]
    };
    if METHODS.iter().any(|m| received.starts_with(m)) {
        Hello::PlainHttp
    } else if METHODS.iter().any(|m| shared(m)) {
        Hello::Incomplete
    } else {
        Hello::Malformed
    }
}

/// Not a ClientHello.
struct Bad;

/// The handshake message's bytes out of the records they came in, and whether the message may still go on.
fn handshake_bytes(received: &[u8]) -> Result<(Vec<u8>, bool), Bad> {
    let mut message = Vec::new();
    let mut rest = received;
    while let [kind, major, _, high, low, body @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind != HANDSHAKE_RECORD || *major != 3 || length == 0 || length > MAX_RECORD {
            return Err(Bad);
        }
        message.extend_from_slice(&body[..length.min(body.len())]);
        if let [CLIENT_HELLO, a, b, c, ..] = message[..] {
            let whole = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
            if whole > MAX_HELLO {
                return Err(Bad);
            }
            if message.len() >= whole {
                message.truncate(whole);
                return Ok((message, true));
            }
        } else if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Bad);
        }
        if body.len() <= length {
            return Ok((message, false));
        }
        rest = &body[length..];
    }
    Ok((message, false))
}

fn client_hello(message: &[u8], complete: bool) -> Hello {
    if !complete {
        return Hello::Incomplete;
    }
    match server_name(&message[4..]) {
        Some(name) => Hello::ServerName(name),
        None => Hello::Malformed,
    }
}

/// Inner `None`: no name. Outer: the message contradicts itself.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    let mut body = Reader(body);
    // Version and random.
    body.take(2 + 32)?;
    let _session = body.sized_u8()?;
    let _suites = body.sized_u16()?;
    let _compressions = body.sized_u8()?;
    if body.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Reader(body.sized_u16()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.sized_u16()?;
        if kind == SERVER_NAME_EXTENSION {
            let mut names = Reader(Reader(content).sized_u16()?);
            while !names.0.is_empty() {
                let kind = names.take(1)?[0];
                let name = names.sized_u16()?;
                if kind == HOST_NAME {
                    return host_name(name).map(Some);
                }
            }
            return Some(None);
        }
    }
    Some(None)
}

/// A DNS name has at most 253 characters, letters, digits, dashes, underscores and dots.
fn host_name(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let fits = (1..=253).contains(&name.len()) && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    fits.then(|| String::from_utf8_lossy(name).to_ascii_lowercase())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn sized_u8(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.take(1)?[0]);
        self.take(length)
    }

    fn sized_u16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.u16()?);
        self.take(length)
    }
}

/// A fatal alert as a record: what a client is told whose name nobody serves (RFC 6066: `unrecognized_name`).
pub const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];
/// What a client is told whom nobody can serve now (`internal_error`).
pub const INTERNAL_ERROR: [u8; 7] = [21, 3, 1, 0, 2, 2, 80];
/// What a client is told whose first bytes make no sense (`decode_error`).
pub const DECODE_ERROR: [u8; 7] = [21, 3, 1, 0, 2, 2, 50];

/// The answer to plain HTTP, in the words that Go's TLS servers use.
pub const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// What rustls sends for a name.
    fn real(name: &str) -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(wheelhouse_runtime::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same handshake bytes in records of `size`.
    fn refragment(bytes: &[u8], size: usize) -> Vec<u8> {
        let (mut message, mut rest) = (Vec::new(), bytes);
        while let [_, _, _, high, low, body @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            message.extend_from_slice(&body[..length]);
            rest = &body[length..];
        }
        let record = |part: &[u8]| [&[22, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn a_real_hello_names_its_server() {
        let bytes = real("c-abcdefghij.Wheelhouse.internal");
        assert_eq!(parse(&bytes), Hello::ServerName(Some("c-abcdefghij.wheelhouse.internal".into())));
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Hello::Incomplete, "after {cut} bytes");
        }
    }

    #[test]
    fn an_address_sends_no_name() {
        assert_eq!(parse(&real("127.0.0.1")), Hello::ServerName(None));
    }

    #[test]
    fn plain_http_is_told_apart() {
        assert_eq!(parse(b"GET /healthz HTTP/1.1\r\n"), Hello::PlainHttp);
        assert_eq!(parse(b"PRI * HTTP/2.0\r\n"), Hello::PlainHttp);
        assert_eq!(parse(b"PO"), Hello::Incomplete);
        assert_eq!(parse(b"SSH-2.0-x"), Hello::Malformed);
        assert_eq!(parse(&[0x80, 0x2e, 1]), Hello::Malformed);
    }

    #[test]
    fn contradictions_are_malformed() {
        let bytes = real("a.example");
        let mut other_message = bytes.clone();
        other_message[5] = 2;
        assert_eq!(parse(&other_message), Hello::Malformed);
        let mut endless = bytes.clone();
        endless[6..9].copy_from_slice(&[1, 0, 0]);
        assert_eq!(parse(&endless), Hello::Malformed);
        let mut long_session = bytes;
        long_session[5 + 4 + 34] = 255;
        long_session.truncate(5 + 4 + 34 + 10);
        long_session[3..5].copy_from_slice(&44_u16.to_be_bytes());
        long_session[6..9].copy_from_slice(&[0, 0, 40]);
        assert_eq!(parse(&long_session), Hello::Malformed);
    }

    proptest! {
        #[test]
        fn any_fragmentation_reads_the_same(size in 1_usize..400) {
            let bytes = refragment(&real("c-abcdefghij.example"), size);
            prop_assert_eq!(parse(&bytes), Hello::ServerName(Some("c-abcdefghij.example".into())));
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            parse(&bytes);
            let framed = [&[22, 3, 1], &(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
            parse(&framed);
        }

        #[test]
        fn a_changed_byte_never_panics(at in 0_usize..200, value in any::<u8>()) {
            let mut bytes = real("c-abcdefghij.example");
            bytes[at] = value;
            parse(&bytes);
        }
    }
}
