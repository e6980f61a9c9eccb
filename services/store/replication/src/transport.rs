//! Frames between hosts: what a transport must do, whatever carries it.

use bytes::Bytes;
use wheelhouse_base::HostName;

/// The frame was certainly not sent: there is no connection, or its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host cannot be reached now")]
pub struct NotSent;

/// Carries frames to other hosts. Frames between two hosts arrive in order or not at all; nothing is promised beyond that.
pub trait PeerTransport: Send + Sync + 'static {
    /// Names who receives. Called once, before anything is sent.
    fn attach(&self, receiver: std::sync::Weak<dyn FrameReceiver>);

    /// Queues a frame and connects if there is no connection yet.
    fn send(&self, to: &HostName, frame: Bytes) -> Result<(), NotSent>;
}

/// Takes what arrives. No method blocks.
pub trait FrameReceiver: Send + Sync + 'static {
    fn received(&self, from: &HostName, frame: Bytes);

    /// The connection broke: frames sent before and not answered yet may be lost.
    fn disconnected(&self, host: &HostName);

    /// Nobody listens at the host's address: its process is gone. Only where that is certain; a host that does not answer is not refused.
    fn refused(&self, host: &HostName);
}

/// One frame at most: a value of the largest size in a forwarded transaction, or a snapshot's part, with room for what surrounds it.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
