//! Where `[a-z]*` may be one terminal.
//!
//! The engine's lexer takes the longest match and forgets the others. A run is therefore safe where no text of the grammar could
//! end it earlier, or begin something else with its characters: where
//!
//! 1. no character of the run's class can follow the run, and
//! 2. wherever the run may begin together with another terminal that shares characters with it, what may follow that terminal
//!    begins with no character of the run (and, if that one is a run too, the other way round).
//!
//! Which terminals may follow each other, and which may begin at the same place, is taken from the grammar without regard to
//! how its rules are nested. That finds more than there is, never less, so what passes is safe.

use super::class::Class;
use super::{Node, Rules};

/// Terminals of a grammar that are compared with each other; in a larger one nothing is joined.
const MOST_TERMINALS: usize = 400;

/// Makes runs terminals where that changes nothing.
pub(super) fn join(rules: &mut Rules) {
    rules.bodies.iter_mut().for_each(spread);
    let mut joined = vec![true; rules.bodies.iter().map(candidates).sum()];
    while joined.contains(&true) {
        let attempt = with_runs(rules, &joined);
        let Some(places) = Places::of(&attempt) else { return };
        let bad = places.unsafe_runs();
        if bad.is_empty() {
            *rules = attempt;
            return;
        }
        // Runs are numbered in the order of the candidates that are joined.
        let mut runs = joined.iter_mut().filter(|joined| **joined);
        let mut passed = 0;
        for run in bad {
            if let Some(joined) = runs.nth(run - passed) {
                *joined = false;
            }
            passed = run + 1;
        }
    }
}

/// Writes `([a-z] | x)*` as `[a-z]* (x [a-z]*)*`, which is the same and has runs.
fn spread(node: &mut Node) {
    match node {
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter_mut().for_each(spread),
        Node::Repeat(inner, least, most) => {
            spread(inner);
            if let (Node::Choice(options), 0 | 1, None) = (&**inner, *least, *most)
                && let Some((class, others)) = apart(options)
            {
                let run = |least| Node::Repeat(Box::new(Node::Character(class.clone())), least, None);
                let rounds = |least| {
                    let round = Node::Sequence(vec![others.clone(), run(0)]);
                    Node::Repeat(Box::new(round), least, None)
                };
                *node = if *least == 0 {
                    Node::Sequence(vec![run(0), rounds(0)])
                } else {
                    Node::Choice(vec![Node::Sequence(vec![run(1), rounds(0)]), rounds(1)])
                };
            }
        }
        Node::Character(_) | Node::Run(_) | Node::Rule(_) => {}
    }
}

/// Alternatives that are single characters, as one class, and the others; `None` unless there are both.
fn apart(options: &[Node]) -> Option<(Class, Node)> {
    let class = |node: &Node| if let Node::Character(class) = node { Some(class.clone()) } else { None };
    let classes: Vec<Class> = options.iter().filter_map(class).collect();
    let others: Vec<Node> = options.iter().filter(|node| class(node).is_none()).cloned().collect();
    (!classes.is_empty() && !others.is_empty()).then(|| (Class::union(&classes), Node::Choice(others)))
}

/// Whether a node could be a run, and what it would be.
fn as_run(node: &Node) -> Option<Node> {
    match node {
        Node::Repeat(inner, least @ (0 | 1), None) => match &**inner {
            Node::Character(class) if *least == 1 => Some(Node::Run(class.clone())),
            Node::Character(class) => Some(Node::Repeat(Box::new(Node::Run(class.clone())), 0, Some(1))),
            _ => None,
        },
        _ => None,
    }
}

fn candidates(node: &Node) -> usize {
    match node {
        node if as_run(node).is_some() => 1,
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().map(candidates).sum(),
        Node::Repeat(inner, ..) => candidates(inner),
        Node::Character(_) | Node::Run(_) | Node::Rule(_) => 0,
    }
}

fn with_runs(rules: &Rules, joined: &[bool]) -> Rules {
    let mut joined = joined.iter().copied();
    Rules { bodies: rules.bodies.iter().map(|body| replaced(body, &mut joined)).collect() }
}

