//! A template as data: what `parse` makes and `eval` walks.
//!
//! Chains that a parser nests to the left (`a + b + c`, `a.b.c|d`) are lists here, so that walking and dropping
//! a template never needs more native stack than its nesting in the source.

use std::sync::Arc;

use super::text::Text;

pub(super) type Name = Arc<str>;
pub(super) type Block = Vec<Stmt>;

#[derive(Debug)]
pub(super) struct Stmt {
    pub(super) line: u32,
    pub(super) kind: StmtKind,
}

#[derive(Debug)]
pub(super) enum StmtKind {
    /// Literal text between tags.
    Text(Text),
    /// `{{ expr }}`
    Emit(Expr),
    /// `if`, any `elif`, and `else`: the first branch whose condition holds runs.
    If {
        branches: Vec<(Expr, Block)>,
        otherwise: Block,
    },
    For(Arc<For>),
    Set {
        target: Target,
        value: Expr,
    },
    /// `{% set x %}...{% endset %}`, through the filters from first to last.
    SetBlock {
        target: Target,
        filters: Vec<Filter>,
        body: Block,
    },
    /// `{% filter f %}...{% endfilter %}`
    FilterBlock {
        filters: Vec<Filter>,
        body: Block,
    },
    With {
        assignments: Vec<(Target, Expr)>,
        body: Block,
    },
    /// A block with its own scope and nothing else: `{% generation %}`, `{% block %}`.
    Scope(Block),
    Macro(Arc<Macro>),
    /// `{% call m() %}...{% endcall %}`: `callee` is called with the body as `caller`.
    Call {
        callee: Expr,
        args: Vec<Arg>,
        caller: Arc<Macro>,
    },
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Expr,
    pub(super) only_if: Option<Expr>,
    pub(super) recursive: bool,
    pub(super) body: Block,
    pub(super) otherwise: Block,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Name,
    pub(super) params: Vec<Param>,
    /// Whether the body names `varargs` or `kwargs`: only then may a call pass more than the parameters.
    pub(super) takes_varargs: bool,
    pub(super) takes_kwargs: bool,
    pub(super) body: Block,
}

#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: Name,
    pub(super) default: Option<Expr>,
}

/// What an assignment writes to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Name),
    /// `ns.attribute`, only for namespaces.
    Attribute(Name, Name),
    /// `a, b`: the value is taken apart.
    Unpack(Vec<Target>),
}

#[derive(Debug)]
pub(super) struct Expr {
    pub(super) line: u32,
    pub(super) kind: ExprKind,
}

#[derive(Debug)]
pub(super) enum ExprKind {
    Const(Const),
    Var(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    /// `a and b and c`: the first that is false, or the last.
    And(Vec<Expr>),
    /// `a or b or c`: the first that is true, or the last.
    Or(Vec<Expr>),
    /// `a + b - c`, from left to right.
    Binary(Box<Expr>, Vec<(BinaryOp, Expr)>),
    /// `a < b <= c`: every neighbouring pair must hold.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    IfElse {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    /// A value and what is applied to it, from left to right.
    Postfix(Box<Expr>, Vec<Postfix>),
}

#[derive(Debug)]
pub(super) enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
}

#[derive(Debug)]
pub(super) struct Postfix {
    pub(super) line: u32,
    pub(super) kind: PostfixKind,
}

#[derive(Debug)]
pub(super) enum PostfixKind {
    Attribute(Name),
    Item(Expr),
    Slice { start: Option<Expr>, stop: Option<Expr>, step: Option<Expr> },
    Call(Vec<Arg>),
    Filter(Filter),
    Test(Name, Vec<Arg>),
}

#[derive(Debug)]
pub(super) struct Filter {
    pub(super) line: u32,
    pub(super) name: Name,
    pub(super) args: Vec<Arg>,
}

#[derive(Debug)]
pub(super) enum Arg {
    Positional(Expr),
    Keyword(Name, Expr),
    /// `*list`
    Spread(Expr),
    /// `**mapping`
    SpreadKeywords(Expr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
    /// `~`: both sides as text.
    Concat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
