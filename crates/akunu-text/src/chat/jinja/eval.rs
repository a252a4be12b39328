//! Walks a template's statements.
//!
//! Scoping is Jinja's: a loop, a macro and the block forms of `set`, `filter`, `call` and `with` open a scope;
//! `if` does not. Scopes live on a stack and name their parent; a macro's parent is the scope it was defined in.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::args::Args;
use super::ast::{Block, For, Macro, Name, Stmt, StmtKind, Target};
use super::budget::{Budget, Limits};
use super::error::{ErrorKind, Result, TemplateError, fail};
use super::filters;
use super::repr::to_text;
use super::text::{Text, TextBuilder};
use super::value::{Closure, Dict, Function, List, Loop, Value};
use crate::chat::clock::DateTime;

/// Names that every template can use.
const GLOBALS: &[(&str, Function)] = &[
    ("cycler", Function::Cycler),
    ("dict", Function::Dict),
    ("joiner", Function::Joiner),
    ("namespace", Function::Namespace),
    ("raise_exception", Function::RaiseException),
    ("range", Function::Range),
    ("strftime_now", Function::StrftimeNow),
];

/// Where the walk goes after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

#[derive(Debug)]
struct Scope {
    id: u64,
    parent: Option<usize>,
    vars: Vec<(Name, Value)>,
}

/// One rendering of one template.
pub(super) struct Renderer {
    pub(super) budget: Rc<Budget>,
    pub(super) now: DateTime,
    scopes: Vec<Scope>,
    scope_ids: u64,
    out: TextBuilder,
    /// How many enclosing blocks collect their output instead of sending it on.
    captures: usize,
    /// Every namespace made. They can hold each other in circles, so they are emptied one by one at the end.
    namespaces: Vec<Rc<RefCell<Dict>>>,
}

impl Drop for Renderer {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            namespace.take();
        }
    }
}

impl Renderer {
    pub(super) fn new(limits: Limits, now: DateTime) -> Self {
        let budget = Rc::new(Budget::new(limits));
        let root = Scope { id: 0, parent: None, vars: Vec::new() };
        Self {
            now,
            scopes: vec![root],
            scope_ids: 0,
            out: TextBuilder::new(&budget),
            captures: 0,
            namespaces: Vec::new(),
            budget,
        }
    }

    /// Renders the template with the variables set so far.
    pub(super) fn render(mut self, body: &Block) -> Result<Text> {
        self.block(body)?;
        let budget = Rc::clone(&self.budget);
        Ok(std::mem::replace(&mut self.out, TextBuilder::new(&budget)).finish())
    }

    /// Sets a variable in the innermost scope.
    pub(super) fn set(&mut self, name: &Name, value: Value) -> Result<()> {
        let Some(scope) = self.scopes.last_mut() else { return fail("no scope") };
        match scope.vars.iter_mut().find(|(own, _)| own == name) {
            Some((_, place)) => *place = value,
            None => scope.vars.push((Name::clone(name), value)),
        }
        Ok(())
    }

    pub(super) fn lookup(&self, name: &Name) -> Value {
        let mut at = self.scopes.len().checked_sub(1);
        while let Some(scope) = at.map(|at| &self.scopes[at]) {
            if let Some((_, value)) = scope.vars.iter().find(|(own, _)| own == name) {
                return value.clone();
            }
            at = scope.parent;
        }
        match GLOBALS.iter().find(|(own, _)| *own == &**name) {
            Some((_, function)) => Value::Function(*function),
            None => Value::Undefined(Name::clone(name)),
        }
    }

    /// Keeps a namespace until the end of the rendering.
    pub(super) fn new_namespace(&mut self, attributes: Dict) -> Result<Value> {
        self.budget.make(size_of::<Dict>())?;
        let namespace = Rc::new(RefCell::new(attributes));
        self.namespaces.push(Rc::clone(&namespace));
        Ok(Value::Namespace(namespace))
    }

    /// Runs `body` in a scope whose parent is `parent`, or else the current scope.
    fn in_scope<T>(&mut self, parent: Option<usize>, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.scope_ids += 1;
        let parent = parent.or(self.scopes.len().checked_sub(1));
        self.scopes.push(Scope { id: self.scope_ids, parent, vars: Vec::new() });
        let result = body(self);
        self.scopes.pop();
        result
    }

