//! The values templates compute with: Python's, as far as Jinja shows them.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::ast::{For, Macro, Name};
use super::budget::Budget;
use super::error::{ErrorKind, Result, TemplateError, fail};
use super::text::{Origin, Text};

/// Lists in lists in lists: deeper values could not be dropped, compared or printed with bounded stack.
const MAX_NESTING: u16 = 160;
/// From this size on a mapping looks keys up by hash.
const HASHED_FROM: usize = 17;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A missing variable, attribute or item, with its name.
    Undefined(Name),
    None,
    Bool(bool),
    Int(i128, Origin),
    Float(f64, Origin),
    Str(Text),
    List(Rc<List>),
    Tuple(Rc<List>),
    Dict(Rc<Dict>),
    /// `d.keys()`, `d.values()`, `d.items()`
    View(ViewKind, Rc<List>),
    Range(Rc<Range>),
    /// What lazy filters give: can be walked once.
    Iterator(Rc<Lazy>),
    Namespace(Rc<RefCell<Dict>>),
    Function(Function),
    Macro(Rc<Closure>),
    /// `value.method` that was not called yet.
    Method(Rc<(Value, Name)>),
    Loop(Rc<Loop>),
    /// `cycler(...)`: its items and the place of the current one.
    Cycler(Rc<(List, Cell<usize>)>),
    /// `joiner(sep)`: nothing when first called, then the separator.
    Joiner(Rc<(Value, Cell<bool>)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewKind {
    Keys,
    Values,
    Items,
}

/// Functions a template can call by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Cycler,
    Dict,
    Joiner,
    Namespace,
    RaiseException,
    Range,
    StrftimeNow,
}

/// A macro and the scope it was defined in.
#[derive(Debug)]
pub(crate) struct Closure {
    pub(super) code: Arc<Macro>,
    /// Place and identity of the defining scope: the macro can be called while that scope lives.
    pub(super) scope: usize,
    pub(super) scope_id: u64,
}

/// The `loop` variable.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(super) list: List,
    pub(super) index: Cell<usize>,
    /// Recursive loops inside each other, from 0.
    pub(super) depth: usize,
    pub(super) code: Arc<For>,
    /// What `loop.changed` saw last, as Python would print it.
    pub(super) changed: RefCell<Option<String>>,
}

/// Items that are handed out once.
#[derive(Debug)]
pub(crate) struct Lazy {
    pub(super) items: RefCell<std::vec::IntoIter<Value>>,
    nesting: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(super) start: i128,
    pub(super) stop: i128,
    pub(super) step: i128,
}

impl Range {
    pub(super) fn len(&self) -> usize {
        let span = if self.step > 0 {
            self.stop.saturating_sub(self.start)
        } else {
            self.start.saturating_sub(self.stop)
        };
        let step = self.step.unsigned_abs();
        usize::try_from((span.max(0) as u128).div_ceil(step)).unwrap_or(usize::MAX)
    }

    /// Item `index`, which must be less than the length.
    pub(super) fn get(&self, index: usize) -> Value {
        Value::int(self.start + self.step * index as i128)
    }
}

#[derive(Debug, Default)]
pub(crate) struct List {
    pub(super) items: Vec<Value>,
    nesting: u16,
}

/// A mapping that keeps the order of insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
    nesting: u16,
    /// Text keys to places, made at the first look-up of a large mapping.
    index: OnceCell<HashMap<Box<str>, usize>>,
}

fn too_nested() -> Box<TemplateError> {
    TemplateError::new(ErrorKind::Limit, format!("a value nested more than {MAX_NESTING} deep"))
}

impl List {
    pub(super) fn new(items: Vec<Value>, budget: &Budget) -> Result<Self> {
        budget.make(items.len() * size_of::<Value>())?;
        let nesting = 1 + items.iter().map(Value::nesting).max().unwrap_or(0);
        if nesting > MAX_NESTING { Err(too_nested()) } else { Ok(Self { items, nesting }) }
    }
}

impl Dict {
    pub(super) fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Looks up a text key.
    pub(super) fn get_str(&self, key: &str) -> Option<&Value> {
        if self.entries.len() >= HASHED_FROM {
            let index = self.index.get_or_init(|| {
                let texts = self.entries.iter().enumerate();
                texts.filter_map(|(at, (key, _))| Some((key.as_str()?.into(), at))).collect()
            });
            return index.get(key).map(|at| &self.entries[*at].1);
        }
        self.entries.iter().find(|(own, _)| own.as_str() == Some(key)).map(|(_, value)| value)
    }

