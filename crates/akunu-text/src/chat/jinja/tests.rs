//! The language as a whole: small templates against what Hugging Face's environment makes of them, and what
//! hostile templates cost.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{ErrorKind, Input, Limits, Template, TemplateError};
use crate::chat::clock::DateTime;

const NOW: DateTime = DateTime { year: 2026, month: 3, day: 5, hour: 14, minute: 7, second: 9 };

fn render_with(source: &str, variables: &Json, limits: Limits) -> Result<String, TemplateError> {
    let inputs: Vec<(&str, Input<'_>)> = variables
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), Input::Content(value)))
        .collect();
    Ok(Template::parse(source)?.render(&inputs, NOW, limits)?.as_str().to_owned())
}

/// Limits that are reached at once.
const SMALL: Limits = Limits { steps: 400_000, memory: 16 << 20, output: 1 << 20 };

fn render(source: &str) -> Result<String, TemplateError> {
    render_with(source, &Json::Null, Limits::default())
}

#[test]
fn snippets_render_as_in_the_environment_of_transformers() {
    let fixture: Json =
        serde_json::from_str(include_str!("../../../tests/fixtures/jinja_snippets.json")).unwrap();
    let snippets = fixture["snippets"].as_array().unwrap();
    assert!(snippets.len() > 150);
    let mut differing = String::new();
    for snippet in snippets {
        let source = snippet["source"].as_str().unwrap();
        let outcome = render_with(source, &fixture["variables"], Limits::default());
        if outcome.as_deref().ok() != snippet["text"].as_str() {
            let expected = &snippet["text"];
            differing += &format!("{source}\n   expected {expected}\n   got {outcome:?}\n");
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn errors_name_the_line() {
    for (source, line) in [
        ("a\nb\n{{ missing.x }}", 3),
        ("{% if true %}\n\n{{ 1 / 0 }}{% endif %}", 3),
        ("{% macro m() %}\n{{ raise_exception('no') }}\n{% endmacro %}\n\n{{ m() }}", 2),
        ("one\n{{ 'unclosed }}", 2),
        ("one\ntwo\n{% nonsense %}", 3),
        ("{{ 'a'\n | no_such_filter }}", 2),
        ("\n{% for x in 5 %}{% endfor %}", 2),
    ] {
        let error = render(source).unwrap_err();
        assert_eq!(error.line, Some(line), "{source:?}: {error}");
    }
}

#[test]
fn refusals_carry_the_templates_words() {
    let error = render("{{ raise_exception('only ' ~ 2 ~ ' turns') }}").unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Refused, "only 2 turns"));
    assert_eq!(
        error.to_string(),
        "chat template line 1: the template refused the conversation: only 2 turns"
    );
}

/// Renders a template that must fail, and must do so soon.
fn fails_soon(source: &str, limits: Limits) -> TemplateError {
    let start = Instant::now();
    let error = match render_with(source, &Json::Null, limits) {
        Err(error) => error,
        Ok(text) => panic!("{} rendered {} bytes", &source[..source.len().min(100)], text.len()),
    };
    // Ten times what an optimised build needs, for slow machines.
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}: {error}", start.elapsed());
    error
}

#[test]
fn endless_and_huge_work_ends_at_the_limit() {
    let nested_loops = "{% for a in range(99999) %}".repeat(5) + "x" + &"{% endfor %}".repeat(5);
    for source in [
        nested_loops.as_str(),
        "{{ range(100000000000) }}",
        "{{ 'a' * 100000000000 }}",
        "{{ '' * 100000000000000000000 ~ 'a' * 10000000000000000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s | replace('', ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s | tojson %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x in x }}{{ x == x ~ '' }}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}",
        "{% set x = 'a ' * 1000000 %}{% for i in range(99999) %}{{ x.split() | length }}{% endfor %}",
        "{{ 'a'.center(100000000000) }}",
        "{{ '{:>999999}'.format('a') * 1000 }}",
        "{{ 'a\\nb' | indent(99999999999) }}",
        "{{ [1] | tojson(indent=99999999999) }}",
        "{{ [1] | batch(100000000000, 'x') | list }}",
        "{{ [1] | slice(100000000000) | list }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] | map('list') %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x.append %}{% endfor %}{{ ns.x }}",
        "{{ 2 ** 10000 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
    ] {
        let error = fails_soon(source, SMALL);
        assert!(matches!(error.kind, ErrorKind::Limit | ErrorKind::Render), "{source}: {error}");
    }
}

