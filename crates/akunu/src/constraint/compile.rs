//! From constraints to matchers: one engine for each model, and the grammars it has met.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use akunu_text::Tokenizer;
use akunu_text::chat::Syntax;
use akunu_text::tokenizer::TokenKind;
use llguidance::ParserFactory;
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use serde_json::Value;
use toktrie::TokEnv;

use super::vocabulary::Vocabulary;
use super::{Constraint, Language, Matcher, pattern, schema, tools};
use crate::{Error, Result};

/// Grammars that are kept, and how long they may be together: what they take in memory grows with that.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 2 << 20;

/// How long places of a schema are tried, to find out which is to blame.
const SEARCH: Duration = Duration::from_secs(1);

/// How the engine begins to complain of a schema without instances.
const UNSATISFIABLE: &str = "Unsatisfiable schema";

/// Grammars are read by functions that call themselves; those of strangers may ask for much.
const STACK: usize = 64 << 20;

/// What a mask and a grammar may cost. Fuel is steps of the engine's lexer, some tens of thousands in a millisecond.
fn limits() -> ParserLimits {
    ParserLimits {
        // Grammars of single characters have many items.
        step_max_items: 500_000,
        max_items_in_row: 5_000,
        // Some tens of thousands in a millisecond too.
        initial_lexer_fuel: 500_000,
        // One or two KiB each.
        max_lexer_states: 50_000,
        // Errors go to people, who know their grammar.
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// What came of a constraint: those that are refused are not tried again.
type Compiled = Result<llguidance::Matcher, Refusal>;

/// The language, the place and the problem.
type Refusal = (&'static str, String, String);

/// Compiles constraints against one vocabulary.
pub(crate) struct Compiler {
    factory: OnceLock<Result<ParserFactory, String>>,
    /// The one used last is the last one.
    kept: Mutex<Vec<(Constraint, Compiled)>>,
    /// Held while a grammar is compiled: one after another, so that many large ones do not take memory together. Short ones,
    /// which take little of it and seldom long, have a turn of their own and do not wait for large ones.
    turns: [Mutex<()>; 2],
}

impl Compiler {
    pub(crate) fn new() -> Compiler {
        Compiler { factory: OnceLock::new(), kept: Mutex::default(), turns: Default::default() }
    }

    /// A matcher at the beginning of a text.
    pub(crate) fn matcher(&self, constraint: &Constraint, tokenizer: &Tokenizer) -> Result<Matcher> {
        let language = constraint.0.language;
        let matcher = |compiled: Compiled| match compiled {
            Ok(compiled) => Ok(Matcher::new(compiled, language, tokenizer)),
            Err((language, place, problem)) => Err(Error::Constraint { language, place, problem }),
        };
        if let Some(found) = self.find(constraint) {
            return matcher(found);
        }
        let factory = self.factory.get_or_init(|| factory(tokenizer));
        let factory = factory.as_ref().map_err(|problem| language.error("", problem.clone()))?;
        let _turn =
            self.turns[usize::from(!constraint.is_short())].lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have waited for the same one.
        if let Some(found) = self.find(constraint) {
            return matcher(found);
        }
        let compiled = match compile(constraint, factory) {
            Ok(compiled) => Ok(compiled),
            Err(Error::Constraint { language, place, problem }) => Err((language, place, problem)),
            Err(error) => return Err(error),
        };
        matcher(self.keep(constraint, compiled))
    }

    /// Whether a constraint was met before.
    pub(crate) fn has(&self, constraint: &Constraint) -> bool {
        self.find(constraint).is_some()
    }

    fn keep(&self, constraint: &Constraint, compiled: Compiled) -> Compiled {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((constraint.clone(), compiled.clone()));
        let bytes = |kept: &[(Constraint, _)]| kept.iter().map(|(own, _)| own.len()).sum::<usize>();
        while kept.len() > KEPT || bytes(&kept) > KEPT_BYTES {
            kept.drain(..1);
        }
        compiled
    }

    fn find(&self, constraint: &Constraint) -> Option<Compiled> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(own, _)| own == constraint)?;
        let entry = kept.remove(at);
        let compiled = entry.1.clone();
        kept.push(entry);
        Some(compiled)
    }
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, String> {
    let own_meaning = |id: &u32| matches!(tokenizer.kind(*id), TokenKind::Control | TokenKind::UserDefined);
    let marks: Vec<u32> =
        Syntax::all_marks().filter_map(|mark| tokenizer.id_of(mark)).filter(own_meaning).collect();
    let vocabulary: TokEnv = Arc::new(Vocabulary::new(tokenizer, &marks));
    let mut factory = ParserFactory::new_simple(&vocabulary).map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = limits();
    Ok(factory)
}

fn compile(constraint: &Constraint, factory: &ParserFactory) -> Result<llguidance::Matcher> {
    let language = constraint.0.language;
    let grammar = top_level(constraint).map_err(|error| language.error("", error.to_string()))?;
    let read = || {
        factory.create_parser(grammar).map_err(|error| {
            let error = error.to_string();
            let tools = constraint.0.around.as_ref().and_then(|around| in_tools(around, factory));
            let blamed = match language {
                _ if tools.is_some() => tools,
                Language::JsonSchema => in_schema(&constraint.0.text, factory, &error),
                Language::Tools => in_tools(&constraint.0.text, factory),
                Language::Regex => Some(in_regex(&constraint.0.text, factory, &error)),
                _ => None,
            };
            blamed.unwrap_or_else(|| refused(language, &error))
        })
    };
    let read = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    let parser = match read {
        Ok(Ok(parser)) => parser?,
        Ok(Err(_)) => return Err(language.error("", "reading it failed")),
        Err(error) => return Err(language.error("", format!("there is no thread to read it: {error}"))),
    };
    let mut matcher = llguidance::Matcher::new(Ok(parser));
    match problem_at_first(&mut matcher) {
        None => Ok(matcher),
        Some(problem) if language == Language::Regex => Err(in_regex(&constraint.0.text, factory, &problem)),
        Some(problem) => Err(refused(language, &problem)),
    }
}

/// What keeps a text from beginning, if anything does: some grammars are read and then are too much for the first mask.
fn problem_at_first(matcher: &mut llguidance::Matcher) -> Option<String> {
    matcher.get_error().or_else(|| Some(matcher.compute_mask_or_eos().err()?.to_string()))
}

fn top_level(constraint: &Constraint) -> serde_json::Result<TopLevelGrammar> {
    let grammar = &constraint.0;
    let mut own = match grammar.language {
        Language::JsonSchema => GrammarWithLexer::from_json_schema(serde_json::from_str(&grammar.text)?),
        Language::Regex => GrammarWithLexer::from_lark(regex_as_lark(&grammar.text)),
        _ => GrammarWithLexer::from_lark(grammar.text.clone()),
    };
    let Some(around) = &grammar.around else { return Ok(TopLevelGrammar::from_grammar(own)) };
    own.name = Some("answer".to_owned());
    let around = GrammarWithLexer::from_lark(around.clone());
    Ok(TopLevelGrammar { grammars: vec![around, own], max_tokens: None })
}

fn regex_as_lark(pattern: &str) -> String {
    format!("start: /{}/", llguidance::regex_to_lark(pattern, ""))
}

/// The engine's complaint about an expression, with the place of the smallest part that earns one alone.
fn in_regex(pattern: &str, factory: &ParserFactory, complaint: &str) -> Error {
    let until = Instant::now() + SEARCH;
    let is_too_much = |part: &str| {
        let grammar = GrammarWithLexer::from_lark(regex_as_lark(part));
        let parser = factory.create_parser(TopLevelGrammar::from_grammar(grammar));
        problem_at_first(&mut llguidance::Matcher::new(parser)).is_some()
    };
    let mut parts = pattern::parts(pattern).into_iter().take_while(|_| Instant::now() < until);
    let place = parts.find(|(_, part)| is_too_much(part)).map(|(place, _)| place);
    Language::Regex.error(place.unwrap_or_else(|| "line 1, column 1".to_owned()), problem_of(complaint).1)
}

/// The engine's complaint about a schema, with its place.
fn in_schema(schema: &str, factory: &ParserFactory, complaint: &str) -> Option<Error> {
    Some(located(&serde_json::from_str(schema).ok()?, "#", factory, complaint))
}

/// The engine's complaint about the first of the tools' schemas that it does not take.
fn in_tools(grammar: &str, factory: &ParserFactory) -> Option<Error> {
    let until = Instant::now() + SEARCH;
    tools::schemas(grammar).take_while(|_| Instant::now() < until).find_map(|(place, schema)| {
        let parser = factory.create_parser(TopLevelGrammar::from_json_schema(schema.clone()));
        Some(located(&schema, &place, factory, &parser.err()?.to_string()))
    })
}

/// The engine's complaint about a schema, with the deepest place that earns the same complaint alone.
fn located(schema: &Value, root: &str, factory: &ParserFactory, complaint: &str) -> Error {
    let first = |complaint: &str| complaint.lines().next().unwrap_or_default().to_owned();
    // What holds something of which there is no instance has none either, and says so in other words.
    let kind = |complaint: &str| match complaint.strip_prefix(UNSATISFIABLE) {
        Some(_) => UNSATISFIABLE.to_owned(),
        None => complaint.to_owned(),
    };
    let complaint = first(complaint);
    let until = Instant::now() + SEARCH;
    let places = schema::places(schema).into_iter().take_while(|_| Instant::now() < until);
    let blamed = |(place, part): (String, &Value)| {
        let mut alone = part.clone();
        // References lead from the root.
        if let (Value::Object(alone), Value::Object(root)) = (&mut alone, schema) {
            for (keyword, value) in root.iter().filter(|(keyword, _)| schema::holds_others(keyword)) {
                alone.entry(keyword).or_insert_with(|| value.clone());
            }
        }
        let parser = factory.create_parser(TopLevelGrammar::from_json_schema(schema::framed(alone)));
        let own = first(&parser.err()?.to_string());
        (kind(&own) == kind(&complaint)).then(|| explained(&place.replacen('#', root, 1), part, &own))
    };
    let found = places.filter_map(blamed).next();
    found.unwrap_or_else(|| explained(root, schema, &complaint))
}

/// A complaint about a schema in words that help, with the keyword where it is known.
fn explained(place: &str, schema: &Value, complaint: &str) -> Error {
    let at = |keyword: &str| format!("{place}/{keyword}");
    let error = |place: String, problem: &str| Language::JsonSchema.error(place, problem);
    if complaint.starts_with("oneOf") && schema.get("oneOf").is_some() {
        return error(
            at("oneOf"),
            "that no instance fits two of the alternatives cannot be shown: `anyOf` asks for less",
        );
    }
    if complaint.starts_with("min/maxProperties") {
        let keyword = if schema.get("minProperties").is_some() { "minProperties" } else { "maxProperties" };
        return error(at(keyword), "properties are only counted where all that have names are required");
    }
    if complaint.starts_with("Invalid type") {
        return error(at("type"), complaint);
    }
    error(place.to_owned(), complaint)
}

/// Where the engine's complaint is about, if it says so, and what it is: it writes `at LINE(COLUMN): PROBLEM` and then shows
/// the lines.
fn problem_of(complaint: &str) -> (Option<String>, &str) {
    let first = complaint.lines().next().unwrap_or_default();
    let place = |text: &'_ str| -> Option<String> {
        let (line, column) = text.split_once('(')?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        Some(format!("line {line}, column {column}"))
    };
    let Some((before, problem)) = first.strip_prefix("at ").unwrap_or(first).split_once("): ") else {
        return (None, first);
    };
    match place(before) {
        Some(place) => (Some(place), problem),
        None => (None, first),
    }
}

fn refused(language: Language, complaint: &str) -> Error {
    let (place, problem) = problem_of(complaint);
    // Only in Lark do lines and columns mean anything to who wrote it.
    let place = place.filter(|_| language == Language::Lark);
    language.error(place.unwrap_or_default(), problem)
}
