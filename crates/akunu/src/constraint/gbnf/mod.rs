//! Grammars in llama.cpp's notation, GBNF.
//!
//! GBNF has no words: its grammars are over characters. The engine has a lexer, which takes the longest match. So that the two
//! accept the same texts, every character of a grammar becomes a terminal of its own, except that runs of a class (`[a-z]*`)
//! become one terminal where that provably changes nothing ([`runs`]): with them masks are quick.

mod class;
mod parse;
mod runs;
mod write;

use crate::Result;

/// A grammar as it was read. Rule 0 is the root.
#[derive(Debug)]
struct Rules {
    bodies: Vec<Node>,
}

/// What a rule may be.
#[derive(Clone, Debug)]
enum Node {
    /// One character.
    Character(class::Class),
    /// A run of characters of one class, one at least, as one terminal.
    Run(class::Class),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// The same grammar in Lark.
pub(super) fn to_lark(text: &str) -> Result<String> {
    let mut rules = parse::parse(text)?;
    runs::join(&mut rules);
    Ok(write::lark(&rules))
}
