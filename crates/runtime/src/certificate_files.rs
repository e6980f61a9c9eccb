//! A certificate that others write: taken over while the process runs.
//!
//! The files are read every few seconds. Watching the file system would tell sooner, but not on every kind of mount, and a renewed certificate
//! has a third of its life to be noticed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::shutdown::Stop;
use crate::tls::{CertificateSlot, TlsError};

/// Two small reads; far more often than certificates change.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum CertificateFilesError {
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("using {path}")]
    Use {
        path: PathBuf,
        #[source]
        source: TlsError,
    },
}

/// Where a PEM chain and its key lie.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The certificate in use from now on.
    pub fn load(&self) -> Result<CertificateSlot, CertificateFilesError> {
        let (certificate, key) = self.read()?;
        CertificateSlot::from_pem(&certificate, &key).map_err(|source| self.unusable(source))
    }

    /// Puts into `slot` whatever is written later, until stopped. Files that do not fit together, as halfway through a renewal, are looked at again.
    pub async fn follow(self, slot: CertificateSlot, mut stop: Stop) {
        let (mut used, mut told) = (self.read().ok(), String::new());
        while stop.or(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let fresh = self.read();
            if fresh.as_ref().ok() == used.as_ref() {
                continue;
            }
            let replaced = fresh.and_then(|pair| {
                slot.replace(&pair.0, &pair.1).map_err(|source| self.unusable(source))?;
                Ok(pair)
            });
            match replaced {
                Ok(pair) => {
                    tracing::info!(path = %self.certificate.display(), "a new certificate is in use");
                    used = Some(pair);
                    told.clear();
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != told {
                        tracing::warn!(error = &error as &dyn std::error::Error, "a certificate cannot be taken over; the former one stays in use");
                        told = text;
                    }
                }
            }
        }
    }

    fn read(&self) -> Result<(String, String), CertificateFilesError> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|source| CertificateFilesError::Read { path: path.clone(), source });
        Ok((read(&self.certificate)?, read(&self.key)?))
    }

    fn unusable(&self, source: TlsError) -> CertificateFilesError {
        CertificateFilesError::Use { path: self.certificate.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shutdown::stop_pair;
    use wheelhouse_base::{Clock, SystemClock};
    use wheelhouse_pki::{Authority, Leaf, Subject, Usage, Validity};

    fn pair(authority: &Authority) -> (String, String) {
        let validity = Validity::lasting(SystemClock.now(), Duration::from_secs(60));
        authority.issue_with_key(&Leaf { subject: Subject::new("x", &[]), alt_names: vec![], usage: Usage::Both, validity }).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_later_is_used_once_it_fits() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
        assert!(files.load().is_err());
        let authority = Authority::create("a", Validity::lasting(SystemClock.now(), Duration::from_secs(60))).unwrap();
        let (first, second) = (pair(&authority), pair(&authority));
        std::fs::write(&files.certificate, &first.0).unwrap();
        std::fs::write(&files.key, &first.1).unwrap();
        let slot = files.load().unwrap();
        let before = slot.leaf();
        let (_handle, stop) = stop_pair();
        tokio::spawn(files.clone().follow(slot.clone(), stop));
        tokio::time::sleep(LOOK_EVERY / 2).await;

        std::fs::write(&files.certificate, &second.0).unwrap();
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert_eq!(slot.leaf(), before, "without its key it is of no use");
        std::fs::write(&files.key, &second.1).unwrap();
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert_ne!(slot.leaf(), before);
    }
}
