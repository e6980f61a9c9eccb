//! `/livez`, `/readyz` and `/healthz`, with upstream's text forms and subchecks.

use std::fmt::Write;

use http::StatusCode;

use crate::bootstrap;
use crate::request::query::Query;
use crate::respond::Reply;
use crate::server::ApiServer;

/// A health path: which of the three, and one check alone if it names one.
pub struct Endpoint<'a> {
    kind: Kind,
    check: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Is the process itself well?
    Live,
    /// Should clients be sent here?
    Ready,
    Health,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Live => "livez",
            Kind::Ready => "readyz",
            Kind::Health => "healthz",
        }
    }

    fn checks(self) -> &'static [&'static str] {
        match self {
            Kind::Live => &["ping", "log"],
            Kind::Health => &["ping", "log", "etcd"],
            Kind::Ready => &["ping", "log", "etcd", "poststarthook/bootstrap", "shutdown"],
        }
    }
}

impl<'a> Endpoint<'a> {
    /// The endpoint that a path names; `None` for other paths.
    pub fn of(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix('/')?;
        let (first, check) = rest.split_once('/').map_or((rest, None), |(first, check)| (first, Some(check)));
        let kind = match first {
            "livez" => Kind::Live,
            "readyz" => Kind::Ready,
            "healthz" => Kind::Health,
            _ => return None,
        };
        Some(Self { kind, check: check.filter(|check| !check.is_empty()) })
    }
}

/// `ok`, or which checks failed (500). `verbose` lists them all, `exclude` leaves some out.
pub async fn answer(server: &ApiServer, endpoint: Endpoint<'_>, query: &Query) -> Reply {
    if let Some(check) = endpoint.check {
        if !endpoint.kind.checks().contains(&check) {
            return crate::nonresource::page_not_found();
        }
        return match run(server, check).await {
            Ok(()) => Reply::text("ok"),
            Err(why) => failed(format!("internal server error: {why}\n")),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").flat_map(|text| text.split(',')).collect();
    let mut report = String::new();
    let mut well = true;
    for check in endpoint.kind.checks() {
        if excluded.contains(check) {
            let _ = writeln!(report, "[+]{check} excluded: ok");
            continue;
        }
        match run(server, check).await {
            Ok(()) => {
                let _ = writeln!(report, "[+]{check} ok");
            }
            // Why it failed is for the log: the answer may be read by anybody.
            Err(why) => {
                well = false;
                tracing::info!(check, why, "a health check failed");
                let _ = writeln!(report, "[-]{check} failed: reason withheld");
            }
        }
    }
    let name = endpoint.kind.name();
    if !well {
        return failed(format!("{report}{name} check failed\n"));
    }
    if query.first("verbose").is_some() { Reply::text(format!("{report}{name} check passed\n")) } else { Reply::text("ok") }
}

fn failed(text: String) -> Reply {
    Reply::new(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text)
}

async fn run(server: &ApiServer, check: &str) -> Result<(), String> {
    match check {
        "etcd" => server.storage.store().barrier().await.map(|_| ()).map_err(|error| error.to_string()),
        "poststarthook/bootstrap" if !bootstrap::is_done(&server.storage.local()) => Err("not finished".into()),
        "shutdown" if *server.draining().borrow() => Err("process is shutting down".into()),
        _ => Ok(()),
    }
}
