//! Writing a grammar in Lark.

use super::{Node, Rules};

/// The grammar in Lark, as the engine reads it. Rules that the root does not lead to are left out.
pub(super) fn lark(rules: &Rules) -> String {
    let mut needed = vec![false; rules.bodies.len()];
    let mut open = vec![0];
    while let Some(rule) = open.pop() {
        if !std::mem::replace(&mut needed[rule], true) {
            named(&rules.bodies[rule], &mut open);
        }
    }
    let mut text = String::from("start: r0\n");
    for (i, body) in rules.bodies.iter().enumerate().filter(|(i, _)| needed[*i]) {
        text += &format!("r{i}: ");
        node(body, &mut text);
        text.push('\n');
    }
    text
}

fn named(node: &Node, found: &mut Vec<usize>) {
    match node {
        Node::Rule(rule) => found.push(*rule),
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().for_each(|node| named(node, found)),
        Node::Repeat(node, ..) => named(node, found),
        Node::Character(_) | Node::Run(_) => {}
    }
}

fn node(node_: &Node, text: &mut String) {
    match node_ {
        Node::Character(class) => *text += &format!("/{}/", class.regex()),
        Node::Run(class) => *text += &format!("/{}+/", class.regex()),
        Node::Rule(rule) => *text += &format!("r{rule}"),
        Node::Sequence(nodes) if nodes.is_empty() => text.push_str("\"\""),
        Node::Sequence(nodes) => joined(nodes, " ", text),
        Node::Choice(nodes) => joined(nodes, " | ", text),
        Node::Repeat(inner, least, most) => {
            text.push('(');
            node(inner, text);
            text.push(')');
            match (least, most) {
                (0, None) => text.push('*'),
                (1, None) => text.push('+'),
                (0, Some(1)) => text.push('?'),
                (least, None) => *text += &format!("{{{least},}}"),
                (least, Some(most)) => *text += &format!("{{{least},{most}}}"),
            }
        }
    }
}

fn joined(nodes: &[Node], between: &str, text: &mut String) {
    text.push('(');
    for (i, part) in nodes.iter().enumerate() {
        if i > 0 {
            text.push_str(between);
        }
        node(part, text);
    }
    text.push(')');
}
