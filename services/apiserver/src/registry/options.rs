//! The query options of writes.

use wheelhouse_meta::Status;
use wheelhouse_meta::field::{ErrorList, FieldError, Path};
use wheelhouse_meta::gvk::GroupKind;
use wheelhouse_meta::validation::options as check;
use wheelhouse_schema::FieldValidation;

use super::Call;
use crate::request::Answer;

/// The longest manager that is made from a user agent, in bytes.
const MANAGER_MAX: usize = 128;

/// Which options are read, by the name that errors give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsKind {
    Create,
    Update,
    Patch,
    /// An apply patch, which must name its manager.
    Apply,
}

#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub manager: String,
    pub validation: FieldValidation,
    /// Apply takes over fields of other managers.
    pub force: bool,
}

impl WriteOptions {
    pub fn parse(call: &Call<'_>, kind: OptionsKind) -> Answer<Self> {
        let query = call.query;
        let manager = query.text("fieldManager");
        let dry_run: Vec<&str> = query.all("dryRun").filter(|value| !value.is_empty()).collect();
        let validation = query.text("fieldValidation");
        let force = query.optional_flag("force");
        let mut errors = ErrorList::new();
        match kind {
            OptionsKind::Apply if manager.is_empty() => {
                errors.push(FieldError::required(&Path::new("fieldManager"), "is required for apply patch"));
            }
            OptionsKind::Patch if force.is_some() => {
                errors.push(FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
            }
            _ => {}
        }
        errors.extend(check::field_manager(manager, &Path::new("fieldManager")));
        errors.extend(check::dry_run(&dry_run, &Path::new("dryRun")));
        errors.extend(check::field_validation(validation, &Path::new("fieldValidation")));
        if !errors.is_empty() {
            let name = match kind {
                OptionsKind::Create => "CreateOptions",
                OptionsKind::Update => "UpdateOptions",
                OptionsKind::Patch | OptionsKind::Apply => "PatchOptions",
            };
            return Err(Status::invalid(&GroupKind::new("meta.k8s.io", name), "", &errors).into());
        }
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            manager: if manager.is_empty() { manager_of(call) } else { manager.to_owned() },
            validation: match validation {
                "Ignore" => FieldValidation::Ignore,
                "Strict" => FieldValidation::Strict,
                _ => FieldValidation::Warn,
            },
            force: force.unwrap_or(false),
        })
    }
}

/// The manager that a user agent stands for: its part before the first slash.
pub fn manager_of(call: &Call<'_>) -> String {
    let agent = call.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    let name: String = agent.split('/').next().unwrap_or("").chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() {
        return "unknown".to_owned();
    }
    let mut end = name.len().min(MANAGER_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
