//! Runs `nft`: a transaction in, all or nothing.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::{Patch, Ruleset};

/// A full ruleset of 10,000 services loads within a second; a program that takes this long hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How much of nft's complaint is kept: its first message with the line that it points at.
const QUOTED_TEXT: usize = 600;

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot run nft (package nftables)")]
    Spawn(#[source] std::io::Error),
    #[error("nft refused the transaction: {0}")]
    Refused(String),
    #[error("nft did not end within {TIMEOUT:?}")]
    Timeout,
}

/// Applies the text of a transaction. Nothing is changed on an error.
pub async fn apply(text: &str) -> Result<(), NftError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(NftError::Spawn)?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let running = async {
        // A write fails when nft gave up early; its own message says why.
        let _ = stdin.write_all(text.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(TIMEOUT, running).await.map_err(|_| NftError::Timeout)?.map_err(NftError::Spawn)?;
    if output.status.success() {
        return Ok(());
    }
    Err(refusal(&output.stderr))
}

fn refusal(complaint: &[u8]) -> NftError {
    NftError::Refused(String::from_utf8_lossy(complaint).chars().take(QUOTED_TEXT).collect())
}

/// Keeps one table of the kernel equal to a ruleset.
///
/// What is believed to be loaded is held here. After a refused transaction (somebody flushed the ruleset, or removed the table) nothing is believed and
/// the next one writes the whole table.
pub struct LoadedTable {
    loaded: Option<Ruleset>,
}

impl LoadedTable {
    pub fn unknown() -> Self {
        Self { loaded: None }
    }

    /// Brings the kernel to `wanted`: the difference when the loaded ruleset is known, else everything.
    pub async fn load(&mut self, wanted: Ruleset) -> Result<(), NftError> {
        if let Some(loaded) = self.loaded.take() {
            let patch: Patch = wanted.diff(&loaded);
            match apply(&patch.render()).await {
                Ok(()) => {
                    self.loaded = Some(wanted);
                    return Ok(());
                }
                Err(NftError::Refused(message)) => tracing::warn!(table = wanted.table, message, "the table is not as it was left; writing it anew"),
                Err(error) => return Err(error),
            }
        }
        apply(&wanted.render()).await?;
        self.loaded = Some(wanted);
        Ok(())
    }

    /// Forgets what is loaded when the kernel has no such table any more. True when it was gone.
    pub async fn verify(&mut self) -> Result<bool, NftError> {
        let Some(loaded) = &self.loaded else { return Ok(false) };
        let present = exists(&loaded.table).await?;
        if !present {
            self.loaded = None;
        }
        Ok(!present)
    }
}

/// Whether the kernel has this table (`ip NAME`).
pub async fn exists(table: &str) -> Result<bool, NftError> {
    let mut command = Command::new("nft");
    command.args(["list", "tables"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await.map_err(|_| NftError::Timeout)?.map_err(NftError::Spawn)?;
    if !output.status.success() {
        return Err(refusal(&output.stderr));
    }
    let wanted = format!("table {table}");
    Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim() == wanted))
}