fn replaced(node: &Node, joined: &mut impl Iterator<Item = bool>) -> Node {
    if let Some(run) = as_run(node) {
        return if joined.next().unwrap_or(false) { run } else { node.clone() };
    }
    match node {
        Node::Sequence(nodes) => Node::Sequence(nodes.iter().map(|node| replaced(node, joined)).collect()),
        Node::Choice(nodes) => Node::Choice(nodes.iter().map(|node| replaced(node, joined)).collect()),
        Node::Repeat(inner, least, most) => Node::Repeat(Box::new(replaced(inner, joined)), *least, *most),
        Node::Character(_) | Node::Run(_) | Node::Rule(_) => node.clone(),
    }
}

/// A set of terminals, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Set([u64; MOST_TERMINALS.div_ceil(64)]);

impl Set {
    fn insert(&mut self, terminal: usize) {
        self.0[terminal / 64] |= 1 << (terminal % 64);
    }

    fn add(&mut self, other: &Set) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    fn without(&self, other: &Set) -> Set {
        let mut set = self.clone();
        set.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own &= !other);
        set
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let bits = |(i, word): (usize, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| i * 64 + bit)
        };
        self.0.into_iter().enumerate().flat_map(bits)
    }
}

/// What is known of a part of a grammar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    may_be_empty: bool,
    first: Set,
    last: Set,
}

/// Terminals and their neighbours.
struct Places {
    classes: Vec<Class>,
    is_run: Vec<bool>,
    /// `[terminal]`: those that may come right after it.
    after: Vec<Set>,
    /// `[terminal]`: those that may begin where it begins.
    beside: Vec<Set>,
}

impl Places {
    /// `None` for a grammar with too many terminals.
    fn of(rules: &Rules) -> Option<Places> {
        let mut places =
            Places { classes: Vec::new(), is_run: Vec::new(), after: Vec::new(), beside: Vec::new() };
        rules.bodies.iter().for_each(|body| places.number(body));
        let count = places.classes.len();
        if count > MOST_TERMINALS {
            return None;
        }
        places.after = vec![Set::default(); count];
        places.beside = vec![Set::default(); count];
        let mut facts = vec![Facts::default(); rules.bodies.len()];
        loop {
            let before = (facts.clone(), places.after.clone());
            let mut next = 0;
            for (rule, body) in rules.bodies.iter().enumerate() {
                facts[rule] = places.visit(body, &facts, &mut next);
            }
            if before == (facts.clone(), places.after.clone()) {
                break;
            }
        }
        places.compare(&facts[0].first);
        Some(places)
    }

    fn number(&mut self, node: &Node) {
        match node {
            Node::Character(class) | Node::Run(class) => {
                self.classes.push(class.clone());
                self.is_run.push(matches!(node, Node::Run(_)));
            }
            Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().for_each(|node| self.number(node)),
            Node::Repeat(inner, ..) => self.number(inner),
            Node::Rule(_) => {}
        }
    }

    fn visit(&mut self, node: &Node, rules: &[Facts], next: &mut usize) -> Facts {
        match node {
            Node::Character(_) | Node::Run(_) => {
                let mut set = Set::default();
                set.insert(*next);
                *next += 1;
                Facts { may_be_empty: false, first: set.clone(), last: set }
            }
            Node::Rule(rule) => rules[*rule].clone(),
            Node::Choice(nodes) => {
                let mut facts = Facts::default();
                for node in nodes {
                    let own = self.visit(node, rules, next);
                    facts.may_be_empty |= own.may_be_empty;
                    facts.first.add(&own.first);
                    facts.last.add(&own.last);
                }
                facts
            }
            Node::Sequence(nodes) => {
                let mut facts = Facts { may_be_empty: true, ..Facts::default() };
                for node in nodes {
                    let own = self.visit(node, rules, next);
                    self.follow(&facts.last, &own.first);
                    if facts.may_be_empty {
                        facts.first.add(&own.first);
                    }
                    if own.may_be_empty {
                        facts.last.add(&own.last);
                    } else {
                        facts.last = own.last;
                    }
                    facts.may_be_empty &= own.may_be_empty;
                }
                facts
            }
            Node::Repeat(inner, least, most) => {
                let mut facts = self.visit(inner, rules, next);
                if *most != Some(1) {
                    let Facts { first, last, .. } = &facts;
                    self.follow(last, first);
                }
                facts.may_be_empty |= *least == 0;
                facts
            }
        }
    }

