//! What a second tenant gets of a first one's things: nothing, on every route of both APIs.
//!
//! The routes come from the running service, the tenant API's from its OpenAPI document and a cluster's from its discovery. A route without a row
//! here fails, so whoever adds one says what a stranger gets on it. Every table is also asked with the rightful credential: a row that answers
//! 404 or 401 to everybody would prove nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wheelhouse_tests::{Answer, Https, Request, Service, Tenant};

/// What a stranger gets on a route of the tenant API.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stranger {
    /// What is another's does not exist.
    NotFound,
    /// The route has no name in it: it answers with this status, about the caller's own things alone.
    OwnOnly(u16),
    /// It needs no key, and shows nothing that was there before.
    Open(u16),
}

use Stranger::{NotFound, Open, OwnOnly};

/// The tenant API: method, path, body. `{name}` is the first tenant's cluster and `{id}` its own key, kubeconfig or node token.
const ROUTES: &[(&str, &str, &str, Stranger)] = &[
    ("post", "/v1/tenants", r#"{"name":"third","email":"third@example.com"}"#, Open(201)),
    ("get", "/v1/tenants/me", "", OwnOnly(200)),
    ("delete", "/v1/tenants/me", "", OwnOnly(202)),
    ("post", "/v1/api-keys", r#"{"description":"made by a stranger"}"#, OwnOnly(201)),
    ("get", "/v1/api-keys", "", OwnOnly(200)),
    ("delete", "/v1/api-keys/{id}", "", NotFound),
    ("post", "/v1/clusters", r#"{"name":"alpha","replicas":3}"#, OwnOnly(202)),
    ("get", "/v1/clusters", "", OwnOnly(200)),
    ("get", "/v1/clusters/{name}", "", NotFound),
    ("patch", "/v1/clusters/{name}", r#"{"suspended":true}"#, NotFound),
    ("delete", "/v1/clusters/{name}", "", NotFound),
    ("post", "/v1/clusters/{name}/kubeconfigs", r#"{"description":"made by a stranger"}"#, NotFound),
    ("get", "/v1/clusters/{name}/kubeconfigs", "", NotFound),
    ("delete", "/v1/clusters/{name}/kubeconfigs/{id}", "", NotFound),
    ("post", "/v1/clusters/{name}/node-tokens", r#"{"description":"made by a stranger"}"#, NotFound),
    ("get", "/v1/clusters/{name}/node-tokens", "", NotFound),
    ("delete", "/v1/clusters/{name}/node-tokens/{id}", "", NotFound),
];

/// A cluster's resources by group and version. Whatever discovery lists is refused to strangers (401) and to nobody in particular (403).
const RESOURCES: &[(&str, &str)] = &[
    (
        "v1",
        "bindings componentstatuses configmaps endpoints events limitranges namespaces namespaces/finalize namespaces/status nodes nodes/proxy \
         nodes/status persistentvolumeclaims persistentvolumeclaims/status persistentvolumes persistentvolumes/status pods pods/attach \
         pods/binding pods/ephemeralcontainers pods/eviction pods/exec pods/log pods/portforward pods/proxy pods/resize pods/status podtemplates \
         replicationcontrollers replicationcontrollers/scale replicationcontrollers/status resourcequotas resourcequotas/status secrets \
         serviceaccounts serviceaccounts/token services services/proxy services/status",
    ),
    (
        "admissionregistration.k8s.io/v1",
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations validatingadmissionpolicies \
         validatingadmissionpolicies/status validatingadmissionpolicybindings validatingwebhookconfigurations",
    ),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions customresourcedefinitions/status"),
    ("apiregistration.k8s.io/v1", "apiservices apiservices/status"),
    (
        "apps/v1",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets replicasets/scale \
         replicasets/status statefulsets statefulsets/scale statefulsets/status",
    ),
    ("authentication.k8s.io/v1", "selfsubjectreviews tokenreviews"),
    ("authorization.k8s.io/v1", "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews"),
    ("autoscaling/v1", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    ("autoscaling/v2", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    ("batch/v1", "cronjobs cronjobs/status jobs jobs/status"),
    ("certificates.k8s.io/v1", "certificatesigningrequests certificatesigningrequests/approval certificatesigningrequests/status"),
    ("coordination.k8s.io/v1", "leases"),
    ("discovery.k8s.io/v1", "endpointslices"),
    ("events.k8s.io/v1", "events"),
    ("flowcontrol.apiserver.k8s.io/v1", "flowschemas flowschemas/status prioritylevelconfigurations prioritylevelconfigurations/status"),
    ("networking.k8s.io/v1", "ingressclasses ingresses ingresses/status ipaddresses networkpolicies servicecidrs servicecidrs/status"),
    ("node.k8s.io/v1", "runtimeclasses"),
    ("policy/v1", "poddisruptionbudgets poddisruptionbudgets/status"),
    ("rbac.authorization.k8s.io/v1", "clusterrolebindings clusterroles rolebindings roles"),
    ("resource.k8s.io/v1", "deviceclasses resourceclaims resourceclaims/status resourceclaimtemplates resourceslices"),
    ("scheduling.k8s.io/v1", "priorityclasses"),
    (
        "storage.k8s.io/v1",
        "csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattachments/status volumeattributesclasses",
    ),
];

/// The system control plane has these besides.
const FLEET: &[(&str, &str)] = &[(
    "fleet.wheelhouse.dev/v1",
    "apikeys clusters clusters/status controlplanereplicas controlplanereplicas/status hosts hosts/status tenants tenants/status",
)];

/// Paths outside the groups, and what nobody in particular gets there: upstream's `system:public-info-viewer` alone is bound to the unauthenticated.
const PATHS: &[(&str, u16)] = &[
    ("/.well-known/openid-configuration", 403),
    ("/api", 403),
    ("/apis", 403),
    ("/healthz", 200),
    ("/livez", 200),
    ("/metrics", 403),
    ("/openapi/v2", 403),
    ("/openapi/v3", 403),
    ("/openid/v1/jwks", 403),
    ("/readyz", 200),
    ("/version", 200),
];

/// The first tenant's things, and who wants them.
struct World {
    first: Https,
    second: Https,
    /// Names that belong to the first and are given by the service, so nobody else's answer may contain them.
    marks: Vec<String>,
    api_key: String,
    kubeconfig: String,
    node_token: String,
}

#[test]
fn a_second_tenant_reaches_nothing_of_the_first() {
    let service = Service::start();
    let (first, second) = (service.tenant("first"), service.tenant("second"));
    let creation = Https { headers: [first.api().headers, vec!["Idempotency-Key: once".into()]].concat(), ..first.api() };
    let made = creation.send(&Request::new("POST", "/v1/clusters", r#"{"name":"alpha","replicas":3}"#));
    assert_eq!(made.status, 202, "{made:?}");
    second.run(&["cluster", "create", "beta"]).ok();
    for (tenant, name) in [(&first, "alpha"), (&second, "beta")] {
        tenant.run(&["cluster", "get", name, "--wait=3m"]).ok();
    }
    let (alpha, beta) = (first.kubectl("alpha"), second.kubectl("beta"));
    let world = World::of(&first, &second);

    let before = world.belongings();
    strangers_of_the_tenant_api(&world);
    without_a_valid_key(&world);
    tricks_on_the_tenant_api(&world);
    assert_eq!(world.belongings(), before, "a stranger changed the first tenant's things");

    let token = beta.run(&["create", "token", "default"]).ok().trim().to_owned();
    let node_token = second.run(&["node-token", "create", "beta", "-o", "json"]).json()["token"].as_str().expect("a token").to_owned();
    let (alpha, beta, system) = (alpha.https(), beta.https(), service.operator().https());
    strangers_of_a_cluster(&alpha, &beta, &system, [&token, &node_token]);
    strangers_of_the_system(&system, &alpha, &token);
    names_that_nobody_serves(&alpha, &beta);
    assert_eq!(world.belongings(), before, "a stranger changed the first tenant's things");
}

impl World {
    fn of(first: &Tenant, second: &Tenant) -> Self {
        first.run(&["node-token", "create", "alpha"]).ok();
        let (first, second) = (first.api(), second.api());
        let text = |path: &str, pointer: &str| {
            let answer = first.get(path).json();
            answer.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{path} has no {pointer}: {answer}")).to_owned()
        };
        let api_key = text("/v1/api-keys", "/items/0/id");
        let kubeconfig = text("/v1/clusters/alpha/kubeconfigs", "/items/0/id");
        let node_token = text("/v1/clusters/alpha/node-tokens", "/items/0/id");
        let mut marks = vec![api_key.clone(), kubeconfig.clone(), node_token.clone()];
        marks.extend([text("/v1/tenants/me", "/id"), text("/v1/tenants/me", "/email"), text("/v1/clusters/alpha", "/id")]);
        Self { first, second, marks, api_key, kubeconfig, node_token }
    }

    /// A row's path with the first tenant's names and ids.
    fn path(&self, path: &str) -> String {
        let id = [("/api-keys/", &self.api_key), ("/kubeconfigs/", &self.kubeconfig), ("/node-tokens/", &self.node_token)];
        let id = id.into_iter().find(|(part, _)| path.contains(part)).map_or("", |(_, id)| id.as_str());
        path.replace("{name}", "alpha").replace("{id}", id)
    }

    /// What the first tenant has, without what changes by itself.
    fn belongings(&self) -> Value {
        let read = |path: &str| self.first.get(path).json();
        let mut cluster = read("/v1/clusters/alpha");
        for field in ["resourceVersion", "conditions", "readyReplicas", "state"] {
            cluster.as_object_mut().expect("a cluster is an object").remove(field);
        }
        let names: Vec<Value> = read("/v1/clusters")["items"].as_array().into_iter().flatten().map(|c| c["name"].clone()).collect();
        json!([
            read("/v1/tenants/me"),
            read("/v1/api-keys"),
            names,
            cluster,
            read("/v1/clusters/alpha/kubeconfigs"),
            read("/v1/clusters/alpha/node-tokens"),
        ])
    }

    fn shows_nothing(&self, what: &str, answer: &Answer) {
        for mark in &self.marks {
            assert!(!answer.body.contains(mark.as_str()), "{what} shows {mark}: {answer:?}");
        }
    }
}

fn problem(what: &str, answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    assert_eq!(answer.content_type, "application/problem+json", "{what}");
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(body["status"], status, "{what}: {body}");
}

fn strangers_of_the_tenant_api(world: &World) {
    let document = world.first.anonymous().get("/openapi.json").json();
    let mut served = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            served.insert((method.as_str(), path.as_str()), operation.get("security").is_none());
        }
    }
    let rows: BTreeMap<_, _> = ROUTES.iter().map(|(method, path, _, row)| ((*method, *path), matches!(row, Open(_)))).collect();
    assert_eq!(served, rows, "each route has a row, and those without a key are marked so");

    // Those that name a cluster first: a later row makes one of the same name for the stranger.
    for (method, path, body, row) in ROUTES.iter().filter(|row| row.3 == NotFound) {
        let (what, path) = (format!("{method} {path}: {row:?}"), world.path(path));
        let answer = world.second.send(&Request::new(method, path.clone(), *body));
        problem(&what, &answer, 404);
        if path.contains("kubeconfigs/") || path.contains("node-tokens/") {
            let below_own = path.replace("/alpha/", "/beta/");
            problem(&what, &world.second.send(&Request::new(method, below_own, *body)), 404);
        }
    }
    let mut leaver = None;
    for (method, path, body, row) in ROUTES {
        let (OwnOnly(status) | Open(status)) = row else { continue };
        if (*method, *path) == ("delete", "/v1/tenants/me") {
            continue;
        }
        let what = format!("{method} {path}: {row:?}");
        let caller = if matches!(row, Open(_)) { world.second.anonymous() } else { world.second.clone() };
        // The first tenant made its cluster under the same key: that must not matter to another.
        let caller = Https { headers: [caller.headers, vec!["Idempotency-Key: once".into()]].concat(), ..caller };
        let answer = caller.send(&Request::new(method, *path, *body));
        assert_eq!(answer.status, *status, "{what}: {answer:?}");
        world.shows_nothing(&what, &answer);
        if matches!(row, Open(_)) {
            let key = answer.json()["apiKey"]["key"].as_str().expect("a key").to_owned();
            leaver = Some(world.second.with_bearer(&key));
        }
    }
    let clusters = world.second.get("/v1/clusters").json();
    let names: BTreeSet<_> = clusters["items"].as_array().into_iter().flatten().map(|cluster| cluster["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from([Some("alpha"), Some("beta")]), "the stranger's own, one of them of the same name");
    assert_eq!(world.second.send(&Request::new("DELETE", "/v1/clusters/alpha", "")).status, 202, "it may delete its own");

    let leaver = leaver.expect("a row signs up");
    assert_eq!(leaver.send(&Request::new("DELETE", "/v1/tenants/me", "")).status, 202);
    problem("the key of a tenant that left", &leaver.get("/v1/tenants/me"), 401);
    assert_eq!(world.second.get("/v1/tenants/me").status, 200, "only the caller left");
}

fn without_a_valid_key(world: &World) {
    let made = world.second.send(&Request::new("POST", "/v1/api-keys", "")).json();
    let (id, revoked) = (made["id"].as_str().expect("an id"), made["key"].as_str().expect("a key"));
    assert_eq!(world.second.with_bearer(revoked).get("/v1/tenants/me").status, 200, "it works before it is revoked");
    assert_eq!(world.second.send(&Request::new("DELETE", format!("/v1/api-keys/{id}"), "")).status, 204);
    let secret = revoked.rsplit_once(&format!("{id}_")).expect("whk_<id>_<secret>").1;
    let credentials = [
        ("no key", world.first.anonymous()),
        ("a malformed key", world.first.with_bearer("whk_nonsense")),
        ("another scheme", world.first.with_header("Authorization: Basic Zmlyc3Q6Zmlyc3Q=")),
        ("a revoked key", world.first.with_bearer(revoked)),
        ("the first tenant's key id with another secret", world.first.with_bearer(&format!("whk_{}_{secret}", world.api_key))),
    ];
    let rows: Vec<_> = ROUTES.iter().filter(|row| !matches!(row.3, Open(_))).collect();
    let requests: Vec<_> = rows.iter().map(|(method, path, body, _)| Request::new(method, world.path(path), *body)).collect();
    for (credential, stranger) in &credentials {
        for (request, answer) in requests.iter().zip(stranger.send_all(&requests)) {
            problem(&format!("{credential}: {} {}", request.method, request.path), &answer, 401);
        }
    }
}

/// Names that would leave the stranger's namespace if they were put into a path as they are, and a page token of another list.
fn tricks_on_the_tenant_api(world: &World) {
    let tenant = world.first.get("/v1/tenants/me").json()["id"].as_str().expect("an id").to_owned();
    world.first.send(&Request::new("POST", "/v1/api-keys", "")).json();
    let page = world.first.get("/v1/api-keys?limit=1").json();
    let next = page["continue"].as_str().expect("a second page");
    let second_page = world.first.get(format!("/v1/api-keys?limit=1&continue={next}")).json();
    let last = second_page["items"][0]["id"].as_str().expect("a second key");
    let answer = world.second.get(format!("/v1/api-keys?continue={next}"));
    world.shows_nothing("the first tenant's page token", &answer);
    assert!(!answer.body.contains(last), "{answer:?}");
    let made = if last == world.api_key { page["items"][0]["id"].as_str().expect("an id") } else { last };
    assert_eq!(world.first.send(&Request::new("DELETE", format!("/v1/api-keys/{made}"), "")).status, 204);

    let up = format!("..%2F..%2Ftenant-{tenant}%2Fclusters%2Falpha");
    for method in ["GET", "PATCH", "DELETE"] {
        for path in
            [format!("/v1/clusters/{up}"), "/v1/clusters/..".into(), format!("/v1/clusters/beta%2F{up}"), "/v1/clusters/alpha%3Flimit=1".into()]
        {
            let body = if method == "PATCH" { r#"{"suspended":true}"# } else { "" };
            let answer = world.second.send(&Request::new(method, path.clone(), body));
            assert!((400..500).contains(&answer.status), "{method} {path}: {answer:?}");
            assert_eq!(answer.content_type, "application/problem+json", "{method} {path}");
        }
    }
    problem("an unknown route", &world.second.get("/v1/hosts"), 404);
    problem("a method that the route does not take", &world.second.send(&Request::new("PUT", "/v1/clusters/alpha", "{}")), 405);
}

/// Every request that discovery offers, and the lists among them. Fails on what has no row.
fn offered(admin: &Https, rows: &[(&str, &str)]) -> (Vec<Request>, Vec<Request>) {
    let root = admin.get("/").json();
    let groups: BTreeSet<&str> = root["paths"].as_array().expect("paths").iter().filter_map(Value::as_str).collect();
    let row_of = |path: &str| rows.iter().any(|(version, _)| base_path(version) == path || base_path(version).starts_with(&format!("{path}/")));
    for path in groups.into_iter().filter(|path| !PATHS.iter().any(|(known, _)| known == path)) {
        assert!(path.starts_with("/api") && row_of(path), "{path} has no row");
    }
    let bases: Vec<_> = rows.iter().map(|(version, _)| Request::get(base_path(version))).collect();
    let (mut all, mut lists) = (Vec::new(), Vec::new());
    for ((version, names), answer) in rows.iter().zip(admin.send_all(&bases)) {
        let resources = answer.json()["resources"].as_array().expect("resources").clone();
        let listed: BTreeSet<_> = resources.iter().filter_map(|resource| resource["name"].as_str()).collect();
        assert_eq!(listed, names.split_whitespace().collect(), "{version}: each resource has its place in the row");
        for resource in &resources {
            let name = resource["name"].as_str().expect("a name");
            let namespace = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            for verb in resource["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str) {
                let request = request(&format!("{}{namespace}", base_path(version)), name, verb);
                if verb == "list" {
                    lists.push(request.clone());
                }
                all.push(request);
            }
        }
    }
    assert!(lists.len() > rows.len() && all.len() > 4 * lists.len(), "{} requests, {} lists", all.len(), lists.len());
    (all, lists)
}

fn base_path(version: &str) -> String {
    if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") }
}

fn request(base: &str, resource: &str, verb: &str) -> Request {
    let (plural, below) = resource.split_once('/').unwrap_or((resource, ""));
    let collection = format!("{base}/{plural}");
    let object = format!("{collection}/default{}{below}", if below.is_empty() { "" } else { "/" });
    match verb {
        "list" => Request::get(collection),
        "watch" => Request::get(format!("{collection}?watch=true")),
        "deletecollection" => Request::new("DELETE", collection, ""),
        "create" if below.is_empty() => Request::new("POST", collection, "{}"),
        "create" => Request::new("POST", object, "{}"),
        "get" => Request::get(object),
        "update" => Request::new("PUT", object, "{}"),
        "patch" => Request::new("PATCH", object, "{}"),
        "delete" => Request::new("DELETE", object, ""),
        other => panic!("{resource}: what does a stranger get with the verb {other:?}?"),
    }
}

/// All paths outside the groups, with some below them that `/` does not list.
fn plain_paths() -> Vec<Request> {
    let below = ["/", "/livez/ping", "/openapi/v3/api/v1", "/apis/apps", "/api/v1", "/no/such/path"];
    PATHS.iter().map(|(path, _)| *path).chain(below).map(Request::get).collect()
}

fn all_answer(who: &str, client: &Https, requests: &[Request], status: u16) {
    for (request, answer) in requests.iter().zip(client.send_all(requests)) {
        let what = format!("{who} at {}: {} {}", client.server_name, request.method, request.path);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{what}: {error}: {answer:?}"));
        assert_eq!((&body["kind"], &body["code"]), (&json!("Status"), &json!(status)), "{what}");
    }
}

fn nobody_in_particular(server: &Https, requests: &[Request]) {
    let nobody = server.anonymous();
    all_answer("nobody", &nobody, requests, 403);
    for (path, status) in PATHS {
        assert_eq!(nobody.get(*path).status, *status, "nobody: {path}");
    }
}

fn strangers_of_a_cluster(alpha: &Https, beta: &Https, system: &Https, tokens: [&str; 2]) {
    let (requests, lists) = offered(alpha, RESOURCES);
    for (list, answer) in lists.iter().zip(alpha.send_all(&lists)) {
        assert_eq!(answer.status, 200, "its administrator lists {}: {answer:?}", list.path);
    }
    let review = Request::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}");
    let requests = [requests, plain_paths()].concat();
    let mut strangers = vec![("the other tenant's certificate", beta.clone()), ("the operator's certificate", system.clone())];
    strangers.extend([
        ("a service account of the other cluster", beta.with_bearer(tokens[0])),
        ("a node token of the other cluster", beta.with_bearer(tokens[1])),
    ]);
    for (who, at_home) in &strangers {
        assert_eq!(at_home.send(&review).status, 201, "{who} is good at home");
        let abroad = Https { headers: at_home.headers.clone(), ..alpha.with_certificate_of(at_home) };
        all_answer(who, &abroad, &requests, 401);
    }
    let named = Https {
        headers: vec!["Impersonate-User: kubernetes-admin".into(), "Impersonate-Group: system:masters".into()],
        ..alpha.with_certificate_of(beta)
    };
    all_answer("a stranger that impersonates", &named, &lists, 401);
    nobody_in_particular(alpha, &offered(alpha, RESOURCES).0);
}

fn strangers_of_the_system(system: &Https, alpha: &Https, token: &str) {
    let (requests, lists) = offered(system, &[RESOURCES, FLEET].concat());
    for (list, answer) in lists.iter().zip(system.send_all(&lists)) {
        assert_eq!(answer.status, 200, "the operator lists {}: {answer:?}", list.path);
    }
    nobody_in_particular(system, &requests);
    let requests = [requests, plain_paths()].concat();
    all_answer("a tenant's certificate", &system.with_certificate_of(alpha), &requests, 401);
    all_answer("a tenant's service account", &system.with_bearer(token), &requests, 401);
    assert_eq!(alpha.get("/apis/fleet.wheelhouse.dev/v1/clusters").status, 404, "the fleet's kinds are not for tenants");
}

/// The endpoint and the hosts refuse these in the TLS handshake or right after it: no request is answered.
fn names_that_nobody_serves(alpha: &Https, beta: &Https) {
    let (_, base) = alpha.server_name.split_once('.').expect("<cluster>.<base domain>");
    let names = [
        format!("c-zzzzzzzzzz.{base}"),
        format!("x.{}", alpha.server_name),
        format!("demo.{base}"),
        "kubernetes.default.svc".into(),
        "127.0.0.1".into(),
    ];
    for name in names {
        let answer = alpha.named(&name).get("/version");
        assert_eq!((answer.status, answer.exit), (0, 35), "{name}: {answer:?}");
    }
    let etcd = Https { http2: true, ..alpha.named(&format!("etcd.{}", alpha.server_name)) };
    assert_ne!(etcd.get("/").status, 0, "its administrator reads the store");
    for (who, stranger) in [("the other tenant", etcd.with_certificate_of(beta)), ("nobody", etcd.anonymous())] {
        let answer = stranger.get("/");
        assert!(answer.status == 0 && answer.exit != 0, "{who} reads the store: {answer:?}");
    }
}
