//! From source text to the tree that `eval` walks.
//!
//! The grammar of Jinja is `minijinja`'s: its lexer and parser do the reading, with the whitespace rules that
//! Hugging Face sets. Their interface is not covered by semantic versioning, so nothing outside this file may
//! name it. Its parser is recursive; `check_shape` refuses beforehand what would need too much native stack.

use minijinja::machinery::{Token, ast as mj, parse as parse_source, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as MjValue;

use super::ast::{
    Arg, BinaryOp, Block, CompareOp, Const, Expr, ExprKind, Filter, For, Macro, Name, Param, Postfix,
    PostfixKind, Stmt, StmtKind, Target,
};
use super::error::{ErrorKind, Result, TemplateError};
use super::text::Text;
use super::{checks, filters};

/// The largest template read; the largest real one known has 17 KB.
const MAX_SOURCE: usize = 1 << 20;
/// Tokens in one tag: a chain of operators is as deep in the parser's tree as it is long.
const MAX_TAG_TOKENS: usize = 4096;
/// `not`, `-`, `else` and `(` in one tag, and `elif` in the whole template: each may recurse in the parser.
const MAX_RECURSING_TOKENS: usize = 400;

fn syntax(line: u32, message: impl Into<String>) -> Box<TemplateError> {
    TemplateError::new(ErrorKind::Syntax, message).at(line)
}

fn from_minijinja(error: &minijinja::Error) -> Box<TemplateError> {
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let mut own = TemplateError::new(ErrorKind::Syntax, message);
    own.line = error.line().and_then(|line| u32::try_from(line).ok());
    own
}

/// Reads a template.
pub(super) fn parse(source: &str) -> Result<Block> {
    if source.len() > MAX_SOURCE {
        return Err(TemplateError::new(
            ErrorKind::Syntax,
            format!("the template has {} bytes, more than {MAX_SOURCE}", source.len()),
        ));
    }
    let config = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| from_minijinja(&error))?;
    // Jinja reads every kind of line end as one newline.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = check_shape(&source, &config)?;
    let tree = parse_source(&source, "chat template", config).map_err(|error| from_minijinja(&error))?;
    let mj::Stmt::Template(template) = &tree else {
        return Err(TemplateError::new(ErrorKind::Syntax, "not a template"));
    };
    Lowering::default().block(&template.children)
}

/// Refuses what the parser could not read with bounded stack, and rewrites Hugging Face's `generation` tag,
/// which marks what a model wrote, as a `with` tag without assignments: both only open a scope.
fn check_shape(source: &str, config: &SyntaxConfig) -> Result<String> {
    let mut rewritten = String::with_capacity(source.len());
    let mut copied = 0;
    let (mut in_tag, mut recursing, mut elifs) = (0, 0, 0);
    let mut after_block_start = false;
    for token in tokenize(source, false, config.clone()) {
        let (token, span) = token.map_err(|error| from_minijinja(&error))?;
        let line = u32::from(span.start_line);
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => (in_tag, recursing) = (0, 0),
            Token::Ident("not" | "else") | Token::Minus | Token::ParenOpen => recursing += 1,
            Token::Ident("elif") => elifs += 1,
            Token::Ident(name @ ("generation" | "endgeneration")) if after_block_start => {
                let start = span.start_offset as usize;
                rewritten.push_str(&source[copied..start]);
                rewritten.push_str(if name == "generation" { "with" } else { "endwith" });
                copied = start + name.len();
            }
            _ => {}
        }
        in_tag += 1;
        if in_tag > MAX_TAG_TOKENS || recursing > MAX_RECURSING_TOKENS || elifs > MAX_RECURSING_TOKENS {
            return Err(syntax(line, "the tag is too long to read safely"));
        }
        after_block_start = matches!(token, Token::BlockStart);
    }
    rewritten.push_str(&source[copied..]);
    Ok(rewritten)
}

/// Turns the parser's tree into ours.
#[derive(Default)]
struct Lowering {
    /// In a branch that may not run, an unknown filter is an error only when it is reached.
    soft: bool,
    /// Names the macro being read refers to, of those that change how it may be called.
    uses: Uses,
}

#[derive(Clone, Copy, Default)]
struct Uses {
    varargs: bool,
    kwargs: bool,
}

