//! Asking work to end. A [`Stop`] is what work watches, a [`StopHandle`] what its owner pulls.

use tokio::sync::watch;

/// Resolves once its handle was pulled or dropped. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Dropping it stops what watches it.
#[derive(Debug)]
pub struct StopHandle(watch::Sender<bool>);

/// A handle and what it stops.
pub fn stop_pair() -> (StopHandle, Stop) {
    let (sender, receiver) = watch::channel(false);
    (StopHandle(sender), Stop(receiver))
}

impl StopHandle {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Cancel-safe.
    pub async fn stopped(&mut self) {
        // An error means that the owner is gone, which stops as well.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    /// Runs `work` until it ends or is told to stop; `None` when it was stopped.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            done = work => Some(done),
        }
    }
}

/// Resolves at the first SIGTERM or SIGINT.
pub async fn requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM"),
        _ = interrupt.recv() => tracing::info!("SIGINT"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pulling_and_dropping_both_stop() {
        let (handle, mut stop) = stop_pair();
        assert!(!stop.is_stopped());
        handle.stop();
        stop.stopped().await;
        assert_eq!(stop.or(std::future::pending::<()>()).await, None);
        let (handle, mut stop) = stop_pair();
        assert_eq!(stop.or(async { 7 }).await, Some(7));
        drop(handle);
        stop.stopped().await;
        assert!(stop.is_stopped());
    }
}
