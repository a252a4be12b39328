//! Grammars in GBNF and Lark.

use super::{Tested, follows};
use crate::constraint::Constraint;

const JSON: &str = r#"
# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9]? [0-9])? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"#;

/// Left recursion, which says that operators bind to the left.
const ARITHMETIC: &str = r#"
root ::= (sum "=" ws num "\n")+
sum  ::= sum [-+] ws product | product
product ::= product [*/] ws atom | atom
atom ::= ident | num | "(" ws sum ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num  ::= [0-9]+ ws
ws   ::= [ \t]*
"#;

const CHESS: &str = r#"
# Moves in pairs, numbered.
root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move   ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"#;

const C: &str = r#"
root ::= (declaration)*
declaration ::= dataType identifier "(" parameter? ")" "{" statement* "}"
dataType  ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= dataType identifier
statement ::=
    ( dataType identifier ws "=" ws expression ";" )
  | ( identifier ws "=" ws expression ";" )
  | ( identifier ws "(" argList? ")" ";" )
  | ( "return" ws expression ";" )
  | ( "while" "(" condition ")" "{" statement* "}" )
  | ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? )
condition ::= expression relation expression
relation ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= identifier | number | unaryTerm | funcCall | "(" expression ")"
unaryTerm ::= "-" factor
funcCall ::= identifier "(" argList? ")"
argList ::= expression ("," ws expression)*
number ::= [0-9]+
ws ::= ([ \t\n]+)
"#;

const LIST: &str = r#"
root ::= item+
# Anything but a line's end.
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"#;

const JAPANESE: &str = r#"
root ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk ::= [一-鿿]
"#;

fn check(grammar: &str, good: &[&str], bad: &[&str]) {
    let tested = Tested::new();
    let constraint = Constraint::grammar(grammar).unwrap();
    let fresh = tested.matcher(&constraint);
    for text in good {
        assert!(follows(&mut fresh.clone(), text), "{text:?} should be accepted");
    }
    for text in bad {
        assert!(!follows(&mut fresh.clone(), text), "{text:?} should be refused");
    }
}

#[test]
fn json_in_gbnf() {
    check(
        JSON,
        &[
            "{}",
            "{\"a\": [1, 2.5e-3, -0, \"x\\u00e9\\n\", null]}",
            "{\n  \"日\": {\"b\": true}}",
            "{\"a\":{}} ",
        ],
        &["", "[]", "{\"a\" 1}", "{\"a\": 01}", "{\"a\": \"\n\"}", "{\"a\": tru}", "{\"a\": 1,}"],
    );
}

#[test]
fn arithmetic_with_left_recursion_in_gbnf() {
    check(
        ARITHMETIC,
        &["1+2=3\n", "a_1 * (x - 2) / 7= 12 \nb=1\n", "1-2-3+4*5/6=0\n"],
        &["1+=3\n", "=3\n", "(1=3\n", "1+2=x\n", "1+2=3"],
    );
}

#[test]
fn chess_in_gbnf() {
    check(
        CHESS,
        &["1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n2. exd5 O-O-O+\n10. e8=Q# R1a3\n"],
        &["1. e4 e5\n", "1. e9 e5\n2. a3 a4\n", "1. e4 e5\n2. Nf3 Nc6", "e4"],
    );
}

#[test]
fn c_in_gbnf() {
    check(
        C,
        &[
            "int f(int a){return a+1;}",
            "",
            "int main(){int x = (y*3)-f(1, b);while(x<=10){x = x+1;}if(x==1){f ();}else{return -x;}}",
            // Names that begin like keywords.
            "int f(){ifx = 1;returned = 2;int i = 3;intx = 4;}",
        ],
        &["int f(int a){return;}", "double f(){}", "int f(){x = ;}", "int 1f(){}"],
    );
}

#[test]
fn a_list_in_gbnf() {
    check(LIST, &["- a\n", "- a b\n- été - x\n"], &["a\n", "- \n", "- a", "- a\u{2028}b\n"]);
}

#[test]
fn japanese_in_gbnf() {
    check(
        JAPANESE,
        &["日本語", "こんにちは、世界。", "カタカナ\nひらがな"],
        &["hello", "日本語!", " 日", "日本語 "],
    );
}

