//! Reading GBNF. Every error has its line and column.

use std::collections::HashMap;

use super::class::Class;
use super::{Node, Rules};
use crate::Result;
use crate::constraint::Language;

const MOST_RULES: usize = 4096;
/// Beyond these the engine would refuse the grammar too, after seconds.
const MOST_ALTERNATIVES: usize = 5000;
const MOST_SYMBOLS: usize = 100_000;
/// Groups within groups.
const DEEPEST: usize = 64;
/// Repetitions that are counted, as in llama.cpp.
const MOST_TIMES: u32 = 2000;

/// Reads a grammar.
pub(super) fn parse(text: &str) -> Result<Rules> {
    let mut parser = Parser {
        rest: text,
        line: 1,
        column: 1,
        names: HashMap::new(),
        rules: Vec::new(),
        depth: 0,
        symbols: 0,
    };
    // The root is the first whatever the order.
    parser.rule_number("root");
    parser.grammar()?;
    let root = parser.rules[0].place.unwrap_or((1, 1));
    let mut bodies = Vec::with_capacity(parser.rules.len());
    for rule in parser.rules {
        match rule.body {
            Some(body) => bodies.push(body),
            None if rule.name == "root" && rule.named_at.is_none() => {
                return Err(Language::Gbnf.error("line 1, column 1", "there is no rule \"root\""));
            }
            None => {
                let problem = format!("there is no rule {:?}", rule.name);
                return Err(error(rule.named_at.unwrap_or((1, 1)), problem));
            }
        }
    }
    prune(bodies, root)
}

struct Rule {
    name: String,
    body: Option<Node>,
    place: Option<Place>,
    /// Where it was first referred to.
    named_at: Option<Place>,
}

/// Line and column, counted from 1.
type Place = (usize, usize);

fn error((line, column): Place, problem: impl Into<String>) -> crate::Error {
    Language::Gbnf.error(format!("line {line}, column {column}"), problem)
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    column: usize,
    names: HashMap<String, usize>,
    rules: Vec<Rule>,
    depth: usize,
    /// Characters, classes and names of rules so far.
    symbols: usize,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn place(&self) -> Place {
        (self.line, self.column)
    }

    fn fail<T>(&self, problem: impl Into<String>) -> Result<T> {
        Err(error(self.place(), problem))
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest.starts_with(text);
        for _ in text.chars().filter(|_| found) {
            self.next();
        }
        found
    }

    /// Skips blanks and comments, and the ends of lines too where they mean nothing.
    fn blanks(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {}
                '\r' | '\n' if lines => {}
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n' && c != '\r') {
                        self.next();
                    }
                    continue;
                }
                _ => break,
            }
            self.next();
        }
    }

    fn name(&mut self) -> Option<String> {
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let name = self.rest[..end].to_owned();
        (!name.is_empty() && self.eat(&name)).then_some(name)
    }

    fn rule_number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        self.names.insert(name.to_owned(), self.rules.len());
        self.rules.push(Rule { name: name.to_owned(), body: None, place: None, named_at: None });
        self.rules.len() - 1
    }

    fn grammar(&mut self) -> Result<()> {
        self.blanks(true);
        while self.peek().is_some() {
            let place = self.place();
            let Some(name) = self.name() else { return self.fail("a rule's name was expected") };
            self.blanks(false);
            if !self.eat("::=") {
                return self.fail("\"::=\" was expected");
            }
            self.blanks(true);
            let body = self.choice(false)?;
            let number = self.rule_number(&name);
            self.rules[number].place.get_or_insert(place);
            if self.rules[number].body.replace(body).is_some() {
                return Err(error(place, format!("the rule {name:?} stands here a second time")));
            }
            if self.rules.len() > MOST_RULES {
                return Err(error(place, format!("there are more than {MOST_RULES} rules")));
            }
            if !matches!(self.peek(), None | Some('\n' | '\r')) {
                return self.fail("the end of the rule was expected");
            }
            self.blanks(true);
        }
        Ok(())
    }

    /// Alternatives. In a group they go on over the ends of lines.
    fn choice(&mut self, group: bool) -> Result<Node> {
        let mut options = vec![self.sequence(group)?];
        loop {
            let (rest, line, column) = (self.rest, self.line, self.column);
            self.blanks(true);
            if !self.eat("|") {
                // The end of a line ends a rule.
                (self.rest, self.line, self.column) = (rest, line, column);
                break;
            }
            if options.len() == MOST_ALTERNATIVES {
                return self.fail(format!("there are more than {MOST_ALTERNATIVES} alternatives"));
            }
            self.blanks(true);
            options.push(self.sequence(group)?);
        }
        Ok(if options.len() == 1 { options.swap_remove(0) } else { Node::Choice(options) })
    }

    fn sequence(&mut self, group: bool) -> Result<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        loop {
            self.blanks(group);
            let Some(c) = self.peek() else { break };
            let node = match c {
                '"' => self.literal()?,
                '[' => Node::Character(self.class()?),
                '.' => {
                    self.next();
                    Node::Character(Class::any())
                }
                '(' => self.group()?,
                '*' | '+' | '?' | '{' => return self.fail("there is nothing to repeat"),
                '<' | '!' => return self.fail("tokens by name are not supported: write their text"),
                c if is_name(c) => self.reference(),
                _ => break,
            };
            self.symbols += if let Node::Sequence(characters) = &node { characters.len() } else { 1 };
            if self.symbols > MOST_SYMBOLS {
                return self
                    .fail(format!("there are more than {MOST_SYMBOLS} characters, classes and names"));
            }
            nodes.push(self.repeated(node)?);
        }
        Ok(if nodes.len() == 1 { nodes.swap_remove(0) } else { Node::Sequence(nodes) })
    }

    fn reference(&mut self) -> Node {
        let place = self.place();
        let name = self.name().unwrap_or_default();
        let number = self.rule_number(&name);
        self.rules[number].named_at.get_or_insert(place);
        Node::Rule(number)
    }

    fn group(&mut self) -> Result<Node> {
        let place = self.place();
        self.next();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(error(place, format!("groups are nested deeper than {DEEPEST}")));
        }
        self.blanks(true);
        let node = self.choice(true)?;
        self.blanks(true);
        self.depth -= 1;
        if !self.eat(")") {
            return self.fail(format!(
                "\")\" was expected, for the group from line {}, column {}",
                place.0, place.1
            ));
        }
        Ok(node)
    }

    fn repeated(&mut self, node: Node) -> Result<Node> {
        let mut node = node;
        loop {
            let place = self.place();
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.times()?,
                _ => return Ok(node),
            };
            if most.is_some_and(|most| most < least) {
                return Err(error(place, "the most times are less than the least"));
            }
            if least.max(most.unwrap_or(0)) > MOST_TIMES {
                return Err(error(place, format!("more than {MOST_TIMES} times")));
            }
            // The sign, or the closing brace.
            self.next();
            node = match most {
                Some(0) => Node::Sequence(Vec::new()),
                _ => Node::Repeat(Box::new(node), least, most),
            };
        }
    }

    /// `{m}`, `{m,}` and `{m,n}`, up to the closing brace.
    fn times(&mut self) -> Result<(u32, Option<u32>)> {
        self.next();
        self.blanks(false);
        let Some(least) = self.number() else { return self.fail("a number was expected") };
        self.blanks(false);
        let mut most = Some(least);
        if self.eat(",") {
            self.blanks(false);
            most = self.number();
            self.blanks(false);
        }
        if self.peek() != Some('}') {
            return self.fail("\"}\" was expected");
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Option<u32> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let digits = self.rest[..end].to_owned();
        if digits.is_empty() {
            return None;
        }
        self.eat(&digits);
        Some(digits.parse().unwrap_or(u32::MAX))
    }

    fn literal(&mut self) -> Result<Node> {
        let place = self.place();
        self.next();
        let mut characters = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(error(place, "the literal has no end")),
                Some('"') => break,
                Some(_) => characters.push(Node::Character(Class::one(self.character()?))),
            }
        }
        self.next();
        Ok(if characters.len() == 1 { characters.swap_remove(0) } else { Node::Sequence(characters) })
    }

    fn class(&mut self) -> Result<Class> {
        let place = self.place();
        self.next();
        let negated = self.eat("^");
        let mut ranges = Vec::new();
        loop {
            match self.peek() {
                None | Some('\n') => return Err(error(place, "the class has no end")),
                Some(']') => break,
                Some(_) => {}
            }
            let at = self.place();
            let from = self.character()?;
            let mut to = from;
            // A minus before the end is one.
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                to = self.character()?;
            }
            if to < from {
                return Err(error(at, format!("the range from {from:?} to {to:?} is empty")));
            }
            ranges.push((from as u32, to as u32));
        }
        self.next();
        let class = Class::new(ranges);
        Ok(if negated { class.negated() } else { class })
    }

    /// One character, perhaps escaped.
    fn character(&mut self) -> Result<char> {
        let place = self.place();
        let Some(c) = self.next() else { return self.fail("a character was expected") };
        if c != '\\' {
            return Ok(c);
        }
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => return Err(error(place, "the escape is not known")),
        };
        let code = self.rest.get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                for _ in 0..digits {
                    self.next();
                }
                Ok(c)
            }
            None => Err(error(place, format!("{digits} hexadecimal digits of a character were expected"))),
        }
    }
}

