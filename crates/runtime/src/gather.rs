//! Gathering what several tasks write to one connection.
//!
//! The streams of an HTTP/2 connection are tasks of their own. When an event reaches a hundred watches of one client, the first of their tasks to run
//! wakes the connection, which would write and encrypt that one frame and be woken again for each of the others: a system call, a TLS record and a turn
//! of every process on the way for each kilobyte. A [`Gather`] lets the tasks that are ready run first: it keeps small writes, and its first
//! flush yields once to the scheduler. An idle connection pays a few microseconds, a busy one writes in pieces of kilobytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is kept at most. Two full TLS records: more gains nothing, and every busy connection holds as much.
const KEPT: usize = 32 * 1024;

/// A write of this size fills a TLS record by itself and is passed on without a copy.
const LARGE: usize = 16 * 1024;

/// A stream that gathers small writes until the flush after next. Reads pass through.
pub struct Gather<S> {
    inner: S,
    kept: BytesMut,
    /// Whether the flush that is under way has let the other tasks run.
    yielded: bool,
}

impl<S> Gather<S> {
    pub fn new(inner: S) -> Self {
        Self { inner, kept: BytesMut::new(), yielded: false }
    }
}

impl<S: AsyncWrite + Unpin> Gather<S> {
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.kept))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.kept.advance(written);
        }
        // An idle connection holds no buffer.
        self.kept = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Makes room; then says whether `length` more bytes are to be passed on directly.
    fn poll_make_room(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<io::Result<bool>> {
        if length >= LARGE || self.kept.len() + length > KEPT {
            ready!(self.poll_pass_on(cx))?;
        }
        Poll::Ready(Ok(length >= LARGE))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gather<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if ready!(this.poll_make_room(cx, bytes.len()))? {
            return Pin::new(&mut this.inner).poll_write(cx, bytes);
        }
        this.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = slices.iter().map(|slice| slice.len()).sum();
        if ready!(this.poll_make_room(cx, length))? {
            return Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        }
        slices.iter().for_each(|slice| this.kept.extend_from_slice(slice));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.kept.is_empty() && !std::mem::replace(&mut this.yielded, true) {
            // A task that wakes itself is run after those that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_pass_on(cx))?;
        ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
        this.yielded = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_pass_on(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Takes at most `room` bytes at once, and counts the writes.
    #[derive(Default)]
    struct Sink {
        writes: Vec<usize>,
        bytes: Vec<u8>,
        room: usize,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.room);
            self.writes.push(taken);
            self.bytes.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn gather() -> Gather<Sink> {
        Gather::new(Sink { room: usize::MAX, ..Sink::default() })
    }

    fn write(gather: &mut Gather<Sink>, bytes: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(gather).poll_write(&mut cx, bytes), Poll::Ready(Ok(n)) if n == bytes.len()));
    }

    fn flush(gather: &mut Gather<Sink>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(gather).poll_flush(&mut cx).is_ready()
    }

    #[test]
    fn what_is_written_before_the_second_poll_of_a_flush_leaves_together() {
        let mut gather = gather();
        for round in 1..=2 {
            write(&mut gather, b"one");
            assert!(!flush(&mut gather), "the other tasks run first");
            write(&mut gather, b"two");
            assert!(flush(&mut gather));
            assert_eq!(gather.inner.writes, vec![6; round]);
        }
        assert!(flush(&mut gather), "nothing to flush is flushed at once");
        assert_eq!(gather.kept.capacity(), 0, "an idle connection holds no buffer");
    }

    #[test]
    fn large_writes_pass_in_their_order() {
        let mut gather = gather();
        write(&mut gather, b"small");
        write(&mut gather, &[b'x'; LARGE]);
        assert_eq!(gather.inner.writes, [5, LARGE]);
        for _ in 0..5 {
            write(&mut gather, &[b'y'; KEPT / 4]);
        }
        assert_eq!(gather.inner.writes, [5, LARGE, KEPT], "what would exceed the limit waits for nothing");
    }

    #[tokio::test]
    async fn bytes_arrive_as_they_were_written_through_a_narrow_stream() {
        let (near, mut far) = tokio::io::duplex(7);
        let mut gather = Gather::new(near);
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.map(|_| read)
        });
        let mut written = Vec::new();
        for size in [1, 40, 3, LARGE, 2, 0, KEPT + 1, 9] {
            let piece = vec![size as u8; size];
            gather.write_all(&piece).await.unwrap();
            written.extend(piece);
            if size % 2 == 1 {
                gather.flush().await.unwrap();
            }
        }
        gather.shutdown().await.unwrap();
        drop(gather);
        assert!(reading.await.unwrap().unwrap() == written);
    }
}
