//! A running service.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::https::Https;
use crate::process::Process;
use crate::wait::until;

/// A whole service starts within seconds on an idle machine; a test machine is not idle.
const START_LIMIT: Duration = Duration::from_secs(120);

/// `wheelhouse up` and what it keeps. Stopped and removed when dropped.
pub struct Service {
    folder: TempDir,
    child: Option<Child>,
    pub(crate) endpoint: u16,
    api: u16,
    pub(crate) hosts: u16,
    options: Options,
}

/// What is unlike a plain `wheelhouse up`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Environment of all its processes, which is how their flags are set.
    pub environment: Vec<(&'static str, String)>,
}

/// A tenant's command line: its own configuration directory.
pub struct Tenant {
    config: PathBuf,
    folder: PathBuf,
}

/// kubectl with one kubeconfig.
pub struct Kubectl {
    kubeconfig: PathBuf,
}

/// What a command answered.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Standard output; panics if the command failed.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "failed: {}{}", self.out, self.err);
        self.out
    }

    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).expect("the output is JSON")
    }
}

/// The programs lie in the folder that `WHEELHOUSE_BIN` names, or in the folder of this one; a test's own binary is one further down, in `deps`.
pub fn binary(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("WHEELHOUSE_BIN") {
        return PathBuf::from(folder).join(name);
    }
    let own = std::env::current_exe().expect("the test knows its own path");
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}: `make build` builds the programs", own.display()))
}

/// A page of plain HTTP; empty if nobody answers.
pub(crate) fn page(url: &str) -> String {
    let ran = Command::new("curl").args(["--disable", "--silent", "--max-time", "10", url]).output().expect("curl runs");
    Ran::of(ran).out
}

/// A port that nobody listens on now. Tests of one run do not overlap, and others rarely take high ports in the moment between.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// A start for the hosts' ports, of which several in a row and another row 3000 higher are used.
fn free_row() -> u16 {
    let usable = |base: u16| {
        let ports = (0..9u16).flat_map(|i| [base + 10 * i, base + 10 * i + 1, base + 10 * i + 3000]).chain([base + 2999]);
        ports.into_iter().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
    };
    let start = 20_000 + u16::try_from(std::process::id() % 80).unwrap_or(0) * 100;
    (start..32_000).step_by(100).find(|base| usable(*base)).expect("a free row of ports")
}

impl Service {
    /// Starts a new service and waits until it is up.
    pub fn start() -> Self {
        Self::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut service = Self { folder, child: None, endpoint: free_port(), api: free_port(), hosts: free_row(), options };
        service.up();
        service
    }

    /// Starts it on the data that is there.
    pub fn up(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("up.log")).expect("a log file");
        let child = Command::new(binary("wheelhouse"))
            .arg("up")
            .args(["--data-dir", &self.data().display().to_string()])
            .args(["--endpoint-listen", &format!("127.0.0.1:{}", self.endpoint)])
            .args(["--api-listen", &format!("127.0.0.1:{}", self.api)])
            .args(["--host-port", &self.hosts.to_string()])
            .env("XDG_CONFIG_HOME", self.folder.path().join("operator"))
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("wheelhouse starts");
        self.child = Some(child);
        let folder = self.folder.path().to_owned();
        let child = self.child.as_mut().expect("just started");
        let up = until("wheelhouse up", START_LIMIT, || {
            let text = std::fs::read_to_string(folder.join("up.log")).unwrap_or_default();
            if text.contains("Wheelhouse is up") {
                return Some(true);
            }
            child.try_wait().ok().flatten().map(|_| false)
        });
        assert!(up, "wheelhouse up ended: {}", std::fs::read_to_string(self.folder.path().join("up.log")).unwrap_or_default());
    }

    /// Asks it to stop and waits until it has.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        let _ = child.wait();
    }

    /// From the next start on.
    pub fn set_environment(&mut self, environment: Vec<(&'static str, String)>) {
        self.options.environment = environment;
    }

    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.options.environment.iter().cloned()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Kills a host's process with SIGKILL; `up` starts it again after a second.
    pub fn kill_host(&self, name: &str) {
        self.host(name).signal("KILL").expect("the host takes a signal");
    }

    /// The process of a host; panics while it does not run.
    pub fn host(&self, name: &str) -> Process {
        Process::of_host(&self.data(), name).unwrap_or_else(|| panic!("no process of {name}"))
    }

    /// The page of a host's metrics.
    pub fn metrics(&self, host: &str) -> String {
        let index = u16::from(host.bytes().last().unwrap_or(b'a') - b'a');
        page(&format!("http://127.0.0.1:{}/metrics", self.hosts + 10 * index + 3000))
    }

    /// What one run of `wheelhouse-host` printed; panics if it failed.
    pub fn host_tool(&self, arguments: &[&str]) -> String {
        let ran = Command::new(binary("wheelhouse-host")).args(arguments).envs(self.environment()).output();
        Ran::of(ran.expect("wheelhouse-host runs")).ok()
    }

    /// kubectl for operators, on the system control plane.
    pub fn operator(&self) -> Kubectl {
        Kubectl { kubeconfig: self.data().join("system.kubeconfig") }
    }

    /// Signs a new tenant up.
    pub fn tenant(&self, name: &str) -> Tenant {
        let folder = self.folder.path().join(format!("tenant-{name}"));
        let config = folder.join("config");
        std::fs::create_dir_all(config.join("wheelhouse")).expect("a folder for the tenant");
        let from = self.folder.path().join("operator/wheelhouse/config.json");
        std::fs::copy(from, config.join("wheelhouse/config.json")).expect("the profile that up wrote");
        let tenant = Tenant { config, folder };
        tenant.run(&["signup", "--name", name, "--email", &format!("{name}@example.com")]).ok();
        tenant
    }

    /// The end of a process's log, for failures.
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.data().join(format!("logs/{name}.log"))).unwrap_or_default();
        let start = text.len().saturating_sub(4000);
        text[text.ceil_char_boundary(start)..].to_owned()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["host-a", "host-b", "host-c", "endpoint", "api"] {
                eprintln!("--- {name}\n{}", self.log(name));
            }
        }
        self.stop();
    }
}