impl Lowering {
    fn block(&mut self, statements: &[mj::Stmt<'_>]) -> Result<Block> {
        statements.iter().map(|statement| self.statement(statement)).collect()
    }

    /// A block in which nothing is optional any more, as far as unknown filters go.
    fn hard_block(&mut self, statements: &[mj::Stmt<'_>]) -> Result<Block> {
        let outer = std::mem::replace(&mut self.soft, false);
        let block = self.block(statements);
        self.soft = outer;
        block
    }

    fn statement(&mut self, statement: &mj::Stmt<'_>) -> Result<Stmt> {
        let (line, kind) = match statement {
            mj::Stmt::EmitRaw(raw) => (raw.span(), StmtKind::Text(Text::template(raw.raw))),
            mj::Stmt::EmitExpr(emit) => (emit.span(), StmtKind::Emit(self.expr(&emit.expr)?)),
            mj::Stmt::IfCond(condition) => (condition.span(), self.conditional(condition)?),
            mj::Stmt::ForLoop(for_loop) => (for_loop.span(), StmtKind::For(self.for_loop(for_loop)?.into())),
            mj::Stmt::Set(set) => {
                let kind = StmtKind::Set { target: target(&set.target)?, value: self.expr(&set.expr)? };
                (set.span(), kind)
            }
            mj::Stmt::SetBlock(set) => {
                let kind = StmtKind::SetBlock {
                    target: target(&set.target)?,
                    filters: self.filter_chain(set.filter.as_ref())?,
                    body: self.hard_block(&set.body)?,
                };
                (set.span(), kind)
            }
            mj::Stmt::FilterBlock(block) => {
                let kind = StmtKind::FilterBlock {
                    filters: self.filter_chain(Some(&block.filter))?,
                    body: self.hard_block(&block.body)?,
                };
                (block.span(), kind)
            }
            mj::Stmt::WithBlock(with) => (with.span(), self.with_block(with)?),
            mj::Stmt::Block(block) => (block.span(), StmtKind::Scope(self.hard_block(&block.body)?)),
            mj::Stmt::Macro(own) => (own.span(), StmtKind::Macro(self.macro_of(own)?.into())),
            mj::Stmt::CallBlock(call) => {
                let kind = StmtKind::Call {
                    callee: self.expr(&call.call.expr)?,
                    args: self.args(&call.call.args)?,
                    caller: self.macro_of(&call.macro_decl)?.into(),
                };
                (call.span(), kind)
            }
            mj::Stmt::Continue(own) => (own.span(), StmtKind::Continue),
            mj::Stmt::Break(own) => (own.span(), StmtKind::Break),
            mj::Stmt::Template(own) => (own.span(), StmtKind::Scope(self.block(&own.children)?)),
            mj::Stmt::AutoEscape(own) => return Err(unsupported(own.span().start_line, "autoescape")),
            mj::Stmt::Do(own) => return Err(unsupported(own.span().start_line, "do")),
            mj::Stmt::Import(own) => return Err(unsupported(own.span().start_line, "import")),
            mj::Stmt::FromImport(own) => return Err(unsupported(own.span().start_line, "from")),
            mj::Stmt::Extends(own) => return Err(unsupported(own.span().start_line, "extends")),
            mj::Stmt::Include(own) => return Err(unsupported(own.span().start_line, "include")),
        };
        Ok(Stmt { line: u32::from(line.start_line), kind })
    }

    /// `elif` is an `if` nested in `else` for the parser and one more branch for us.
    fn conditional(&mut self, condition: &mj::IfCond<'_>) -> Result<StmtKind> {
        let outer = std::mem::replace(&mut self.soft, true);
        let mut branches = Vec::new();
        let mut condition = condition;
        let otherwise = loop {
            branches.push((self.expr(&condition.expr)?, self.block(&condition.true_body)?));
            match &condition.false_body[..] {
                [mj::Stmt::IfCond(nested)] => condition = nested,
                otherwise => break self.block(otherwise)?,
            }
        };
        self.soft = outer;
        Ok(StmtKind::If { branches, otherwise })
    }

    fn for_loop(&mut self, own: &mj::ForLoop<'_>) -> Result<For> {
        Ok(For {
            target: target(&own.target)?,
            items: self.expr(&own.iter)?,
            only_if: own.filter_expr.as_ref().map(|expr| self.expr(expr)).transpose()?,
            recursive: own.recursive,
            body: self.hard_block(&own.body)?,
            otherwise: self.hard_block(&own.else_body)?,
        })
    }

    fn with_block(&mut self, own: &mj::WithBlock<'_>) -> Result<StmtKind> {
        let assignments = own
            .assignments
            .iter()
            .map(|(name, value)| Ok((target(name)?, self.expr(value)?)))
            .collect::<Result<_>>()?;
        Ok(StmtKind::With { assignments, body: self.hard_block(&own.body)? })
    }

    fn macro_of(&mut self, own: &mj::Macro<'_>) -> Result<Macro> {
        let outer = std::mem::take(&mut self.uses);
        let required = own.args.len().saturating_sub(own.defaults.len());
        let mut params = Vec::with_capacity(own.args.len());
        for (index, arg) in own.args.iter().enumerate() {
            let Target::Name(name) = target(arg)? else {
                return Err(syntax(u32::from(arg.span().start_line), "a macro parameter must be a name"));
            };
            let default = index.checked_sub(required).and_then(|at| own.defaults.get(at));
            params.push(Param { name, default: default.map(|expr| self.expr(expr)).transpose()? });
        }
        let body = self.hard_block(&own.body)?;
        let uses = std::mem::replace(&mut self.uses, outer);
        Ok(Macro {
            name: own.name.into(),
            params,
            takes_varargs: uses.varargs,
            takes_kwargs: uses.kwargs,
            body,
        })
    }

    /// Filters without an input of their own, first to last.
    fn filter_chain(&mut self, chain: Option<&mj::Expr<'_>>) -> Result<Vec<Filter>> {
        let mut filters = Vec::new();
        let mut next = chain;
        while let Some(expr) = next {
            let mj::Expr::Filter(filter) = expr else {
                return Err(syntax(u32::from(expr.span().start_line), "expected a filter"));
            };
            filters.push(self.filter(filter.span().start_line, filter.name, &filter.args)?);
            next = filter.expr.as_ref();
        }
        filters.reverse();
        Ok(filters)
    }

    fn filter(&mut self, line: u16, name: &str, args: &[mj::CallArg<'_>]) -> Result<Filter> {
        if !self.soft && !filters::is_known(name) {
            return Err(syntax(u32::from(line), format!("there is no filter `{name}`")));
        }
        Ok(Filter { line: u32::from(line), name: name.into(), args: self.args(args)? })
    }

    fn args(&mut self, args: &[mj::CallArg<'_>]) -> Result<Vec<Arg>> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    mj::CallArg::Pos(expr) => Arg::Positional(self.expr(expr)?),
                    mj::CallArg::Kwarg(name, expr) => Arg::Keyword((*name).into(), self.expr(expr)?),
                    mj::CallArg::PosSplat(expr) => Arg::Spread(self.expr(expr)?),
                    mj::CallArg::KwargSplat(expr) => Arg::SpreadKeywords(self.expr(expr)?),
                })
            })
            .collect()
    }

