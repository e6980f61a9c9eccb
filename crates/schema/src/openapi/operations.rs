//! One operation of a path, in a form that both versions of OpenAPI can be written from.

/// An HTTP operation.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub method: &'static str,
    pub id: String,
    /// `x-kubernetes-action`; none for discovery.
    pub action: Option<&'static str>,
    /// `x-kubernetes-group-version-kind`: group, version, kind.
    pub target: Option<(String, String, String)>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Ascending; each answers with `answer`.
    pub codes: &'static [u16],
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub name: &'static str,
    /// `path` or `query`.
    pub place: &'static str,
    /// `string`, `integer`, `boolean`.
    pub kind: &'static str,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Any media type, of this definition.
    Object { definition: String, required: bool },
    /// A patch; a custom resource knows no strategic merge.
    Patch { strategic: bool },
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// JSON, YAML, protobuf of a definition.
    Object(String),
    /// The same and the two forms of a watch.
    Watchable(String),
    /// A pod's log.
    Text,
    /// Whatever the other end sends.
    Stream,
}

/// Operations of one path.
pub(super) struct Path {
    pub path: String,
    pub operations: Vec<Operation>,
}

pub(super) const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, place: "query", kind }
}

pub(super) const fn path(name: &'static str) -> Parameter {
    Parameter { name, place: "path", kind: "string" }
}

pub(super) const RESOURCE_VERSION: Parameter = query("resourceVersion", "string");

pub(super) const PRETTY: Parameter = query("pretty", "string");

pub(super) const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];

pub(super) const WRITE: &[Parameter] = &[query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string")];

pub(super) const PATCH: &[Parameter] =
    &[query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string"), query("force", "boolean")];

pub(super) const DELETE: &[Parameter] = &[
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];

pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    query("continue", "string"),
    query("dryRun", "string"),
    query("fieldSelector", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
];

const ATTACH: &[Parameter] =
    &[query("container", "string"), query("stderr", "boolean"), query("stdin", "boolean"), query("stdout", "boolean"), query("tty", "boolean")];

const EXEC: &[Parameter] = &[
    query("command", "string"),
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];

pub(super) const LOG: &[Parameter] = &[
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    PRETTY,
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];

const PORTS: &[Parameter] = &[query("ports", "integer")];
const PROXY: &[Parameter] = &[query("path", "string")];

/// A subresource that carries a connection.
pub(super) struct Stream {
    pub methods: &'static [&'static str],
    pub parameters: &'static [Parameter],
    /// Whether `/{path}` below it is carried too.
    pub with_path: bool,
}

const ALL_METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];

/// The streams, by the subresource's name.
pub(super) fn stream(name: &str) -> Option<Stream> {
    let (methods, parameters, with_path): (&[&str], &[Parameter], bool) = match name {
        "attach" => (&["get", "post"], ATTACH, false),
        "exec" => (&["get", "post"], EXEC, false),
        "portforward" => (&["get", "post"], PORTS, false),
        "proxy" => (ALL_METHODS, PROXY, true),
        _ => return None,
    };
    Some(Stream { methods, parameters, with_path })
}

/// Parameters that every operation of a path has; they are written once, on the path. Sorted by name.
pub(super) fn common(operations: &[Operation]) -> Vec<Parameter> {
    let Some((first, rest)) = operations.split_first() else { return Vec::new() };
    let everywhere = |p: &&Parameter| rest.iter().all(|operation| operation.parameters.contains(p));
    let mut common: Vec<Parameter> = first.parameters.iter().filter(everywhere).cloned().collect();
    common.sort();
    common
}
