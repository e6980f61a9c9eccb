//! A client that has connected must say something, or it holds a place for nothing.
//!
//! HTTP servers time the head of a request, but only once they know which HTTP it is; until the first bytes they wait without end.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Held for as long as the connection lives, so no more than the first bytes need.
const BUFFER: usize = 512;

/// Waits for the first bytes, or the end, of a stream; they are read from what is returned.
pub async fn first_bytes<I: AsyncRead + Unpin>(stream: I, within: Duration) -> io::Result<BufReader<I>> {
    let mut stream = BufReader::with_capacity(BUFFER, stream);
    tokio::time::timeout(within, stream.fill_buf()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_let_go_and_nothing_said_is_lost() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(b"hello").await.unwrap();
        let mut stream = first_bytes(server, Duration::from_secs(1)).await.unwrap();
        stream.write_all(b"welcome").await.unwrap();
        drop(client);
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");
        let (_client, server) = tokio::io::duplex(64);
        assert_eq!(first_bytes(server, Duration::from_secs(1)).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
