//! What a JSON value may look like: the one schema type behind pruning, strict decoding, merging, apply, OpenAPI and
//! protobuf.
//!
//! A [`Schema`] is cheap to clone. The built-in types live in one process-wide table ([`crate::catalog`]) and are named by
//! index, so that a recursive type (JSONSchemaProps) needs no cycle of `Arc`s; a schema built at run time from a
//! CustomResourceDefinition owns its parts. Both look the same from outside, and a custom resource's `metadata` points
//! into the table.
//!
//! Upstream's truth is a Go struct with tags. `Field::presence` keeps the part of it that decides which empty values
//! appear in an answer; `Struct::layout` keeps how the same struct lies in protobuf, where an embedded Go struct is a
//! message of its own while JSON flattens it into its parent.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;

/// A name that is either part of the built-in table or owned by a run-time schema.
pub type Name = Cow<'static, str>;

/// The definition behind [`Choice`].
pub(crate) const JSON_SCHEMA_PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The type of one JSON value.
#[derive(Clone, Debug)]
pub enum Schema {
    /// Any JSON, kept as it is: apiextensions' `JSON` and `x-kubernetes-preserve-unknown-fields` without properties.
    Any,
    Scalar(Scalar),
    Struct(StructRef),
    List(Arc<List>),
    Map(Arc<Map>),
    /// One of the four apiextensions types whose JSON is a choice.
    Choice(Choice),
}

/// A value without parts that merge or prune on their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    /// Base64 in JSON.
    Bytes,
    /// `"100m"`; a bare JSON number is accepted and becomes a string.
    Quantity,
    IntOrString,
    /// RFC 3339, seconds, UTC.
    Time,
    /// RFC 3339 with six digits of fraction.
    MicroTime,
    /// An embedded object of any kind (`runtime.RawExtension`).
    RawObject,
    /// The field set of a managedFields entry.
    FieldsV1,
}

/// apiextensions/v1 types that write themselves as one of two shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// A JSONSchemaProps object or a list of them.
    SchemaOrArray,
    /// A JSONSchemaProps object or a boolean.
    SchemaOrBool,
    /// A JSONSchemaProps object or a list of strings.
    SchemaOrStringArray,
}

/// `x-kubernetes-list-type`. A list without one is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Atomic,
    Set,
    Map,
}

#[derive(Clone, Debug)]
pub struct List {
    pub items: Schema,
    pub kind: ListKind,
    /// Whether the type names its list type; one that does not is atomic to apply and silent in OpenAPI.
    pub declared: bool,
    /// The fields that identify an item of a [`ListKind::Map`] list; otherwise empty.
    pub keys: Vec<Name>,
    /// Whether Go holds pointers, so that a null item stays null rather than becoming a zero value.
    pub nullable_items: bool,
    /// A named Go list (`ExtraValue`): in protobuf a message whose field 1 repeats.
    pub wrapped: bool,
}

#[derive(Clone, Debug)]
pub struct Map {
    pub values: Schema,
    /// `x-kubernetes-map-type: atomic`.
    pub atomic: bool,
    /// `x-kubernetes-map-type: granular`, which is the default but named in OpenAPI.
    pub granular: bool,
}

/// A struct, by index into the built-in table or owned. Dereferences to [`Struct`].
#[derive(Clone)]
pub enum StructRef {
    Builtin(u16),
    Owned(Arc<Struct>),
}