/// Leaves out alternatives that no text follows, so that no text can get stuck in one. `root` is where the root stands.
fn prune(mut bodies: Vec<Node>, root: Place) -> Result<Rules> {
    let mut productive = vec![false; bodies.len()];
    loop {
        let before = productive.clone();
        for (i, body) in bodies.iter().enumerate() {
            productive[i] = productive[i] || ends(body, &productive);
        }
        if productive == before {
            break;
        }
    }
    if !productive[0] {
        return Err(error(root, "no text follows the rule \"root\": it has no end"));
    }
    bodies.iter_mut().for_each(|body| keep_ending(body, &productive));
    Ok(Rules { bodies })
}

fn ends(node: &Node, productive: &[bool]) -> bool {
    match node {
        Node::Character(class) | Node::Run(class) => !class.is_empty(),
        Node::Rule(rule) => productive[*rule],
        Node::Sequence(nodes) => nodes.iter().all(|node| ends(node, productive)),
        Node::Choice(nodes) => nodes.iter().any(|node| ends(node, productive)),
        Node::Repeat(node, least, _) => *least == 0 || ends(node, productive),
    }
}

fn keep_ending(node: &mut Node, productive: &[bool]) {
    match node {
        Node::Choice(nodes) => {
            nodes.retain(|node| ends(node, productive));
            nodes.iter_mut().for_each(|node| keep_ending(node, productive));
        }
        Node::Sequence(nodes) => nodes.iter_mut().for_each(|node| keep_ending(node, productive)),
        Node::Repeat(inner, ..) if !ends(inner, productive) => *node = Node::Sequence(Vec::new()),
        Node::Repeat(inner, ..) => keep_ending(inner, productive),
        Node::Character(_) | Node::Run(_) | Node::Rule(_) => {}
    }
}
