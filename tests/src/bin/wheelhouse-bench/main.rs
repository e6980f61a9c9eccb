//! `make bench`: readings of a running service, one JSON line each on standard output. Nothing is asserted: a machine that is busy gives worse figures,
//! and whoever reads them knows the machine.
//!
//! ```text
//!   clusters   a service of its own: making clusters, memory and processor time while they idle
//!   api        a service of its own: one cluster through HTTPS and the endpoint, then its leader's host killed and stopped
//!   store      one store behind etcd's API, beside a real etcd
//! ```
//!
//! `wheelhouse-bench PART...` runs some parts alone. The programs are those beside this one; `WHEELHOUSE_ETCD` names the folder of a real etcd.
//! The load comes from this process, on the same processors: rates are of the service and its clients together.

mod account;
mod api;
mod clusters;
mod faults;
mod figure;
mod load;
mod store;

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use wheelhouse_tests::Service;

use crate::account::{Account, Operator};

type Part = fn(&Runtime) -> Result<()>;

const PARTS: [(&str, Part); 3] = [("clusters", clusters::run), ("api", through_the_endpoint), ("store", store::run)];

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Runtime::new().expect("a process that just started can start threads");
    let mut code = ExitCode::SUCCESS;
    for (name, part) in PARTS {
        if !chosen.is_empty() && !chosen.iter().any(|wanted| wanted == name) {
            continue;
        }
        // The other parts do not depend on this one.
        if let Err(error) = part(&runtime) {
            eprintln!("{name}: {error:#}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn through_the_endpoint(runtime: &Runtime) -> Result<()> {
    let service = Service::start();
    let account = Account::sign_up(&service, "bench")?;
    let operator = Operator::of(&service)?;
    runtime.block_on(async {
        account.create("load").await?;
        api::run(&service, &account.connection("load").await?).await?;
        let cluster = account.cluster("load").await?;
        let id = cluster["id"].as_str().context("a cluster has an id")?;
        faults::run(&service, &operator, id, account.connection("load").await?).await
    })
}