#[test]
fn every_part_of_the_notation_is_read() {
    check(
        "root ::= a | b{2} # two\n | c{1,} d{0,2} e{0}\n\na::=\"\\x41\\u00e9\\U0001F600\\\"\\\\\"\r\nb ::= [\\]a\\-c-]\n\
         c ::= [q日]\nd ::= (\"x\" |\n\"y\")?\ne ::= \"e\"",
        &["Aé😀\"\\", "]]", "a-", "日", "日x", "qxy", "qqqqxx"],
        &["", "]a]", "x", "qxyx", "日e"],
    );
    check("root ::= \"\" | \"a\"", &["", "a"], &["aa"]);
    check("root ::= . \"a\" .", &["\naé"], &["a", "aba"]);
    check("root ::= ([a-c] \"x\")* [^a-c]", &["axbxz", "y"], &["axa", "ax"]);
}

#[test]
fn what_is_wrong_with_a_grammar_has_its_line_and_column() {
    let refused = |grammar: &str| Constraint::gbnf(grammar).unwrap_err().to_string();
    for (grammar, complaint) in [
        ("root ::= \"a\"\n  b ::= nobody", "line 2, column 9: there is no rule \"nobody\""),
        ("a ::= \"x\"", "line 1, column 1: there is no rule \"root\""),
        ("root ::= \"a", "line 1, column 10: the literal has no end"),
        ("root ::= [a-", "line 1, column 13: a character was expected"),
        ("root ::= [ab", "line 1, column 10: the class has no end"),
        ("root ::= [z-a]", "line 1, column 11: the range from 'z' to 'a' is empty"),
        ("root ::= (\"a\"\n", "line 2, column 1: \")\" was expected, for the group from line 1, column 10"),
        ("root ::= *", "line 1, column 10: there is nothing to repeat"),
        ("root ::= \"a\"{3,2}", "line 1, column 13: the most times are less than the least"),
        ("root ::= \"a\"{9999}", "line 1, column 13: more than 2000 times"),
        ("root ::= \"a\"{x}", "line 1, column 14: a number was expected"),
        ("root ::= \"\\q\"", "line 1, column 11: the escape is not known"),
        ("root ::= \"\\uD800\"", "line 1, column 11: 4 hexadecimal digits of a character were expected"),
        ("root ::= <think>", "line 1, column 10: tokens by name are not supported: write their text"),
        ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule \"root\" stands here a second time"),
        ("root = \"a\"", "line 1, column 6: \"::=\" was expected"),
        ("root ::= \"a\" )", "line 1, column 14: the end of the rule was expected"),
    ] {
        assert_eq!(refused(grammar), format!("GBNF grammar, {complaint}"));
    }
    let endless = "line 1, column 1: no text follows the rule \"root\": it has no end";
    assert_eq!(refused("root ::= \"a\" root"), format!("GBNF grammar, {endless}"));
    assert_eq!(refused("root ::= []"), format!("GBNF grammar, {endless}"));
}

#[test]
fn alternatives_without_an_end_are_left_out() {
    check("root ::= \"a\" x | \"b\"\nx ::= \"c\" x", &["b"], &["a", "ac"]);
    let tested = Tested::new();
    let mut matcher = tested.matcher(&Constraint::gbnf("root ::= \"a\" x | \"b\"\nx ::= \"c\" x").unwrap());
    assert!(!matcher.allows(u32::from(b'a')).unwrap() && matcher.allows(u32::from(b'b')).unwrap());
}

#[test]
fn lark_is_read_as_it_is() {
    check(
        "start: greeting (\", \" NAME)* \"!\"\ngreeting: \"Hello\" | \"Hi\"i\nNAME: /[A-Z][a-z]+/",
        &["Hello!", "hi, Ann, Bob!"],
        &["Hey!", "Hello, ann!"],
    );
    let tested = Tested::new();
    let refused = tested.refused(&Constraint::lark("start: a\n  b: \"x\"").unwrap());
    assert!(refused.starts_with("Lark grammar, line ") && refused.contains("column"), "{refused}");
    let refused = tested.refused(&Constraint::lark("start: \"x\" nobody").unwrap());
    assert!(refused.contains("nobody"), "{refused}");
}

/// What a grammar of this kind accepts, by trying everything.
mod defined {
    use std::collections::BTreeSet;

