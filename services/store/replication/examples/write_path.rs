//! What a replicated write costs: three real processes over mutual TLS with RocksDB, some clients, and the processor time of all three.
//!
//! `cargo run --release --example write_path -- [clients] [seconds] [value bytes] [leader|spread]` prints one JSON line. `spread` lets the
//! clients write through all three replicas, so two thirds of the commands are forwarded.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wheelhouse_base::{Clock, ClusterId, HostName, ReplicaId, SystemClock};
use wheelhouse_mvcc::{Command, Txn};
use wheelhouse_pki::{AltName, Authority, Leaf, Subject, Usage, Validity};
use wheelhouse_replication::{BoxedIo, DataKey, Dial, GroupManager, HostDisk, HostParts, ReplicaSpec, ReplicatedStore, Start, StreamTransport};
use wheelhouse_runtime::Tasks;
use wheelhouse_runtime::tls::{self, CertificateSlot};
use wheelhouse_store::Store;

const HOSTS: u16 = 3;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "host") {
        let threads = 2;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        return runtime.block_on(host(arguments[1].parse()?, arguments[2].parse()?, PathBuf::from(&arguments[3])));
    }
    let argument = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.to_owned());
    measure(&argument(0, "64"), &argument(1, "5"), &argument(2, "1024"), &argument(3, "leader"))
}

/// Starts the hosts, lets the clients write, and adds up what the hosts say.
fn measure(clients: &str, seconds: &str, bytes: &str, mode: &str) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("write-path-{}", std::process::id()));
    let base = 20_000 + (std::process::id() % 20_000) as u16;
    let program = std::env::current_exe()?;
    write_certificates(&directory)?;
    let mut hosts: Vec<Host> = (0..HOSTS).map(|i| Host::start(&program, i, base, &directory)).collect::<Result<_, _>>()?;
    let answers = hosts.iter_mut().map(Host::line).collect::<Result<Vec<_>, _>>()?;
    assert!(answers.iter().all(|answer| answer == "ready"), "{answers:?}");
    for host in &mut hosts {
        writeln!(host.input, "run {clients} {seconds} {bytes} {mode}")?;
    }
    let (mut writes, mut cpu, mut elapsed, mut p50, mut p99) = (0.0, 0.0, 0.0_f64, 0.0_f64, 0.0_f64);
    for host in &mut hosts {
        let line = host.line()?;
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        writes += numbers[0];
        cpu += numbers[1];
        elapsed = elapsed.max(numbers[2]);
        p50 = p50.max(numbers[3]);
        p99 = p99.max(numbers[4]);
    }
    println!(
        "{{\"clients\":{clients},\"value_bytes\":{bytes},\"mode\":\"{mode}\",\"writes_per_second\":{:.0},\"cpu_us_per_write\":{:.1},\"p50_ms\":{p50:.2},\"p99_ms\":{p99:.2}}}",
        writes / elapsed,
        cpu / writes
    );
    drop(hosts);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

