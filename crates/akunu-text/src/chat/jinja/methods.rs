//! Attributes and methods of values other than text.

use std::rc::Rc;

use super::args::{Args, int, required};
use super::ast::Name;
use super::budget::Budget;
use super::error::{Result, fail};
use super::repr::repr;
use super::strings;
use super::text::Origin;
use super::value::{Dict, List, Loop, Value, ViewKind};

const LIST_METHODS: &[&str] =
    &["append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"];
const TUPLE_METHODS: &[&str] = &["count", "index"];
const DICT_METHODS: &[&str] = &[
    "clear",
    "copy",
    "fromkeys",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
];
const LOOP_METHODS: &[&str] = &["changed", "cycle"];
const CYCLER_METHODS: &[&str] = &["next", "reset"];

/// `value.name` where Python finds an attribute; keys of mappings are none.
pub(super) fn attribute(value: &Value, name: &str) -> Result<Option<Value>> {
    let is_method = match value {
        Value::Str(_) => strings::has_method(name),
        Value::List(_) => LIST_METHODS.contains(&name),
        Value::Tuple(_) => TUPLE_METHODS.contains(&name),
        Value::Dict(_) => DICT_METHODS.contains(&name),
        Value::Loop(own) => match loop_attribute(own, name) {
            Some(found) => return Ok(Some(found)),
            None => LOOP_METHODS.contains(&name),
        },
        Value::Cycler(_) => CYCLER_METHODS.contains(&name),
        Value::Namespace(namespace) => return Ok(namespace.borrow().get_str(name).cloned()),
        Value::Macro(own) if name == "name" => return Ok(Some(Value::template(&own.code.name))),
        _ => false,
    };
    Ok(is_method.then(|| Value::Method(Rc::new((value.clone(), Name::from(name))))))
}

fn loop_attribute(own: &Loop, name: &str) -> Option<Value> {
    let (index, length) = (own.index.get(), own.list.items.len());
    let count = |number: usize| Some(Value::int(number as i128));
    let neighbour = |at: Option<usize>| {
        let item = at.and_then(|at| own.list.items.get(at)).cloned();
        Some(item.unwrap_or_else(|| Value::Undefined(name.into())))
    };
    match name {
        "index" => count(index + 1),
        "index0" => count(index),
        "revindex" => count(length.saturating_sub(index)),
        "revindex0" => count(length.saturating_sub(index + 1)),
        "first" => Some(Value::Bool(index == 0)),
        "last" => Some(Value::Bool(index + 1 == length)),
        "length" => count(length),
        "depth" => count(own.depth + 1),
        "depth0" => count(own.depth),
        "previtem" => neighbour(index.checked_sub(1)),
        "nextitem" => neighbour(Some(index + 1)),
        _ => None,
    }
}

/// `value.name(args)`
pub(super) fn call(value: &Value, name: &str, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    match value {
        Value::Str(text) => strings::call(text, name, args, budget),
        Value::Dict(dict) => call_dict(dict, name, args, budget),
        Value::List(list) if name == "copy" => {
            args.bind::<0>(name, [])?;
            budget.steps(list.items.len())?;
            Value::list(list.items.clone(), budget)
        }
        Value::List(list) | Value::Tuple(list) if matches!(name, "count" | "index") => {
            call_list(list, name, args, budget)
        }
        Value::Loop(own) if name == "cycle" => {
            let [] = Args { keyword: args.keyword, ..Args::none() }.bind(name, [])?;
            match args.positional.len() {
                0 => fail("no items for cycling given"),
                count => Ok(args.positional[own.index.get() % count].clone()),
            }
        }
        Value::Loop(own) if name == "changed" => {
            let now = repr(&Value::tuple(args.positional, budget)?, budget)?.as_str().to_owned();
            let before = own.changed.replace(Some(now.clone()));
            Ok(Value::Bool(before != Some(now)))
        }
        Value::Cycler(own) => {
            args.bind::<0>(name, [])?;
            let (list, place) = &**own;
            let now = list.items[place.get()].clone();
            place.set(if name == "next" { (place.get() + 1) % list.items.len() } else { 0 });
            Ok(if name == "next" { now } else { Value::None })
        }
        _ => {
            fail(format!("`{}.{name}` would change its value, which templates may not do", value.type_name()))
        }
    }
}

fn call_dict(dict: &Rc<Dict>, name: &str, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    if name == "get" {
        let [key, default] = args.bind(name, ["key", "default"])?;
        let found = dict.get(&required(key, name, "key")?, budget)?.cloned();
        return Ok(found.unwrap_or_else(|| default.unwrap_or(Value::None)));
    }
    let kind = match name {
        "keys" => ViewKind::Keys,
        "values" => ViewKind::Values,
        "items" => ViewKind::Items,
        "copy" => {
            args.bind::<0>(name, [])?;
            budget.steps(dict.len())?;
            budget.make(dict.len() * 2 * size_of::<Value>())?;
            return Ok(Value::Dict(Rc::new(Dict::clone(dict))));
        }
        _ => return fail(format!("`dict.{name}` would change its value, which templates may not do")),
    };
    args.bind::<0>(name, [])?;
    Ok(Value::View(kind, Rc::new(view(dict, kind, budget)?)))
}

/// The keys, the values, or pairs of both.
pub(super) fn view(dict: &Dict, kind: ViewKind, budget: &Budget) -> Result<List> {
    budget.steps(dict.len())?;
    let items = dict.entries().iter().map(|(key, value)| match kind {
        ViewKind::Keys => Ok(key.clone()),
        ViewKind::Values => Ok(value.clone()),
        ViewKind::Items => Value::tuple(vec![key.clone(), value.clone()], budget),
    });
    List::new(items.collect::<Result<_>>()?, budget)
}

fn call_list(list: &List, name: &str, args: Args, budget: &Rc<Budget>) -> Result<Value> {
    let [item, start] = args.bind(name, ["value", "start"])?;
    let item = required(item, name, "value")?;
    let start = int(start, name, "start")?.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
    let mut count = 0;
    for (at, own) in list.items.iter().enumerate().skip(start) {
        if own.equals(&item, budget)? {
            if name == "index" {
                return Ok(Value::int(at as i128));
            }
            count += 1;
        }
    }
    if name == "index" {
        fail("the value is not in the list")
    } else {
        Ok(Value::Int(count, Origin::Template))
    }
}
