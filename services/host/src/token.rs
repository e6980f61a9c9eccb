//! Tokens that let a machine join as a host.
//!
//! `<expiry in hexadecimal seconds>.<HMAC-SHA256 over it under the operator's key, 32 hexadecimal digits>`: any running host can check one, nothing
//! is stored, and a token dies by its own date.

use aws_lc_rs::hmac;
use wheelhouse_base::Timestamp;
use wheelhouse_pki::SealingKey;

/// Half of the HMAC: 128 bits cannot be guessed and are half as long to paste.
const MAC_BYTES: usize = 16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("the token is malformed")]
    Malformed,
    #[error("the token has expired; make a new one with `wheelhouse-host token`")]
    Expired,
    #[error("the token is not of this service")]
    Foreign,
}

pub fn issue(operator_key: &SealingKey, expires: Timestamp) -> String {
    let id = format!("{:x}", expires.as_secs());
    let mac = mac(operator_key, &id);
    let secret: String = mac.as_ref()[..MAC_BYTES].iter().map(|b| format!("{b:02x}")).collect();
    format!("{id}.{secret}")
}

pub fn check(token: &str, operator_key: &SealingKey, now: Timestamp) -> Result<(), TokenError> {
    let (id, secret) = token.split_once('.').ok_or(TokenError::Malformed)?;
    let expires = i64::from_str_radix(id, 16).map_err(|_| TokenError::Malformed)?;
    let given: Vec<u8> = (0..secret.len()).step_by(2).map_while(|i| u8::from_str_radix(secret.get(i..i + 2)?, 16).ok()).collect();
    if secret.len() != 2 * MAC_BYTES || given.len() != MAC_BYTES {
        return Err(TokenError::Malformed);
    }
    let expected = mac(operator_key, id);
    aws_lc_rs::constant_time::verify_slices_are_equal(&expected.as_ref()[..MAC_BYTES], &given).map_err(|_| TokenError::Foreign)?;
    if now.as_secs() > expires { Err(TokenError::Expired) } else { Ok(()) }
}

fn mac(operator_key: &SealingKey, id: &str) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, operator_key.as_bytes());
    hmac::sign(&key, format!("wheelhouse/host-token/{id}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_services_unexpired_tokens_pass() {
        let (key, other) = (SealingKey::generate().unwrap(), SealingKey::generate().unwrap());
        let token = issue(&key, Timestamp::from_secs(1000));
        assert_eq!(check(&token, &key, Timestamp::from_secs(1000)), Ok(()));
        assert_eq!(check(&token, &key, Timestamp::from_secs(1001)), Err(TokenError::Expired));
        assert_eq!(check(&token, &other, Timestamp::from_secs(0)), Err(TokenError::Foreign));
        let longer = format!("7{token}");
        assert_eq!(check(&longer, &key, Timestamp::from_secs(0)), Err(TokenError::Foreign), "the date cannot be moved");
        for bad in ["", ".", "x.y", "3e8.", "3e8.zz", "3e8.00é0"] {
            assert_eq!(check(bad, &key, Timestamp::from_secs(0)), Err(TokenError::Malformed), "{bad}");
        }
    }
}
