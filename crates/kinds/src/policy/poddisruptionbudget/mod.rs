//! PodDisruptionBudget: how many of some pods may be taken down on purpose at once. Evictions are counted against it in their own
//! transaction.

pub mod reconcile;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};

use crate::prelude::*;

pub struct PodDisruptionBudgetKind;

impl TypedKind for PodDisruptionBudgetKind {
    type Object = PodDisruptionBudget;

    const INFO: KindInfo = KindInfo {
        short_names: &["pdb"],
        subresources: &[subresource::STATUS],
        generation: true,
        unconditional_update: false,
        ..KindInfo::namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
    };

    fn prepare_create(object: &mut PodDisruptionBudget, _: &RequestContext<'_>) -> Verdict {
        object.status = Some(PodDisruptionBudgetStatus::default());
        validate(object).into()
    }

    fn prepare_update(new: &mut PodDisruptionBudget, old: &PodDisruptionBudget, cx: &RequestContext<'_>) -> Verdict {
        if cx.subresource == "status" {
            new.spec.clone_from(&old.spec);
            return validate_status(new).into();
        }
        new.status.clone_from(&old.status);
        validate(new).into()
    }

    const COLUMNS: &'static [Column] = &[
        table::NAME,
        table::text("Min Available", "How many pods must stay."),
        table::text("Max Unavailable", "How many pods may be gone."),
        table::integer("Allowed Disruptions", "How many may be taken down now."),
        table::AGE,
    ];

    fn row(object: &PodDisruptionBudget, now: Timestamp) -> Vec<Value> {
        let spec = object.spec.clone().unwrap_or_default();
        let shown = |value: &Option<_>| -> Value { value.as_ref().map_or_else(|| "N/A".into(), |v| validation::int_or_string(v).to_string().into()) };
        let allowed = object.status.as_ref().and_then(|s| s.disruptions_allowed).unwrap_or_default();
        vec![
            table::name(&object.metadata),
            shown(&spec.min_available),
            shown(&spec.max_unavailable),
            allowed.into(),
            table::age(&object.metadata, now),
        ]
    }
}

fn validate(object: &PodDisruptionBudget) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        let shown = validation::untagged(&spec, "io.k8s.api.policy.v1.PodDisruptionBudgetSpec");
        errors.push(FieldError::invalid(&path, shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for (field, value) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
        if let Some(value) = value {
            validation::count_or_percent(value, &path.child(field), &mut errors);
            validation::at_most_all(value, &path.child(field), &mut errors);
        }
    }
    if let Some(selector) = &spec.selector {
        validation::label_selector(selector, &path.child("selector"), &mut errors);
    }
    if let Some(policy) = &spec.unhealthy_pod_eviction_policy
        && !matches!(policy.as_str(), "AlwaysAllow" | "IfHealthyBudget")
    {
        let allowed = ["AlwaysAllow", "IfHealthyBudget"];
        errors.push(FieldError::not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, &allowed));
    }
    errors
}

fn validate_status(object: &PodDisruptionBudget) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = object.status.clone().unwrap_or_default();
    let counts = [
        ("disruptionsAllowed", status.disruptions_allowed),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("expectedPods", status.expected_pods),
    ];
    validation::nonnegative(&counts, &Path::new("status"), &mut errors);
    errors
}
