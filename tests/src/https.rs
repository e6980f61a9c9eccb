//! HTTPS requests as any client may send them, by curl: one process for a whole table of them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::NamedTempFile;

/// Begins the line that curl writes after each body.
const END_OF_ANSWER: &str = "\n@@answer ";

/// curl's own limit for a line of its configuration is some times as much.
const LONGEST_LINE: usize = 16 * 1024;

/// No answer of a test takes so long; a watch that should have been refused ends with it.
const REQUEST_LIMIT_SECONDS: u32 = 20;

/// A server, and how one shows oneself to it.
#[derive(Clone, Debug)]
pub struct Https {
    /// `ip:port` to connect to.
    pub address: String,
    /// The TLS server name. An IP address is not sent as one.
    pub server_name: String,
    /// File with the CA that the server's certificate is of.
    pub ca: PathBuf,
    /// Files with a client certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Sent with every request, `Name: value`.
    pub headers: Vec<String>,
    /// Whether to speak HTTP/2. Its servers reset a stream whose body they refuse to read, which older curls take for a lost answer.
    pub http2: bool,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// Sent as it stands, dots and escapes included.
    pub path: String,
    /// JSON; none when empty.
    pub body: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 0 when there was none.
    pub status: u16,
    /// curl's exit code: 0, or 35 for a failed handshake.
    pub exit: i32,
    pub content_type: String,
    pub body: String,
}

impl Request {
    pub fn new(method: &str, path: impl Into<String>, body: impl Into<String>) -> Self {
        Self { method: method.to_ascii_uppercase(), path: path.into(), body: body.into() }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path, "")
    }
}

impl Answer {
    /// The body, of an answer that must be a success.
    pub fn json(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Https {
    /// To the same server as nobody.
    pub fn anonymous(&self) -> Self {
        Self { certificate: None, headers: Vec::new(), ..self.clone() }
    }

    /// To the same server with nothing but this header.
    pub fn with_header(&self, header: impl Into<String>) -> Self {
        Self { headers: vec![header.into()], ..self.anonymous() }
    }

    pub fn with_bearer(&self, token: &str) -> Self {
        self.with_header(format!("Authorization: Bearer {token}"))
    }

    /// To the same server with the client certificate that is meant for another.
    pub fn with_certificate_of(&self, other: &Self) -> Self {
        Self { certificate: other.certificate.clone(), ..self.anonymous() }
    }

    /// The same address asked for another name.
    pub fn named(&self, server_name: &str) -> Self {
        Self { server_name: server_name.to_owned(), ..self.clone() }
    }

    pub fn send(&self, request: &Request) -> Answer {
        self.send_all(std::slice::from_ref(request)).remove(0)
    }

    pub fn get(&self, path: impl Into<String>) -> Answer {
        self.send(&Request::get(path))
    }

    /// One answer for each request, in order, on as few connections as the server allows.
    pub fn send_all(&self, requests: &[Request]) -> Vec<Answer> {
        let mut files = Vec::new();
        let config: Vec<String> = requests.iter().map(|request| self.options(request, &mut files)).collect();
        let mut curl = Command::new("curl");
        curl.args(["--disable", "--config", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = curl.spawn().expect("curl runs");
        let mut input = child.stdin.take().expect("a piped input");
        // curl reads its whole configuration before the first request, so this cannot meet a full output pipe.
        input.write_all(config.join("next\n").as_bytes()).expect("curl reads its configuration");
        drop(input);
        let output = child.wait_with_output().expect("curl ends");
        let text = String::from_utf8_lossy(&output.stdout);
        let answers = parse(&text);
        assert_eq!(answers.len(), requests.len(), "curl: {}", String::from_utf8_lossy(&output.stderr));
        answers
    }

    /// curl's options for one request, as lines of a configuration file.
    /// Bodies that a line is too short for are put into files.
    fn options(&self, request: &Request, files: &mut Vec<NamedTempFile>) -> String {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let mut lines = format!("silent\n{}\npath-as-is\ngloboff\n", if self.http2 { "http2" } else { "http1.1" });
        let mut option = |name: &str, value: &str| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            lines.push_str(&format!("{name} = \"{value}\"\n"));
        };
        option("request", &request.method);
        option("url", &format!("https://{}:{port}{}", self.server_name, request.path));
        option("connect-to", &format!("::{}", self.address));
        option("noproxy", "*");
        option("cacert", &self.ca.display().to_string());
        option("max-time", &REQUEST_LIMIT_SECONDS.to_string());
        if let Some((certificate, key)) = &self.certificate {
            option("cert", &certificate.display().to_string());
            option("key", &key.display().to_string());
        }
        for header in &self.headers {
            option("header", header);
        }
        if !request.body.is_empty() {
            let kind = if request.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            option("header", &format!("Content-Type: {kind}"));
            if request.body.len() <= LONGEST_LINE {
                option("data", &request.body);
            } else {
                let mut file = NamedTempFile::new().expect("a temporary file");
                file.write_all(request.body.as_bytes()).expect("the body is written");
                option("data-binary", &format!("@{}", file.path().display()));
                // A server that refuses a large body need not read it first.
                option("header", "Expect: 100-continue");
                files.push(file);
            }
        }
        option("write-out", "\\n@@answer %{http_code} %{exitcode} %{content_type}\\n");
        lines
    }
}

fn parse(mut text: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((body, rest)) = text.split_once(END_OF_ANSWER) {
        let (line, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (status, exit) = (word().parse().unwrap_or(0), word().parse().unwrap_or(-1));
        answers.push(Answer { status, exit, content_type: word(), body: body.to_owned() });
        text = rest;
    }
    answers
}
