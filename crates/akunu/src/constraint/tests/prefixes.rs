//! No accepted prefix is a dead end: whatever was chosen, there is a way to the end. For schemas, expressions and grammars in
//! both notations that are made at random, over a vocabulary in which tokens cross the borders of what grammars tell apart.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Tested, tokenizer};
use crate::constraint::{Constraint, Matcher};

/// What leads out of strings, objects, arrays and numbers, the surest way first: a digit may follow a digit for ever.
const WAYS_OUT: &[u8] = b"\"}],:10eT-@.Z ";

fn allowed(matcher: &mut Matcher) -> Vec<u32> {
    let mask = matcher.mask().unwrap().to_vec();
    (0..311).filter(|&token| mask[token as usize / 32] >> (token % 32) & 1 == 1).collect()
}

/// Steps in which an end must come once it is looked for.
const STEPS: usize = 600;

/// Chooses `picks` tokens, then looks for an end: half of the steps by what leads out of most things, half at random.
fn reaches_an_end(mut matcher: Matcher, picks: &[usize]) -> Result<(), String> {
    let end = tokenizer().eog_ids()[0];
    let mut text = Vec::new();
    let mut chance = picks.iter().fold(1, |sum: usize, pick| sum.wrapping_mul(31).wrapping_add(*pick));
    for step in 0..picks.len() + STEPS {
        if matcher.is_finished() {
            return Ok(());
        }
        let tokens = allowed(&mut matcher);
        assert_eq!(tokens.contains(&end), matcher.may_end().unwrap());
        let tokens: Vec<u32> = tokens.into_iter().filter(|&token| token != end).collect();
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chosen = match picks.get(step) {
            Some(_) if tokens.is_empty() => return Ok(()),
            Some(pick) => tokens[pick % tokens.len()],
            None if matcher.may_end().unwrap() => return Ok(()),
            None if tokens.is_empty() => return Err(format!("dead end after {text:?}")),
            None => {
                let out = WAYS_OUT.iter().map(|&byte| u32::from(byte)).find(|token| tokens.contains(token));
                let other = tokens[(chance >> 33) % tokens.len()];
                if chance >> 63 == 0 { out.unwrap_or(other) } else { other }
            }
        };
        text.push(chosen);
        matcher.commit(chosen).map_err(|error| error.to_string())?;
    }
    Err(format!("no end in sight after {text:?}"))
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "null"})),
        Just(json!({"type": "string", "maxLength": 8})),
        Just(json!({"type": "string", "pattern": "^[a-c]{2,4}$"})),
        Just(json!({"type": "string", "format": "date"})),
        Just(json!({"type": "string", "format": "uuid"})),
        Just(json!({"enum": ["red", "green", 7, null]})),
        Just(json!({"const": {"k": [1, "x"]}})),
        (-50i64..50, 0i64..100)
            .prop_map(|(low, more)| json!({"type": "integer", "minimum": low, "maximum": low + more})),
        Just(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 10.5})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), 0usize..3).prop_map(|(items, least)| {
                json!({"type": "array", "items": items, "minItems": least, "maxItems": least + 2})
            }),
            prop::collection::vec((inner.clone(), any::<bool>()), 1..4).prop_map(|properties| {
                let name = |i: usize| format!("p{i}");
                let required: Vec<String> =
                    properties.iter().enumerate().filter(|(_, (_, r))| *r).map(|(i, _)| name(i)).collect();
                let properties: serde_json::Map<_, _> =
                    properties.into_iter().enumerate().map(|(i, (schema, _))| (name(i), schema)).collect();
                json!({"type": "object", "properties": properties, "required": required,
                    "additionalProperties": false})
            }),
            prop::collection::vec(inner, 2..3).prop_map(|options| json!({"anyOf": options})),
        ]
    })
}

/// Expressions over few letters, in which many ways lead to the same text.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("a".to_owned()),
        Just("ab".to_owned()),
        Just("日".to_owned()),
        Just("[a-c]".to_owned()),
        Just("[^b]".to_owned()),
        Just("\\d".to_owned()),
        Just("true".to_owned()),
    ];
    leaf.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), 0u32..3, 0u32..3)
                .prop_map(|(inner, least, more)| format!("(?:{inner}){{{least},{}}}", least + more)),
            (inner.clone(), prop_oneof![Just('*'), Just('+'), Just('?')])
                .prop_map(|(inner, times)| format!("(?:{inner}){times}")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner, 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
        ]
    })
}

