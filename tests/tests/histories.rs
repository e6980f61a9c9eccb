//! What clients of a whole service see while its hosts and endpoints are killed: one history explains all of it.
//!
//! `WHEELHOUSE_HISTORY_RUNS` says how often (2), `WHEELHOUSE_SEED` which random choices the first run makes. A failure names its seed; what the machine
//! does in between is not in it, so the same seed need not fail again.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use wheelhouse_tests::{Endpoint, Kubectl, Load, Process, Service, until};

/// Enough to catch a coarse mistake; `make soak` runs a hundred.
const RUNS: u64 = 2;

/// How long things break in each run.
const TROUBLE: Duration = Duration::from_secs(20);

const HOSTS: [&str; 3] = ["host-a", "host-b", "host-c"];

/// `wheelhouse up` starts what died after a second.
const RESTART_LIMIT: Duration = Duration::from_secs(20);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[test]
fn one_history_explains_what_clients_see_while_hosts_are_killed() {
    let service = Service::start();
    let mut second = Endpoint::start(&service);
    let tenant = service.tenant("first");
    tenant.run(&["cluster", "create", "demo", "--wait=3m"]).ok();
    let kubectl = tenant.kubectl("demo");
    let through_second = kubectl.through(second.address());
    either_endpoint_does(&kubectl, &through_second, &mut second);

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let kubeconfigs = [kubectl.kubeconfig(), through_second.kubeconfig()];
    let first = number("WHEELHOUSE_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    for seed in first..first + number("WHEELHOUSE_HISTORY_RUNS").unwrap_or(RUNS) {
        let load = runtime.block_on(Load::start(&kubeconfigs, &format!("run-{seed}"), seed)).expect("the load starts");
        let kills = trouble(&service, &mut second, &mut StdRng::seed_from_u64(seed));
        match runtime.block_on(load.settle()) {
            Ok(settled) => eprintln!("seed {seed}: {kills} kills, {} revisions, {}", settled.revisions, settled.summary),
            Err(error) => panic!("seed {seed}, {kills} kills: {error:#}"),
        }
    }
}

/// One endpoint is as good as the other, and dies alone.
fn either_endpoint_does(kubectl: &Kubectl, through_second: &Kubectl, second: &mut Endpoint) {
    through_second.run(&["create", "configmap", "by-second"]).ok();
    second.kill();
    assert_ne!(through_second.run(&["get", "configmap", "by-second", "--request-timeout=5s"]).code, 0);
    assert_eq!(kubectl.run(&["get", "configmap", "by-second", "-o", "name"]).ok().trim(), "configmap/by-second");
    second.run();
    until("the second endpoint serves again from its disk", Duration::from_secs(10), || {
        (through_second.run(&["get", "configmap", "by-second", "--request-timeout=5s"]).code == 0).then_some(())
    });
}

/// Kills hosts one after the other at random moments, sometimes before the last one has caught up again, and the second endpoint once. Says how many.
fn trouble(service: &Service, second: &mut Endpoint, rng: &mut StdRng) -> usize {
    let end = Instant::now() + TROUBLE;
    let mut endpoint_dies = Some(Instant::now() + TROUBLE.mul_f64(rng.random_range(0.1..0.7)));
    let mut kills = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(rng.random_range(100..2500)));
        if endpoint_dies.is_some_and(|at| Instant::now() >= at) {
            endpoint_dies = None;
            second.kill();
            std::thread::sleep(Duration::from_millis(rng.random_range(0..1500)));
            second.run();
        }
        service.kill_host(HOSTS[rng.random_range(0..HOSTS.len())]);
        kills += 1;
        // With two hosts down nothing can be written, and nothing would be learned.
        until("the killed host was started again", RESTART_LIMIT, || {
            HOSTS.iter().all(|name| Process::of_host(&service.data(), name).is_some()).then_some(())
        });
    }
    kills
}
