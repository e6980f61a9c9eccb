//! Service-account tokens: keys, claims, signing, and the TokenRequest subresource.

mod claims;
mod issuer;
mod keys;
pub mod request;

pub use claims::{Bound, Claims, Reference, TimeError};
pub use issuer::{Issuer, SignatureError};
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use request::TokenRequest;

#[cfg(test)]
pub(crate) mod tests;
