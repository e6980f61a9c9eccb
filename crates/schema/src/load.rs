//! Reads the generated table.
//!
//! `data/types.txt` has one line per struct, field and kind, columns parted by tabs:
//!
//! ```text
//! S <go name> <definition> <flags> [unions]      a struct; its fields follow
//! <json name> <type> <protobuf number> <flags> [keys=a,b] [merge=a] [go=v1.Protocol] [enum=A,B] [default=JSON]
//! + <type> <protobuf number>                     an embedded struct, flattened in JSON
//! K <group> <version> <kind> <struct>            a top-level kind
//! ```
//!
//! Types: `*` pointer, `[` list, `{` map with string keys, `w[` a named list, `#N` the N-th struct, else one letter or two
//! for a scalar. Flags: `o` omitempty, `z` omitzero, `r` required, `S` set list, `M` map list, `L` atomic list, `A` atomic and
//! `G` granular map or struct, and the patch strategies `m` merge, `p` replace, `k` retainKeys. The text is part of the binary and names are slices of it,
//! so that loading allocates little.

use std::borrow::Cow;
use std::sync::Arc;

use crate::catalog::Kind;
use crate::types::{Choice, Field, List, ListKind, Map, PatchStrategy, Presence, Scalar, Schema, Slot, Struct, StructRef};

pub(crate) const TYPES: &str = include_str!("../data/types.txt");

/// A struct as the table has it: embedded structs not yet flattened.
struct Raw {
    head: Struct,
    entries: Vec<Entry>,
}

enum Entry {
    Field { number: u32, field: Field },
    Embedded { number: u32, index: usize },
}

/// The table is checked by the tests of this crate, so a malformed line is a defect of the build and panics at first use.
pub(crate) fn load() -> (Vec<Struct>, Vec<Kind>) {
    let mut raw: Vec<Raw> = Vec::with_capacity(800);
    let mut kinds = Vec::with_capacity(200);
    // Fields that take an atomic struct apart: the struct they are in, their name, the struct they hold.
    let mut granular = Vec::new();
    for line in TYPES.lines() {
        let mut columns = line.split('\t');
        let first = columns.next().expect("split gives at least one column");
        match first {
            "S" => raw.push(Raw { head: struct_head(columns), entries: Vec::new() }),
            "K" => kinds.push(kind(columns)),
            "+" => {
                let index = columns.next().and_then(|t| t.strip_prefix('#')).and_then(|n| n.parse().ok());
                let index = index.expect("an embedded struct is given by its number");
                let number = number(columns.next());
                last(&mut raw).entries.push(Entry::Embedded { number, index });
            }
            comment if comment.starts_with('#') => {}
            name => {
                let split_up = columns.clone().nth(2).is_some_and(|flags| flags.contains('G'));
                let (number, field) = field(name, columns);
                if let (true, Schema::Struct(StructRef::Builtin(target))) = (split_up, &field.schema) {
                    granular.push((raw.len() - 1, name, *target));
                }
                last(&mut raw).entries.push(Entry::Field { number, field });
            }
        }
    }
    let mut structs: Vec<Struct> = (0..raw.len()).map(|at| flatten(&raw, at)).collect();
    for (of, field, target) in granular {
        let mut copy = structs[target as usize].clone();
        copy.atomic = false;
        let fields = &mut structs[of].fields;
        let field = fields.iter_mut().find(|f| f.name == field).expect("the field was read above");
        field.schema = Schema::Struct(StructRef::Owned(Arc::new(copy)));
    }
    (structs, kinds)
}

fn last(raw: &mut [Raw]) -> &mut Raw {
    raw.last_mut().expect("a field follows its struct")
}

type Columns<'a> = std::str::Split<'a, char>;

fn struct_head(mut columns: Columns<'static>) -> Struct {
    let go_name = columns.next().expect("a struct has a Go name");
    let definition = columns.next().expect("a struct has a definition");
    let flags = columns.next().unwrap_or_default();
    Struct {
        go_name: Cow::Borrowed(go_name),
        definition: Cow::Borrowed(definition),
        unions: columns.next(),
        atomic: flags.contains('A'),
        ..Struct::default()
    }
}

fn kind(mut columns: Columns<'static>) -> Kind {
    let mut next = || columns.next().expect("a kind has four columns");
    let (group, version, kind) = (next(), next(), next());
    let index = next().parse().expect("a kind's struct is a number");
    Kind { group, version, kind, schema: Schema::Struct(StructRef::Builtin(index)) }
}

fn number(column: Option<&str>) -> u32 {
    match column {
        None | Some("") => 0,
        Some(text) => text.parse().expect("a protobuf number is a number"),
    }
}

