use serde_json::{Value as Json, json};

use super::*;

fn object() -> Json {
    json!({"metadata": {"name": "x", "labels": {"app": "web"}}, "spec": {"replicas": 3, "containers": [
        {"name": "a", "image": "reg.io/a:1", "ports": [80, 443]}, {"name": "b", "image": "b"},
    ]}, "data": {"k": "v"}})
}

fn eval(text: &str) -> Result<Json, String> {
    let object = object();
    let program = Program::compile(text).map_err(|error| format!("compile: {error}"))?;
    let helper = Program::compile("object.spec.replicas * 2").unwrap();
    let bindings = Bindings::default().with("object", Value::json(&object)).with("oldObject", Value::Null).with_variable("double", &helper);
    let value = program.run(&bindings, &mut Budget::new(Budget::EXPRESSION)).map_err(|error| error.to_string())?;
    Ok(value.to_json().unwrap_or_default())
}

#[test]
fn expressions_of_policies_mean_what_they_should() {
    let cases = [
        ("object.metadata.name == 'x' && object.spec.replicas <= 3", json!(true)),
        ("!has(object.data) || !('bad' in object.data)", json!(true)),
        ("has(object.spec.absent)", json!(false)),
        ("object.data.all(k, size(object.data[k]) < 5)", json!(true)),
        ("object.spec.containers.all(c, c.image.startsWith('reg.io/'))", json!(false)),
        ("object.spec.containers.exists(c, has(c.ports) && 443 in c.ports)", json!(true)),
        ("object.spec.containers.exists_one(c, c.name == 'a')", json!(true)),
        ("object.spec.containers.filter(c, !has(c.ports)).map(c, c.name)", json!(["b"])),
        ("object.spec.containers.map(c, c.name == 'a', c.image)", json!(["reg.io/a:1"])),
        ("variables.double + 1", json!(7)),
        ("oldObject == null", json!(true)),
        ("int('42') > 3 ? 'big' : 'small'", json!("big")),
        ("'a-b-c'.split('-').join('+')", json!("a+b+c")),
        ("'Hello'.lowerAscii().substring(1, 3) + string(1)", json!("el1")),
        ("'abc'.matches('^a.c$')", json!(true)),
        ("[3, 1, 2].max() + [1, 2].sum()", json!(6)),
        ("quantity('1Gi').isGreaterThan(quantity('900Mi'))", json!(true)),
        ("timestamp('2026-01-02T03:04:05Z') - timestamp('2026-01-01T03:04:05Z') == duration('24h')", json!(true)),
        ("timestamp('2026-01-02T03:04:05Z').getFullYear()", json!(2026)),
        ("{'a': 1}.a == 1 && {'a': {'b': [1]}} == {'a': {'b': [1]}}", json!(true)),
        ("1 == 1.0 && 1u == 1 && type(1) == int", json!(true)),
        ("object.?spec.?absent.orValue('none')", json!("none")),
        ("object.?metadata.?name.hasValue()", json!(true)),
        ("Object{metadata: Object.metadata{labels: {'a': 'b'}}}", json!({"metadata": {"labels": {"a": "b"}}})),
        ("true || object.absent.deep", json!(true)),
        ("object.absent.deep || true", json!(true)),
        ("sets.contains([1, 2], [2])", json!(true)),
        ("-7 / 2 == -3 && -7 % 2 == -1", json!(true)),
    ];
    for (text, expected) in cases {
        assert_eq!(eval(text), Ok(expected), "{text}");
    }
}

#[test]
fn errors_are_worded_as_upstreams() {
    let cases = [
        ("object.data['absent'] == 'x'", "no such key: absent"),
        ("object.spec.absent", "no such key: absent"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("[1][5]", "index out of bounds: 5"),
        ("'a' + 1", "no such overload"),
        ("nothing", "no such attribute(s): nothing"),
        ("false || object.absent", "no such key: absent"),
    ];
    for (text, expected) in cases {
        assert_eq!(eval(text), Err(expected.to_owned()), "{text}");
    }
    assert!(eval("device.nope ==").unwrap_err().starts_with("compile: "));
}

#[test]
fn hostile_expressions_end() {
    let nested = (0..6).fold("1".to_owned(), |inner, n| format!("[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20].map(x{n}, {inner})"));
    assert_eq!(eval(&nested).unwrap_err(), EvalError::Budget.to_string());
    for deep in [
        format!("{}1{}", "(".repeat(4000), ")".repeat(4000)),
        format!("{}true", "!".repeat(8000)),
        format!("{}1{}", "[".repeat(4000), "]".repeat(4000)),
    ] {
        // Refused or not, it must not take the process down.
        let _ = eval(&deep);
    }
    assert_eq!(eval(&format!("1{}", "+1".repeat(1000))).unwrap_err(), EvalError::TooDeep.to_string());
    assert!(eval(&"a+".repeat(20_000)).is_err());
    assert!(eval(&format!("'{}'.matches('(a{{1000}}){{1000}}')", "a".repeat(100))).is_err());
}