#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Go's name with its package's last element, as error texts have it: `v1.PodSpec`. Empty for run-time schemas.
    pub go_name: Name,
    /// The OpenAPI definition: `io.k8s.api.core.v1.PodSpec`. Empty for run-time schemas.
    pub definition: Name,
    /// `x-kubernetes-unions` as JSON text, for OpenAPI.
    pub unions: Option<&'static str>,
    /// Every JSON field, embedded structs flattened, in Go's order.
    pub fields: Vec<Field>,
    /// Positions in `fields` by the hash of the name; see [`Struct::index`].
    pub by_hash: Vec<u16>,
    /// `x-kubernetes-map-type: atomic` (Go's `+structType=atomic`). A field that overrides it with `granular` has a copy of
    /// the struct.
    pub atomic: bool,
    /// Keep fields that are not listed (run-time schemas).
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: apiVersion, kind and metadata are implied (run-time schemas).
    pub embedded_resource: bool,
    /// The protobuf message, ascending by field number; empty where a type has none.
    pub layout: Vec<Slot>,
}

/// One field of a protobuf message.
#[derive(Clone, Debug)]
pub enum Slot {
    /// `Struct::fields[field]` under this number.
    Field { number: u32, field: u16 },
    /// An embedded Go struct: a nested message in protobuf, flattened in JSON. Always written.
    Embedded { number: u32, slots: Vec<Slot> },
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: Name,
    pub schema: Schema,
    /// Go's text for the type where the schema does not give it (`v1.Protocol`), for error texts.
    pub go_type: Option<Name>,
    pub presence: Presence,
    /// Whether Go holds a pointer: absent differs from zero. Always true of run-time schemas' fields.
    pub pointer: bool,
    /// Bytes with a declared list type, which only OpenAPI shows.
    pub declared_atomic: bool,
    /// Listed as required in OpenAPI.
    pub required: bool,
    /// `nullable: true` in a CustomResourceDefinition: an explicit null is kept.
    pub nullable: bool,
    pub default: Option<Arc<Value>>,
    /// The values of a Go type marked as an enumeration, for OpenAPI: of the field, a list's items or a map's values.
    pub values: Vec<Name>,
    /// Strategic merge: how a list, map or struct is patched.
    pub patch: PatchStrategy,
    /// Strategic merge: the key field of a merged list of objects.
    pub merge_key: Option<Name>,
}

/// When a field appears in what the server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// No `omitempty`: always there, as Go's zero value when unset (`""`, `0`, `{}`, `null` for a nil list, map or pointer).
    Always,
    /// `omitempty`: gone when false, zero, "", null, [] or {} (of a map); an embedded struct value stays as `{}`.
    OmitEmpty,
    /// `omitzero`: as `OmitEmpty`, and a struct or time of zero value is gone too.
    OmitZero,
    /// Exactly as the client wrote it (run-time schemas).
    Verbatim,
}

/// The `patchStrategy` tag. None set means: replace lists and scalars, merge maps and structs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatchStrategy {
    pub merge: bool,
    pub replace: bool,
    pub retain_keys: bool,
}

impl Slot {
    pub fn number(&self) -> u32 {
        match self {
            Slot::Field { number, .. } | Slot::Embedded { number, .. } => *number,
        }
    }
}

impl Schema {
    /// A run-time list; `keys` are those of a map list and otherwise empty.
    pub fn list(items: Schema, kind: ListKind, keys: Vec<Name>) -> Schema {
        Schema::List(Arc::new(List { items, kind, declared: true, keys, nullable_items: false, wrapped: false }))
    }

    /// A run-time map.
    pub fn map(values: Schema, atomic: bool) -> Schema {
        Schema::Map(Arc::new(Map { values, atomic, granular: false }))
    }

    /// The field of a struct; `None` for anything else.
    pub fn field(&self, name: &str) -> Option<&Field> {
        match self {
            Schema::Struct(s) => s.field(name),
            _ => None,
        }
    }

    /// The schema under an object's key: a struct's field or a map's value.
    pub fn child(&self, key: &str) -> Option<&Schema> {
        match self {
            Schema::Struct(s) => s.field(key).map(|f| &f.schema),
            Schema::Map(m) => Some(&m.values),
            raw if raw.is_raw() => Some(&Schema::Any),
            _ => None,
        }
    }

