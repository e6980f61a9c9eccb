//! The PROXY protocol, version 2: how an endpoint tells a replica who the client is.
//!
//! Written once before the first byte of a connection and read before TLS. Only hosts' client listeners read it, and only endpoints can reach
//! those, so an address in it is believed. Specification: haproxy, `proxy-protocol.txt`, section 2.2.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const UNSPECIFIED: u8 = 0x00;

/// The fixed part of a header.
const FIXED: usize = 16;

/// Addresses take at most 36 bytes; what follows are extensions. The specification promises to fit 536 bytes.
const MAX_REST: usize = 536;

/// The extension that carries the endpoint's span as a W3C `traceparent`: the first of the experimental range.
const TRACEPARENT: u8 = 0xF0;

/// A version 00 `traceparent`; a longer one of a later version is not worth its bytes.
const MAX_TRACEPARENT: usize = 128;

/// What a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `None` for a local connection or an address family without ports.
    pub client: Option<SocketAddr>,
    /// The span at the endpoint that the connection belongs to.
    pub traceparent: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("the connection ended inside the PROXY header")]
    Read(#[source] io::Error),
    #[error("the connection does not begin with a PROXY v2 header")]
    Signature,
    #[error("the PROXY header is not one this server understands")]
    Unsupported,
}

/// What to send before a client's bytes. `traceparent` is the sender's span, if it has one.
pub fn header(client: SocketAddr, server: SocketAddr, traceparent: Option<&str>) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[PROXY, TCP4, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            let v6 = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            out.extend_from_slice(&[PROXY, TCP6, 0, 36]);
            out.extend_from_slice(&v6(from));
            out.extend_from_slice(&v6(to));
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&server.port().to_be_bytes());
    if let Some(text) = traceparent.filter(|text| text.len() <= MAX_TRACEPARENT) {
        out.push(TRACEPARENT);
        out.extend_from_slice(&[0, text.len() as u8]);
        out.extend_from_slice(text.as_bytes());
        let rest = (out.len() - FIXED) as u16;
        out[14..16].copy_from_slice(&rest.to_be_bytes());
    }
    out
}

/// What to send before bytes of one's own, such as health checks: no client stands behind them.
pub fn local_header() -> Vec<u8> {
    [SIGNATURE.as_slice(), &[LOCAL, UNSPECIFIED, 0, 0]].concat()
}

/// Reads the header and nothing behind it. Set a deadline around it.
pub async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> Result<Header, ProxyError> {
    let mut fixed = [0; FIXED];
    stream.read_exact(&mut fixed).await.map_err(ProxyError::Read)?;
    if fixed[..12] != SIGNATURE {
        return Err(ProxyError::Signature);
    }
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > MAX_REST {
        return Err(ProxyError::Unsupported);
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await.map_err(ProxyError::Read)?;
    let (client, addresses) = client_of(fixed[12], fixed[13], &rest)?;
    Ok(Header { client, traceparent: traceparent_in(&rest[addresses..]) })
}

/// Extensions are a type, two bytes of length, and so many bytes. What is cut short ends the search.
fn traceparent_in(mut extensions: &[u8]) -> Option<String> {
    while let [kind, high, low, rest @ ..] = extensions {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length)?;
        if *kind == TRACEPARENT && length <= MAX_TRACEPARENT {
            return String::from_utf8(value.to_vec()).ok();
        }
        extensions = rest;
    }
    None
}

/// The client, and how many bytes its addresses take.
fn client_of(command: u8, family: u8, rest: &[u8]) -> Result<(Option<SocketAddr>, usize), ProxyError> {
    match (command, family) {
        // Whatever stands there is of no known shape.
        (LOCAL, _) | (PROXY, UNSPECIFIED) => Ok((None, rest.len())),
        (PROXY, TCP4) => {
            let address: [u8; 12] = rest.get(..12).and_then(|a| a.try_into().ok()).ok_or(ProxyError::Unsupported)?;
            let [a, b, c, d, _, _, _, _, high, low, ..] = address;
            Ok((Some(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))), 12))
        }
        (PROXY, TCP6) => {
            let ip: [u8; 16] = rest.get(..16).and_then(|a| a.try_into().ok()).ok_or(ProxyError::Unsupported)?;
            let port: [u8; 2] = rest.get(32..34).and_then(|a| a.try_into().ok()).ok_or(ProxyError::Unsupported)?;
            Ok((Some(SocketAddr::new(IpAddr::from(ip).to_canonical(), u16::from_be_bytes(port))), 36))
        }
        _ => Err(ProxyError::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Header, ProxyError> {
        read_header(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn clients_come_back() {
        for (client, server) in
            [("192.0.2.7:40000", "198.51.100.1:6444"), ("[2001:db8::7]:40000", "[2001:db8::1]:6444"), ("192.0.2.7:1", "[2001:db8::1]:2")]
        {
            let (client, server) = (client.parse().unwrap(), server.parse().unwrap());
            let mut bytes = header(client, server, None);
            bytes.extend_from_slice(b"rest");
            let mut stream = &bytes[..];
            assert_eq!(read_header(&mut stream).await.unwrap(), Header { client: Some(client), traceparent: None });
            assert_eq!(stream, b"rest", "not a byte beyond the header is taken");
        }
        assert_eq!(read(&local_header()).await.unwrap(), Header::default());
    }

    #[tokio::test]
    async fn a_span_comes_along_among_other_extensions() {
        const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (client, server) = ("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
        let whole = header(client, server, Some(PARENT));
        let expected = Header { client: Some(client), traceparent: Some(PARENT.to_owned()) };
        assert_eq!(read(&whole).await.unwrap(), expected);
        // Another proxy's extension (here a NOOP) before it.
        let mut other = header(client, server, None);
        other.extend_from_slice(&[0x04, 0, 2, 9, 9]);
        other.extend_from_slice(&whole[28..]);
        let rest = (other.len() - FIXED) as u16;
        other[14..16].copy_from_slice(&rest.to_be_bytes());
        assert_eq!(read(&other).await.unwrap(), expected);
        let mut cut = header(client, server, None);
        cut.extend_from_slice(&[TRACEPARENT, 0, 9, b'x']);
        cut[15] += 4;
        assert_eq!(read(&cut).await.unwrap(), Header { client: Some(client), traceparent: None });
        assert_eq!(read(&header(client, server, Some(&"x".repeat(500)))).await.unwrap().traceparent, None);
    }

    #[tokio::test]
    async fn other_beginnings_are_refused() {
        assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n").await, Err(ProxyError::Signature)));
        let whole = header("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap(), None);
        assert!(matches!(read(&whole[..20]).await, Err(ProxyError::Read(_))));
        let mut long = whole.clone();
        long[14] = 0xff;
        assert!(matches!(read(&long).await, Err(ProxyError::Unsupported)));
        let mut udp = whole;
        udp[13] = 0x12;
        assert!(matches!(read(&udp).await, Err(ProxyError::Unsupported)));
    }
}
