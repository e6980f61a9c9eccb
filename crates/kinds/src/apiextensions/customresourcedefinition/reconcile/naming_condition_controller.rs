//! `naming-condition-controller`: accepts a definition's names unless another of its group has them, and establishes it.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionCondition, CustomResourceDefinitionNames,
};
use wheelhouse_meta::gotext::quote;

use super::DEFINITIONS;
use crate::plan::{Operation, Plan};
use crate::reconciler::{Context, Reconciler, Trigger};
use crate::validation::{items, text, time};
use crate::view::{Key, View};

/// Keyed by the definition.
pub struct NamingConditionController;

impl Reconciler for NamingConditionController {
    type Memory = ();

    fn name(&self) -> &'static str {
        "naming-condition-controller"
    }

    fn is_part_of_the_server(&self) -> bool {
        true
    }

    fn triggers(&self) -> Vec<Trigger> {
        // Names that one definition gives up may be what another waits for.
        let group = Trigger {
            resource: DEFINITIONS,
            keys: |view, change| {
                let sides = [&change.old, &change.new].into_iter().flatten();
                let groups: BTreeSet<String> =
                    sides.filter_map(|record| Some(record.typed::<CustomResourceDefinition>()?.spec.group.clone())).collect();
                let all = view.list::<CustomResourceDefinition>(None);
                let of_group = all.filter(|definition| groups.contains(&definition.spec.group));
                of_group.map(|definition| Key::cluster(text(&definition.metadata.name))).collect()
            },
        };
        vec![group]
    }

    fn reconcile(&self, key: &Key, view: &View, cx: &Context<'_>, _: &mut ()) -> Plan {
        let mut plan = Plan::default();
        let Some(definition) = view.get::<CustomResourceDefinition>("", &key.name) else { return plan };
        if definition.metadata.deletion_timestamp.is_some() {
            return plan;
        }
        let taken = Taken::by_others(&definition, view);
        let mut new = (*definition).clone();
        let status = new.status.get_or_insert_default();
        let accepted = status.accepted_names.clone().unwrap_or_default();
        let (names, conflict) = accept(&definition.spec.names, &accepted, &taken);
        let accepted = conflict.is_none();
        status.accepted_names = Some(names);
        let conditions = status.conditions.get_or_insert_default();
        let condition = |kind: &str, on: bool, reason: &str, message: String| CustomResourceDefinitionCondition {
            type_: kind.to_owned(),
            status: if on { "True" } else { "False" }.to_owned(),
            last_transition_time: time(cx.now),
            reason: Some(reason.to_owned()),
            message: Some(message),
            observed_generation: None,
        };
        let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
        set(conditions, condition("NamesAccepted", accepted, reason, message));
        // What is established once stays so.
        if !super::super::is_true(&definition, "Established") {
            let (reason, message) = if accepted {
                ("InitialNamesAccepted", "the initial names have been accepted")
            } else {
                ("NotAccepted", "not all names are accepted")
            };
            set(conditions, condition("Established", accepted, reason, message.to_owned()));
        }
        if new.status != definition.status {
            let object = serde_json::to_value(&new).expect("a definition is plain data");
            plan.operations.push(Operation::Update { resource: DEFINITIONS, subresource: "status", object });
        }
        plan
    }
}

/// Puts a condition in its place; one that says the same keeps its time.
fn set(conditions: &mut Vec<CustomResourceDefinitionCondition>, new: CustomResourceDefinitionCondition) {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) if old.status == new.status && old.reason == new.reason && old.message == new.message => {}
        Some(old) => {
            let time = if old.status == new.status { old.last_transition_time.take() } else { new.last_transition_time };
            *old = CustomResourceDefinitionCondition { last_transition_time: time, ..new };
        }
        None => conditions.push(new),
    }
}

