//! The recorded selectors of kube-apiserver 1.36: what matched, or the refusal.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{FieldSelector, LabelSelector, ONLY_NAME_AND_NAMESPACE};

#[derive(Deserialize)]
struct Recorded {
    objects: BTreeMap<String, Map<String, Value>>,
    labels: Vec<Case>,
    fields: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    selector: String,
    matches: Option<Vec<String>>,
    message: Option<String>,
}

impl Case {
    fn check(&self, outcome: Result<Vec<String>, String>) {
        let expected = match (&self.matches, &self.message) {
            (Some(matches), _) => Ok(matches.clone()),
            (None, message) => Err(message.clone().unwrap_or_default()),
        };
        assert_eq!(outcome, expected, "{}", self.selector);
    }
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../../testdata/selectors.json")).expect("testdata is valid")
}

#[test]
fn label_selectors_match_and_fail_as_upstream() {
    let recorded = recorded();
    for case in &recorded.labels {
        let outcome = LabelSelector::parse(&case.selector).map_err(|e| e.to_string()).map(|selector| {
            let matching = recorded.objects.iter().filter(|(_, labels)| selector.matches(Some(labels)));
            matching.map(|(name, _)| name.clone()).collect()
        });
        case.check(outcome);
    }
}

#[test]
fn field_selectors_match_and_fail_as_upstream() {
    let recorded = recorded();
    for case in &recorded.fields {
        let parsed = FieldSelector::parse(&case.selector);
        let outcome = parsed.and_then(|s| s.check_fields(&ONLY_NAME_AND_NAMESPACE).map(|()| s)).map_err(|e| e.to_string());
        let outcome = outcome.map(|selector| {
            let matching = recorded
                .objects
                .keys()
                .filter(|name| selector.matches(&[("metadata.name", name.as_str()), ("metadata.namespace", "g-field-selectors")]));
            matching.cloned().collect()
        });
        case.check(outcome);
    }
}
