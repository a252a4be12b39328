//! `akunu chat`

use std::borrow::Cow;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use akunu::hub::Hub;
use akunu::{Channel, Chat, Error, FinishReason, Message, Options, Settings, Statistics};
use anyhow::{Context, Result};
use reedline::{FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal};
use serde::Serialize;

use super::complete::{Timings, reason_name};
use crate::constraint::{json_schema, tell_if_cut};
use crate::engine::{EngineArguments, SamplingArguments, positive, stopped};
use crate::model::ModelArgument;
use crate::output::{self, FAINT, Out};
use crate::progress::{Spinner, line};
use crate::stop;

const EXAMPLES: &str = "\
Examples:
  akunu chat                          with smollm2, fetched the first time
  akunu chat model.gguf --temp 0
  akunu chat -p 'Name three rivers.'  one answer and out";

const HELP: &str = "\
/help          this list
/reset         forget the conversation
/system TEXT   say what the model should be like (without TEXT: nothing in particular)
/save FILE     write the conversation to a file
/load FILE     read it back
/stats         timings of the last answer
Ctrl-C stops an answer, Ctrl-D ends the program.";

/// Lines of history kept between conversations.
const HISTORY: usize = 1000;

/// Talk with a model
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    model: ModelArgument,

    /// Say this, print the answer and exit; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// Most tokens of an answer; by default as many as the context holds
    #[arg(short = 'n', value_name = "N", value_parser = positive())]
    tokens: Option<u32>,

    /// Hold answers to the JSON Schema in this file; thoughts before them stay free
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,

    /// Have the model think before it answers
    #[arg(long, conflicts_with = "no_think")]
    think: bool,

    /// Have the model answer without thinking
    #[arg(long)]
    no_think: bool,

    /// Do not show what the model thinks
    #[arg(long)]
    hide_thinking: bool,

    #[command(flatten)]
    engine: EngineArguments,

    #[command(flatten)]
    sampling: SamplingArguments,

    /// With -p, print the answer and the timings as JSON
    #[arg(long, requires = "prompt")]
    json: bool,

    /// Print timings to standard error
    #[arg(short, long)]
    verbose: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning: &'a str,
    finish_reason: &'static str,
    #[serde(flatten)]
    timings: Timings,
}

/// Talks.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let constraint = arguments.json_schema.as_deref().map(json_schema).transpose()?;
    let model = arguments.engine.load(arguments.model.given(), &Options::default())?;
    let sampling = arguments.sampling.sampling(model.chat_sampling());
    let max_tokens = arguments.tokens.map(|tokens| tokens as usize);
    let mut chat = model.chat(&Settings { sampling, constraint, max_tokens, ..Settings::default() })?;
    let asked = [(arguments.think, true), (arguments.no_think, false)];
    chat.set_thinking(asked.iter().find(|(asked, _)| *asked).map(|(_, thinking)| *thinking))?;
    let Some(prompt) = &arguments.prompt else {
        let hide_thinking = arguments.hide_thinking;
        return Conversation { chat, last: None, verbose: arguments.verbose, hide_thinking, max_tokens }
            .run(out);
    };
    let prompt = match prompt.as_str() {
        "-" => io::read_to_string(io::stdin()).context("standard input is not text")?,
        text => text.to_owned(),
    };
    let shown = if arguments.json { None } else { Some(&mut *out) };
    // The answer alone is the result; thoughts are shown beside it, to whoever sits there.
    let thoughts = !arguments.hide_thinking && !arguments.json && io::stderr().is_terminal();
    let thoughts = if thoughts { Thoughts::Beside } else { Thoughts::Hidden };
    let Said { text, reasoning, reason, statistics } = answer(&mut chat, &prompt, shown, thoughts)?;
    let timings = Timings::of(&statistics);
    if arguments.verbose {
        line(&timings.text());
    }
    if arguments.json {
        let reasoning = if arguments.hide_thinking { "" } else { &reasoning };
        let finish_reason = reason_name(reason);
        output::json(out, &Answer { text: &text, reasoning, finish_reason, timings })?;
    } else {
        writeln!(out)?;
    }
    out.flush()?;
    if arguments.json_schema.is_some() {
        tell_if_cut(reason, &statistics);
    }
    Ok(stopped(reason)?)
}

/// Where thoughts are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thoughts {
    /// Nowhere.
    Hidden,
    /// Before the answer.
    Before,
    /// On standard error.
    Beside,
}

/// What came of a question.
struct Said {
    text: String,
    reasoning: String,
    reason: Option<FinishReason>,
    statistics: Statistics,
}

