//! Resources that store nothing: a body comes in, the API server answers it.
//!
//! They stand in discovery beside the kinds. What they do is the API server's: it knows the user, the authorizer and the keys.

use crate::kind::{KindInfo, Scope, Verb};

const fn review(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str, scope: Scope) -> KindInfo {
    KindInfo {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        short_names: &[],
        categories: &[],
        scope,
        verbs: &[Verb::Create],
        subresources: &[],
        generation: false,
        create_on_update: false,
        unconditional_update: false,
    }
}

/// Every virtual resource. Binding is also `pods/binding`, Eviction and TokenRequest exist as subresources only.
pub static ALL: &[KindInfo] = &[
    review("", "Binding", "bindings", "binding", Scope::Namespaced),
    KindInfo {
        short_names: &["cs"],
        verbs: &[Verb::Get, Verb::List],
        ..review("", "ComponentStatus", "componentstatuses", "componentstatus", Scope::Cluster)
    },
    review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview", Scope::Cluster),
    review("authentication.k8s.io", "TokenReview", "tokenreviews", "tokenreview", Scope::Cluster),
    review("authorization.k8s.io", "LocalSubjectAccessReview", "localsubjectaccessreviews", "localsubjectaccessreview", Scope::Namespaced),
    review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "selfsubjectaccessreview", Scope::Cluster),
    review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "selfsubjectrulesreview", Scope::Cluster),
    review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview", Scope::Cluster),
];