/// Names that other definitions of the group hold.
#[derive(Default)]
struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    fn by_others(definition: &CustomResourceDefinition, view: &View) -> Self {
        let mut taken = Self::default();
        let all = view.list::<CustomResourceDefinition>(None);
        for other in all.filter(|other| other.spec.group == definition.spec.group && other.metadata.name != definition.metadata.name) {
            let Some(names) = other.status.as_ref().and_then(|s| s.accepted_names.as_ref()) else { continue };
            let resources =
                std::iter::once(names.plural.as_str()).chain(names.singular.as_deref()).chain(items(&names.short_names).iter().map(String::as_str));
            taken.resources.extend(resources.filter(|name| !name.is_empty()).map(str::to_owned));
            let kinds = std::iter::once(names.kind.as_str()).chain(names.list_kind.as_deref());
            taken.kinds.extend(kinds.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        taken
    }
}

/// The names that can be had, and the last reason why one cannot.
fn accept(
    wanted: &CustomResourceDefinitionNames,
    accepted: &CustomResourceDefinitionNames,
    taken: &Taken,
) -> (CustomResourceDefinitionNames, Option<(&'static str, String)>) {
    let mut names = accepted.clone();
    let mut conflict = None;
    let mut free = |wanted: &str, accepted: &str, taken: &BTreeSet<String>, reason: &'static str| {
        let free = wanted == accepted || !taken.contains(wanted);
        if !free {
            conflict = Some((reason, format!("{} is already in use", quote(wanted))));
        }
        free
    };
    if free(&wanted.plural, &accepted.plural, &taken.resources, "PluralConflict") {
        names.plural.clone_from(&wanted.plural);
    }
    if free(text(&wanted.singular), text(&accepted.singular), &taken.resources, "SingularConflict") {
        names.singular.clone_from(&wanted.singular);
    }
    let short = items(&wanted.short_names);
    let held = items(&accepted.short_names);
    if short.iter().all(|name| free(name, if held.contains(name) { name } else { "" }, &taken.resources, "ShortNamesConflict")) {
        names.short_names.clone_from(&wanted.short_names);
    }
    if free(&wanted.kind, &accepted.kind, &taken.kinds, "KindConflict") {
        names.kind.clone_from(&wanted.kind);
    }
    if free(text(&wanted.list_kind), text(&accepted.list_kind), &taken.kinds, "ListKindConflict") {
        names.list_kind.clone_from(&wanted.list_kind);
    }
    names.categories.clone_from(&wanted.categories);
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::testing::{World, context};
    use serde_json::{Value, json};

    fn definition(plural: &str, status: &Value) -> String {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.k.io"), "uid": plural},
            "spec": {"group": "k.io", "scope": "Cluster", "versions": [],
                "names": {"plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList"}},
            "status": status,
        })
        .to_string()
    }

    fn status(world: &World, plural: &str) -> Option<Value> {
        let plan = NamingConditionController.reconcile(&Key::cluster(format!("{plural}.k.io")), world.view(), &context(), &mut ());
        match &plan.operations[..] {
            [Operation::Update { object, subresource: "status", .. }] => Some(object["status"].clone()),
            [] => None,
            other => panic!("{other:?}"),
        }
    }

    /// Recorded from upstream 1.36.
    #[test]
    fn names_are_accepted_unless_another_has_them() {
        let world = World::new().with(&definition("things", &json!({"storedVersions": ["v1"]})));
        let first = status(&world, "things").expect("a change");
        let summary = |status: &Value, at: usize| {
            let text = |key: &str| status["conditions"][at][key].as_str().unwrap_or_default().to_owned();
            [text("type"), text("status"), text("reason"), text("message")]
        };
        assert_eq!(summary(&first, 0), ["NamesAccepted", "True", "NoConflicts", "no conflicts found"]);
        assert_eq!(summary(&first, 1), ["Established", "True", "InitialNamesAccepted", "the initial names have been accepted"]);
        let world = world.with(&definition("things", &first)).with(&definition("others", &json!({"storedVersions": ["v1"]})));
        assert_eq!(status(&world, "things"), None);
        let second = status(&world, "others").expect("a change");
        assert_eq!(summary(&second, 0), ["NamesAccepted", "False", "ListKindConflict", "\"ThingList\" is already in use"]);
        assert_eq!(summary(&second, 1), ["Established", "False", "NotAccepted", "not all names are accepted"]);
        assert_eq!((&second["acceptedNames"]["plural"], &second["acceptedNames"]["kind"]), (&json!("others"), &json!("")));
    }
}