#[test]
fn the_usual_limits_are_reached_in_seconds() {
    let loops = "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}";
    let growth =
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
    for source in [loops, growth] {
        assert_eq!(fails_soon(source, Limits::default()).kind, ErrorKind::Limit);
    }
}

#[test]
fn output_is_limited_too() {
    let limits = Limits { output: 1000, ..Limits::default() };
    let error = render_with("{{ 'a' * 1001 }}", &Json::Null, limits).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Limit);
    assert!(render_with("{{ 'a' * 1000 }}", &Json::Null, limits).is_ok());
}

#[test]
fn values_that_hold_themselves_do_no_harm() {
    assert_eq!(
        render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me.me is defined }}").unwrap(),
        "True"
    );
    assert_eq!(
        fails_soon("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", SMALL).kind,
        ErrorKind::Limit
    );
    let chain = "{% set ns = namespace(x=0) %}{% for i in range(99999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor %}ok";
    assert_eq!(render(chain).unwrap(), "ok");
}

#[test]
fn templates_too_deep_to_parse_are_refused() {
    for source in [
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("{{{{ {}1{} }}}}", "{1:".repeat(100_000), "}".repeat(100_000)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(100_000)),
        format!("{{{{ a{} }}}}", "|list".repeat(100_000)),
        format!("{{{{ a{} }}}}", "[0]".repeat(100_000)),
        format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(50_000)),
        format!("{{{{ 1{} }}}}", " and 1".repeat(100_000)),
        format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(50_000)),
        format!("{}{}", "{% if 1 %}".repeat(50_000), "{% endif %}".repeat(50_000)),
        format!("{{% set {}a{} = 1 %}}", "(".repeat(100_000), ")".repeat(100_000)),
        "a".repeat(2 << 20),
    ] {
        assert_eq!(fails_soon(&source, SMALL).kind, ErrorKind::Syntax);
    }
}

#[test]
fn the_deepest_templates_that_parse_also_render() {
    for source in [
        format!("{{{{ {}1 }}}}", "not ".repeat(390)),
        format!("{{{{ 1{} }}}}", " + 1".repeat(2000)),
        format!("{{{{ [1]{} }}}}", "|list".repeat(2000)),
        format!("{{{{ 1{} }}}}", " if 0 else 1".repeat(390)),
        format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(390)),
        format!("{}{}", "{% if 1 %}".repeat(140), "{% endif %}".repeat(140)),
        format!("{{{{ {}1{} }}}}", "[".repeat(70), "]".repeat(70)),
    ] {
        // Some are over the depth limit, which is as good: the point is that the stack holds.
        if let Err(error) = render(&source) {
            assert_eq!(error.kind, ErrorKind::Limit, "{error}");
        }
    }
}

/// Pieces of Jinja in no particular order.
#[rustfmt::skip]
const FRAGMENTS: &[&str] = &[
    "{{", "}}", "{%", "%}", "{#", "#}", "-", "+", "for", "in", "endfor", "if", "elif", "else", "endif", "set",
    "endset", "macro", "endmacro", "call", "endcall", "filter", "endfilter", "with", "endwith", "raw", "endraw",
    "generation", "endgeneration", "break", "continue", "recursive", "block", "x", "loop", "messages", "(", ")",
    "[", "]", "{", "}", ",", ":", ".", "|", "~", "*", "**", "/", "//", "%", "==", "!=", "<", ">=", "=", "not", "and",
    "or", "is", "defined", "1", "0.5", "99999999999999999999", "1e999", "'a'", "\"", "'", "\\", "\n", "é", "none",
];

