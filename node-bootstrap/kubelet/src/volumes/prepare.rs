//! Volumes on disk: `<root>/pods/<uid>/volumes/<plugin>/<name>`, under the names that upstream uses.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolume, Volume};
use tokio::process::Command;
use wheelhouse_base::Timestamp;
use wheelhouse_meta::Quantity;

use super::atomic;
use super::payload::{self, Inputs};
use crate::spec::ConfigError;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {source}")]
    Content {
        volume: String,
        #[source]
        source: ConfigError,
    },
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {source}")]
    Disk {
        volume: String,
        #[source]
        source: io::Error,
    },
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {message}")]
    Unusable { volume: String, message: String },
}

/// The volumes of one pod.
pub struct Volumes<'a> {
    /// `<root>/pods/<uid>`
    pub folder: PathBuf,
    pub inputs: Inputs<'a>,
    /// What the pod's claims are bound to, by the volume's name.
    pub claimed: &'a BTreeMap<String, PersistentVolume>,
    pub now: Timestamp,
}

impl Volumes<'_> {
    /// Makes every volume and answers where each lies. Doing it again changes only files whose sources changed.
    pub async fn prepare(&self) -> Result<BTreeMap<String, PathBuf>, VolumeError> {
        let mut places = BTreeMap::new();
        for volume in self.volumes() {
            places.insert(volume.name.clone(), self.one(volume).await?);
        }
        Ok(places)
    }

    fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.inputs.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
    }

    /// Writes the files of the volumes that have some; for a running pod.
    pub fn refresh(&self) -> Result<(), VolumeError> {
        for volume in self.volumes().filter(|volume| payload::is_payload(volume)) {
            self.write(volume, &self.place(volume))?;
        }
        Ok(())
    }

    fn place(&self, volume: &Volume) -> PathBuf {
        let plugin = if volume.config_map.is_some() {
            "kubernetes.io~configmap"
        } else if volume.secret.is_some() {
            "kubernetes.io~secret"
        } else if volume.downward_api.is_some() {
            "kubernetes.io~downward-api"
        } else if volume.projected.is_some() {
            "kubernetes.io~projected"
        } else {
            "kubernetes.io~empty-dir"
        };
        self.folder.join("volumes").join(plugin).join(&volume.name)
    }

    fn group(&self) -> Option<u32> {
        let context = self.inputs.pod.spec.as_ref()?.security_context.as_ref()?;
        u32::try_from(context.fs_group?).ok()
    }

    async fn one(&self, volume: &Volume) -> Result<PathBuf, VolumeError> {
        let disk = |source| VolumeError::Disk { volume: volume.name.clone(), source };
        let unusable = |message: String| VolumeError::Unusable { volume: volume.name.clone(), message };
        let place = self.place(volume);
        if payload::is_payload(volume) {
            fs::create_dir_all(&place).map_err(disk)?;
            self.write(volume, &place)?;
            return Ok(place);
        }
        if let Some(source) = &volume.host_path {
            return host_path(source).map_err(unusable);
        }
        if let Some(persistent) = self.claimed.get(&volume.name) {
            let path = local_path(persistent).ok_or_else(|| unusable("this node mounts local and hostPath volumes only".to_owned()))?;
            if !path.is_dir() {
                return Err(unusable(format!("path {:?} does not exist", path.display().to_string())));
            }
            return Ok(path);
        }
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            return Err(unusable("the claim is not bound".to_owned()));
        }
        // A volume without a source is an empty directory, by the API's default.
        let empty = volume.empty_dir.clone().unwrap_or_default();
        if volume.empty_dir.is_none() && has_source(volume) {
            return Err(unusable("this node does not support volumes of this kind".to_owned()));
        }
        fs::create_dir_all(&place).map_err(disk)?;
        if empty.medium.as_deref() == Some("Memory") {
            mount_memory(&place, &empty).await.map_err(unusable)?;
        }
        let group = self.group();
        chown(&place, None, group).map_err(disk)?;
        let mode = if group.is_some() { 0o2777 } else { 0o777 };
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).map_err(disk)?;
        Ok(place)
    }

    fn write(&self, volume: &Volume, place: &Path) -> Result<(), VolumeError> {
        let files = payload::files(volume, &self.inputs).map_err(|source| VolumeError::Content { volume: volume.name.clone(), source })?;
        let stamp = self.now.as_micros().to_string();
        atomic::write(place, &files, self.group(), &stamp).map(drop).map_err(|source| VolumeError::Disk { volume: volume.name.clone(), source })
    }
}

fn has_source(volume: &Volume) -> bool {
    serde_json::to_value(volume).ok().and_then(|value| value.as_object().map(|fields| fields.len() > 1)).unwrap_or(false)
}

/// A directory of this machine that a persistent volume stands for.
fn local_path(volume: &PersistentVolume) -> Option<PathBuf> {
    let spec = volume.spec.as_ref()?;
    let path = spec.local.as_ref().map(|local| &local.path).or_else(|| spec.host_path.as_ref().map(|host| &host.path))?;
    Some(PathBuf::from(path))
}

fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    match kind {
        "DirectoryOrCreate" if !path.exists() => {
            fs::create_dir_all(&path).map_err(|error| error.to_string())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        }
        "FileOrCreate" if !path.exists() => {
            fs::File::create(&path).map_err(|error| error.to_string())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(|error| error.to_string())?;
        }
        _ => {}
    }
    let found = fs::metadata(&path).ok().map(|metadata| metadata.file_type());
    let fits = |test: fn(&fs::FileType) -> bool| found.as_ref().is_some_and(test);
    let good = match kind {
        "Directory" | "DirectoryOrCreate" => fits(fs::FileType::is_dir),
        "File" | "FileOrCreate" => fits(fs::FileType::is_file),
        "Socket" => fits(|kind| kind.is_socket()),
        "CharDevice" => fits(|kind| kind.is_char_device()),
        "BlockDevice" => fits(|kind| kind.is_block_device()),
        _ => true,
    };
    if good { Ok(path) } else { Err(format!("hostPath type check failed: {} is not a {}", source.path, kind.to_lowercase())) }
}

async fn mount_memory(place: &Path, source: &EmptyDirVolumeSource) -> Result<(), String> {
    if is_mount(place) {
        return Ok(());
    }
    let limit = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0).ok()).filter(|limit| limit.sign() > 0);
    let options = limit.map_or("rw".to_owned(), |limit| format!("rw,size={}", limit.value()));
    let ran = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place).output().await.map_err(|error| error.to_string())?;
    if ran.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()) }
}

/// Whether something is mounted there: it lies on another device than the directory around it.
fn is_mount(place: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.dev()).ok();
    place.parent().is_some_and(|parent| device(parent) != device(place))
}

/// Takes everything of a pod's volumes away. What lies on the host itself stays.
pub async fn tear_down(folder: &Path) -> io::Result<()> {
    let volumes = folder.join("volumes");
    for plugin in read(&volumes)? {
        for place in read(&plugin)? {
            // Deeper than the volume itself nothing of the kubelet's is mounted; a busy mount is taken off lazily.
            if is_mount(&place) && !Command::new("umount").arg(&place).status().await?.success() {
                Command::new("umount").arg("-l").arg(&place).status().await?;
            }
            if is_mount(&place) {
                return Err(io::Error::other(format!("{} is still mounted", place.display())));
            }
        }
    }
    match fs::remove_dir_all(&volumes) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