    /// The schema of a list's items.
    pub fn items(&self) -> Option<&Schema> {
        self.as_list().map(|l| &l.items)
    }

    pub fn as_list(&self) -> Option<&List> {
        match self {
            Schema::List(l) => Some(l),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Schema::Map(m) => Some(m),
            _ => None,
        }
    }

    pub fn as_struct(&self) -> Option<&Struct> {
        match self {
            Schema::Struct(s) => Some(s),
            _ => None,
        }
    }

    /// Any JSON stands here, kept as it is.
    pub fn is_raw(&self) -> bool {
        matches!(self, Schema::Any | Schema::Scalar(Scalar::RawObject | Scalar::FieldsV1))
    }

    /// Whether apply owns the value as a whole: scalars, atomic lists, maps and structs, and values without a schema.
    pub fn is_atomic(&self) -> bool {
        match self {
            Schema::Any | Schema::Scalar(_) | Schema::Choice(_) => true,
            Schema::Struct(s) => s.atomic,
            Schema::List(l) => l.kind == ListKind::Atomic,
            Schema::Map(m) => m.atomic,
        }
    }
}

impl Struct {
    /// A run-time struct. `fields` keep their order.
    pub fn new(fields: Vec<Field>) -> Struct {
        let mut built = Struct { fields, ..Struct::default() };
        built.index();
        built
    }

    /// Recomputes the lookup by name after `fields` changed: an open-addressed table, at most half full, because one
    /// comparison of names per key of a body is what decoding spends most on beside building the value.
    pub fn index(&mut self) {
        let size = (self.fields.len() * 2).next_power_of_two();
        self.by_hash = vec![EMPTY; size];
        for (at, field) in self.fields.iter().enumerate() {
            let mut place = hash(&field.name) & (size - 1);
            while self.by_hash[place] != EMPTY {
                place = (place + 1) & (size - 1);
            }
            self.by_hash[place] = at as u16;
        }
    }

    /// The position of a field in `fields`. Names are case-sensitive.
    pub fn position(&self, name: &str) -> Option<usize> {
        let mask = self.by_hash.len().checked_sub(1)?;
        let mut place = hash(name) & mask;
        loop {
            let at = self.by_hash[place];
            if at == EMPTY {
                return None;
            }
            if self.fields[at as usize].name == name {
                return Some(at as usize);
            }
            place = (place + 1) & mask;
        }
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).map(|at| &self.fields[at])
    }
}

/// A free place in `Struct::by_hash`; no struct has as many fields.
const EMPTY: u16 = u16::MAX;

/// FNV-1a. Names are short and come from the table or from a CustomResourceDefinition; one made to collide costs its own
/// cluster a scan of its own fields.
fn hash(name: &str) -> usize {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, fold);
    (hash ^ (hash >> 15)) as usize
}

impl Deref for StructRef {
    type Target = Struct;

    fn deref(&self) -> &Struct {
        match self {
            StructRef::Builtin(index) => crate::catalog().by_index(*index),
            StructRef::Owned(owned) => owned,
        }
    }
}

impl std::fmt::Debug for StructRef {
    /// Names a built-in type only, since types may contain themselves.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StructRef::Builtin(_) => f.write_str(&self.go_name),
            StructRef::Owned(owned) => owned.fmt(f),
        }
    }
}

impl From<Struct> for Schema {
    fn from(owned: Struct) -> Schema {
        Schema::Struct(StructRef::Owned(Arc::new(owned)))
    }
}

impl Field {
    /// A run-time field: kept as written, absent unless set.
    pub fn verbatim(name: impl Into<Name>, schema: Schema) -> Field {
        Field {
            name: name.into(),
            schema,
            go_type: None,
            presence: Presence::Verbatim,
            pointer: true,
            declared_atomic: false,
            required: false,
            nullable: false,
            default: None,
            values: Vec::new(),
            patch: PatchStrategy::default(),
            merge_key: None,
        }
    }
}
