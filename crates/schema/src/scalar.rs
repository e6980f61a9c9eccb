//! Text forms of scalars that have one of their own: canonical when good, upstream's error when not.

use crate::quantity::canonical_quantity;
use crate::time::{ApiTime, Layout};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The canonical text of a quantity.
pub(crate) fn quantity(text: &str) -> Result<String, String> {
    canonical_quantity(text.trim()).map_err(|e| e.to_string())
}

/// A time in UTC and in the layout's precision.
pub(crate) fn time(text: &str, layout: Layout) -> Result<String, String> {
    ApiTime::parse(text, layout).map(|t| t.format(layout)).map_err(|e| e.to_string())
}

/// Standard base64 with padding. Line ends are skipped, as Go skips them.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let decoded = if text.contains(['\r', '\n']) {
        let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        STANDARD.decode(joined)
    } else {
        STANDARD.decode(text)
    };
    decoded.map_err(|e| format!("illegal base64 data at input byte {}", offset(&e, text)))
}

pub(crate) fn write_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn offset(error: &base64::DecodeError, text: &str) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        // Go stops at the start of the group of four that is not complete.
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    }
}
