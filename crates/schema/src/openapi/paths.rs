//! The paths and operations that a resource has.

use super::operations::{self, Answer, Body, LIST, LOG, Operation, PRETTY, Parameter, Path, WRITE, path};
use super::{Resource, Subresource};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// Resources whose DELETE answers with the object instead of a Status.
const RETURNS_DELETED: [(&str, &str); 16] = [
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "podtemplates"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// The OpenAPI definition of a kind. One that is not in the catalog is named by its group, reversed.
pub(super) fn definition(group: &str, version: &str, kind: &str) -> String {
    if let Some(of) = crate::catalog().kind(group, version, kind).and_then(|k| k.schema.as_struct()) {
        return of.definition.to_string();
    }
    let reversed: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// `coordination.k8s.io` as `Coordination`, `rbac.authorization.k8s.io` as `RbacAuthorization`, the core group as `Core`,
/// another's `fleet.wheelhouse.dev` as `FleetWheelhouseDev`.
pub(super) fn group_words(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let short = group.strip_suffix(".k8s.io").unwrap_or(group);
    short.split(['.', '-']).map(capitalised).collect()
}

pub(super) fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Every path of a resource.
pub(super) fn of_resource(resource: &Resource) -> Vec<Path> {
    let builder = Builder::new(resource);
    let mut paths = vec![builder.collection(), builder.item()];
    if resource.namespaced {
        paths.push(builder.all_namespaces());
    }
    paths.extend(resource.subresources.iter().flat_map(|sub| builder.subresource(sub)));
    if builder.can("watch") && !resource.is_custom() {
        paths.extend(builder.watches());
    }
    paths.retain(|path| !path.operations.is_empty());
    paths
}

struct Builder<'a> {
    resource: &'a Resource,
    /// `/apis/apps/v1`
    root: String,
    /// `AppsV1`
    prefix: String,
    /// `NamespacedDeployment`, or `Node`
    noun: String,
    definition: String,
}

impl<'a> Builder<'a> {
    fn new(resource: &'a Resource) -> Builder<'a> {
        let Resource { group, version, kind, namespaced, .. } = resource;
        Builder {
            resource,
            root: format!("/{}", super::group_version_path(group, version)),
            prefix: format!("{}{}", group_words(group), capitalised(version)),
            noun: format!("{}{kind}", if *namespaced { "Namespaced" } else { "" }),
            definition: definition(group, version, kind),
        }
    }

    fn can(&self, verb: &str) -> bool {
        self.resource.verbs.iter().any(|v| v == verb)
    }

    /// `/apis/apps/v1/namespaces/{namespace}/deployments`, below `root`.
    fn collection_path(&self, root: &str) -> String {
        let namespace = if self.resource.namespaced { "/namespaces/{namespace}" } else { "" };
        format!("{root}{namespace}/{}", self.resource.plural)
    }

    /// The namespace, where there is one, and `extra`.
    fn scope(&self, extra: &[Parameter]) -> Vec<Parameter> {
        let namespace = self.resource.namespaced.then(|| path("namespace"));
        namespace.into_iter().chain(extra.iter().cloned()).collect()
    }

    fn operation(&self, method: &'static str, action: &'static str, id: String, parameters: Vec<Parameter>) -> Operation {
        let Resource { group, version, kind, .. } = self.resource;
        Operation {
            method,
            id,
            action: Some(action),
            target: Some((group.clone(), version.clone(), kind.clone())),
            parameters,
            body: None,
            codes: &[200, 401],
            answer: Answer::Object(self.definition.clone()),
        }
    }

    fn list_definition(&self) -> String {
        format!("{}List", self.definition)
    }

    fn collection(&self) -> Path {
        let Builder { prefix, noun, .. } = self;
        let scope = self.scope(&[PRETTY]);
        let mut operations = Vec::new();
        if self.can("list") {
            let mut list = self.operation("get", "list", format!("list{prefix}{noun}"), joined(&scope, LIST));
            list.answer = Answer::Watchable(self.list_definition());
            operations.push(list);
        }
        if self.can("create") {
            let post = self.operation("post", "post", format!("create{prefix}{noun}"), joined(&scope, WRITE));
            operations.push(created(post, &self.definition));
        }
        if self.can("deletecollection") {
            let id = format!("delete{prefix}Collection{noun}");
            let custom = self.resource.is_custom();
            let parameters = joined(&scope, if custom { LIST } else { operations::DELETE_COLLECTION });
            let mut delete = self.operation("delete", "deletecollection", id, parameters);
            delete.body = (!custom).then(|| Body::Object { definition: DELETE_OPTIONS.to_owned(), required: false });
            delete.answer = Answer::Object(STATUS.to_owned());
            operations.push(delete);
        }
        Path { path: self.collection_path(&self.root), operations }
    }

    fn item(&self) -> Path {
        let Builder { prefix, noun, .. } = self;
        let scope = self.scope(&[path("name"), PRETTY]);
        let mut operations = Vec::new();
        if self.can("get") {
            let extra: &[Parameter] = if self.resource.is_custom() { &[operations::RESOURCE_VERSION] } else { &[] };
            operations.push(self.operation("get", "get", format!("read{prefix}{noun}"), joined(&scope, extra)));
        }
        if self.can("update") {
            let put = self.operation("put", "put", format!("replace{prefix}{noun}"), joined(&scope, WRITE));
            operations.push(replaced(put, &self.definition));
        }
        if self.can("delete") {
            operations.push(self.delete(joined(&scope, operations::DELETE)));
        }
        if self.can("patch") {
            let id = format!("patch{prefix}{noun}");
            operations.push(self.patched(self.operation("patch", "patch", id, joined(&scope, operations::PATCH))));
        }
        Path { path: format!("{}/{{name}}", self.collection_path(&self.root)), operations }
    }

    fn delete(&self, parameters: Vec<Parameter>) -> Operation {
        let id = format!("delete{}{}", self.prefix, self.noun);
        let mut delete = self.operation("delete", "delete", id, parameters);
        delete.body = Some(Body::Object { definition: DELETE_OPTIONS.to_owned(), required: false });
        delete.codes = &[200, 202, 401];
        if !RETURNS_DELETED.contains(&(self.resource.group.as_str(), self.resource.plural.as_str())) {
            delete.answer = Answer::Object(STATUS.to_owned());
        }
        delete
    }

    fn patched(&self, mut patch: Operation) -> Operation {
        patch.body = Some(Body::Patch { strategic: self.resource.schema.is_none() });
        patch.codes = if self.resource.is_custom() { &[200, 401] } else { &[200, 201, 401] };
        patch
    }

    fn all_namespaces(&self) -> Path {
        let mut operations = Vec::new();
        if self.can("list") {
            let id = format!("list{}{}ForAllNamespaces", self.prefix, self.resource.kind);
            let mut list = self.operation("get", "list", id, joined(&[PRETTY], LIST));
            list.answer = Answer::Watchable(self.list_definition());
            operations.push(list);
        }
        Path { path: format!("{}/{}", self.root, self.resource.plural), operations }
    }

    /// The deprecated `/watch/` paths.
    fn watches(&self) -> Vec<Path> {
        let Builder { prefix, noun, .. } = self;
        let root = format!("{}/watch", self.root);
        let watch = |action: &'static str, id: String, path: String, scope: Vec<Parameter>| {
            let mut operation = self.operation("get", action, id, joined(&scope, LIST));
            operation.answer = Answer::Watchable(WATCH_EVENT.to_owned());
            Path { path, operations: vec![operation] }
        };
        let collection = self.collection_path(&root);
        let mut paths = Vec::new();
        if self.can("list") {
            paths.push(watch("watchlist", format!("watch{prefix}{noun}List"), collection.clone(), self.scope(&[PRETTY])));
        }
        if self.can("get") {
            let scope = self.scope(&[path("name"), PRETTY]);
            paths.push(watch("watch", format!("watch{prefix}{noun}"), format!("{collection}/{{name}}"), scope));
        }
        if self.resource.namespaced {
            let id = format!("watch{prefix}{}ListForAllNamespaces", self.resource.kind);
            paths.push(watch("watchlist", id, format!("{root}/{}", self.resource.plural), vec![PRETTY]));
        }
        paths
    }

    fn subresource(&self, sub: &Subresource) -> Vec<Path> {
        let at = format!("{}/{{name}}/{}", self.collection_path(&self.root), sub.name);
        if sub.name == "log" {
            return vec![self.log(sub, at)];
        }
        if let Some(stream) = operations::stream(&sub.name) {
            let mut paths = vec![self.stream(sub, at.clone(), &stream, "", &[])];
            if stream.with_path {
                paths.push(self.stream(sub, format!("{at}/{{path}}"), &stream, "WithPath", &[path("path")]));
            }
            return paths;
        }
        let definition = definition(&sub.group, &sub.version, &sub.kind);
        let noun = format!("{}{}", self.noun, capitalised(&sub.name));
        let scope = self.scope(&[path("name"), PRETTY]);
        let build = |method, action, word: &str, parameters: &[Parameter]| {
            let id = format!("{word}{}{noun}", self.prefix);
            let mut operation = self.operation(method, action, id, joined(&scope, parameters));
            operation.target = Some((sub.group.clone(), sub.version.clone(), sub.kind.clone()));
            operation.answer = Answer::Object(definition.clone());
            operation
        };
        let can = |verb: &str| sub.verbs.iter().any(|v| v == verb);
        let mut operations = Vec::new();
        if can("get") {
            operations.push(build("get", "get", "read", &[]));
        }
        if can("update") {
            operations.push(replaced(build("put", "put", "replace", WRITE), &definition));
        }
        if can("create") {
            operations.push(created(build("post", "post", "create", WRITE), &definition));
        }
        if can("patch") {
            operations.push(self.patched(build("patch", "patch", "patch", operations::PATCH)));
        }
        vec![Path { path: at, operations }]
    }

    fn log(&self, sub: &Subresource, at: String) -> Path {
        let id = format!("read{}{}{}", self.prefix, self.noun, capitalised(&sub.name));
        let mut log = self.operation("get", "get", id, joined(&self.scope(&[path("name")]), LOG));
        log.answer = Answer::Text;
        Path { path: at, operations: vec![log] }
    }

    fn stream(&self, sub: &Subresource, at: String, stream: &operations::Stream, suffix: &str, extra: &[Parameter]) -> Path {
        let scope = joined(&self.scope(&[path("name")]), extra);
        let operations = stream.methods.iter().map(|method| {
            let name = capitalised(&sub.name);
            let id = format!("connect{}{}{}{name}{suffix}", self.prefix, capitalised(method), self.noun);
            let mut operation = self.operation(method, "connect", id, joined(&scope, stream.parameters));
            operation.target = Some((sub.group.clone(), sub.version.clone(), sub.kind.clone()));
            operation.answer = Answer::Stream;
            operation
        });
        Path { path: at, operations: operations.collect() }
    }
}

fn joined(first: &[Parameter], second: &[Parameter]) -> Vec<Parameter> {
    first.iter().chain(second).cloned().collect()
}

fn created(mut post: Operation, definition: &str) -> Operation {
    post.body = Some(Body::Object { definition: definition.to_owned(), required: true });
    post.codes = &[200, 201, 202, 401];
    post
}

fn replaced(mut put: Operation, definition: &str) -> Operation {
    put.body = Some(Body::Object { definition: definition.to_owned(), required: true });
    put.codes = &[200, 201, 401];
    put
}
