//! Plain TCP between the members of a `--store-only` store. Who dials says its name first: one byte of length, then the name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wheelhouse_base::HostName;
use wheelhouse_replication::{BoxedIo, Dial, StreamTransport};
use wheelhouse_runtime::Tasks;

use crate::config::StoreMember;

/// A name is there at once or never.
const GREETING: Duration = Duration::from_secs(2);

/// When accepting fails (file handles, mostly), a pause keeps the loop from spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

struct Plain {
    own: HostName,
    members: Vec<StoreMember>,
}

impl Plain {
    fn address(&self, name: &HostName) -> io::Result<SocketAddr> {
        let member = self.members.iter().find(|member| member.name == *name);
        member.map(|member| member.peers).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[async_trait]
impl Dial for Plain {
    async fn dial(&self, host: &HostName) -> io::Result<BoxedIo> {
        let mut stream = TcpStream::connect(self.address(host)?).await?;
        stream.set_nodelay(true)?;
        let name = self.own.as_str().as_bytes();
        let length = u8::try_from(name.len()).map_err(io::Error::other)?;
        stream.write_all(&[&[length], name].concat()).await?;
        Ok(Box::new(stream))
    }
}

/// Listens where the other members expect `own`, and dials them when there is something to say.
pub async fn start(own: &HostName, members: &[StoreMember], tasks: &Tasks) -> anyhow::Result<Arc<StreamTransport>> {
    let plain = Arc::new(Plain { own: own.clone(), members: members.to_vec() });
    let address = plain.address(own)?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} for the other members"))?;
    let transport = StreamTransport::new(own.clone(), Arc::clone(&plain) as Arc<dyn Dial>, tasks.clone());
    let (accepting, mut stop, inner) = (Arc::clone(&transport), tasks.stop_signal(), tasks.clone());
    tasks.spawn("member-port", async move {
        while let Some(accepted) = stop.or(listener.accept()).await {
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (accepting, plain) = (Arc::clone(&accepting), Arc::clone(&plain));
            inner.spawn("member", async move {
                match tokio::time::timeout(GREETING, greeted(stream, &plain)).await {
                    Ok(Ok((name, stream))) => accepting.accept(name, Box::new(stream)),
                    Ok(Err(error)) => tracing::warn!(%error, "a connection that no member opened"),
                    Err(_) => tracing::warn!("a connection that said nothing"),
                }
            });
        }
    });
    Ok(transport)
}

async fn greeted(mut stream: TcpStream, plain: &Plain) -> io::Result<(HostName, TcpStream)> {
    stream.set_nodelay(true)?;
    let mut name = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut name).await?;
    let name: HostName = String::from_utf8(name).map_err(io::Error::other)?.parse().map_err(io::Error::other)?;
    plain.address(&name)?;
    Ok((name, stream))
}