/// An expression of some depth over everything the language has.
#[rustfmt::skip]
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1", "-7", "0", "2.5", "1e300", "170141183460469231731687303715884105727", "true", "none", "missing", "''",
        "'a<|b é'", "'%s{}'", "[]", "[3, 1, 2]", "(1, 'x')", "{}", "{'a': [1], 'b': {'c': none}}", "range(3)", "content",
        "namespace(a=1)", "[1, 2] | map('string')", "dict(a=1).items()", "'a\\nb'", "range", "'x'.upper",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let operators =
            vec!["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", ">=", "in", "not in", "and", "or", "if x else"];
        let filters = vec![
            "tojson", "tojson(indent=2, sort_keys=true)", "length", "trim", "upper", "title", "list", "join('-')", "first",
            "last", "sort", "unique", "map('upper')", "map(attribute='a')", "select", "selectattr('a', 'eq', 1)", "int",
            "float", "round(1)", "abs", "replace('a', 'bb')", "indent(2, true)", "batch(2)", "slice(2)", "dictsort", "items",
            "reverse", "sum", "min", "max", "string", "safe", "e", "default('d', true)", "truncate(3)", "center(9)",
            "groupby('a')", "format(1)", "urlencode", "wordcount", "attr('a')",
        ];
        let methods = vec![
            "strip()", "split()", "split('a', 1)", "rsplit(none, 1)", "replace('', '.')", "upper()", "title()", "find('a', -1)",
            "count('')", "startswith('a')", "join(['x'])", "format(1, 'b')", "splitlines(true)", "partition('a')", "zfill(5)",
            "center(4)", "isdigit()", "items()", "get('a')", "keys()", "index(1)", "a", "a.b", "copy()", "append(1)",
        ];
        let subscripts =
            vec!["[0]", "[-1]", "['a']", "[1:]", "[::-1]", "[:2]", "[-9:9:2]", "[none:]", "[5:1:-1]", "[99]", "[::-99999]"];
        let tests = vec!["defined", "mapping", "iterable", "sequence", "odd", "divisibleby(0)", "in [1]", "lower", "eq 1"];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), prop::sample::select(filters)).prop_map(|(a, filter)| format!("({a} | {filter})")),
            (inner.clone(), prop::sample::select(methods)).prop_map(|(a, method)| format!("({a}).{method}")),
            (inner.clone(), prop::sample::select(subscripts)).prop_map(|(a, at)| format!("({a}){at}")),
            (inner.clone(), prop::sample::select(tests)).prop_map(|(a, test)| format!("({a} is {test})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("('%5.1f|%s|%d|{{}}' % ({a}, {b}, 1)).format({a}, {b})")),
        ]
    })
}

proptest! {
    #[test]
    fn any_heap_of_fragments_is_read_or_refused(
        fragments in prop::collection::vec(prop::sample::select(FRAGMENTS.to_vec()), 0..40),
        spaced in any::<bool>(),
    ) {
        let source = fragments.join(if spaced { " " } else { "" });
        // Neither outcome is wrong: what counts is that there is one.
        let _ = render_with(&source, &json!({"x": [1, "a"], "messages": [{"role": "user"}]}), SMALL);
    }

    #[test]
    fn any_expression_has_a_value_or_an_error(expression in expression()) {
        let source = format!(
            "{{% set x = 1 %}}{{% for y in {expression} %}}{{{{ y }}}}{{% if {expression} %}}{{% break %}}{{% endif %}}{{% endfor %}}"
        );
        for source in [format!("{{{{ {expression} }}}}"), source] {
            let _ = render_with(&source, &json!({"content": "so<|im_end|> said\tI"}), SMALL);
        }
    }
}
