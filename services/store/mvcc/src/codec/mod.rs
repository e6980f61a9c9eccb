//! The bytes of commands, records, batches and the state's header, in the log, on disk and in snapshots.
//!
//! Every encoding begins with the version byte. Integers are variable-length, byte strings carry their length, enumerations are one byte.
//! A reader refuses a version that it does not know: an old host must stop there, not guess. protobuf was not chosen, because it skips
//! what it does not know, and replicas that skip differently differ.

mod batch;
mod command;
mod header;
mod record;
mod wire;

pub use batch::{StoredBatch, StoredEvent, decode_batch, encode_batch};
pub use command::{decode_command, encode_command};
pub use header::{Header, decode_header, encode_header};
pub use record::{decode_record, encode_record};

/// The version this program writes, and the newest it reads.
pub const VERSION: u8 = 1;

/// Transactions may nest this deep. Far beyond any client; it bounds the reader's stack.
pub const MAX_TXN_DEPTH: usize = 64;

/// Bytes that are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("encoded by a newer program: version {found}, this one reads up to {VERSION}")]
    UnknownVersion { found: u8 },
    #[error("the bytes end too early")]
    Truncated,
    #[error("{0} bytes follow the end")]
    Trailing(usize),
    #[error("{tag} is no known {what}")]
    UnknownTag { what: &'static str, tag: u8 },
    #[error("a number is longer than 64 bits")]
    Overlong,
    #[error("transactions nest deeper than {MAX_TXN_DEPTH}")]
    TooDeep,
}

fn open(bytes: &[u8]) -> Result<wire::Reader<'_>, CodecError> {
    let mut reader = wire::Reader(bytes);
    match reader.byte()? {
        VERSION => Ok(reader),
        found => Err(CodecError::UnknownVersion { found }),
    }
}

fn begin(out: &mut Vec<u8>) -> wire::Writer<'_> {
    out.push(VERSION);
    wire::Writer(out)
}