    pub enum Part {
        Text(&'static str),
        Class(&'static str),
        Rule(usize),
        All(Vec<Part>),
        One(Vec<Part>),
        Times(Box<Part>, usize, Option<usize>),
    }

    impl Part {
        pub fn gbnf(&self) -> String {
            let list =
                |parts: &[Part], between| parts.iter().map(Part::gbnf).collect::<Vec<_>>().join(between);
            match self {
                Part::Text(text) => format!("{text:?}"),
                Part::Class(class) => format!("[{class}]"),
                Part::Rule(rule) => format!("r{rule}"),
                Part::All(parts) => format!("({})", list(parts, " ")),
                Part::One(parts) => format!("({})", list(parts, " | ")),
                Part::Times(part, 0, None) => format!("{}*", part.gbnf()),
                Part::Times(part, 1, None) => format!("{}+", part.gbnf()),
                Part::Times(part, least, Some(most)) => format!("{}{{{least},{most}}}", part.gbnf()),
                Part::Times(part, least, None) => format!("{}{{{least},}}", part.gbnf()),
            }
        }

        /// Where the part may end if it begins there.
        pub fn ends(&self, text: &[u8], from: usize, rules: &[Part]) -> BTreeSet<usize> {
            match self {
                Part::Text(own) if text[from..].starts_with(own.as_bytes()) => [from + own.len()].into(),
                Part::Class(own) if text.get(from).is_some_and(|c| own.as_bytes().contains(c)) => {
                    [from + 1].into()
                }
                Part::Text(_) | Part::Class(_) => BTreeSet::new(),
                Part::Rule(rule) => rules[*rule].ends(text, from, rules),
                Part::All(parts) => parts.iter().fold([from].into(), |starts: BTreeSet<usize>, part| {
                    starts.iter().flat_map(|&start| part.ends(text, start, rules)).collect()
                }),
                Part::One(parts) => parts.iter().flat_map(|part| part.ends(text, from, rules)).collect(),
                Part::Times(part, least, most) => {
                    let (mut now, mut found): (BTreeSet<usize>, _) = ([from].into(), BTreeSet::new());
                    for n in 0..=most.unwrap_or(least + text.len() + 1) {
                        if n >= *least {
                            found.extend(&now);
                        }
                        now = now.iter().flat_map(|&start| part.ends(text, start, rules)).collect();
                    }
                    found
                }
            }
        }
    }
}

#[test]
fn gbnf_is_translated_exactly() {
    use defined::Part;
    struct Random(u64);
    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }

        /// A part that refers to rules from `rule` on.
        fn part(&mut self, rule: usize, depth: usize) -> Part {
            let kinds = if depth == 0 { 3 } else { 7 };
            match self.below(kinds) {
                0 => Part::Text(["a", "b", "ab", "ba", "abc", "c"][self.below(6) as usize]),
                1 => Part::Class(["ab", "bc", "a", "abc"][self.below(4) as usize]),
                2 if rule < 3 => Part::Rule(rule),
                2 => Part::Text("c"),
                3 => Part::All((0..2 + self.below(2)).map(|_| self.part(rule, depth - 1)).collect()),
                4 => Part::One((0..2 + self.below(2)).map(|_| self.part(rule, depth - 1)).collect()),
                _ => {
                    let (least, most) =
                        [(0, None), (1, None), (0, None), (0, Some(1)), (1, Some(2)), (2, None)]
                            [self.below(6) as usize];
                    let inner = if self.below(2) == 0 { self.part(9, 0) } else { self.part(rule, depth - 1) };
                    Part::Times(Box::new(inner), least, most)
                }
            }
        }
    }
    let texts: Vec<String> = (0..=5u32)
        .flat_map(|length| {
            (0..3usize.pow(length)).map(move |mut n| {
                let letter = |_| {
                    let letter = (b'a' + (n % 3) as u8) as char;
                    n /= 3;
                    letter
                };
                (0..length).map(letter).collect()
            })
        })
        .collect();
    let tested = Tested::new();
    let mut random = Random(7);
    let mut accepted = 0;
    for _ in 0..60 {
        let rules: Vec<Part> = (0..3).map(|rule| random.part(rule + 1, 3)).collect();
        let mut grammar = String::from("root ::= r0\n");
        for (i, rule) in rules.iter().enumerate() {
            grammar += &format!("r{i} ::= {}\n", rule.gbnf());
        }
        let constraint = Constraint::gbnf(&grammar).unwrap();
        let fresh = tested.matcher(&constraint);
        for text in &texts {
            let expected = rules[0].ends(text.as_bytes(), 0, &rules).contains(&text.len());
            assert_eq!(follows(&mut fresh.clone(), text), expected, "{text:?} in\n{grammar}\n{constraint:?}");
            accepted += usize::from(expected);
        }
    }
    assert!(accepted > 500, "{accepted} texts were accepted in all");
}
