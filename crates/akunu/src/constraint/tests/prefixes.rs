//! No accepted prefix is a dead end: whatever was chosen, there is a way to the end.

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

/// Chooses `picks` tokens, then the shortest way out.
fn reaches_an_end(mut matcher: Matcher, picks: &[usize]) -> Result<(), String> {
    let end = tokenizer().eog_ids()[0];
    let mut text = Vec::new();
    for step in 0..picks.len() + 400 {
        if matcher.is_finished() {
            return Ok(());
        }
        let tokens = allowed(&mut matcher);
        assert_eq!(tokens.contains(&end), matcher.may_end().unwrap());
        let tokens: Vec<u32> = tokens.into_iter().filter(|&token| token != end).collect();
        let chosen = match picks.get(step) {
            Some(_) if tokens.is_empty() => return Ok(()),
            Some(pick) => tokens[pick % tokens.len()],
            None if matcher.may_end().unwrap() => return Ok(()),
            None => {
                let out = WAYS_OUT.iter().map(|&byte| u32::from(byte)).find(|token| tokens.contains(token));
                out.or(tokens.first().copied()).ok_or(format!("dead end after {text:?}"))?
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

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
    fn no_prefix_of_a_sentence_is_a_dead_end(picks in prop::collection::vec(any::<usize>(), 0..40)) {
        let tested = Tested::new();
        for grammar in [
            "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | [a-z]+ | [0-9]{1,3} \".\"",
            "root ::= root \"+\" [0-9]+ | [0-9]+\n",
        ] {
            let matcher = tested.matcher(&Constraint::gbnf(grammar).unwrap());
            prop_assert_eq!(reaches_an_end(matcher, &picks), Ok(()), "{}", grammar);
        }
    }
}