    pub(super) fn get(&self, key: &Value, budget: &Budget) -> Result<Option<&Value>> {
        if let Value::Str(text) = key {
            budget.scan(text.len())?;
            return Ok(self.get_str(text.as_str()));
        }
        budget.steps(self.entries.len())?;
        for (own, value) in &self.entries {
            if own.equals(key, budget)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Adds an entry, or replaces the value of one with an equal key.
    pub(super) fn insert(&mut self, key: Value, value: Value, budget: &Budget) -> Result<()> {
        let nesting = 1 + key.nesting().max(value.nesting());
        if nesting > MAX_NESTING {
            return Err(too_nested());
        }
        if !key.is_hashable() {
            return fail(format!("unhashable type: '{}'", key.type_name()));
        }
        budget.make(2 * size_of::<Value>())?;
        self.nesting = self.nesting.max(nesting);
        let place = match (&key, self.entries.len() >= HASHED_FROM) {
            (Value::Str(text), true) => {
                self.get_str(text.as_str());
                self.index.get().and_then(|index| index.get(text.as_str()).copied())
            }
            _ => {
                budget.steps(self.entries.len())?;
                let mut place = None;
                for (at, (own, _)) in self.entries.iter().enumerate() {
                    if own.equals(&key, budget)? {
                        place = Some(at);
                        break;
                    }
                }
                place
            }
        };
        match place {
            Some(at) => self.entries[at].1 = value,
            None => {
                if let (Some(index), Value::Str(text)) = (self.index.get_mut(), &key) {
                    index.insert(text.as_str().into(), self.entries.len());
                }
                self.entries.push((key, value));
            }
        }
        Ok(())
    }
}

impl Value {
    pub(super) fn int(value: i128) -> Self {
        Self::Int(value, Origin::Template)
    }

    pub(super) fn template(text: &str) -> Self {
        Self::Str(Text::template(text))
    }

    pub(super) fn list(items: Vec<Value>, budget: &Budget) -> Result<Self> {
        Ok(Self::List(Rc::new(List::new(items, budget)?)))
    }

    pub(super) fn tuple(items: Vec<Value>, budget: &Budget) -> Result<Self> {
        Ok(Self::Tuple(Rc::new(List::new(items, budget)?)))
    }

    pub(super) fn iterator(items: Vec<Value>, budget: &Budget) -> Result<Self> {
        let List { items, nesting } = List::new(items, budget)?;
        Ok(Self::Iterator(Rc::new(Lazy { items: RefCell::new(items.into_iter()), nesting })))
    }

    /// A JSON value that did not come from the template.
    pub(crate) fn from_json(json: &Json, budget: &Budget) -> Result<Self> {
        budget.enter()?;
        let value = match json {
            Json::Null => Self::None,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i128() {
                Some(int) => Self::Int(int, Origin::Content),
                None => match number.as_f64() {
                    Some(float) => Self::Float(float, Origin::Content),
                    None => return fail(format!("the number {number} is out of range")),
                },
            },
            Json::String(text) => {
                budget.make(text.len())?;
                Self::Str(Text::new(text.as_str(), Origin::Content))
            }
            Json::Array(items) => {
                let items = items.iter().map(|item| Self::from_json(item, budget)).collect::<Result<_>>()?;
                Self::list(items, budget)?
            }
            Json::Object(map) => {
                let mut dict = Dict::default();
                for (key, item) in map {
                    budget.make(key.len())?;
                    let key = Self::Str(Text::new(key.as_str(), Origin::Content));
                    dict.insert(key, Self::from_json(item, budget)?, budget)?;
                }
                Self::Dict(Rc::new(dict))
            }
        };
        budget.leave();
        Ok(value)
    }

    fn nesting(&self) -> u16 {
        match self {
            Self::List(list) | Self::Tuple(list) | Self::View(_, list) => list.nesting,
            Self::Dict(dict) => dict.nesting,
            Self::Iterator(lazy) => lazy.nesting,
            Self::Loop(own) => own.list.nesting,
            Self::Cycler(own) => own.0.nesting,
            Self::Joiner(own) => 1 + own.0.nesting(),
            Self::Method(method) => 1 + method.0.nesting(),
            // A namespace can even hold itself: the renderer keeps them all and takes them apart at the end.
            _ => 0,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text.as_str()),
            _ => None,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    fn is_hashable(&self) -> bool {
        match self {
            Self::List(_) | Self::Dict(_) | Self::View(..) => false,
            Self::Tuple(list) => list.items.iter().all(Self::is_hashable),
            _ => true,
        }
    }

    /// Python's name of the type, for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(..) => "int",
            Self::Float(..) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::View(ViewKind::Keys, _) => "dict_keys",
            Self::View(ViewKind::Values, _) => "dict_values",
            Self::View(ViewKind::Items, _) => "dict_items",
            Self::Range(_) => "range",
            Self::Iterator(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Function(_) | Self::Method(_) => "function",
            Self::Macro(_) => "Macro",
            Self::Loop(_) => "LoopContext",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
        }
    }

    pub(super) fn truth(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value, _) => *value != 0,
            Self::Float(value, _) => *value != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(list) | Self::Tuple(list) | Self::View(_, list) => !list.items.is_empty(),
            Self::Dict(dict) => dict.len() > 0,
            Self::Range(range) => range.len() > 0,
            Self::Loop(own) => !own.list.items.is_empty(),
            _ => true,
        }
    }

