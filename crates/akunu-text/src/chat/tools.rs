//! How families of models write down the tools they want called: one description each. From it come the grammar that holds
//! a model to the form (in the engine) and the [`CallParser`] that reads the calls back out of the text.
//!
//! ```
//! use akunu_text::chat::{CallParser, Said, ToolSyntax};
//!
//! let syntax = ToolSyntax::of_template("{{ tools }} <tool_call>\n{{ call }}\n</tool_call>").unwrap();
//! let mut parser = CallParser::new(syntax);
//! let mut said = Vec::new();
//! for piece in ["Let me see.\n<tool_", "call>\n{\"name\": \"sum\", \"arg", "uments\": {\"of\": [1, 2]}}\n</tool_call>"] {
//!     parser.push(piece, |part| said.push(part));
//! }
//! parser.flush(|part| said.push(part));
//! assert_eq!(said, [
//!     Said::Text("Let me see.".into()),
//!     Said::Call { name: "sum".into() },
//!     Said::Arguments("{\"of\": [1, 2]}".into()),
//! ]);
//! ```

/// How a family calls tools: `open`, then calls with `next` between them, then `close`. A call is `before_name`, the name,
/// `before_arguments`, the arguments as a JSON object, `after_arguments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolSyntax {
    /// The family, or what its calls are known by.
    pub name: &'static str,
    /// Before the first call. Where it is empty, calls are all of an answer, which begins like one.
    pub open: &'static str,
    /// Between two calls; empty where there is only one.
    pub next: &'static str,
    /// After the last call.
    pub close: &'static str,
    /// Before the function's name.
    pub before_name: &'static str,
    /// Between the name and the arguments.
    pub before_arguments: &'static str,
    /// After the arguments.
    pub after_arguments: &'static str,
}

/// JSON with the arguments under that name, the usual one.
const ARGUMENTS: ToolSyntax = ToolSyntax {
    name: "json",
    open: "",
    next: "",
    close: "",
    before_name: "{\"name\": \"",
    before_arguments: "\", \"arguments\": ",
    after_arguments: "}",
};

/// Hermes, Qwen, Granite and most others.
const HERMES: ToolSyntax = ToolSyntax {
    name: "hermes",
    open: "<tool_call>\n",
    next: "\n</tool_call>\n<tool_call>\n",
    close: "\n</tool_call>",
    ..ARGUMENTS
};

/// Llama 3.
const LLAMA_3: ToolSyntax =
    ToolSyntax { name: "llama3", before_arguments: "\", \"parameters\": ", ..ARGUMENTS };

/// Mistral up to the end of 2024.
const MISTRAL: ToolSyntax =
    ToolSyntax { name: "mistral", open: "[TOOL_CALLS][", next: ", ", close: "]", ..ARGUMENTS };

/// Mistral since.
const MISTRAL_ARGS: ToolSyntax = ToolSyntax {
    name: "mistral-args",
    open: "[TOOL_CALLS]",
    next: "[TOOL_CALLS]",
    close: "",
    before_name: "",
    before_arguments: "[ARGS]",
    after_arguments: "",
};

/// Parts of syntaxes that are tokens of their own in vocabularies made for them.
pub(super) const MARKS: [&str; 4] = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]"];

impl ToolSyntax {
    /// For models whose templates know nothing of tools: plain JSON, which [`ToolSyntax::instructions`] ask for.
    pub const GENERIC: &'static ToolSyntax = &ARGUMENTS;