    fn follow(&mut self, last: &Set, first: &Set) {
        last.iter().for_each(|terminal| self.after[terminal].add(first));
    }

    /// Finds the terminals that may begin at the same place: first those of the beginning, then those that follow terminals
    /// which begin at the same place and can be the same text.
    fn compare(&mut self, first: &Set) {
        let mut open: Vec<(usize, usize)> = Vec::new();
        let after = |own: &Places, terminal: usize| {
            let mut set = own.after[terminal].clone();
            // A run may also go on.
            if own.is_run[terminal] {
                set.insert(terminal);
            }
            set
        };
        let meet = |own: &mut Places, some: &Set, others: &Set, open: &mut Vec<(usize, usize)>| {
            for terminal in some.iter() {
                let new = others.without(&own.beside[terminal]);
                own.beside[terminal].add(&new);
                for other in new.iter() {
                    own.beside[other].insert(terminal);
                    open.push((terminal, other));
                }
            }
        };
        meet(self, first, first, &mut open);
        while let Some((a, b)) = open.pop() {
            if a == b || self.classes[a].meets(&self.classes[b]) {
                let (after_a, after_b) = (after(self, a), after(self, b));
                meet(self, &after_a, &after_b, &mut open);
            }
        }
    }

    /// The runs that are not safe, numbered among runs.
    fn unsafe_runs(&self) -> Vec<usize> {
        let runs = (0..self.classes.len()).filter(|&terminal| self.is_run[terminal]);
        runs.enumerate().filter(|&(_, terminal)| !self.is_safe(terminal)).map(|(number, _)| number).collect()
    }

    fn is_safe(&self, run: usize) -> bool {
        let class = &self.classes[run];
        let followed_by = |terminal: usize, class: &Class| {
            self.after[terminal].iter().any(|next| self.classes[next].meets(class))
        };
        let harmless = |other: usize| {
            let theirs = &self.classes[other];
            !theirs.meets(class)
                || (!followed_by(other, class) && (!self.is_run[other] || !followed_by(run, theirs)))
        };
        !followed_by(run, class) && self.beside[run].iter().filter(|&other| other != run).all(harmless)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::write::lark;
    use super::*;

    /// How many runs become terminals.
    fn joined(grammar: &str) -> usize {
        let mut rules = parse(grammar).unwrap();
        join(&mut rules);
        lark(&rules).matches("]+/").count()
    }

    #[test]
    fn runs_that_nothing_could_cut_short_are_joined() {
        assert_eq!(joined("root ::= \"\\\"\" [^\"]* \"\\\"\""), 1);
        assert_eq!(joined("root ::= [0-9]+ (\".\" [0-9]+)?"), 2);
        assert_eq!(joined("root ::= item (\", \" item)*\nitem ::= [a-z]+"), 1);
        // A string of JSON.
        assert_eq!(joined(r#"root ::= "\"" ([^"\\] | "\\" ["n])* "\"""#), 2);
    }

    #[test]
    fn runs_that_could_end_earlier_are_not() {
        assert_eq!(joined("root ::= [a-z]* \"z\""), 0);
        assert_eq!(joined("root ::= ([a-z]+)+"), 0);
        assert_eq!(joined("root ::= [a-z]+ [a-f0-9]+"), 0);
        // A keyword that begins like a name: with letters after it, or with something else.
        assert_eq!(joined("root ::= \"if\" [a-z]+ | [a-z]+ \"=\""), 0);
        assert_eq!(joined("root ::= \"i\" \"=\" | [a-z]+ \"=\""), 1);
    }
}
