//! Network namespaces for tests with real packets: hosts and pods without machines and containers.
//!
//! Needs root. A test asks [`can_run`] first, and is skipped with a printed reason where it cannot.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long a test waits for what should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a packet that must not arrive is waited for.
pub const SILENCE: Duration = Duration::from_millis(300);

/// Whether this process may make network namespaces. Says why not.
pub fn can_run() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: network namespaces need root");
    }
    is_root
}

/// A network namespace with loopback up. Gone when dropped, with every interface in it.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A fresh one; `label` tells it from others in what `ip netns` prints.
    pub fn new(label: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("whl-{}-{}-{label}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        ip(&format!("netns add {name}"));
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    pub fn path(&self) -> String {
        format!("/var/run/netns/{}", self.name)
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name));
    }

    /// Runs `work` on a thread of its own inside; sockets that it makes stay inside.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = self.path();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                enter(&path);
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs a program in it and answers what it prints; panics when it fails.
    pub fn run(&self, program: &str, arguments: &[&str], input: &str) -> String {
        self.enter(|| run(program, arguments, input))
    }

    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        // /proc/sys/net shows the namespace of the thread that opens it.
        self.enter(|| std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}")));
    }

    /// Joins two namespaces by a veth pair, named and addressed (`10.0.0.1/24`; empty: no address) on either side.
    pub fn join(&self, name: &str, address: &str, other: &Namespace, other_name: &str, other_address: &str) {
        ip(&format!("link add {name} netns {} type veth peer name {other_name} netns {}", self.name, other.name));
        for (namespace, name, address) in [(self, name, address), (other, other_name, other_address)] {
            if !address.is_empty() {
                // Without duplicate address detection, which would hold IPv6 addresses back for a second.
                let nodad = if address.contains(':') { " nodad" } else { "" };
                namespace.ip(&format!("addr add {address} dev {name}{nodad}"));
            }
            namespace.ip(&format!("link set {name} up"));
        }
    }

    /// Answers every TCP connection and every datagram with `name` and the caller's address, until the test ends.
    pub fn serve(&self, name: &str, address: &str) {
        let address: SocketAddr = address.parse().expect("an address with a port");
        let (tcp, udp) = self.enter(|| (TcpListener::bind(address).expect("a free port"), UdpSocket::bind(address).expect("a free port")));
        let greeting = move |name: &str, peer: IpAddr| format!("{name} {peer}");
        let (tcp_name, udp_name) = (name.to_owned(), name.to_owned());
        std::thread::spawn(move || {
            while let Ok((mut stream, peer)) = tcp.accept() {
                // A caller that left already does not matter.
                let _ = stream.write_all(greeting(&tcp_name, peer.ip()).as_bytes());
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(greeting(&udp_name, peer.ip()).as_bytes(), peer);
            }
        });
    }

    /// Connects from inside and reads the whole answer.
    pub fn call(&self, address: &str, patience: Duration) -> std::io::Result<String> {
        let address: SocketAddr = address.parse().expect("an address with a port");
        self.enter(|| {
            let mut stream = TcpStream::connect_timeout(&address, patience)?;
            stream.set_read_timeout(Some(patience))?;
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut stream, &mut answer)?;
            Ok(answer)
        })
    }

    /// A datagram socket inside.
    pub fn datagrams(&self, local: &str) -> UdpSocket {
        let socket = self.enter(|| UdpSocket::bind(local)).expect("a free port");
        socket.set_read_timeout(Some(SILENCE)).expect("a timeout above zero");
        socket
    }
}

/// Moves the calling thread, which should be one made for it, into a namespace. Programs and threads that it starts follow.
pub fn enter(path: &str) {
    let file = File::open(path).expect("the namespace exists");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter namespaces");
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
    }
}

/// Sends a datagram and waits a moment for the answer.
pub fn ask(socket: &UdpSocket, address: &str) -> std::io::Result<String> {
    socket.send_to(b"?", address)?;
    let mut buffer = [0; 512];
    let (length, _) = socket.recv_from(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Asks again and again until `done` likes the answer; panics with the last one when patience ends.
pub fn wait_for<T: std::fmt::Debug>(mut probe: impl FnMut() -> T, done: impl Fn(&T) -> bool) -> T {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let seen = probe();
        if done(&seen) {
            return seen;
        }
        assert!(std::time::Instant::now() < deadline, "waited in vain; last seen: {seen:?}");
        std::thread::yield_now();
    }
}

fn ip(arguments: &str) {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>(), "");
}

fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    child.stdin.take().expect("stdin is piped").write_all(input.as_bytes()).expect("the program reads its input");
    let output = child.wait_with_output().expect("the program ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    text
}
