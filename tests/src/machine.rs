//! Parts of a service beside those that `wheelhouse up` runs: machines with a further host, and further endpoints.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::service::{Service, binary, free_port, page};
use crate::wait::until;

/// What a process gets to end after SIGTERM: more than it gives itself.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// An endpoint listens as soon as it has read its table.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// A machine with a host of its own. Killed when dropped; its data lies in the service's.
pub struct Machine {
    name: String,
    service: PathBuf,
    environment: Vec<(&'static str, String)>,
    child: Option<Child>,
}

impl Machine {
    /// Joins a running service as `host-d`, `host-e` … and runs the host.
    pub fn join(service: &Service, name: &str) -> Self {
        let token = service.host_tool(&["token", "--data-dir", &service.data().join("host-a").display().to_string()]);
        let index = u16::from(name.bytes().last().unwrap_or(b'a') - b'a');
        let clients = service.hosts + 10 * index;
        let data = service.data().join(name).display().to_string();
        let listen = |port: u16| format!("127.0.0.1:{port}");
        let zone = name.replace("host", "zone");
        let (clients, peers, metrics) = (listen(clients), listen(clients + 1), listen(clients + 3000));
        let mut arguments = vec!["join", "--data-dir", &data, "--name", name, "--zone", &zone, "--clients-listen", &clients];
        arguments.extend(["--peers-listen", peers.as_str(), "--metrics-listen", &metrics]);
        let host = listen(service.hosts + 1);
        arguments.extend(["--host", host.as_str()]);
        arguments.extend(token.split_whitespace());
        service.host_tool(&arguments);
        let mut machine = Self { name: name.to_owned(), service: service.data(), environment: service.environment().collect(), child: None };
        machine.run();
        machine
    }

    /// Sets a flag of the host by its environment, from the next start on.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.environment.retain(|(known, _)| *known != name);
        self.environment.push((name, value.to_owned()));
    }

    /// Starts the host on what is on its disk.
    pub fn run(&mut self) {
        let data = self.data().display().to_string();
        let log = log_file(&self.service, &self.name);
        let mut command = Command::new(binary("wheelhouse-host"));
        command.args(["run", "--data-dir", &data, "--name", &self.name]).envs(self.environment.iter().cloned());
        self.child = Some(spawn(command, log));
    }

    pub fn data(&self) -> PathBuf {
        self.service.join(&self.name)
    }

    pub fn process(&self) -> Process {
        Process::of_child(self.child.as_ref().expect("the host runs"))
    }

    /// The power goes.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks the host to end, and says how long it took; panics if it did not end well.
    pub fn stop(&mut self) -> Duration {
        let Some(mut child) = self.child.take() else { return Duration::ZERO };
        let asked = Instant::now();
        Process::of_child(&child).signal("TERM").expect("the host takes a signal");
        let status = until("the host ends", STOP_LIMIT, || child.try_wait().expect("the host is a child of this process"));
        assert!(status.success(), "{} ended with {status}", self.name);
        asked.elapsed()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A further endpoint of a service. Killed when dropped.
pub struct Endpoint {
    service: PathBuf,
    listen: String,
    metrics: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    child: Option<Child>,
}

impl Endpoint {
    pub fn start(service: &Service) -> Self {
        Self::with_credentials(service, &service.data().join("host-a/credentials/endpoint").display().to_string())
    }

    /// With a certificate of its own, in a folder that `wheelhouse-host credentials endpoint` made.
    pub fn with_credentials(service: &Service, credentials: &str) -> Self {
        let data = service.data();
        let (listen, metrics) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let arguments = [
            ("--listen", listen.clone()),
            ("--metrics-listen", metrics.clone()),
            ("--host", format!("127.0.0.1:{}", service.hosts + 1)),
            ("--credentials", credentials.to_owned()),
            ("--data-dir", data.join("endpoint-2").display().to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        let mut endpoint = Self { service: data, listen, metrics, arguments, environment: service.environment().collect(), child: None };
        endpoint.run();
        endpoint
    }

    /// Starts it and waits until it listens.
    pub fn run(&mut self) {
        let mut command = Command::new(binary("wheelhouse-endpoint"));
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        self.child = Some(spawn(command, log_file(&self.service, "endpoint-2")));
        until("the second endpoint listens", LISTEN_LIMIT, || std::net::TcpStream::connect(&self.listen).ok());
    }

    /// `ip:port`
    pub fn address(&self) -> &str {
        &self.listen
    }

    /// The page of its metrics.
    pub fn metrics(&self) -> String {
        page(&format!("http://{}/metrics", self.metrics))
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.kill();
    }
}

fn log_file(data: &std::path::Path, name: &str) -> std::fs::File {
    let path = data.join(format!("logs/{name}.log"));
    OpenOptions::new().create(true).append(true).open(path).expect("the service's folder of logs")
}

fn spawn(mut command: Command, log: std::fs::File) -> Child {
    let errors = log.try_clone().expect("a log file");
    command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("the program starts")
}
