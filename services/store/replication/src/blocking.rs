//! Work that takes long and does not wait: reading a state from disk, building one from its records.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does `work` here, and lets this thread's other tasks run elsewhere meanwhile where there is an elsewhere. A simulation has one thread.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}
