//! Input that means harm: refused, or compiled, in little time.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Tested;
use crate::constraint::Constraint;
use crate::{Error, Result};

/// Generous: these run beside others, in unoptimised builds.
const LIMIT: Duration = Duration::from_secs(20);

/// Makes and compiles a constraint, takes a mask and a few steps, and gives the first error.
fn run(tested: &Tested, make: impl FnOnce() -> Result<Constraint>) -> Result<()> {
    let begin = Instant::now();
    let result = make().and_then(|constraint| {
        let mut matcher = tested.compiler.matcher(&constraint, &tested.tokenizer)?;
        for _ in 0..10 {
            let mask = matcher.mask()?;
            let first = (0..311).find(|token| mask[token / 32] >> (token % 32) & 1 == 1);
            if matcher.is_finished() {
                break;
            }
            matcher.commit(first.unwrap_or(310) as u32)?;
        }
        Ok(())
    });
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    result
}

fn problem(result: Result<()>) -> String {
    match result.unwrap_err() {
        Error::Constraint { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_too_large_is_refused_before_it_is_read() {
    let tested = Tested::new();
    assert!(problem(run(&tested, || Constraint::regex(&"a".repeat(10 << 20)))).contains("65536"));
    assert!(
        problem(run(&tested, || Constraint::gbnf(&"root ::= \"a\"\n".repeat(1 << 20)))).contains("1048576")
    );
    assert!(problem(run(&tested, || Constraint::lark(&" ".repeat(2 << 20)))).contains("1048576"));
    let many: Vec<usize> = (0..400_000).collect();
    assert!(problem(run(&tested, || Constraint::json_schema(&json!({"enum": many})))).contains("1048576"));
}

#[test]
fn catastrophic_expressions_end() {
    let tested = Tested::new();
    for pattern in [
        "(a+)+b".to_owned(),
        "(a|a|a|ab|b)*(a|b)*(ab|a)*c".to_owned(),
        "((a{0,100}){0,100}){0,100}".to_owned(),
        "(?:a?){500}a{500}".to_owned(),
        "[a-z]*[a-y]*[a-x]*[a-w]*[a-v]*!".repeat(50),
        format!("(?:{})*x", (0..2000).map(|i| format!("a{i}b")).collect::<Vec<_>>().join("|")),
        ".*a.{200}".to_owned(),
        "(".repeat(5000) + &")".repeat(5000),
        "a{4294967295}".to_owned(),
        "x((a{60000}b){60000})".to_owned(),
        "(?=a)b".to_owned(),
        "(a".to_owned(),
        "\\p{Nonsense}".to_owned(),
    ] {
        // Whatever comes of it, it comes soon, and a refusal has a place.
        if let Err(error) = run(&tested, || Constraint::regex(&pattern)) {
            let Error::Constraint { place, .. } = &error else { panic!("{error}") };
            assert!(place.starts_with("line "), "{error}");
        }
    }
    assert!(run(&tested, || Constraint::regex("(a")).is_err());
    assert!(run(&tested, || Constraint::regex("(?=a)b")).is_err());
}

#[test]
fn short_grammars_do_not_wait_for_large_ones() {
    let tested = std::sync::Arc::new(Tested::new());
    tested.matcher(&Constraint::regex("x").unwrap());
    let rules: String = (0..2000).map(|i| format!("r{i}: \"{i}x\" r{i} | \"{i}y\"\n")).collect();
    let names: Vec<String> = (0..2000).map(|i| format!("r{i}")).collect();
    let large = Constraint::lark(&format!("start: {}\n{rules}", names.join(" | "))).unwrap();
    let own = std::sync::Arc::clone(&tested);
    let begin = Instant::now();
    let thread = std::thread::spawn(move || {
        let _ = own.compiler.matcher(&large, &own.tokenizer);
        begin.elapsed()
    });
    std::thread::sleep(Duration::from_millis(5));
    tested.matcher(&Constraint::regex("[0-9]+").unwrap());
    let short = begin.elapsed();
    let large = thread.join().unwrap();
    assert!(short < large, "{short:?} and {large:?}");
}

#[test]
fn many_choices_are_as_good_as_few() {
    let tested = Tested::new();
    let many: Vec<String> = (0..20_000).map(|i| format!("value {i}")).collect();
    run(&tested, || Constraint::choice(&many)).unwrap();
    run(&tested, || Constraint::json_schema(&json!({"enum": many}))).unwrap();
}

#[test]
fn looking_for_the_place_of_a_complaint_ends() {
    let tested = Tested::new();
    let heavy = |i: usize| {
        (format!("k{i}"), json!({"type": "string", "pattern": format!("{i}{}", "(a|b)*c".repeat(500))}))
    };
    let properties: serde_json::Map<_, _> = (0..200).map(heavy).collect();
    let names: Vec<String> = properties.keys().cloned().collect();
    let schema = json!({"type": "object", "properties": properties, "required": names});
    let result = run(&tested, || Constraint::json_schema(&schema));
    assert!(problem(result).contains("too big"));
}

#[test]
fn what_was_refused_is_refused_again_at_once() {
    let tested = Tested::new();
    let heavy = (0..4000).map(|i| format!("\"{i}x\" r")).collect::<Vec<_>>().join(" | ");
    let constraint = Constraint::lark(&format!("start: r\nr: {heavy} | r r | nowhere")).unwrap();
    let first = tested.refused(&constraint);
    let begin = Instant::now();
    assert_eq!(tested.refused(&constraint), first);
    assert!(begin.elapsed() < Duration::from_millis(50), "{:?}", begin.elapsed());
}

#[test]
fn deep_and_long_grammars_end() {
    let tested = Tested::new();
    let chain = |n: usize, last: &str| {
        let rules = (0..n).map(|i| format!("r{i} ::= r{}\n", i + 1));
        format!("root ::= r0\n{}r{n} ::= {last}\n", rules.collect::<String>())
    };
    run(&tested, || Constraint::gbnf(&chain(3000, "\"a\""))).unwrap();
    assert!(problem(run(&tested, || Constraint::gbnf(&chain(5000, "\"a\"")))).contains("4096 rules"));
    let many = (0..99_000).map(|i| format!("\"{i}\"")).collect::<Vec<_>>().join(" | ");
    let begin = Instant::now();
    let problem_of_many = problem(run(&tested, || Constraint::gbnf(&format!("root ::= {many}"))));
    assert!(
        problem_of_many.contains("5000 alternatives") && begin.elapsed() < LIMIT / 10,
        "{problem_of_many}"
    );
    let long = format!("root ::= \"{}\"", "a".repeat(200_000));
    assert!(problem(run(&tested, || Constraint::gbnf(&long))).contains("100000"));
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(5000), ")".repeat(5000));
    assert!(problem(run(&tested, || Constraint::gbnf(&deep))).contains("nested deeper"));
    let _ = run(&tested, || Constraint::gbnf("root ::= ((\"a\"{0,2000}){0,2000}){0,2000}"));
    let _ = run(&tested, || Constraint::gbnf("root ::= root root | root | \"a\""));
    let _ = run(&tested, || Constraint::lark("start: start start | \"a\" |"));
    let doubled = (0..40).map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1)).collect::<String>();
    let _ = run(&tested, || Constraint::gbnf(&format!("root ::= r0\n{doubled}r40 ::= \"a\"")));
}

