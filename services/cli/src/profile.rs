//! `~/.config/wheelhouse/config.json`: named profiles, each an endpoint with its CA and API key. Readable by its owner alone.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::args::Connection;
use crate::error::CliError;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The selected profile.
    #[serde(default)]
    pub current: String,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub endpoint: String,
    /// CA certificate of the tenant API, PEM.
    #[serde(default)]
    pub ca: String,
    #[serde(default)]
    pub api_key: String,
}

/// Where the configuration lies.
pub fn path() -> Result<PathBuf, CliError> {
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let base = base.ok_or_else(|| CliError::Failed("neither XDG_CONFIG_HOME nor HOME is set".into()))?;
    Ok(base.join("wheelhouse/config.json"))
}

impl Config {
    /// An absent file is an empty configuration.
    pub fn load() -> Result<Self, CliError> {
        let path = path()?;
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| CliError::Failed(format!("{} is damaged: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(CliError::file(&path, error)),
        }
    }

    /// Replaces the file as a whole, so that a crash leaves the old or the new one.
    pub fn save(&self) -> Result<PathBuf, CliError> {
        let path = path()?;
        let failed = |error| CliError::file(&path, error);
        let folder = path.parent().expect("the path has a file name below a folder");
        std::fs::create_dir_all(folder).map_err(failed)?;
        let temporary = path.with_extension(format!("json.{}", std::process::id()));
        let text = serde_json::to_vec_pretty(self).expect("profiles are plain data");
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&temporary, &path).map_err(failed)?;
        Ok(path)
    }
}

/// The profile that a command runs with: flags and environment over the selected profile.
pub fn resolve(connection: &Connection) -> Result<Profile, CliError> {
    let config = Config::load()?;
    let name = connection.profile.clone().unwrap_or_else(|| config.current.clone());
    let mut profile = match config.profiles.get(&name) {
        Some(profile) => profile.clone(),
        None if connection.profile.is_some() => {
            let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
            return Err(CliError::Usage(format!("there is no profile {name:?}; there are: {}", known.join(", "))));
        }
        None => Profile::default(),
    };
    if let Some(endpoint) = &connection.endpoint {
        profile.endpoint.clone_from(endpoint);
    }
    if let Some(key) = &connection.api_key {
        profile.api_key.clone_from(key);
    }
    if let Some(file) = &connection.ca {
        profile.ca = std::fs::read_to_string(file).map_err(|error| CliError::file(file, error))?;
    }
    if profile.endpoint.is_empty() {
        let detail = "no tenant API is known: run `wheelhouse up` on this machine, or give --endpoint and --ca";
        return Err(CliError::Usage(detail.into()));
    }
    Ok(profile)
}