/// Asks and shows the answer as it comes.
fn answer(chat: &mut Chat, text: &str, mut out: Option<&mut Out>, thoughts: Thoughts) -> Result<Said> {
    let mut answer = chat.ask(text)?;
    let _watch = stop::Watch::new(answer.stop_handle());
    let spinner = Spinner::new("reading");
    let read = answer.prefill(|done, total| spinner.set(&format!("reading {done}/{total} tokens")));
    // Until something is shown.
    let mut spinner = Some(spinner);
    if let Err(error) = read {
        spinner.into_iter().for_each(Spinner::clear);
        return Err(error.into());
    }
    let mut thinking = false;
    for piece in &mut answer {
        let piece = piece?;
        let is_thought = piece.channel == Channel::Reasoning;
        if is_thought && thoughts == Thoughts::Hidden {
            spinner.iter().for_each(|spinner| spinner.set("thinking"));
            continue;
        }
        if let Some(spinner) = spinner.take() {
            spinner.clear();
        }
        let text = if is_thought { format!("{FAINT}{}{FAINT:#}", piece.text) } else { piece.text };
        // A line between the last thought and the answer.
        let gap = if thinking && !is_thought { "\n\n" } else { "" };
        thinking = is_thought;
        if thoughts == Thoughts::Beside && (is_thought || !gap.is_empty()) {
            let beside = if is_thought { &text } else { gap };
            write!(anstream::stderr(), "{beside}")?;
        }
        if let Some(out) = &mut out
            && !(is_thought && thoughts == Thoughts::Beside)
        {
            let gap = if thoughts == Thoughts::Before { gap } else { "" };
            write!(out, "{gap}{text}")?;
            out.flush()?;
        }
    }
    if let Some(spinner) = spinner {
        spinner.clear();
    }
    Ok(Said {
        text: answer.text().to_owned(),
        reasoning: answer.reasoning().to_owned(),
        reason: answer.finish_reason(),
        statistics: *answer.statistics(),
    })
}

/// A conversation with a person, or with lines of standard input.
struct Conversation {
    chat: Chat,
    /// Figures of the last answer.
    last: Option<Statistics>,
    verbose: bool,
    hide_thinking: bool,
    /// Of an answer, where a limit was given.
    max_tokens: Option<usize>,
}

impl Conversation {
    fn run(mut self, out: &mut Out) -> Result<()> {
        if !io::stdin().is_terminal() {
            for text in io::stdin().lock().lines() {
                self.say(&text?, out)?;
            }
            return Ok(());
        }
        line(&format!("{FAINT}/help lists commands, Ctrl-D ends{FAINT:#}"));
        let mut editor = editor();
        loop {
            match editor.read_line(&Marker)? {
                Signal::Success(text) => self.say(&text, out)?,
                // Ctrl-C clears the line.
                Signal::CtrlC => {}
                _ => return Ok(()),
            }
        }
    }

    /// A command or something for the model. What is wrong with either is told and does not end the conversation.
    fn say(&mut self, text: &str, out: &mut Out) -> Result<()> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        let done = match text.strip_prefix('/') {
            Some(command) => self.command(command),
            None => self.ask(text, out),
        };
        match done {
            Err(error) if error.downcast_ref::<io::Error>().is_some() => Err(error),
            Err(error) => {
                line(&output::message(&error));
                if let Some(hint) = error.downcast_ref::<Error>().and_then(Error::hint) {
                    line(&hint);
                }
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn ask(&mut self, text: &str, out: &mut Out) -> Result<()> {
        let thoughts = if self.hide_thinking { Thoughts::Hidden } else { Thoughts::Before };
        let Said { reason, statistics, .. } = answer(&mut self.chat, text, Some(out), thoughts)?;
        writeln!(out)?;
        out.flush()?;
        stop::take();
        if reason == Some(FinishReason::Length) {
            let why = match self.max_tokens {
                Some(most) if statistics.generated_tokens >= most => {
                    format!("cut at {most} tokens, as -n says")
                }
                _ => "the context is full: /reset begins anew".to_owned(),
            };
            line(&format!("{FAINT}({why}){FAINT:#}"));
        }
        if self.verbose {
            line(&Timings::of(&statistics).text());
        }
        self.last = Some(statistics);
        Ok(())
    }

    fn command(&mut self, command: &str) -> Result<()> {
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match name {
            "help" => line(HELP),
            "reset" => self.chat.reset(),
            "system" => self.chat.set_system(rest),
            "save" => save(file(rest)?, self.chat.messages())?,
            "load" => self.chat.set_messages(load(file(rest)?)?),
            "stats" => match &self.last {
                Some(statistics) => line(&Timings::of(statistics).text()),
                None => line("nothing was answered yet"),
            },
            _ => line(&format!("there is no command /{name}; /help lists them")),
        }
        Ok(())
    }
}

fn file(name: &str) -> Result<&Path> {
    if name.is_empty() {
        return Err(Error::Usage {
            problem: "which file?".to_owned(),
            hint: "name one after the command".to_owned(),
        }
        .into());
    }
    Ok(Path::new(name))
}

fn save(path: &Path, messages: &[Message]) -> Result<()> {
    let text = serde_json::to_string_pretty(messages)?;
    fs::write(path, text).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    Ok(())
}

fn load(path: &Path) -> Result<Vec<Message>> {
    let text = akunu::read_text(path)?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a conversation", path.display()))
}

/// Line editing, with the lines of earlier conversations where they can be kept.
fn editor() -> Reedline {
    let history = Hub::from_env().ok().and_then(|hub| history(hub.cache().join("chat_history.txt")));
    // Pasted lines stay together instead of being sent one by one.
    let editor = Reedline::create().use_bracketed_paste(true);
    match history {
        Some(history) => editor.with_history(Box::new(history)),
        None => editor,
    }
}

fn history(path: PathBuf) -> Option<FileBackedHistory> {
    FileBackedHistory::with_file(HISTORY, path).ok()
}

/// What stands before a line.
struct Marker;

impl Prompt for Marker {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("> ")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("  ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("search {}: ", search.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_survives_being_saved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("talk.json");
        let messages = [Message::system("Be brief."), Message::user("Hi!"), Message::assistant("Hello.")];
        save(&path, &messages).unwrap();
        assert_eq!(load(&path).unwrap(), messages);
        fs::write(&path, "{}").unwrap();
        assert!(load(&path).unwrap_err().to_string().contains("talk.json"));
    }
}