impl Tenant {
    pub fn run(&self, args: &[&str]) -> Ran {
        let output = Command::new(binary("wheelhouse")).args(args).env("XDG_CONFIG_HOME", &self.config).stdin(Stdio::null()).output();
        Ran::of(output.expect("wheelhouse runs"))
    }

    /// The tenant API with the key that signing up saved.
    pub fn api(&self) -> Https {
        let text = std::fs::read(self.config.join("wheelhouse/config.json")).expect("the saved configuration");
        let config: Value = serde_json::from_slice(&text).expect("the configuration is JSON");
        let profile = &config["profiles"][config["current"].as_str().expect("a selected profile")];
        let field = |name: &str| profile[name].as_str().expect("a profile has all fields").to_owned();
        let ca = self.folder.join("api-ca.crt");
        // Where the API's certificate has its CA's subject, OpenSSL takes it for self-signed; so it is trusted itself, beside its CA.
        let own = self.folder.parent().map(|service| service.join("data/api/tls.crt")).expect("a tenant's folder lies in the service's");
        let own = std::fs::read_to_string(own).expect("the API's certificate");
        std::fs::write(&ca, field("ca") + &own).expect("the CA is written");
        let address = field("endpoint").trim_start_matches("https://").to_owned();
        let server_name = address.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
        Https { address, server_name, ca, certificate: None, headers: vec![format!("Authorization: Bearer {}", field("api_key"))], http2: false }
    }

    /// kubectl with a fresh kubeconfig of one of the tenant's clusters.
    pub fn kubectl(&self, cluster: &str) -> Kubectl {
        let kubeconfig = self.folder.join(format!("{cluster}.kubeconfig"));
        std::fs::write(&kubeconfig, self.run(&["cluster", "kubeconfig", cluster]).ok()).expect("the kubeconfig is written");
        Kubectl { kubeconfig }
    }
}

impl Kubectl {
    /// The text of its kubeconfig.
    pub fn kubeconfig(&self) -> String {
        std::fs::read_to_string(&self.kubeconfig).expect("the kubeconfig was written")
    }

    /// The same through another endpoint.
    pub fn through(&self, address: &str) -> Self {
        let kubeconfig = self.kubeconfig.with_extension(address.replace(':', "-"));
        let lines = self
            .kubeconfig()
            .lines()
            .map(|line| match line.split_once("server: ") {
                Some((indent, _)) => format!("{indent}server: https://{address}\n"),
                None => format!("{line}\n"),
            })
            .collect::<String>();
        std::fs::write(&kubeconfig, lines).expect("the kubeconfig is written");
        Self { kubeconfig }
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.command(args).stdin(Stdio::null()).output().map(Ran::of).expect("kubectl runs")
    }

    /// With text on standard input.
    pub fn feed(&self, args: &[&str], input: &str) -> Ran {
        use std::io::Write;
        let mut child = self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl runs");
        child.stdin.take().expect("a piped input").write_all(input.as_bytes()).expect("kubectl reads its input");
        child.wait_with_output().map(Ran::of).expect("kubectl ends")
    }

    /// The kubeconfig's server with its client certificate, without kubectl.
    pub fn https(&self) -> Https {
        let field = |list: &str, inner: &str, name: &str, decode: &str| {
            let template = format!("--template={{{{index (index .{list} 0).{inner} \"{name}\"{decode}}}}}");
            self.run(&["config", "view", "--raw", "-o", "go-template", &template]).ok()
        };
        let file = |list: &str, inner: &str, name: &str| {
            let path = self.kubeconfig.with_extension(name);
            std::fs::write(&path, field(list, inner, name, " | base64decode")).expect("a credential's file is written");
            path
        };
        Https {
            address: field("clusters", "cluster", "server", "").trim_start_matches("https://").to_owned(),
            server_name: field("clusters", "cluster", "tls-server-name", ""),
            ca: file("clusters", "cluster", "certificate-authority-data"),
            certificate: Some((file("users", "user", "client-certificate-data"), file("users", "user", "client-key-data"))),
            headers: Vec::new(),
            http2: false,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        // Discovery caches of other clusters must not answer for this one.
        command.env("KUBECACHEDIR", self.kubeconfig.with_extension("cache"));
        command
    }
}
