//! The schemas and levels in force, as the store holds them.

use std::collections::BTreeMap;

use serde_json::Value;
use wheelhouse_access::User;

use super::level::Level;
use super::schema::Schema;
use crate::request::path::RequestInfo;
use crate::security::Derived;

/// Kept current by the first reader after a change.
pub struct Rules {
    schemas: BTreeMap<String, Schema>,
    levels: BTreeMap<String, Level>,
    /// Names of the schemas in the order in which they are tried.
    order: Vec<String>,
    /// What masters and everybody else match when no object says so.
    exempt: Schema,
    catch_all: Schema,
    /// Rises with every change of a level.
    pub version: u64,
}

impl Default for Rules {
    fn default() -> Self {
        let mut rules = Self {
            schemas: BTreeMap::new(),
            levels: BTreeMap::new(),
            order: Vec::new(),
            exempt: Schema::exempt(),
            catch_all: Schema::catch_all(),
            version: 1,
        };
        rules.complete();
        rules
    }
}

impl Derived for Rules {
    const PREFIX: &'static str = "/registry/flowcontrol.apiserver.k8s.io/";

    fn put(&mut self, key: &str, object: Option<Value>) {
        let object = object.unwrap_or_default();
        match key.split_once('/') {
            Some(("flowschemas", name)) => {
                self.schemas.insert(name.to_owned(), Schema::read(name, &object));
            }
            Some(("prioritylevelconfigurations", name)) => {
                let level = Level::read(name, &object);
                if self.levels.insert(name.to_owned(), level.clone()).is_none_or(|old| old != level) {
                    self.version += 1;
                }
            }
            _ => {}
        }
        self.complete();
    }

    fn delete(&mut self, key: &str) {
        match key.split_once('/') {
            Some(("flowschemas", name)) => {
                self.schemas.remove(name);
            }
            Some(("prioritylevelconfigurations", name)) => {
                self.levels.remove(name);
                self.version += 1;
            }
            _ => {}
        }
        self.complete();
    }
}

impl Rules {
    /// What must be there is there, also without its object, and the order is right.
    fn complete(&mut self) {
        for level in [Level::exempt(), Level::catch_all()] {
            self.levels.entry(level.name.clone()).or_insert(level);
        }
        let mut schemas: Vec<&Schema> = self.schemas.values().filter(|schema| self.levels.contains_key(&schema.level)).collect();
        schemas.sort_by_key(|schema| schema.order());
        self.order = schemas.into_iter().map(|schema| schema.name.clone()).collect();
    }

    pub fn levels(&self) -> Vec<Level> {
        self.levels.values().cloned().collect()
    }

    /// The request's schema and level. Masters are exempt and everybody matches something, whatever the objects say.
    pub fn classify(&self, user: &User, info: &RequestInfo) -> (&Schema, &Level) {
        let masters = user.in_group(User::MASTERS);
        let mut tried = self.order.iter().filter_map(|name| self.schemas.get(name)).filter(|schema| !masters || schema.level == "exempt");
        let fallback = if masters { &self.exempt } else { &self.catch_all };
        let schema = tried.find(|schema| schema.matches(user, info)).unwrap_or(fallback);
        let level = self.levels.get(&schema.level).or_else(|| self.levels.get("catch-all"));
        (schema, level.expect("complete() keeps the catch-all level"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::query::Query;
    use http::Method;
    use serde_json::json;

    #[test]
    fn the_lowest_precedence_that_matches_and_has_a_level_wins() {
        let mut rules = Rules::default();
        let schema = |precedence: i64, level: &str, user: &str| {
            json!({"spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
            }]}})
        };
        rules.put("flowschemas/late", Some(schema(900, "l", "*")));
        rules.put("flowschemas/early", Some(schema(100, "missing", "*")));
        rules.put("flowschemas/jane", Some(schema(500, "l", "jane")));
        rules.put("prioritylevelconfigurations/l", Some(json!({"spec": {"type": "Limited"}})));
        let info = RequestInfo::parse(&Method::GET, "/api/v1/nodes", &Query::parse(""));
        let user =
            |name: &str, groups: &[&str]| User { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() };
        let chosen = |rules: &Rules, user: &User| {
            let (schema, level) = rules.classify(user, &info);
            (schema.name.clone(), level.name.clone())
        };
        assert_eq!(chosen(&rules, &user("jane", &[])), ("jane".to_owned(), "l".to_owned()));
        assert_eq!(chosen(&rules, &user("joe", &[])), ("late".to_owned(), "l".to_owned()));
        assert_eq!(chosen(&rules, &user("root", &[User::MASTERS])), ("exempt".to_owned(), "exempt".to_owned()));
        let version = rules.version;
        rules.delete("prioritylevelconfigurations/l");
        assert!(rules.version > version);
        assert_eq!(chosen(&rules, &user("jane", &[])), ("catch-all".to_owned(), "catch-all".to_owned()));
    }
}