    /// The syntax of models with this chat template; `None` for one that has tools in a form that is not known here.
    pub fn of_template(source: &str) -> Option<&'static ToolSyntax> {
        let has = |text: &str| source.contains(text);
        if !has("tools") || has(super::builtin::NO_TOOLS) {
            return Some(ToolSyntax::GENERIC);
        }
        // Those have calls in XML or in words of their own.
        if has("<function=") || has("<arg_key>") || has("<parameter") {
            return None;
        }
        if has("[TOOL_CALLS]") {
            return Some(if has("[ARGS]") { &MISTRAL_ARGS } else { &MISTRAL });
        }
        // The line feed is itself, or as Jinja writes it.
        if has("<tool_call>\n") || has("<tool_call>\\n{") {
            return Some(&HERMES);
        }
        has("{\"name\": function name, \"parameters\": ").then_some(&LLAMA_3)
    }

    /// Whether the template itself tells the model of its tools.
    pub fn is_in_template(&self) -> bool {
        self.name != ToolSyntax::GENERIC.name
    }

    /// What a model whose template knows nothing of tools is told about them: their definitions as JSON, one a line.
    pub fn instructions(definitions: &[serde_json::Value]) -> String {
        let mut text = String::from(
            "You can call these functions. To call one, answer with nothing but a JSON object with its \"name\" and \
             its \"arguments\". Otherwise answer in plain text.\n",
        );
        for definition in definitions {
            text.push('\n');
            text.push_str(&definition.to_string());
        }
        text
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Text that is no call.
    Text(String),
    /// A call begins.
    Call {
        /// The function.
        name: String,
    },
    /// More of the arguments of the call that began last: a piece of a JSON object.
    Arguments(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space yet.
    Start,
    /// In text that may lead to a call.
    Text,
    /// At a call's beginning.
    Call,
    /// In a call's name.
    Name,
    /// In the arguments.
    Arguments { depth: u32, quoted: bool, escaped: bool },
    /// Behind the arguments.
    After,
    /// Whatever comes now is text.
    Rest,
}

/// Finds calls in a stream of text. White space before the first call is left out.
#[derive(Clone, Debug)]
pub struct CallParser {
    syntax: &'static ToolSyntax,
    state: State,
    /// What was not passed on.
    held: String,
    /// Whether there was text before.
    spoke: bool,
}

impl CallParser {
    /// A parser for one answer.
    pub fn new(syntax: &'static ToolSyntax) -> CallParser {
        CallParser { syntax, state: State::Start, held: String::new(), spoke: false }
    }

    /// Takes the next piece of text and passes on what is certain, in order.
    pub fn push(&mut self, text: &str, mut out: impl FnMut(Said)) {
        self.held.push_str(text);
        while self.step(&mut out) {}
    }

    /// Ends the text: what was held back is passed on, except what belongs to a call that has begun.
    pub fn flush(&mut self, out: impl FnMut(Said)) {
        self.end(false, out);
    }

    /// Ends a text that was cut off: what may be the beginning of a call is left out too.
    pub fn cut(&mut self, out: impl FnMut(Said)) {
        self.end(true, out);
    }

    fn end(&mut self, is_cut: bool, mut out: impl FnMut(Said)) {
        let rest = std::mem::take(&mut self.held);
        let syntax = self.syntax;
        let silent = match self.state {
            // What is missing was cut off.
            State::After => {
                let whole = |tail: &str| format!("{}{tail}", syntax.after_arguments);
                whole(syntax.close).starts_with(rest.as_str())
                    || (!syntax.next.is_empty() && whole(syntax.next).starts_with(rest.as_str()))
            }
            State::Start => rest.trim().is_empty() || (is_cut && syntax.open.is_empty()),
            State::Text => {
                let begun = rest.trim_start();
                let mark = MARKS.iter().any(|mark| syntax.open.starts_with(mark) && begun.starts_with(mark));
                rest.is_empty() || (is_cut && (mark || !self.spoke) && syntax.open.starts_with(begun))
            }
            State::Call | State::Name => true,
            State::Arguments { .. } | State::Rest => rest.is_empty(),
        };
        if !silent {
            out(Said::Text(rest));
        }
        self.state = State::Rest;
    }

    /// Passes on what it can in one state; whether there is more to do in the next.
    fn step(&mut self, out: &mut impl FnMut(Said)) -> bool {
        let syntax = self.syntax;
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if text.is_empty() {
                    return false;
                }
                let opens = if syntax.open.is_empty() { syntax.before_name } else { syntax.open };
                if !syntax.open.is_empty() {
                    self.state = State::Text;
                } else if text.starts_with(opens) {
                    self.held = text.to_owned();
                    self.state = State::Call;
                } else if opens.starts_with(text) {
                    return false;
                } else {
                    self.state = State::Rest;
                }
                true
            }
            State::Text => {
                if let Some(at) = self.held.find(syntax.open) {
                    let text = self.held[..at].trim_end();
                    if !text.is_empty() {
                        out(Said::Text(text.to_owned()));
                        self.spoke = true;
                    }
                    self.held.drain(..at + syntax.open.len());
                    self.state = State::Call;
                    return true;
                }
                // White space before a mark belongs to the mark.
                let certain = self.held.len() - super::syntax::overlap(&self.held, syntax.open);
                let certain = self.held[..certain].trim_end().len();
                if certain > 0 {
                    out(Said::Text(self.held.drain(..certain).collect()));
                    self.spoke = true;
                }
                false
            }
            State::Call => self.expect(syntax.before_name, State::Name),
            State::Name => {
                let Some(end) = self.held.find(syntax.before_arguments) else { return false };
                // Names stand in JSON where a quote begins what follows them.
                let name = self.held[..end].to_owned();
                let quoted = syntax.before_name.ends_with('"');
                let plain = quoted.then(|| serde_json::from_str(&format!("\"{name}\"")).ok()).flatten();
                out(Said::Call { name: plain.unwrap_or(name) });
                self.held.drain(..end + syntax.before_arguments.len());
                self.state = State::Arguments { depth: 0, quoted: false, escaped: false };
                true
            }
            State::Arguments { depth, quoted, escaped } => self.arguments(depth, quoted, escaped, out),
            State::After => {
                let whole = |tail: &str| format!("{}{tail}", syntax.after_arguments);
                let (next, close) = (whole(syntax.next), whole(syntax.close));
                let held = self.held.as_str();
                if !syntax.next.is_empty() && held.starts_with(&next) {
                    self.held.drain(..next.len());
                    self.state = State::Call;
                    return true;
                }
                if held.is_empty() || next.starts_with(held) || close.starts_with(held) {
                    return false;
                }
                if held.starts_with(&close) {
                    // A call may still follow, or the rest is text.
                    let rest = held[close.len()..].trim_start().to_owned();
                    if rest.is_empty() {
                        return false;
                    }
                    self.held = rest;
                }
                self.state = State::Rest;
                true
            }
            State::Rest => {
                if !self.held.is_empty() {
                    out(Said::Text(std::mem::take(&mut self.held)));
                }
                false
            }
        }
    }

    /// Goes on behind a fixed text; where another stands, all is text.
    fn expect(&mut self, fixed: &str, then: State) -> bool {
        if self.held.starts_with(fixed) {
            self.held.drain(..fixed.len());
            self.state = then;
            return true;
        }
        if fixed.starts_with(self.held.as_str()) {
            return false;
        }
        self.state = State::Rest;
        true
    }

    fn arguments(
        &mut self,
        mut depth: u32,
        mut quoted: bool,
        mut escaped: bool,
        out: &mut impl FnMut(Said),
    ) -> bool {
        let mut end = None;
        for (at, byte) in self.held.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if quoted => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        end = Some(at + 1);
                        break;
                    }
                }
                _ => {}
            }
        }
        let piece: String = self.held.drain(..end.unwrap_or(self.held.len())).collect();
        if !piece.is_empty() {
            out(Said::Arguments(piece));
        }
        self.state = if end.is_some() { State::After } else { State::Arguments { depth, quoted, escaped } };
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Text, and calls with their arguments.
    fn parse(syntax: &'static ToolSyntax, pieces: &[&str]) -> (String, Vec<(String, String)>) {
        let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
        let mut parser = CallParser::new(syntax);
        let mut take = |said| match said {
            Said::Text(more) => text += &more,
            Said::Call { name } => calls.push((name, String::new())),
            Said::Arguments(more) => calls.last_mut().unwrap().1 += &more,
        };
        pieces.iter().for_each(|piece| parser.push(piece, &mut take));
        parser.flush(&mut take);
        (text, calls)
    }

    fn calls(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
    }

    #[test]
    fn every_family_is_read() {
        let twice = calls(&[("a", "{\"x\": \"}\\\"\"}"), ("b", "{}")]);
        let hermes = "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"}\\\"\"}}\n</tool_call>\n<tool_call>\n\
                      {\"name\": \"b\", \"arguments\": {}}\n</tool_call>";
        assert_eq!(parse(&HERMES, &[hermes]), (String::new(), twice.clone()));
        let mistral = "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"x\": \"}\\\"\"}}, \
                       {\"name\": \"b\", \"arguments\": {}}]";
        assert_eq!(parse(&MISTRAL, &[mistral]), (String::new(), twice.clone()));
        let args = "[TOOL_CALLS]a[ARGS]{\"x\": \"}\\\"\"}[TOOL_CALLS]b[ARGS]{}";
        assert_eq!(parse(&MISTRAL_ARGS, &[args]), (String::new(), twice));
        let one = calls(&[("f", "{\"y\": [1, {}]}")]);
        let llama = "{\"name\": \"f\", \"parameters\": {\"y\": [1, {}]}}";
        assert_eq!(parse(&LLAMA_3, &[llama]), (String::new(), one.clone()));
        let generic = "{\"name\": \"f\", \"arguments\": {\"y\": [1, {}]}}";
        assert_eq!(parse(ToolSyntax::GENERIC, &[generic]), (String::new(), one));
    }

    #[test]
    fn what_is_no_call_is_text() {
        let text = |text: &str| (text.to_owned(), Vec::new());
        assert_eq!(parse(&HERMES, &["Plain <tool", "_box>"]), text("Plain <tool_box>"));
        assert_eq!(
            parse(&LLAMA_3, &["The answer is {\"name\": \"x\"}"]),
            text("The answer is {\"name\": \"x\"}")
        );
        assert_eq!(parse(&LLAMA_3, &["{\"na"]), text("{\"na"));
        assert_eq!(parse(&HERMES, &["  \n"]), text(""));
        assert_eq!(parse(&HERMES, &["a\n"]), text("a\n"));
    }

    #[test]
    fn text_may_come_before_and_after() {
        let said = parse(
            &HERMES,
            &["I look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\nDone."],
        );
        assert_eq!(said, ("I look.Done.".to_owned(), calls(&[("f", "{}")])));
    }

    #[test]
    fn a_call_that_was_cut_off_has_the_arguments_there_were() {
        let cut = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, ";
        assert_eq!(parse(&HERMES, &[cut]).1, calls(&[("f", "{\"a\": [1, ")]));
        let cut = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool";
        assert_eq!(parse(&HERMES, &[cut]), (String::new(), calls(&[("f", "{}")])));
    }

    #[test]
    fn a_call_that_was_cut_off_before_its_arguments_leaves_no_text() {
        let cut_off = |syntax: &'static ToolSyntax, answer: &str| {
            let mut said = Vec::new();
            let mut parser = CallParser::new(syntax);
            parser.push(answer, |part| said.push(part));
            parser.cut(|part| said.push(part));
            said
        };
        let hermes = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
        let mistral = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": ";
        for (syntax, whole) in [
            (&HERMES, hermes),
            (&MISTRAL, mistral),
            (&MISTRAL_ARGS, "[TOOL_CALLS]f[ARGS]"),
            (&LLAMA_3, "{\"name\": \"f\", \"parameters\": "),
            (ToolSyntax::GENERIC, "{\"name\": \"f\", \"arguments\": "),
        ] {
            for end in 0..whole.len() {
                assert_eq!(cut_off(syntax, &whole[..end]), [], "{}", &whole[..end]);
            }
            assert_eq!(cut_off(syntax, whole), [Said::Call { name: "f".to_owned() }]);
        }
        // Between two calls there is nothing to say either.
        let twice = format!("{hermes}{{}}}}\n</tool_call>\n<tool_c");
        assert_eq!(cut_off(&HERMES, &twice).len(), 2);
        // What is text, stays.
        let texts = |said: Vec<Said>| said.into_iter().all(|part| matches!(part, Said::Text(_)));
        let text = cut_off(&HERMES, "1 <");
        assert!(text.len() == 2 && texts(text));
        assert_eq!(cut_off(&HERMES, "I look. <tool_call>"), [Said::Text("I look.".to_owned())]);
        assert_eq!(parse(&HERMES, &["<"]), ("<".to_owned(), Vec::new()));
    }

    #[test]
    fn templates_show_their_syntax() {
        let name = |source: &str| ToolSyntax::of_template(source).map(|syntax| syntax.name);
        assert_eq!(name("{{ messages }}"), Some("json"));
        assert_eq!(name("{{ tools }} <tool_call>\n"), Some("hermes"));
        assert_eq!(name("{{ tools }} '<tool_call>\\n{'"), Some("hermes"));
        assert_eq!(name("{{ tools }} '<tool_call>' ~ xml"), None);
        assert_eq!(name("{{ tools }} <tool_call><function=x>"), None);
        assert_eq!(name("{{ tools }} [TOOL_CALLS]"), Some("mistral"));
        assert_eq!(name("{{ tools }} [TOOL_CALLS] [ARGS]"), Some("mistral-args"));
        let told = "{{ tools }} in the format {\"name\": function name, \"parameters\": dictionary}";
        assert_eq!(name(told), Some("llama3"));
        assert_eq!(name("{{ tools }} {\"name\": f, \"parameters\": {}}"), None);
        assert_eq!(name(&crate::chat::builtin::source("chatml").unwrap()), Some("json"));
        assert_eq!(name("{{ tools }} <|tool_call>call:"), None);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            text in "[a \n<]{0,4}(<tool_call>\n)?(\\{\"name\": \"f\", \"arguments\": )?(\\{\"k\": \"[}\\\\\"]?\"\\})?(\\}\n</tool_call>)?[\n a]{0,2}",
            cuts in prop::collection::vec(0..80usize, 0..20),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&at| at <= text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            for syntax in [&HERMES, ToolSyntax::GENERIC] {
                prop_assert_eq!(parse(syntax, &pieces), parse(syntax, &[&text]));
            }
        }
    }
}
