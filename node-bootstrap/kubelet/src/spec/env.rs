//! A container's environment: services, `envFrom`, `env`, and `$(NAME)` in values, commands and arguments.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use super::{ConfigError, NodeFacts, References, fields, meta};

/// Variables in the order in which the container gets them; a later one of a name replaces the earlier in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Replaces `$(NAME)` by the variable and `$$` by `$`; what names nothing stays as it is.
    pub fn expand(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(tail) = after.strip_prefix('$') {
                out.push('$');
                rest = tail;
            } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
                match self.get(name) {
                    Some(value) => out.push_str(value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = tail;
            } else {
                out.push('$');
                rest = after;
            }
        }
        out + rest
    }
}

/// What the variables of one container are made of.
pub struct Inputs<'a> {
    pub pod: &'a Pod,
    pub node: &'a NodeFacts,
    /// The pod's addresses.
    pub ips: &'a [String],
    pub references: &'a References,
    /// `<SERVICE>_SERVICE_HOST` and its like.
    pub services: &'a BTreeMap<String, String>,
}

pub fn of(container: &Container, inputs: &Inputs<'_>) -> Result<Environment, ConfigError> {
    let mut env = Environment::default();
    let namespace = meta(&inputs.pod.metadata.namespace);
    for source in container.env_from.iter().flatten() {
        let prefix = meta(&source.prefix);
        if let Some(reference) = &source.config_map_ref {
            match inputs.references.config_maps.get(&reference.name) {
                Some(map) => map.data.iter().flatten().for_each(|(key, value)| env.set(&format!("{prefix}{key}"), value.clone())),
                None if reference.optional == Some(true) => {}
                None => return Err(missing("configmap", &reference.name)),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match inputs.references.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        env.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(missing("secret", &reference.name)),
            }
        }
    }
    // References see what came before them, and the services.
    let mut seen = env.clone();
    inputs.services.iter().filter(|(name, _)| env.get(name).is_none()).for_each(|(name, value)| seen.set(name, value.clone()));
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => Some(seen.expand(value)),
            (_, Some(source)) => from(source, container, namespace, inputs)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            seen.set(&variable.name, value.clone());
            env.set(&variable.name, value);
        }
    }
    for (name, value) in inputs.services {
        if env.get(name).is_none() {
            env.set(name, value.clone());
        }
    }
    Ok(env)
}

/// `None` for an optional reference that leads nowhere.
fn from(source: &EnvVarSource, container: &Container, namespace: &str, inputs: &Inputs<'_>) -> Result<Option<String>, ConfigError> {
    if let Some(selector) = &source.field_ref {
        return fields::field(inputs.pod, inputs.node, inputs.ips, selector).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return fields::resource(inputs.pod, inputs.node, Some(container), selector).map(Some);
    }
    if let Some(selector) = &source.config_map_key_ref {
        let optional = selector.optional == Some(true);
        let Some(map) = inputs.references.config_maps.get(&selector.name) else {
            return if optional { Ok(None) } else { Err(missing("configmap", &selector.name)) };
        };
        return match map.data.as_ref().and_then(|data| data.get(&selector.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(ConfigError(format!("couldn't find key {} in ConfigMap {namespace}/{}", selector.key, selector.name))),
        };
    }
    if let Some(selector) = &source.secret_key_ref {
        let optional = selector.optional == Some(true);
        let Some(secret) = inputs.references.secrets.get(&selector.name) else {
            return if optional { Ok(None) } else { Err(missing("secret", &selector.name)) };
        };
        return match secret.data.as_ref().and_then(|data| data.get(&selector.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None if optional => Ok(None),
            None => Err(ConfigError(format!("couldn't find key {} in Secret {namespace}/{}", selector.key, selector.name))),
        };
    }
    Ok(Some(String::new()))
}

fn missing(kind: &str, name: &str) -> ConfigError {
    ConfigError(format!("{kind} \"{name}\" not found"))
}

/// The variables of a namespace's services, as Docker links had them. `services` are those of the namespace and, first of all,
/// `default/kubernetes`; a headless one has no address to give.
pub fn of_services<'a>(services: impl Iterator<Item = &'a k8s_openapi::api::core::v1::Service>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { continue };
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        let prefix = meta(&service.metadata.name).to_uppercase().replace('-', "_");
        env.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
        env.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
        for port in ports.iter().filter(|port| port.name.as_ref().is_some_and(|name| !name.is_empty())) {
            let name = meta(&port.name).to_uppercase().replace('-', "_");
            env.insert(format!("{prefix}_SERVICE_PORT_{name}"), port.port.to_string());
        }
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        for (index, port) in ports.iter().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
            if index == 0 {
                env.insert(format!("{prefix}_PORT"), url.clone());
            }
            let base = format!("{prefix}_PORT_{}_{protocol}", port.port);
            env.insert(base.clone(), url);
            env.insert(format!("{base}_PROTO"), protocol.to_lowercase());
            env.insert(format!("{base}_PORT"), port.port.to_string());
            env.insert(format!("{base}_ADDR"), ip.to_owned());
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_expand_and_unknown_ones_stay() {
        let mut env = Environment::default();
        env.set("A", "1".into());
        for (text, expanded) in [("$(A)b", "1b"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$A $", "$A $"), ("$(A", "$(A")] {
            assert_eq!(env.expand(text), expanded, "{text}");
        }
    }

    #[test]
    fn later_sources_win_and_missing_ones_are_named() {
        let container: Container = serde_json::from_value(json!({"name": "c", "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}], "env": [
            {"name": "P_x", "value": "own"}, {"name": "Y", "value": "$(P_x)-$(S)"},
            {"name": "Z", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": true}}}]}))
        .unwrap();
        let map = serde_json::from_value(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"x": "map", "w": "w"}})).unwrap();
        let secret = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"k": "c2VjcmV0"}})).unwrap();
        let mut references = References::default();
        references.config_maps.insert("m".into(), map);
        let services = BTreeMap::from([("S".to_owned(), "svc".to_owned())]);
        let pod: Pod = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns"}})).unwrap();
        let node = NodeFacts::default();
        let of = |references: &References| of(&container, &Inputs { pod: &pod, node: &node, ips: &[], references, services: &services });
        assert_eq!(of(&references).unwrap_err().0, "secret \"s\" not found");
        references.secrets.insert("s".into(), secret);
        let env = of(&references).unwrap();
        let all: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(all, ["P_w=w", "P_x=own", "Y=own-svc", "Z=secret", "S=svc"]);
    }

    #[test]
    fn services_give_the_variables_of_old() {
        let service = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "my-db"},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}}))
        .unwrap();
        let env = of_services([&service].into_iter());
        assert_eq!(env["MY_DB_SERVICE_HOST"], "10.96.0.7");
        assert_eq!(env["MY_DB_SERVICE_PORT_SQL"], "5432");
        assert_eq!(env["MY_DB_PORT_5432_TCP"], "tcp://10.96.0.7:5432");
    }
}
