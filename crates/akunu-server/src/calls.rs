//! Calls of tools in answers: read out of the text while it comes, and when it is complete.

use akunu::FinishReason;
use akunu_text::chat::{CallParser, Said, ToolSyntax};
use serde_json::{Value, json};

use crate::ask::random;
use crate::openai::new_id;

/// A call in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// A JSON object, unless the answer was cut off in it.
    pub(crate) arguments: String,
}

impl Call {
    /// The arguments as JSON; what was cut off is no object.
    pub(crate) fn arguments(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or_else(|_| json!({}))
    }

    /// In OpenAI's words.
    pub(crate) fn openai(&self) -> Value {
        let Call { id, name, arguments } = self;
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    /// A call begins, the next of its choice.
    Call {
        index: usize,
        id: String,
        name: String,
    },
    /// More of its arguments.
    Arguments {
        index: usize,
        text: String,
    },
}

impl Part {
    /// As a delta in OpenAI's words.
    pub(crate) fn openai_delta(self) -> Value {
        match self {
            Part::Text(text) => json!({"content": text}),
            Part::Call { index, id, name } => {
                let function = json!({"name": name, "arguments": ""});
                json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
            }
            Part::Arguments { index, text } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
        }
    }
}

/// Reads calls out of the choices of an answer.
#[derive(Debug, Default)]
pub(crate) struct Calls(Vec<Reader>);

#[derive(Clone, Debug)]
struct Reader {
    syntax: &'static ToolSyntax,
    parser: CallParser,
    /// Calls that began.
    calls: usize,
}

impl Calls {
    /// Without a syntax everything is text.
    pub(crate) fn new(syntax: Option<&'static ToolSyntax>, choices: usize) -> Calls {
        let reader = |syntax| Reader { syntax, parser: CallParser::new(syntax), calls: 0 };
        Calls(syntax.map_or(Vec::new(), |syntax| vec![reader(syntax); choices]))
    }

    /// The parts that are certain with more text of a choice.
    pub(crate) fn push(&mut self, choice: usize, text: String) -> Vec<Part> {
        match self.0.get_mut(choice) {
            Some(reader) => reader.read(|parser, out| parser.push(&text, out)),
            None if text.is_empty() => Vec::new(),
            None => vec![Part::Text(text)],
        }
    }

    /// What is left at the end of a choice.
    pub(crate) fn finish(&mut self, choice: usize, reason: FinishReason) -> Vec<Part> {
        let Some(reader) = self.0.get_mut(choice) else { return Vec::new() };
        reader.read(|parser, out| match reason {
            FinishReason::Stop => parser.flush(out),
            _ => parser.cut(out),
        })
    }

    /// Whether a choice called anything.
    pub(crate) fn called(&self, choice: usize) -> bool {
        self.0.get(choice).is_some_and(|reader| reader.calls > 0)
    }
}

impl Reader {
    fn read(&mut self, feed: impl FnOnce(&mut CallParser, &mut dyn FnMut(Said))) -> Vec<Part> {
        let mut parts = Vec::new();
        let Reader { syntax, parser, calls } = self;
        feed(parser, &mut |said| {
            parts.push(match said {
                Said::Text(text) => Part::Text(text),
                Said::Call { name } => {
                    *calls += 1;
                    Part::Call { index: *calls - 1, id: call_id(syntax), name }
                }
                Said::Arguments(text) => Part::Arguments { index: calls.saturating_sub(1), text },
            });
        });
        parts
    }
}

/// An id for a call. Mistral's templates take nothing but nine letters and digits.
fn call_id(syntax: &ToolSyntax) -> String {
    if syntax.name.starts_with("mistral") {
        format!("{:09x}", random() & 0xf_ffff_ffff)
    } else {
        new_id("call_")
    }
}

/// The text and the calls of a choice that is complete, and why it ended.
pub(crate) fn read_whole(
    syntax: Option<&'static ToolSyntax>,
    whole: String,
    reason: Option<FinishReason>,
) -> (String, Vec<Call>) {
    let mut reader = Calls::new(syntax, 1);
    let mut parts = reader.push(0, whole);
    parts.extend(reader.finish(0, reason.unwrap_or(FinishReason::Cancelled)));
    let (mut text, mut calls) = (String::new(), Vec::<Call>::new());
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Call { id, name, .. } => calls.push(Call { id, name, arguments: String::new() }),
            Part::Arguments { index, text } => calls[index].arguments.push_str(&text),
        }
    }
    (text, calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_in_pieces_and_whole() {
        let syntax = ToolSyntax::of_template("tools <tool_call>\n");
        let text = "Well.<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1]}}\n</tool_call>";
        let (said, calls) = read_whole(syntax, text.to_owned(), Some(FinishReason::Stop));
        assert_eq!((said.as_str(), calls.len()), ("Well.", 1));
        assert_eq!((calls[0].name.as_str(), calls[0].arguments()), ("sum", json!({"of": [1]})));
        let mut reader = Calls::new(syntax, 1);
        let mut parts: Vec<Part> = text.chars().flat_map(|c| reader.push(0, c.to_string())).collect();
        parts.extend(reader.finish(0, FinishReason::Stop));
        let deltas: Vec<Value> = parts.into_iter().map(Part::openai_delta).collect();
        let texts = deltas.iter().filter_map(|delta| delta["content"].as_str());
        assert_eq!(texts.collect::<String>(), "Well.");
        let pieces =
            deltas.iter().filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str());
        assert_eq!(pieces.collect::<String>(), "{\"of\": [1]}");
        assert!(reader.called(0));
    }

    #[test]
    fn without_a_syntax_everything_is_text() {
        let text = "{\"name\": \"sum\", \"arguments\": {}}";
        let mut reader = Calls::new(None, 1);
        assert_eq!(reader.push(0, text.to_owned()), [Part::Text(text.to_owned())]);
        assert!(reader.finish(0, FinishReason::Length).is_empty() && !reader.called(0));
    }

    #[test]
    fn a_call_that_was_cut_off_at_its_name_is_no_text() {
        let syntax = ToolSyntax::of_template("");
        let cut = read_whole(syntax, "{\"name\":".to_owned(), Some(FinishReason::Length));
        assert_eq!(cut, (String::new(), Vec::new()));
    }

    #[test]
    fn ids_are_what_the_familys_template_takes() {
        let id = |template| call_id(ToolSyntax::of_template(template).unwrap());
        assert!(id("tools <tool_call>\n").starts_with("call_"));
        let short = id("tools [TOOL_CALLS]");
        assert!(short.len() == 9 && short.chars().all(|c| c.is_ascii_alphanumeric()), "{short}");
    }
}