fn field(name: &'static str, mut columns: Columns<'static>) -> (u32, Field) {
    let code = columns.next().expect("a field has a type");
    let number = number(columns.next());
    let flags = columns.next().unwrap_or_default();
    let mut keys = Vec::new();
    let mut merge_key = None;
    let mut go_type = None;
    let mut default = None;
    let mut values = Vec::new();
    for extra in columns {
        let (key, value) = extra.split_once('=').expect("an extra is key=value");
        match key {
            "keys" => keys = value.split(',').map(Cow::Borrowed).collect(),
            "merge" => merge_key = Some(Cow::Borrowed(value)),
            "enum" => values = value.split(',').map(Cow::Borrowed).collect(),
            "go" => go_type = Some(Cow::Borrowed(value)),
            "default" => default = Some(Arc::new(serde_json::from_str(value).expect("a default is JSON"))),
            other => panic!("unknown extra {other}"),
        }
    }
    let presence = match (flags.contains('o'), flags.contains('z')) {
        (_, true) => Presence::OmitZero,
        (true, false) => Presence::OmitEmpty,
        (false, false) => Presence::Always,
    };
    let field = Field {
        name: Cow::Borrowed(name),
        schema: schema(code.trim_start_matches('*'), flags, keys),
        go_type,
        presence,
        pointer: code.starts_with('*'),
        declared_atomic: code.ends_with('y') && flags.contains('L'),
        required: flags.contains('r'),
        nullable: false,
        default,
        values,
        patch: PatchStrategy { merge: flags.contains('m'), replace: flags.contains('p'), retain_keys: flags.contains('k') },
        merge_key,
    };
    (number, field)
}

/// `flags` and `keys` describe the outermost list or map of a field's type.
fn schema(code: &'static str, flags: &str, keys: Vec<Cow<'static, str>>) -> Schema {
    let (code, wrapped) = match code.strip_prefix('w') {
        Some(rest) => (rest, true),
        None => (code, false),
    };
    if let Some(items) = code.strip_prefix('[') {
        let kind = match (flags.contains('S'), flags.contains('M')) {
            (true, _) => ListKind::Set,
            (_, true) => ListKind::Map,
            _ => ListKind::Atomic,
        };
        let nullable_items = items.starts_with('*');
        let items = schema(items.trim_start_matches('*'), "", Vec::new());
        let declared = kind != ListKind::Atomic || flags.contains('L');
        return Schema::List(Arc::new(List { items, kind, declared, keys, nullable_items, wrapped }));
    }
    if let Some(values) = code.strip_prefix('{') {
        let values = schema(values.trim_start_matches('*'), "", Vec::new());
        return Schema::Map(Arc::new(Map { values, atomic: flags.contains('A'), granular: flags.contains('G') }));
    }
    if let Some(index) = code.strip_prefix('#') {
        return Schema::Struct(StructRef::Builtin(index.parse().expect("a struct's number")));
    }
    match code {
        "s" => Schema::Scalar(Scalar::String),
        "b" => Schema::Scalar(Scalar::Bool),
        "i" => Schema::Scalar(Scalar::Int32),
        "l" => Schema::Scalar(Scalar::Int64),
        "f" => Schema::Scalar(Scalar::Float),
        "y" => Schema::Scalar(Scalar::Bytes),
        "q" => Schema::Scalar(Scalar::Quantity),
        "x" => Schema::Scalar(Scalar::IntOrString),
        "t" => Schema::Scalar(Scalar::Time),
        "u" => Schema::Scalar(Scalar::MicroTime),
        "r" => Schema::Scalar(Scalar::RawObject),
        "v" => Schema::Scalar(Scalar::FieldsV1),
        "j" => Schema::Any,
        "ca" => Schema::Choice(Choice::SchemaOrArray),
        "cb" => Schema::Choice(Choice::SchemaOrBool),
        "cs" => Schema::Choice(Choice::SchemaOrStringArray),
        other => panic!("unknown type {other}"),
    }
}

fn flatten(raw: &[Raw], at: usize) -> Struct {
    let mut built = raw[at].head.clone();
    built.layout = slots(raw, at, &mut built.fields);
    built.index();
    built
}

/// Appends the struct's fields, embedded ones in their place, and gives its message.
fn slots(raw: &[Raw], at: usize, fields: &mut Vec<Field>) -> Vec<Slot> {
    let mut layout = Vec::new();
    for entry in &raw[at].entries {
        match entry {
            Entry::Field { number, field } => {
                if *number > 0 {
                    layout.push(Slot::Field { number: *number, field: fields.len() as u16 });
                }
                fields.push(field.clone());
            }
            Entry::Embedded { number, index } => {
                let slots = slots(raw, *index, fields);
                if *number > 0 {
                    layout.push(Slot::Embedded { number: *number, slots });
                }
            }
        }
    }
    layout.sort_by_key(Slot::number);
    layout
}
