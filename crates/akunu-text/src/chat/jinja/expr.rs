//! Evaluates a template's expressions.

use std::cell::Cell;
use std::rc::Rc;

use super::args::{Args, int, required, text};
use super::ast::{Arg, Const, Expr, ExprKind, Name, Postfix, PostfixKind};
use super::error::{ErrorKind, Result, TemplateError, fail};
use super::eval::{Renderer, refuse_private};
use super::ops;
use super::repr::to_text;
use super::text::Origin;
use super::value::{Dict, Function, List, Range, Value, undefined_message};
use super::{checks, filters, methods, strings};

/// The longest range, as in Jinja's sandbox.
const MAX_RANGE: usize = 100_000;

impl Renderer {
    pub(super) fn eval(&mut self, expr: &Expr) -> Result<Value> {
        self.budget.step()?;
        match &expr.kind {
            ExprKind::Const(constant) => Ok(match constant {
                Const::None => Value::None,
                Const::Bool(value) => Value::Bool(*value),
                Const::Int(value) => Value::int(*value),
                Const::Float(value) => Value::Float(*value, Origin::Template),
                Const::Str(text) => Value::Str(text.clone()),
            }),
            ExprKind::Var(name) => Ok(self.lookup(name)),
            _ => {
                self.budget.enter()?;
                let value = self.compound(&expr.kind).map_err(|error| error.at(expr.line))?;
                self.budget.leave();
                Ok(value)
            }
        }
    }

