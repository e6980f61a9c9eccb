//! The runtime that Raft runs on: tokio, with randomness that a simulation can fix.
//!
//! Raft draws its election timeouts from the runtime. In a simulation they come from the seed that [`seed`] set on the thread, so that one
//! seed gives one run.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fixes this thread's randomness. For simulations, which run on one thread.
pub fn seed(seed: u64) {
    SEED.set(Some(seed));
}

#[derive(Debug)]
pub struct Runtime(TokioRuntime);

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Random;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> Random {
        match SEED.get() {
            None => Random::Thread(rand::rng()),
            Some(seed) => {
                // Each use starts a stream of its own, as a thread's generator never gives the same twice.
                SEED.set(Some(step(seed)));
                Random::Seeded(step(seed ^ 0x5851_f42d_4c95_7f2d))
            }
        }
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

/// The thread's generator, or a seeded one.
pub enum Random {
    Thread(rand::rngs::ThreadRng),
    Seeded(u64),
}

/// splitmix64's state after one step.
fn step(state: u64) -> u64 {
    state.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl rand::TryRng for Random {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|value| (value >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        match self {
            Self::Thread(rng) => rng.try_next_u64(),
            Self::Seeded(state) => {
                *state = step(*state);
                Ok(mix(*state))
            }
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let value = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&value[..chunk.len()]);
        }
        Ok(())
    }
}
