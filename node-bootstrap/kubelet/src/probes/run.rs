//! One probe or hook carried out: a command, an HTTP request, a connection, a gRPC health check.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use crate::cri::Runtime;

/// Of an answer's body; upstream's limit.
const MAX_BODY: usize = 10 << 10;

/// Where a probe goes.
#[derive(Clone)]
pub struct Target {
    pub container: Container,
    pub container_id: String,
    pub pod_ip: Option<IpAddr>,
}

/// Carries probes and hooks out.
#[derive(Clone)]
pub struct Prober {
    runtime: Runtime,
    tls: Arc<rustls::ClientConfig>,
}

impl Prober {
    /// `tls` accepts any certificate: a probe asks whether somebody answers, not who.
    pub fn new(runtime: Runtime, tls: Arc<rustls::ClientConfig>) -> Self {
        Self { runtime, tls }
    }

    /// `Ok` or why not.
    pub async fn probe(&self, target: &Target, probe: &Probe) -> Result<(), String> {
        let limit = super::timeout(probe);
        let work = async {
            if let Some(exec) = &probe.exec {
                self.exec(target, exec, limit).await
            } else if let Some(get) = &probe.http_get {
                self.http(target, get).await
            } else if let Some(socket) = &probe.tcp_socket {
                let (host, port) = address(target, socket.host.as_deref(), &socket.port)?;
                TcpStream::connect((host.as_str(), port)).await.map(drop).map_err(|error| format!("dial tcp {host}:{port}: {error}"))
            } else if let Some(grpc) = &probe.grpc {
                self.grpc(target, u16::try_from(grpc.port).unwrap_or(0), grpc.service.as_deref().unwrap_or_default()).await
            } else {
                Ok(())
            }
        };
        let limit = if probe.exec.is_some() { limit + Duration::from_secs(1) } else { limit };
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err("command timed out: context deadline exceeded".to_owned()))
    }

    /// A life-cycle hook, within `limit`.
    pub async fn hook(&self, target: &Target, hook: &LifecycleHandler, limit: Duration) -> Result<(), String> {
        let work = async {
            if let Some(exec) = &hook.exec {
                self.exec(target, exec, limit).await
            } else if let Some(get) = &hook.http_get {
                self.http(target, get).await
            } else if let Some(sleep) = &hook.sleep {
                tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
                Ok(())
            } else {
                Ok(())
            }
        };
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err("the hook did not end in time".to_owned()))
    }

    async fn exec(&self, target: &Target, exec: &ExecAction, limit: Duration) -> Result<(), String> {
        let command = exec.command.clone().unwrap_or_default();
        match self.runtime.exec_sync(&target.container_id, &command, limit).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) if output.is_empty() => Err(format!("command exited with {code}")),
            Ok((_, output)) => Err(output.chars().take(MAX_BODY).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn http(&self, target: &Target, get: &HTTPGetAction) -> Result<(), String> {
        let (host, port) = address(target, get.host.as_deref(), &get.port)?;
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| format!("Get \"{host}:{port}\": {error}"))?;
        let https = get.scheme.as_deref() == Some("HTTPS");
        let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let mut request = http::Request::get(path).header("accept", "*/*");
        let headers = get.http_headers.as_deref().unwrap_or_default();
        let named = |name: &str| headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
        if !named("host") {
            request = request.header("host", format!("{host}:{port}"));
        }
        if !named("user-agent") {
            request = request.header("user-agent", "kube-probe/1.36");
        }
        for header in headers {
            request = request.header(&header.name, &header.value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let status = if https {
            let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
            let stream = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await.map_err(|error| error.to_string())?;
            exchange(stream, request).await?
        } else {
            exchange(stream, request).await?
        };
        // A redirect is a success, as upstream's, which follows it only to the same host.
        if (200..400).contains(&status) { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {status}")) }
    }

    async fn grpc(&self, target: &Target, port: u16, service: &str) -> Result<(), String> {
        #[derive(Clone, PartialEq, prost::Message)]
        struct HealthCheckRequest {
            #[prost(string, tag = "1")]
            service: String,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct HealthCheckResponse {
            /// 1 is SERVING.
            #[prost(int32, tag = "1")]
            status: i32,
        }
        let ip = target.pod_ip.ok_or("the pod has no address")?;
        let uri = format!("http://{}", std::net::SocketAddr::new(ip, port));
        let channel =
            tonic::transport::Endpoint::from_shared(uri).map_err(|error| error.to_string())?.connect().await.map_err(|error| error.to_string())?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|error| error.to_string())?;
        let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        let answer = client.unary(request, path, codec).await.map_err(|status| status.message().to_owned())?;
        match answer.into_inner().status {
            1 => Ok(()),
            status => Err(format!("service unhealthy (responded with {status})")),
        }
    }
}

async fn exchange<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<u16, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let talk = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        // Read to the end so that the server sees a request that was taken, up to a limit.
        let _ = Limited::new(response.into_body(), MAX_BODY).collect().await;
        Ok(status)
    };
    tokio::pin!(connection);
    tokio::pin!(talk);
    tokio::select! {
        answer = &mut talk => answer,
        ended = &mut connection => match ended {
            Ok(()) => talk.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Host and port: the pod's address unless the probe names another, the port by number or by the container's own name for it.
fn address(target: &Target, host: Option<&str>, port: &IntOrString) -> Result<(String, u16), String> {
    let host = match host.filter(|host| !host.is_empty()) {
        Some(host) => host.to_owned(),
        None => target.pod_ip.ok_or("the pod has no address")?.to_string(),
    };
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = target.container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name.as_str()));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    number.map(|number| (host, number)).ok_or_else(|| format!("invalid port: {port:?}"))
}