#[test]
fn schemas_that_grow_without_end_are_refused() {
    let tested = Tested::new();
    let mut definitions = serde_json::Map::new();
    for i in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
        definitions.insert(format!("d{i}"), json!({"oneOf": [next, next, {"type": "null"}]}));
    }
    definitions.insert("d30".to_owned(), json!({"type": "string"}));
    let _ = run(&tested, || Constraint::json_schema(&json!({"$ref": "#/$defs/d0", "$defs": definitions})));
    let _ = run(&tested, || Constraint::json_schema(&json!({"$ref": "#"})));
    let _ = run(&tested, || Constraint::json_schema(&json!({"allOf": [{"$ref": "#"}]})));
    let _ = run(&tested, || {
        Constraint::json_schema(
            &json!({"type": "string", "minLength": 100_000_000, "maxLength": 200_000_000}),
        )
    });
    let _ = run(&tested, || {
        Constraint::json_schema(
            &json!({"type": "array", "items": {"type": "array", "minItems": 1_000_000}, "minItems": 1_000_000}),
        )
    });
    let patterns: serde_json::Map<_, _> =
        (0..200).map(|i| (format!("^[a-z]*{i}[a-z]*$"), json!({"type": "integer"}))).collect();
    let _ =
        run(&tested, || Constraint::json_schema(&json!({"type": "object", "patternProperties": patterns})));
}