/// A part of a rule.
#[derive(Clone, Debug)]
enum Item {
    /// What stands in both notations: a literal, or a class that is an expression in Lark.
    Literal(&'static str),
    Class(&'static str),
    /// A later rule, so many rules on.
    Later(usize),
    Repeated(Box<Item>, char),
}

/// How a rule may call itself.
#[derive(Clone, Copy, Debug)]
enum Recursion {
    No,
    Left,
    Right,
    Middle,
}

type Rule = (Vec<Vec<Item>>, Recursion);

fn rules(items: impl Strategy<Value = Item> + Clone + 'static) -> impl Strategy<Value = Vec<Rule>> {
    let item = prop_oneof![
        3 => items.clone(),
        1 => (1usize..3).prop_map(Item::Later),
        1 => (items, prop_oneof![Just('*'), Just('+'), Just('?')])
            .prop_map(|(item, times)| Item::Repeated(Box::new(item), times)),
    ];
    let recursion = prop_oneof![
        Just(Recursion::No),
        Just(Recursion::Left),
        Just(Recursion::Right),
        Just(Recursion::Middle)
    ];
    let alternatives = prop::collection::vec(prop::collection::vec(item, 1..4), 1..4);
    prop::collection::vec((alternatives, recursion), 1..4)
}

/// The rules in a notation: what comes first, between a name and its rule, and how classes are written.
fn written(rules: &[Rule], first: &str, is: &str, class: fn(&str) -> String) -> String {
    let mut grammar = format!("{first} {is} r0\n");
    for (i, (alternatives, recursion)) in rules.iter().enumerate() {
        let sequence = |items: &Vec<Item>| {
            items
                .iter()
                .map(|item| written_item(item, i, rules.len() - 1, class))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let base = alternatives.iter().map(sequence).collect::<Vec<_>>().join(" | ");
        let more = match recursion {
            Recursion::No => String::new(),
            Recursion::Left => format!(" | r{i} \"+\" r{i}b"),
            Recursion::Right => format!(" | r{i}b \"-\" r{i}"),
            Recursion::Middle => format!(" | \"(\" r{i} \")\""),
        };
        grammar += &format!("r{i} {is} r{i}b{more}\nr{i}b {is} {base}\n");
    }
    grammar
}

fn written_item(item: &Item, rule: usize, last: usize, class: fn(&str) -> String) -> String {
    match item {
        Item::Literal(text) => format!("\"{text}\""),
        Item::Class(name) => class(name),
        Item::Later(on) if rule + on <= last => format!("r{}", rule + on),
        Item::Later(_) => "\"z\"".to_owned(),
        Item::Repeated(inner, times) => format!("({}){times}", written_item(inner, rule, last, class)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_prefix_of_an_instance_is_a_dead_end(
        schema in schema(),
        picks in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        let tested = Tested::new();
        let matcher = tested.matcher(&Constraint::json_schema(&schema).unwrap());
        prop_assert_eq!(reaches_an_end(matcher, &picks), Ok(()), "{}", schema);
    }

    #[test]
    fn no_prefix_of_a_match_is_a_dead_end(
        expression in expression(),
        picks in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        let tested = Tested::new();
        let matcher = tested.matcher(&Constraint::regex(&expression).unwrap());
        let reached = reaches_an_end(matcher, &picks);
        // Chance seldom spells what must follow "[^b]*": such a walk may go on, as long as there is a way.
        let on_its_way = reached.as_ref().is_err_and(|error| error.starts_with("no end in sight"));
        prop_assert!(reached.is_ok() || on_its_way, "{}: {:?}", expression, reached);
    }

    #[test]
    fn no_prefix_of_a_sentence_is_a_dead_end(
        rules in rules(prop_oneof![
            Just(Item::Literal("a")), Just(Item::Literal("ab")), Just(Item::Literal("true")), Just(Item::Literal("日")),
            Just(Item::Class("[a-c]")), Just(Item::Class("[b-d]")),
        ]),
        picks in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let tested = Tested::new();
        let grammar = written(&rules, "root", "::=", str::to_owned);
        let matcher = tested.matcher(&Constraint::gbnf(&grammar).unwrap());
        prop_assert_eq!(reaches_an_end(matcher, &picks), Ok(()), "{}", grammar);
    }

    /// In Lark terminals take as much as they can, and grammars are written with that in mind: no two here begin alike.
    #[test]
    fn no_prefix_of_a_sentence_in_lark_is_a_dead_end(
        rules in rules(prop_oneof![
            Just(Item::Literal("true")), Just(Item::Literal("日本語")), Just(Item::Literal("{\\\"")),
            Just(Item::Class("[0-9]")), Just(Item::Class("[AB]{2}")),
        ]),
        picks in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let tested = Tested::new();
        let grammar = written(&rules, "start", ":", |class| format!("/{class}/"));
        let matcher = tested.matcher(&Constraint::lark(&grammar).unwrap());
        prop_assert_eq!(reaches_an_end(matcher, &picks), Ok(()), "{}", grammar);
    }
}