    fn exprs(&mut self, exprs: &[mj::Expr<'_>]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&mut self, expr: &mj::Expr<'_>) -> Result<Box<Expr>> {
        self.expr(expr).map(Box::new)
    }

    fn optional(&mut self, expr: Option<&mj::Expr<'_>>) -> Result<Option<Expr>> {
        expr.map(|expr| self.expr(expr)).transpose()
    }

    fn expr(&mut self, expr: &mj::Expr<'_>) -> Result<Expr> {
        let line = u32::from(expr.span().start_line);
        let kind = match expr {
            mj::Expr::Const(constant) => ExprKind::Const(constant_of(&constant.value, line)?),
            mj::Expr::Var(var) => {
                self.uses.varargs |= var.id == "varargs";
                self.uses.kwargs |= var.id == "kwargs";
                ExprKind::Var(var.id.into())
            }
            mj::Expr::List(list) => ExprKind::List(self.exprs(&list.items)?),
            mj::Expr::Tuple(tuple) => ExprKind::Tuple(self.exprs(&tuple.items)?),
            mj::Expr::Map(map) => {
                let pairs = map.keys.iter().zip(&map.values);
                ExprKind::Dict(pairs.map(|(k, v)| Ok((self.expr(k)?, self.expr(v)?))).collect::<Result<_>>()?)
            }
            mj::Expr::UnaryOp(unary) => match unary.op {
                mj::UnaryOpKind::Not => ExprKind::Not(self.boxed(&unary.expr)?),
                mj::UnaryOpKind::Neg => ExprKind::Neg(self.boxed(&unary.expr)?),
            },
            mj::Expr::BinOp(binary) => self.binary(binary)?,
            mj::Expr::Compare(compare) => {
                let rest = compare.ops.iter();
                let rest = rest.map(|op| Ok((compare_op(op.op), self.expr(&op.expr)?)));
                let rest = rest.collect::<Result<_>>()?;
                ExprKind::Compare(self.boxed(&compare.expr)?, rest)
            }
            mj::Expr::IfExpr(own) => {
                let outer = std::mem::replace(&mut self.soft, true);
                let kind = ExprKind::IfElse {
                    test: self.boxed(&own.test_expr)?,
                    then: self.boxed(&own.true_expr)?,
                    otherwise: own.false_expr.as_ref().map(|expr| self.boxed(expr)).transpose()?,
                };
                self.soft = outer;
                kind
            }
            mj::Expr::Slice(_)
            | mj::Expr::Filter(_)
            | mj::Expr::Test(_)
            | mj::Expr::GetAttr(_)
            | mj::Expr::GetItem(_)
            | mj::Expr::Call(_) => self.postfix_chain(expr)?,
        };
        Ok(Expr { line, kind })
    }

    /// Unrolls operators that nest to the left.
    fn binary(&mut self, top: &mj::BinOp<'_>) -> Result<ExprKind> {
        use mj::BinOpKind as Kind;
        if let Some(op) = comparison(top.op) {
            let right = self.expr(&top.right)?;
            return Ok(ExprKind::Compare(self.boxed(&top.left)?, vec![(op, right)]));
        }
        if matches!(top.op, Kind::ScAnd | Kind::ScOr) {
            let mut operands = vec![self.expr(&top.right)?];
            let mut left = &top.left;
            while let mj::Expr::BinOp(inner) = left
                && std::mem::discriminant(&inner.op) == std::mem::discriminant(&top.op)
            {
                operands.push(self.expr(&inner.right)?);
                left = &inner.left;
            }
            operands.push(self.expr(left)?);
            operands.reverse();
            let and = matches!(top.op, Kind::ScAnd);
            return Ok(if and { ExprKind::And(operands) } else { ExprKind::Or(operands) });
        }
        let mut rest = Vec::new();
        let mut node = top;
        let first = loop {
            let Some(op) = arithmetic(node.op) else {
                return Err(TemplateError::new(ErrorKind::Syntax, "unexpected operator"));
            };
            rest.push((op, self.expr(&node.right)?));
            match &node.left {
                mj::Expr::BinOp(inner) if arithmetic(inner.op).is_some() => node = inner,
                first => break self.boxed(first)?,
            }
        };
        rest.reverse();
        Ok(ExprKind::Binary(first, rest))
    }

    /// Unrolls attributes, items, calls, filters and tests, which nest to the left.
    fn postfix_chain(&mut self, top: &mj::Expr<'_>) -> Result<ExprKind> {
        let mut chain = Vec::new();
        let mut expr = top;
        let base = loop {
            let (kind, inner) = match expr {
                mj::Expr::GetAttr(own) => (PostfixKind::Attribute(own.name.into()), &own.expr),
                mj::Expr::GetItem(own) => (PostfixKind::Item(self.expr(&own.subscript_expr)?), &own.expr),
                mj::Expr::Slice(own) => {
                    let kind = PostfixKind::Slice {
                        start: self.optional(own.start.as_ref())?,
                        stop: self.optional(own.stop.as_ref())?,
                        step: self.optional(own.step.as_ref())?,
                    };
                    (kind, &own.expr)
                }
                mj::Expr::Call(own) => (PostfixKind::Call(self.args(&own.args)?), &own.expr),
                mj::Expr::Test(own) => {
                    let line = u32::from(own.span().start_line);
                    if !self.soft && !checks::is_known(own.name) {
                        return Err(syntax(line, format!("there is no test `{}`", own.name)));
                    }
                    (PostfixKind::Test(own.name.into(), self.args(&own.args)?), &own.expr)
                }
                mj::Expr::Filter(own) => {
                    let Some(inner) = &own.expr else {
                        let line = u32::from(own.span().start_line);
                        return Err(syntax(line, "a filter needs something to work on"));
                    };
                    let filter = self.filter(own.span().start_line, own.name, &own.args)?;
                    (PostfixKind::Filter(filter), inner)
                }
                base => break self.boxed(base)?,
            };
            chain.push(Postfix { line: u32::from(expr.span().start_line), kind });
            expr = inner;
        };
        chain.reverse();
        Ok(ExprKind::Postfix(base, chain))
    }
}

fn unsupported(line: u16, tag: &str) -> Box<TemplateError> {
    syntax(u32::from(line), format!("chat templates have no `{tag}` tag"))
}

fn target(expr: &mj::Expr<'_>) -> Result<Target> {
    let line = u32::from(expr.span().start_line);
    match expr {
        mj::Expr::Var(var) => Ok(Target::Name(var.id.into())),
        mj::Expr::GetAttr(attr) => match &attr.expr {
            mj::Expr::Var(var) => Ok(Target::Attribute(var.id.into(), attr.name.into())),
            _ => Err(syntax(line, "only an attribute of a namespace can be assigned")),
        },
        mj::Expr::List(list) => list.items.iter().map(target).collect::<Result<_>>().map(Target::Unpack),
        _ => Err(syntax(line, "cannot assign to this")),
    }
}

fn constant_of(value: &MjValue, line: u32) -> Result<Const> {
    use minijinja::value::ValueKind as Kind;
    let wrong = || syntax(line, format!("cannot use the constant {value}"));
    Ok(match value.kind() {
        Kind::None => Const::None,
        Kind::Bool => Const::Bool(value.is_true()),
        Kind::Number if value.is_integer() => Const::Int(i128::try_from(value.clone()).map_err(|_| wrong())?),
        Kind::Number => Const::Float(f64::try_from(value.clone()).map_err(|_| wrong())?),
        Kind::String => Const::Str(Text::template(value.as_str().ok_or_else(wrong)?)),
        _ => return Err(wrong()),
    })
}

fn arithmetic(op: mj::BinOpKind) -> Option<BinaryOp> {
    use mj::BinOpKind as Kind;
    Some(match op {
        Kind::Add => BinaryOp::Add,
        Kind::Sub => BinaryOp::Sub,
        Kind::Mul => BinaryOp::Mul,
        Kind::Div => BinaryOp::Div,
        Kind::FloorDiv => BinaryOp::FloorDiv,
        Kind::Rem => BinaryOp::Rem,
        Kind::Pow => BinaryOp::Pow,
        Kind::Concat => BinaryOp::Concat,
        _ => return None,
    })
}

fn comparison(op: mj::BinOpKind) -> Option<CompareOp> {
    use mj::BinOpKind as Kind;
    Some(match op {
        Kind::Eq => CompareOp::Eq,
        Kind::Ne => CompareOp::Ne,
        Kind::Lt => CompareOp::Lt,
        Kind::Lte => CompareOp::Le,
        Kind::Gt => CompareOp::Gt,
        Kind::Gte => CompareOp::Ge,
        Kind::In => CompareOp::In,
        _ => return None,
    })
}

fn compare_op(op: mj::CompareOpKind) -> CompareOp {
    use mj::CompareOpKind as Kind;
    match op {
        Kind::Eq => CompareOp::Eq,
        Kind::Ne => CompareOp::Ne,
        Kind::Lt => CompareOp::Lt,
        Kind::Lte => CompareOp::Le,
        Kind::Gt => CompareOp::Gt,
        Kind::Gte => CompareOp::Ge,
        Kind::In => CompareOp::In,
        Kind::NotIn => CompareOp::NotIn,
    }
}

/// Every string constant in a template: names the template's author knows.
pub(super) fn string_constants(source: &str) -> Vec<Name> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    tokenize(&source, false, SyntaxConfig::default())
        .map_while(std::result::Result::ok)
        .filter_map(|(token, _)| match token {
            Token::Str(text) => Some(text.into()),
            Token::String(text) => Some(text.into()),
            _ => None,
        })
        .collect()
}