    /// Expressions made of others.
    fn compound(&mut self, kind: &ExprKind) -> Result<Value> {
        match kind {
            ExprKind::Const(_) | ExprKind::Var(_) => fail("not a compound expression"),
            ExprKind::List(items) => {
                let items = self.eval_all(items)?;
                Value::list(items, &self.budget)
            }
            ExprKind::Tuple(items) => {
                let items = self.eval_all(items)?;
                Value::tuple(items, &self.budget)
            }
            ExprKind::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    let key = self.eval(key)?;
                    let value = self.eval(value)?;
                    dict.insert(key, value, &self.budget)?;
                }
                Ok(Value::Dict(Rc::new(dict)))
            }
            ExprKind::Not(inner) => Ok(Value::Bool(!self.eval(inner)?.truth())),
            ExprKind::Neg(inner) => ops::negate(&self.eval(inner)?),
            ExprKind::And(operands) => self.first_where(operands, false),
            ExprKind::Or(operands) => self.first_where(operands, true),
            ExprKind::Binary(first, rest) => {
                let mut value = self.eval(first)?;
                for (op, right) in rest {
                    let right = self.eval(right)?;
                    value = ops::binary(*op, &value, &right, &self.budget)?;
                }
                Ok(value)
            }
            ExprKind::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (op, right) in rest {
                    let right = self.eval(right)?;
                    if !ops::compare(*op, &left, &right, &self.budget)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            ExprKind::IfElse { test, then, otherwise } => {
                if self.eval(test)?.truth() {
                    return self.eval(then);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise),
                    None => Ok(Value::Undefined("inline if without else".into())),
                }
            }
            ExprKind::Postfix(base, chain) => {
                let mut value = self.eval(base)?;
                for postfix in chain {
                    value = self.postfix(value, postfix).map_err(|error| error.at(postfix.line))?;
                }
                Ok(value)
            }
        }
    }

    fn eval_all(&mut self, exprs: &[Expr]) -> Result<Vec<Value>> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    fn eval_optional(&mut self, expr: Option<&Expr>) -> Result<Option<Value>> {
        expr.map(|expr| self.eval(expr)).transpose()
    }

    /// The first operand whose truth is `wanted`, or the last one.
    fn first_where(&mut self, operands: &[Expr], wanted: bool) -> Result<Value> {
        let mut value = Value::None;
        for operand in operands {
            value = self.eval(operand)?;
            if value.truth() == wanted {
                break;
            }
        }
        Ok(value)
    }

    fn postfix(&mut self, value: Value, postfix: &Postfix) -> Result<Value> {
        self.budget.step()?;
        match &postfix.kind {
            PostfixKind::Attribute(name) => ops::attribute(&value, name, &self.budget),
            PostfixKind::Item(key) => {
                let key = self.eval(key)?;
                ops::item(&value, &key, &self.budget)
            }
            PostfixKind::Slice { start, stop, step } => {
                let start = self.eval_optional(start.as_ref())?;
                let stop = self.eval_optional(stop.as_ref())?;
                let step = self.eval_optional(step.as_ref())?;
                ops::slice(&value, [start, stop, step], &self.budget)
            }
            PostfixKind::Call(args) => {
                let args = self.args(args)?;
                self.call(&value, args)
            }
            PostfixKind::Filter(filter) => {
                let args = self.args(&filter.args)?;
                filters::apply(&filter.name, value, args, &self.budget)
            }
            PostfixKind::Test(name, args) => {
                let args = self.args(args)?;
                checks::check(name, &value, args, &self.budget).map(Value::Bool)
            }
        }
    }

    pub(super) fn args(&mut self, args: &[Arg]) -> Result<Args> {
        let mut evaluated = Args::none();
        for arg in args {
            match arg {
                Arg::Positional(expr) => evaluated.positional.push(self.eval(expr)?),
                Arg::Keyword(name, expr) => {
                    let value = self.eval(expr)?;
                    evaluated.keyword.push((Name::clone(name), value));
                }
                Arg::Spread(expr) => {
                    let items = self.eval(expr)?.items(&self.budget)?;
                    evaluated.positional.extend(items);
                }
                Arg::SpreadKeywords(expr) => match self.eval(expr)? {
                    Value::Dict(dict) => {
                        for (key, value) in dict.entries() {
                            let Some(name) = key.as_str() else { return fail("keywords must be strings") };
                            evaluated.keyword.push((name.into(), value.clone()));
                        }
                    }
                    other => return fail(format!("** needs a mapping, not {}", other.type_name())),
                },
            }
        }
        Ok(evaluated)
    }

    pub(super) fn call(&mut self, callee: &Value, args: Args) -> Result<Value> {
        match callee {
            Value::Macro(closure) => self.call_macro(closure, args),
            Value::Method(method) => methods::call(&method.0, &method.1, args, &self.budget),
            Value::Function(function) => self.call_function(*function, args),
            Value::Loop(state) => {
                let [items] = args.bind("loop", ["iterable"])?;
                self.recurse_loop(state, &required(items, "loop", "iterable")?)
            }
            Value::Joiner(joiner) => {
                args.bind::<0>("joiner", [])?;
                let used = joiner.1.replace(true);
                Ok(if used { joiner.0.clone() } else { Value::template("") })
            }
            Value::Undefined(name) => fail(undefined_message(name)),
            other => fail(format!("'{}' object is not callable", other.type_name())),
        }
    }

    fn call_function(&mut self, function: Function, args: Args) -> Result<Value> {
        match function {
            Function::RaiseException => {
                let [message] = args.bind("raise_exception", ["message"])?;
                let message = to_text(&required(message, "raise_exception", "message")?, &self.budget)?;
                Err(TemplateError::new(ErrorKind::Refused, message.as_str()))
            }
            Function::StrftimeNow => {
                let [format] = args.bind("strftime_now", ["format"])?;
                let format = text(format, "strftime_now", "format")?;
                self.budget.make(format.len())?;
                let written = self.now.strftime(format.as_str());
                strings::plain(&written, format.origin(), &self.budget).map(Value::Str)
            }
            Function::Range => self.range(args),
            Function::Namespace => {
                let attributes = self.dict_of(args)?;
                for (name, _) in attributes.entries() {
                    refuse_private(name.as_str().unwrap_or_default())?;
                }
                self.new_namespace(attributes)
            }
            Function::Dict => Ok(Value::Dict(Rc::new(self.dict_of(args)?))),
            Function::Cycler => {
                if args.positional.is_empty() {
                    return fail("cycler: at least one item is needed");
                }
                let list = List::new(args.positional, &self.budget)?;
                Ok(Value::Cycler(Rc::new((list, Cell::new(0)))))
            }
            Function::Joiner => {
                let [separator] = args.bind("joiner", ["sep"])?;
                let separator = separator.unwrap_or_else(|| Value::template(", "));
                Ok(Value::Joiner(Rc::new((separator, Cell::new(false)))))
            }
        }
    }

    fn range(&self, args: Args) -> Result<Value> {
        let [first, second, step] = args.bind("range", ["start", "stop", "step"])?;
        let first = int(Some(required(first, "range", "stop")?), "range", "start")?;
        let second = int(second, "range", "stop")?;
        let Some(first) = first else { return fail("range: expected an int, not NoneType") };
        let (start, stop) = second.map_or((0, first), |second| (first, second));
        let step = int(step, "range", "step")?.unwrap_or(1);
        if step == 0 {
            return fail("range: the step must not be zero");
        }
        let range = Range { start, stop, step };
        if range.len() > MAX_RANGE {
            return Err(TemplateError::new(
                ErrorKind::Limit,
                format!("a range of more than {MAX_RANGE} numbers"),
            ));
        }
        Ok(Value::Range(Rc::new(range)))
    }

    /// The mapping that `dict(...)` makes: of a mapping or pairs, and of keyword arguments.
    fn dict_of(&self, args: Args) -> Result<Dict> {
        let mut dict = Dict::default();
        let mut positional = args.positional.into_iter();
        match positional.next() {
            None => {}
            Some(Value::Dict(other)) => {
                for (key, value) in other.entries() {
                    dict.insert(key.clone(), value.clone(), &self.budget)?;
                }
            }
            Some(pairs) => {
                for pair in pairs.items(&self.budget)? {
                    match &pair.items(&self.budget)?[..] {
                        [key, value] => dict.insert(key.clone(), value.clone(), &self.budget)?,
                        other => return fail(format!("a pair was expected, not {} items", other.len())),
                    }
                }
            }
        }
        if positional.next().is_some() {
            return fail("expected at most one argument");
        }
        for (name, value) in args.keyword {
            dict.insert(Value::template(&name), value, &self.budget)?;
        }
        Ok(dict)
    }
}
