//! The plain-HTTP port of a process: `/metrics`, `/healthz` and the like. GET only, one answer a connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::{Stop, Tasks};

/// A scraper's request line and headers fit easily.
const MAX_HEAD: usize = 8 * 1024;

/// Time for a whole exchange.
const EXCHANGE: Duration = Duration::from_secs(5);

/// A handful of scrapers and probes; more wait.
const MAX_CONNECTIONS: usize = 32;

/// An answer: status code and text.
pub struct Page {
    pub status: u16,
    pub body: String,
}

impl Page {
    pub fn ok(body: impl Into<String>) -> Self {
        Self { status: 200, body: body.into() }
    }

    pub fn unavailable(body: impl Into<String>) -> Self {
        Self { status: 503, body: body.into() }
    }
}

/// Answers paths until stopped. `None` from `page` is a 404.
pub fn serve(tasks: &Tasks, listener: TcpListener, page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static) {
    let (page, connections, inner) = (Arc::new(page), Arc::new(Semaphore::new(MAX_CONNECTIONS)), tasks.clone());
    let mut stop: Stop = tasks.stop_signal();
    tasks.spawn("status-server", async move {
        loop {
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let Some(accepted) = stop.or(listener.accept()).await else { return };
            // Out of file handles, most likely: the permit paces the retries.
            let Ok((stream, _)) = accepted else { continue };
            let page = Arc::clone(&page);
            inner.spawn("status-request", async move {
                let _permit = permit;
                // A client that leaves or dawdles is its own loss.
                let _ = tokio::time::timeout(EXCHANGE, answer(stream, &*page)).await;
            });
        }
    });
}

async fn answer(mut stream: TcpStream, page: &(impl Fn(&str) -> Option<Page> + ?Sized)) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > MAX_HEAD || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let page = match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => page(target.split('?').next().unwrap_or_default()),
        _ => Some(Page { status: 405, body: "only GET is served here\n".to_owned() }),
    };
    let Page { status, body } = page.unwrap_or_else(|| Page { status: 404, body: "not found\n".to_owned() });
    let reason = match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn known_paths_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new("test");
        serve(&tasks, listener, |path| (path == "/healthz").then(|| Page::ok("ok")));
        assert!(get(address, "GET /healthz?verbose HTTP/1.1\r\n\r\n").await.ends_with("\r\n\r\nok"));
        assert!(get(address, "GET /other HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
        assert!(get(address, "POST /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405 "));
        tasks.stop(Duration::from_secs(1)).await;
        assert_eq!(tasks.running(), 0);
    }
}
