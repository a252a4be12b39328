//! A conversation on its way to a model: what the template is given, and what the answer is held to.

use akunu::Settings;
use akunu_text::chat::{Content, Message, RenderOptions, Splitter, Syntax, ToolCall, ToolSyntax};
use serde_json::{Map, Value};

use crate::ask::Prompt;
use crate::constraints;
use crate::error::ApiError;
use crate::resident::Served;
use crate::thinking::Thinking;
use crate::tools::Tools;

type Result<T> = std::result::Result<T, ApiError>;

/// What was said, and what the request says of the answer.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Option<Tools>,
    pub(crate) thinking: Thinking,
    /// The field by which the interface says whether to think.
    pub(crate) thinking_field: &'static str,
    /// Variables for the template.
    pub(crate) variables: Map<String, Value>,
    /// Whether the answer goes on with the last message.
    pub(crate) continues: bool,
}

impl Conversation {
    /// Whether the last message is the assistant's, and has text that could be continued.
    pub(crate) fn ends_with_assistant(messages: &[Message]) -> bool {
        let is_open = |last: &Message| last.role == "assistant" && last.tool_calls.is_none();
        messages.last().is_some_and(is_open)
    }

    /// The conversation up to where the answer begins, as the model reads it; and `settings` hold the answer to the form of
    /// calls, where there are tools.
    pub(crate) fn prompt(mut self, served: &Served, settings: &mut Settings) -> Result<Prompt> {
        let template = served.template_for(self.tools.is_some());
        let Some(template) = template.map_err(|error| akunu::Error::from(error.clone()))? else {
            let message = format!("{} has no chat template: use /v1/completions", served.id);
            return Err(ApiError::invalid(message).param("model"));
        };
        let variables = self.thinking.variables(template, self.variables, self.thinking_field)?;
        let calls = self.tools.as_ref().map(|tools| tools.apply(served, template, settings)).transpose()?;
        let mut definitions = self.tools.as_ref().map(Tools::definitions);
        // Some templates know nothing of tools.
        if ToolSyntax::of_template(template.source()).is_some_and(|syntax| !syntax.is_in_template()) {
            self.messages = spelled_out(definitions.take(), self.messages);
        }
        let options = RenderOptions {
            messages: &self.messages,
            tools: definitions,
            extra: Some(&variables),
            continue_last: self.continues,
            ..RenderOptions::default()
        };
        let model = served.scheduler.model();
        let (tokens, text) = model.render_text(template, &options)?;
        let tools = self.tools.as_ref().map(|tools| tools.layout);
        let mut prompt = Prompt { calls, tools, ..Prompt::from(tokens) };
        if let Some(syntax) = Syntax::of_template(template.source()) {
            let tokenizer = model.tokenizer()?;
            let marks = [syntax.reasoning.open, syntax.reasoning.close];
            settings.shown_tokens.extend(marks.iter().filter_map(|mark| tokenizer.id_of(mark)));
            prompt.splitter = self.thinking.apart.then(|| Splitter::new(syntax.reasoning, &text));
            constraints::after_thinking(served, syntax, &prompt.tokens, settings, self.thinking.budget)?;
        }
        Ok(prompt)
    }
}

/// A conversation for a model whose template knows nothing of tools: definitions stand in the system prompt, calls and their
/// results in plain words.
fn spelled_out(definitions: Option<&[Value]>, messages: Vec<Message>) -> Vec<Message> {
    let mut called: Vec<(String, String)> = Vec::new();
    let mut spelled = Vec::new();
    for message in messages {
        let calls = message.tool_calls.iter().flatten();
        called.extend(calls.filter_map(|call| Some((call.id.clone()?, call.function.name.clone()))));
        spelled.push(plain(message, &called));
    }
    if let Some(definitions) = definitions {
        let instructions = ToolSyntax::instructions(definitions);
        match spelled.first_mut().filter(|first| first.role == "system") {
            Some(system) => {
                let before = text_of(system);
                *system = Message::system(format!("{before}\n\n{instructions}"));
            }
            None => spelled.insert(0, Message::system(instructions)),
        }
    }
    spelled
}

/// A message in plain words, after calls with these ids and names.
fn plain(message: Message, called: &[(String, String)]) -> Message {
    if message.role == "tool" {
        let of_call = |(id, _): &&(String, String)| Some(id) == message.tool_call_id.as_ref();
        let named = called.iter().find(of_call).map(|(_, name)| name);
        let name = message.name.as_ref().or(named).map_or("the function", String::as_str);
        return Message::user(format!("Result of {name}: {}", text_of(&message)));
    }
    let Some(calls) = message.tool_calls.as_deref().filter(|calls| !calls.is_empty()) else { return message };
    let ToolSyntax { before_name, before_arguments, after_arguments, .. } = ToolSyntax::GENERIC;
    let call = |ToolCall { function, .. }: &ToolCall| {
        format!("{before_name}{}{before_arguments}{}{after_arguments}", function.name, function.arguments)
    };
    let calls: Vec<String> = calls.iter().map(call).collect();
    let text = [text_of(&message)].into_iter().chain(calls).filter(|text| !text.is_empty());
    Message::assistant(text.collect::<Vec<_>>().join("\n"))
}

fn text_of(message: &Message) -> String {
    match &message.content {
        Some(Content::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn models_without_tools_read_of_them_in_words() {
        let sum = json!({"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}});
        let call: Message =
            serde_json::from_value(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "7", "function": {"name": "sum", "arguments": {"of": [1]}}}]}))
            .unwrap();
        let result = Message { tool_call_id: Some("7".to_owned()), ..Message::new("tool", "1") };
        let spelled = spelled_out(Some(&[sum]), vec![Message::system("Be brief."), call, result]);
        let system = text_of(&spelled[0]);
        assert!(system.starts_with("Be brief.\n\nYou can call") && system.contains("\"sum\""), "{system}");
        assert_eq!(spelled[1], Message::assistant("{\"name\": \"sum\", \"arguments\": {\"of\":[1]}}"));
        assert_eq!(spelled[2], Message::user("Result of sum: 1"));
    }
}
