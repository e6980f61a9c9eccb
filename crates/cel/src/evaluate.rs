//! The walk over the syntax tree.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::common::ast::operators::{CONDITIONAL, EQUALS, INDEX, LOGICAL_AND, LOGICAL_OR, NOT_EQUALS, OPT_INDEX, OPT_SELECT};
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, StructExpr};

use crate::error::EvalError;
use crate::functions;
use crate::value::{Key, Value};
use crate::{Budget, MAX_NESTING, Program};

type Outcome<'a> = Result<Value<'a>, EvalError>;

/// The names that an expression may use.
#[derive(Default)]
pub struct Bindings<'a> {
    values: HashMap<&'a str, Value<'a>>,
    /// `variables.NAME`: evaluated when first used, and once.
    variables: Vec<(&'a str, &'a Program)>,
    known: RefCell<HashMap<&'a str, Outcome<'a>>>,
}

impl<'a> Bindings<'a> {
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.values.insert(name, value);
        self
    }

    /// Adds a composed variable. It may use those that were added before it.
    #[must_use]
    pub fn with_variable(mut self, name: &'a str, program: &'a Program) -> Self {
        self.variables.push((name, program));
        self
    }
}

pub(crate) fn run<'a>(expression: &IdedExpr, bindings: &Bindings<'a>, budget: &mut Budget) -> Outcome<'a> {
    Evaluation { bindings, visible: bindings.variables.len(), scope: Vec::new(), depth: 0, budget }.eval(expression)
}

struct Evaluation<'e, 'p, 'a> {
    bindings: &'e Bindings<'a>,
    /// How many of the composed variables may be used: a variable sees those before it.
    visible: usize,
    /// Variables of comprehensions, innermost last.
    scope: Vec<(&'p str, Value<'a>)>,
    depth: usize,
    budget: &'e mut Budget,
}