    /// `len()`, where there is one.
    pub(super) fn length(&self) -> Option<usize> {
        Some(match self {
            Self::Undefined(_) => 0,
            Self::Str(text) => text.as_str().chars().count(),
            Self::List(list) | Self::Tuple(list) | Self::View(_, list) => list.items.len(),
            Self::Dict(dict) => dict.len(),
            Self::Range(range) => range.len(),
            Self::Loop(own) => own.list.items.len(),
            _ => return None,
        })
    }

    /// All items, for a loop or a conversion; walks an iterator to its end.
    pub(super) fn items(&self, budget: &Rc<Budget>) -> Result<Vec<Value>> {
        let items = match self {
            Self::Undefined(_) => Vec::new(),
            Self::Str(text) => {
                budget.make(text.len() * size_of::<Value>())?;
                text.chars().map(|(c, origin)| Self::Str(Text::new(c.to_string(), origin))).collect()
            }
            Self::List(list) | Self::Tuple(list) | Self::View(_, list) => list.items.clone(),
            Self::Dict(dict) => dict.entries.iter().map(|(key, _)| key.clone()).collect(),
            Self::Range(range) => {
                budget.make(range.len().saturating_mul(size_of::<Value>()))?;
                (0..range.len()).map(|index| range.get(index)).collect()
            }
            Self::Iterator(lazy) => lazy.items.borrow_mut().by_ref().collect(),
            _ => return fail(format!("'{}' object is not iterable", self.type_name())),
        };
        budget.steps(items.len())?;
        budget.make(items.len() * size_of::<Value>())?;
        Ok(items)
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Bool(value) => Some(Number::Int(i128::from(*value))),
            Self::Int(value, _) => Some(Number::Int(*value)),
            Self::Float(value, _) => Some(Number::Float(*value)),
            _ => None,
        }
    }

    /// Python's `==`, which looks through origins.
    pub(super) fn equals(&self, other: &Self, budget: &Budget) -> Result<bool> {
        budget.step()?;
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return Ok(a.compare(b) == Some(Ordering::Equal));
        }
        Ok(match (self, other) {
            (Self::Undefined(_), Self::Undefined(_)) | (Self::None, Self::None) => true,
            (Self::Str(a), Self::Str(b)) => {
                budget.scan(a.len().min(b.len()))?;
                a.as_str() == b.as_str()
            }
            (Self::List(a), Self::List(b))
            | (Self::Tuple(a), Self::Tuple(b))
            | (Self::View(ViewKind::Keys, a), Self::View(ViewKind::Keys, b))
            | (Self::View(ViewKind::Items, a), Self::View(ViewKind::Items, b)) => {
                if Rc::ptr_eq(a, b) {
                    return Ok(true);
                }
                if a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Dict(a), Self::Dict(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, value) in &a.entries {
                    match b.get(key, budget)? {
                        Some(own) if own.equals(value, budget)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::Range(a), Self::Range(b)) => {
                a.len() == b.len()
                    && (a.len() == 0 || a.start == b.start && (a.len() == 1 || a.step == b.step))
            }
            (Self::Function(a), Self::Function(b)) => a == b,
            (Self::Namespace(a), Self::Namespace(b)) => Rc::ptr_eq(a, b),
            (Self::Macro(a), Self::Macro(b)) => Rc::ptr_eq(a, b),
            (Self::Loop(a), Self::Loop(b)) => Rc::ptr_eq(a, b),
            (Self::Iterator(a), Self::Iterator(b)) => Rc::ptr_eq(a, b),
            _ => false,
        })
    }

    /// Python's `<` and its kin: only numbers, texts, and lists of one kind have an order.
    pub(super) fn order(&self, other: &Self, budget: &Budget) -> Result<Option<Ordering>> {
        budget.step()?;
        if let (Some(a), Some(b)) = (self.number(), other.number()) {
            return Ok(a.compare(b));
        }
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => {
                budget.scan(a.len().min(b.len()))?;
                Ok(Some(a.as_str().cmp(b.as_str())))
            }
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, budget)? {
                        return a.order(b, budget);
                    }
                }
                Ok(Some(a.items.len().cmp(&b.items.len())))
            }
            (Self::Undefined(name), _) | (_, Self::Undefined(name)) => fail(undefined_message(name)),
            _ => fail(format!(
                "'<' not supported between instances of '{}' and '{}'",
                self.type_name(),
                other.type_name()
            )),
        }
    }
}

/// What is said when a missing value is used.
pub(super) fn undefined_message(name: &str) -> String {
    format!("`{name}` is undefined")
}

/// A number, to compare integers with floats exactly.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Int(a), Self::Float(b)) => compare_int_float(a, b),
            (Self::Float(a), Self::Int(b)) => compare_int_float(b, a).map(Ordering::reverse),
        }
    }
}

fn compare_int_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Floats beyond the integers' range saturate to its ends, which is the right order for all but the end itself.
    let whole = float.floor();
    Some(int.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal }))
}
