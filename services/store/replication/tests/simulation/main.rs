//! Seeded simulation: a group on simulated hosts, in virtual time, while hosts die, links break, disks fill up and slow down.
//!
//! Clients write and read through any replica; for them a write without an answer is *unknown*. When the run is over the group is healed,
//! and the history that its replicas agree on is the judge ([`oracle`]). `WHEELHOUSE_SEEDS=0..100` runs more seeds; a failure names its seed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod oracle;
mod parking;
mod world;

use std::ops::Range;

/// Enough to catch a coarse mistake within seconds; many more run by the environment variable.
const SEEDS: Range<u64> = 0..6;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("WHEELHOUSE_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("WHEELHOUSE_SEEDS is a range such as 0..100");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn histories_are_linearizable_under_faults() {
    for seed in seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        wheelhouse_replication::seed(seed);
        let hosts = if seed % 3 == 2 { 5 } else { 3 };
        let report = runtime.block_on(world::run(seed, hosts));
        match report {
            Ok(summary) => println!("seed {seed}: {summary}"),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
}

/// Fewer of the others' seeds: one is fifty groups.
#[test]
fn groups_rest_wake_and_keep_their_terms() {
    let seeds = if std::env::var_os("WHEELHOUSE_SEEDS").is_some() { seeds() } else { 0..3 };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        wheelhouse_replication::seed(seed);
        match runtime.block_on(parking::run(seed)) {
            Ok(summary) => println!("seed {seed}: {summary}"),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
}