struct Host {
    process: Child,
    input: std::process::ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Host {
    fn start(program: &PathBuf, i: u16, base: u16, directory: &Path) -> Result<Self, Failure> {
        let arguments = ["host".to_owned(), i.to_string(), base.to_string(), directory.join(i.to_string()).display().to_string()];
        let mut process = Process::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(Self { process, input, output })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It holds nothing worth a clean end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn name(i: u16) -> HostName {
    format!("host-{i}").parse().expect("a host name")
}

/// One authority and a certificate per host, as PEM files.
fn write_certificates(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)?;
    let validity = Validity::lasting(SystemClock.now(), Duration::from_secs(3600));
    let authority = Authority::create("write-path", validity)?;
    std::fs::write(directory.join("ca.pem"), authority.certificate_pem())?;
    for i in 0..HOSTS {
        let name = name(i).to_string();
        let subject = Subject { common_name: name.clone(), organizations: Vec::new() };
        let leaf = Leaf { subject, alt_names: vec![AltName::Dns(name)], usage: Usage::Both, validity };
        let (certificate, key) = authority.issue_with_key(&leaf)?;
        std::fs::write(directory.join(format!("{i}.crt")), certificate)?;
        std::fs::write(directory.join(format!("{i}.key")), key)?;
    }
    Ok(())
}

/// Mutual TLS; the first byte says who dials, which a real host reads from the certificate.
struct Tls {
    me: u16,
    base: u16,
    connector: TlsConnector,
}

#[async_trait::async_trait]
impl Dial for Tls {
    async fn dial(&self, host: &HostName) -> std::io::Result<BoxedIo> {
        let i = (0..HOSTS).find(|i| name(*i) == *host).ok_or(std::io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect(("127.0.0.1", self.base + i)).await?;
        stream.set_nodelay(true)?;
        let server = ServerName::try_from(host.to_string()).map_err(std::io::Error::other)?;
        let mut stream = self.connector.connect(server, stream).await?;
        stream.write_u8(self.me as u8).await?;
        stream.flush().await?;
        Ok(Box::new(stream))
    }
}

async fn host(me: u16, base: u16, directory: PathBuf) -> Result<(), Failure> {
    std::fs::create_dir_all(&directory)?;
    let listener = TcpListener::bind(("127.0.0.1", base + me)).await?;
    let tasks = Tasks::new("bench");
    let pem = |name: String| std::fs::read_to_string(directory.with_file_name(name));
    let identity = CertificateSlot::from_pem(&pem(format!("{me}.crt"))?, &pem(format!("{me}.key"))?)?;
    let authority = pem("ca.pem".to_owned())?;
    let connector = TlsConnector::from(tls::client_config(&authority, Some(identity.clone()), &[])?);
    let acceptor = TlsAcceptor::from(tls::peer_server_config(identity, &authority, &[])?);
    let transport = StreamTransport::new(name(me), Arc::new(Tls { me, base, connector }), tasks.clone());
    let accepting = transport.clone();
    tasks.spawn("accept", async move {
        while let Ok((stream, _)) = listener.accept().await {
            if stream.set_nodelay(true).is_ok()
                && let Ok(mut stream) = acceptor.accept(stream).await
                && let Ok(peer) = stream.read_u8().await
            {
                accepting.accept(name(u16::from(peer)), Box::new(stream));
            }
        }
    });
    let manager = GroupManager::new(HostParts { host: name(me), disk: HostDisk::open(&directory)?, transport, clock: Arc::new(SystemClock) });
    let voters = (0..HOSTS).map(|i| (ReplicaId(u64::from(i)), name(i))).collect();
    let start = if me == 0 { Start::Found { voters } } else { Start::Join };
    let key = DataKey::from_bytes([7; 32]);
    let store = manager.start(ReplicaSpec { cluster: ClusterId::from_random(1), replica: ReplicaId(u64::from(me)), key, start }).await?;
    store.barrier().await?;
    println!("ready");
    let mut line = String::new();
    tokio::task::block_in_place(|| std::io::stdin().lock().read_line(&mut line))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, clients, seconds, bytes, mode] = words[..] else { return Err("a bad order".into()) };
    let here = store.leadership().borrow().here;
    let clients: usize = clients.parse()?;
    let mine = match mode {
        "spread" => clients / usize::from(HOSTS) + usize::from(usize::from(me) < clients % usize::from(HOSTS)),
        _ if here => clients,
        _ => 0,
    };
    println!("{}", load(store, mine, seconds.parse()?, bytes.parse()?).await?);
    // Until the parent ends this process.
    std::future::pending().await
}

/// Writes as fast as the clients can. Answers: writes, microseconds of processor time, seconds, median and 99th percentile in milliseconds.
async fn load(store: ReplicatedStore, clients: usize, seconds: u64, bytes: usize) -> Result<String, Failure> {
    let written = Arc::new(AtomicU64::new(0));
    let (cpu, began) = (cpu_micros()?, Instant::now());
    let end = began + Duration::from_secs(seconds);
    let mut tasks = Vec::new();
    for client in 0..clients {
        let (store, written) = (store.clone(), written.clone());
        // Half repeats, half counts up, so that it compresses as JSON does.
        let value: Vec<u8> = (0..bytes).map(|i| if i % 2 == 0 { b'a' } else { (i * 31 % 251) as u8 }).collect();
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            for n in 0.. {
                let sent = Instant::now();
                if sent >= end {
                    break;
                }
                let key = format!("/registry/core/configmaps/default/{}-{client}-{}", store.replica(), n % 100);
                let txn = Txn::default().put(key, value.clone());
                if store.commit(Command::Txn { txn, fence: None }).await.is_ok() {
                    written.fetch_add(1, Ordering::Relaxed);
                    latencies.push(sent.elapsed().as_micros() as u64);
                }
            }
            latencies
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await?);
    }
    tokio::time::sleep_until(end.into()).await;
    let spent = cpu_micros()? - cpu;
    latencies.sort_unstable();
    let percentile = |p: usize| latencies.get(latencies.len() * p / 100).copied().unwrap_or(0) as f64 / 1000.0;
    Ok(format!("{} {spent} {} {} {}", written.load(Ordering::Relaxed), began.elapsed().as_secs_f64(), percentile(50), percentile(99)))
}

/// This process's user and system time. Linux counts it in hundredths of a second.
fn cpu_micros() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().ok_or("no process name")?;
    let field = |i: usize| after_name.split_whitespace().nth(i).ok_or("a short line")?.parse::<u64>().map_err(Failure::from);
    Ok((field(11)? + field(12)?) * 10_000)
}