impl<'p, 'a> Evaluation<'_, 'p, 'a> {
    fn eval(&mut self, expression: &'p IdedExpr) -> Outcome<'a> {
        self.budget.pay(1)?;
        if self.depth >= MAX_NESTING {
            return Err(EvalError::TooDeep);
        }
        self.depth += 1;
        let value = self.node(expression);
        self.depth -= 1;
        value
    }

    fn node(&mut self, expression: &'p IdedExpr) -> Outcome<'a> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (at, element) in list.elements.iter().enumerate() {
                    match (self.eval(element)?, list.optional_indices.contains(&at)) {
                        (Value::Optional(value), true) => items.extend(value.map(|value| (*value).clone())),
                        (_, true) => return Err(EvalError::NoOverload),
                        (value, false) => items.push(value),
                    }
                }
                Ok(Value::list(items))
            }
            Expr::Map(map) => {
                let mut entries = BTreeMap::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(EvalError::Unsupported) };
                    let key = self.eval(&entry.key)?.key()?;
                    if let Some(value) = self.maybe(&entry.value, entry.optional)? {
                        entries.insert(key, value);
                    }
                }
                Ok(Value::Map(Arc::new(entries)))
            }
            Expr::Struct(made) => self.structure(made),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Err(EvalError::Unsupported),
        }
    }

    fn variable(&mut self, name: &'p str) -> Outcome<'a> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return Ok(value.clone());
        }
        if let Some(value) = self.bindings.values.get(name) {
            return Ok(value.clone());
        }
        functions::type_named(name).ok_or_else(|| EvalError::NoSuchVariable(name.to_owned()))
    }

    fn composed(&mut self, name: &'p str) -> Outcome<'a> {
        if let Some(known) = self.bindings.known.borrow().get(name) {
            return known.clone();
        }
        let found = self.bindings.variables[..self.visible].iter().position(|(known, _)| *known == name);
        let Some(at) = found else { return Err(EvalError::NoSuchKey(name.to_owned())) };
        let (name, program) = self.bindings.variables[at];
        let value = Evaluation { bindings: self.bindings, visible: at, scope: Vec::new(), depth: self.depth, budget: self.budget }.eval(&program.0);
        self.bindings.known.borrow_mut().insert(name, value.clone());
        value
    }

    fn select(&mut self, select: &'p SelectExpr) -> Outcome<'a> {
        if let Expr::Ident(name) = &select.operand.expr
            && name == "variables"
            && !self.scope.iter().any(|(known, _)| *known == name)
        {
            return self.composed(&select.field).map(|value| if select.test { Value::Bool(true) } else { value });
        }
        let operand = self.eval(&select.operand)?;
        let found = operand.field(&select.field)?;
        if select.test {
            return Ok(Value::Bool(found.is_some_and(|value| !matches!(value, Value::Null | Value::Optional(None)))));
        }
        match (found, operand) {
            (Some(value), _) => Ok(value),
            (None, Value::Optional(_)) => Ok(Value::Optional(None)),
            (None, _) => Err(EvalError::NoSuchKey(select.field.clone())),
        }
    }

    fn call(&mut self, call: &'p CallExpr) -> Outcome<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (LOGICAL_AND, args) => self.junction(args, false),
            (LOGICAL_OR, args) => self.junction(args, true),
            (CONDITIONAL, [condition, yes, no]) => match self.eval(condition)? {
                Value::Bool(true) => self.eval(yes),
                Value::Bool(false) => self.eval(no),
                _ => Err(EvalError::NoOverload),
            },
            (EQUALS, [a, b]) => self.equality(a, b).map(Value::Bool),
            (NOT_EQUALS, [a, b]) => self.equality(a, b).map(|equal| Value::Bool(!equal)),
            ("@not_strictly_false", [condition]) => Ok(Value::Bool(!matches!(self.eval(condition), Ok(Value::Bool(false))))),
            (INDEX, [of, index]) => {
                let (of, index) = (self.eval(of)?, self.eval(index)?);
                functions::index(&of, &index)?.ok_or_else(|| EvalError::NoSuchKey(index.key().map(|key| key.print()).unwrap_or_default()))
            }
            (OPT_INDEX, [of, index]) => {
                let (of, index) = (self.eval(of)?, self.eval(index)?);
                let of = if let Value::Optional(Some(value)) = of { (*value).clone() } else { of };
                if matches!(of, Value::Optional(None)) {
                    return Ok(of);
                }
                Ok(Value::Optional(functions::index(&of, &index).or_else(absent)?.map(Arc::new)))
            }
            (OPT_SELECT, [of, field]) => {
                let (of, field) = (self.eval(of)?, self.eval(field)?);
                match of.field(field.str()?)? {
                    Some(Value::Optional(value)) => Ok(Value::Optional(value)),
                    found => Ok(Value::Optional(found.map(Arc::new))),
                }
            }
            (name, args) => {
                let mut values = Vec::with_capacity(args.len() + 1);
                if let Some(target) = &call.target {
                    if let Some(namespaced) = namespace(target) {
                        for arg in args {
                            values.push(self.eval(arg)?);
                        }
                        return functions::call(&format!("{namespaced}.{name}"), false, &values, self.budget);
                    }
                    values.push(self.eval(target)?);
                }
                if let Some(value) = self.lazy(name, call, &values)? {
                    return Ok(value);
                }
                for arg in args {
                    values.push(self.eval(arg)?);
                }
                functions::call(name, call.target.is_some(), &values, self.budget)
            }
        }
    }

    /// Functions of optionals, whose argument is evaluated only if it is needed.
    fn lazy(&mut self, name: &str, call: &'p CallExpr, target: &[Value<'a>]) -> Result<Option<Value<'a>>, EvalError> {
        let ([Value::Optional(optional)], [other]) = (target, call.args.as_slice()) else { return Ok(None) };
        match (name, optional) {
            ("orValue", Some(value)) => Ok(Some((**value).clone())),
            ("or", Some(_)) => Ok(Some(target[0].clone())),
            ("orValue" | "or", None) => self.eval(other).map(Some),
            _ => Ok(None),
        }
    }

    /// `&&` and `||`: what decides wins over an error on either side.
    fn junction(&mut self, args: &'p [IdedExpr], decides: bool) -> Outcome<'a> {
        let mut failed = None;
        for arg in args {
            match self.eval(arg) {
                Ok(Value::Bool(b)) if b == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::NoOverload)),
                Err(EvalError::Budget) => return Err(EvalError::Budget),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn equality(&mut self, a: &'p IdedExpr, b: &'p IdedExpr) -> Result<bool, EvalError> {
        let (a, b) = (self.eval(a)?, self.eval(b)?);
        self.budget.pay(a.size().unwrap_or(1).min(b.size().unwrap_or(1)))?;
        Ok(a.equals(&b))
    }

    fn maybe(&mut self, value: &'p IdedExpr, optional: bool) -> Result<Option<Value<'a>>, EvalError> {
        match (self.eval(value)?, optional) {
            (Value::Optional(value), true) => Ok(value.map(|value| (*value).clone())),
            (_, true) => Err(EvalError::NoOverload),
            (value, false) => Ok(Some(value)),
        }
    }

    fn structure(&mut self, made: &'p StructExpr) -> Outcome<'a> {
        let mut fields = BTreeMap::new();
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { return Err(EvalError::Unsupported) };
            if let Some(value) = self.maybe(&field.value, field.optional)? {
                fields.insert(Key::String(field.field.as_str().into()), value);
            }
        }
        Ok(Value::Object(made.type_name.as_str().into(), Arc::new(fields)))
    }

    fn comprehension(&mut self, comprehension: &'p ComprehensionExpr) -> Outcome<'a> {
        let range = self.eval(&comprehension.iter_range)?;
        let keys = range.keys();
        let items = match &keys {
            Some(keys) => keys.clone(),
            None => range.items()?,
        };
        self.budget.pay(items.len())?;
        let depth = self.scope.len();
        let accumulated = self.eval(&comprehension.accu_init)?;
        self.scope.push((&comprehension.accu_var, accumulated));
        let result = self.iterate(comprehension, &range, keys.is_some(), items, depth);
        self.scope.truncate(depth);
        result
    }

    fn iterate(&mut self, c: &'p ComprehensionExpr, range: &Value<'a>, is_map: bool, items: Vec<Value<'a>>, depth: usize) -> Outcome<'a> {
        for (at, item) in items.into_iter().enumerate() {
            match &c.iter_var2 {
                None => self.scope.push((&c.iter_var, item)),
                Some(second) => {
                    let (first, value) = if is_map {
                        let value = range.entry(&item.key()?)?.unwrap_or(Value::Null);
                        (item, value)
                    } else {
                        (Value::Int(i64::try_from(at).unwrap_or(i64::MAX)), item)
                    };
                    self.scope.push((&c.iter_var, first));
                    self.scope.push((second, value));
                }
            }
            if !matches!(self.eval(&c.loop_cond)?, Value::Bool(true)) {
                break;
            }
            let next = self.eval(&c.loop_step)?;
            self.scope.truncate(depth + 1);
            self.scope[depth].1 = next;
        }
        self.scope.truncate(depth + 1);
        self.eval(&c.result)
    }
}

fn absent<'a>(error: EvalError) -> Result<Option<Value<'a>>, EvalError> {
    match error {
        EvalError::OutOfBounds(_) | EvalError::NoSuchKey(_) => Ok(None),
        error => Err(error),
    }
}

/// `optional` of `optional.of(x)`, and the other names that are no values.
fn namespace(target: &IdedExpr) -> Option<&str> {
    match &target.expr {
        Expr::Ident(name) if matches!(name.as_str(), "optional" | "sets" | "math" | "strings") => Some(name),
        _ => None,
    }
}

fn constant<'a>(literal: &LiteralValue) -> Value<'a> {
    match literal {
        LiteralValue::Boolean(b) => Value::Bool(*b.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(bytes.inner().into()),
        LiteralValue::Double(double) => Value::Double(*double.inner()),
        LiteralValue::Int(int) => Value::Int(*int.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::text(text.inner()),
        LiteralValue::UInt(uint) => Value::Uint(*uint.inner()),
    }
}