    /// Runs `body` and returns what it wrote instead of sending it on.
    fn capture(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<Text> {
        let outer = std::mem::replace(&mut self.out, TextBuilder::new(&self.budget));
        self.captures += 1;
        let result = body(self);
        self.captures -= 1;
        let written = std::mem::replace(&mut self.out, outer).finish();
        result.map(|()| written)
    }

    fn write(&mut self, text: &Text) -> Result<()> {
        self.out.push(text)?;
        if self.captures == 0 && self.out.len() as u64 > self.budget.limits.output {
            let message = format!("more than {} bytes of prompt", self.budget.limits.output);
            return Err(TemplateError::new(ErrorKind::Limit, message));
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) -> Result<Flow> {
        for statement in block {
            let flow = self.statement(statement).map_err(|error| error.at(statement.line))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &Stmt) -> Result<Flow> {
        self.budget.step()?;
        match &statement.kind {
            StmtKind::Text(text) => self.write(text)?,
            StmtKind::Emit(expr) => {
                let value = self.eval(expr)?;
                let text = to_text(&value, &self.budget)?;
                self.write(&text)?;
            }
            StmtKind::Set { target, value } => {
                let value = self.eval(value)?;
                self.assign(target, value)?;
            }
            StmtKind::Macro(code) => self.define(code)?,
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
            nested => {
                self.budget.enter()?;
                let flow = self.nested(nested)?;
                self.budget.leave();
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Statements with a body.
    fn nested(&mut self, kind: &StmtKind) -> Result<Flow> {
        match kind {
            StmtKind::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.eval(condition)?.truth() {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            StmtKind::For(code) => {
                let items = self.eval(&code.items)?;
                self.run_loop(code, &items, 0)?;
            }
            StmtKind::SetBlock { target, filters, body } => {
                let text = self.captured_block(body)?;
                let value = self.filtered(text, filters)?;
                self.assign(target, value)?;
            }
            StmtKind::FilterBlock { filters, body } => {
                let text = self.captured_block(body)?;
                let value = self.filtered(text, filters)?;
                let text = to_text(&value, &self.budget)?;
                self.write(&text)?;
            }
            StmtKind::With { assignments, body } => {
                let mut values = Vec::with_capacity(assignments.len());
                for (_, value) in assignments {
                    values.push(self.eval(value)?);
                }
                return self.in_scope(None, |own| {
                    for ((target, _), value) in assignments.iter().zip(values) {
                        own.assign(target, value)?;
                    }
                    own.block(body)
                });
            }
            StmtKind::Scope(body) => return self.in_scope(None, |own| own.block(body)),
            StmtKind::Call { callee, args, caller } => {
                let callee = self.eval(callee)?;
                let mut args = self.args(args)?;
                args.keyword.push(("caller".into(), self.closure(caller)));
                let value = self.call(&callee, args)?;
                let text = to_text(&value, &self.budget)?;
                self.write(&text)?;
            }
            StmtKind::Text(_)
            | StmtKind::Emit(_)
            | StmtKind::Set { .. }
            | StmtKind::Macro(_)
            | StmtKind::Break
            | StmtKind::Continue => {}
        }
        Ok(Flow::Next)
    }

    fn captured_block(&mut self, body: &Block) -> Result<Text> {
        self.capture(|own| own.in_scope(None, |own| own.block(body).map(|_| ())))
    }

    fn filtered(&mut self, text: Text, filters: &[super::ast::Filter]) -> Result<Value> {
        let mut value = Value::Str(text);
        for filter in filters {
            let args = self.args(&filter.args)?;
            value = filters::apply(&filter.name, value, args, &self.budget)
                .map_err(|error| error.at(filter.line))?;
        }
        Ok(value)
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.set(name, value),
            Target::Attribute(name, attribute) => match self.lookup(name) {
                Value::Namespace(namespace) => {
                    refuse_private(attribute)?;
                    namespace.borrow_mut().insert(Value::template(attribute), value, &self.budget)
                }
                other => fail(format!("cannot assign an attribute of `{name}`, a {}", other.type_name())),
            },
            Target::Unpack(targets) => {
                let items = value.items(&self.budget)?;
                if items.len() != targets.len() {
                    return fail(format!("{} values for {} names", items.len(), targets.len()));
                }
                targets.iter().zip(items).try_for_each(|(target, item)| self.assign(target, item))
            }
        }
    }

    /// Runs a loop over the items of a value; `depth` counts recursive calls of the loop.
    pub(super) fn run_loop(&mut self, code: &Arc<For>, items: &Value, depth: usize) -> Result<()> {
        let mut items = items.items(&self.budget)?;
        if let Some(condition) = &code.only_if {
            let mut kept = Vec::new();
            for item in items {
                let keep = self.in_scope(None, |own| {
                    own.assign(&code.target, item.clone())?;
                    own.eval(condition).map(|value| value.truth())
                })?;
                if keep {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.in_scope(None, |own| own.block(&code.otherwise).map(|_| ()));
        }
        let state = Rc::new(Loop {
            list: List::new(items, &self.budget)?,
            index: Cell::new(0),
            depth,
            code: Arc::clone(code),
            changed: RefCell::new(None),
        });
        let name: Name = "loop".into();
        for (index, item) in state.list.items.iter().enumerate() {
            state.index.set(index);
            let flow = self.in_scope(None, |own| {
                own.assign(&code.target, item.clone())?;
                own.set(&name, Value::Loop(Rc::clone(&state)))?;
                own.block(&code.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// Runs a loop again, over other items, for `loop(items)` in a recursive loop.
    pub(super) fn recurse_loop(&mut self, state: &Loop, items: &Value) -> Result<Value> {
        if !state.code.recursive {
            return fail("the loop is not recursive: write `{% for ... recursive %}`");
        }
        self.budget.enter()?;
        let text = self.capture(|own| own.run_loop(&state.code, items, state.depth + 1))?;
        self.budget.leave();
        Ok(Value::Str(text))
    }

    fn closure(&self, code: &Arc<Macro>) -> Value {
        let scope = self.scopes.len() - 1;
        let scope_id = self.scopes[scope].id;
        Value::Macro(Rc::new(Closure { code: Arc::clone(code), scope, scope_id }))
    }

    fn define(&mut self, code: &Arc<Macro>) -> Result<()> {
        let value = self.closure(code);
        self.set(&code.name, value)
    }

    pub(super) fn call_macro(&mut self, own: &Closure, args: Args) -> Result<Value> {
        let code = &own.code;
        if self.scopes.get(own.scope).is_none_or(|scope| scope.id != own.scope_id) {
            return fail(format!("the macro `{}` is called outside of the block it was made in", code.name));
        }
        self.budget.enter()?;
        let text = self.capture(|renderer| {
            renderer.in_scope(Some(own.scope), |renderer| {
                renderer.bind_params(code, args)?;
                renderer.block(&code.body).map(|_| ())
            })
        })?;
        self.budget.leave();
        Ok(Value::Str(text))
    }

    /// Gives a macro's parameters their values; what is not given has its default or is undefined.
    fn bind_params(&mut self, code: &Macro, args: Args) -> Result<()> {
        let mut positional = args.positional.into_iter();
        let mut keyword = args.keyword;
        for param in &code.params {
            let named =
                keyword.iter().position(|(name, _)| *name == param.name).map(|at| keyword.remove(at).1);
            let value = match (positional.next(), named, &param.default) {
                (Some(_), Some(_), _) => {
                    return fail(format!("{} was given `{}` twice", code.name, param.name));
                }
                (Some(value), None, _) | (None, Some(value), _) => value,
                (None, None, Some(default)) => self.eval(default)?,
                (None, None, None) => Value::Undefined(Name::clone(&param.name)),
            };
            self.set(&param.name, value)?;
        }
        let caller: Name = "caller".into();
        if let Some(at) = keyword.iter().position(|(name, _)| *name == caller) {
            let value = keyword.remove(at).1;
            self.set(&caller, value)?;
        }
        let rest: Vec<Value> = positional.collect();
        if code.takes_varargs {
            let rest = Value::tuple(rest, &self.budget)?;
            self.set(&"varargs".into(), rest)?;
        } else if !rest.is_empty() {
            let count = code.params.len();
            return fail(format!("macro `{}` takes at most {count} arguments", code.name));
        }
        if code.takes_kwargs {
            let mut dict = Dict::default();
            for (name, value) in keyword {
                dict.insert(Value::template(&name), value, &self.budget)?;
            }
            self.set(&"kwargs".into(), Value::Dict(Rc::new(dict)))?;
        } else if let Some((name, _)) = keyword.first() {
            return fail(format!("macro `{}` has no parameter `{name}`", code.name));
        }
        Ok(())
    }
}

/// Namespaces keep no names that begin with an underscore.
pub(super) fn refuse_private(name: &str) -> Result<()> {
    if name.starts_with('_') {
        return fail(format!("a namespace cannot hold `{name}`: names must not begin with an underscore"));
    }
    Ok(())
}
