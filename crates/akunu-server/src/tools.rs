//! Tools: what OpenAI's, Anthropic's and Ollama's interfaces say about them, in one form.

use akunu::{Constraint, Settings, ToolChoice};
use akunu_text::chat::{ChatTemplate, Syntax, ToolSyntax};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::resident::Served;

type Result<T> = std::result::Result<T, ApiError>;

/// Where an interface has a tool's name and the schema of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `function/name` and `function/parameters`, as OpenAI's chats and Ollama's have them.
    Function,
    /// `name` and `parameters`, as OpenAI's newer interface has them.
    Flat,
    /// `name` and `input_schema`, as Anthropic's has them.
    InputSchema,
}

impl Layout {
    /// A place within the tools of a request, of which the engine says where OpenAI's chats have it.
    fn place(self, place: &str) -> String {
        let Some((tool, within)) = place.split_once("/function/") else { return place.to_owned() };
        match (self, within.strip_prefix("parameters")) {
            (Layout::Function, _) => place.to_owned(),
            (Layout::InputSchema, Some(schema)) => format!("{tool}/input_schema{schema}"),
            (Layout::Flat | Layout::InputSchema, _) => format!("{tool}/{within}"),
        }
    }
}

/// What is wrong with what a request says of the form of its answer: in the words of the request, if it has tools, and else of
/// the field that has the form.
pub(crate) fn refused(error: akunu::Error, tools: Option<Layout>, form: Option<&'static str>) -> ApiError {
    let akunu::Error::Constraint { language, place, problem } = error else { return error.into() };
    let of_tools = language == "tools" || place.starts_with("tools/");
    match tools.filter(|_| of_tools) {
        Some(layout) => {
            let place = layout.place(&place);
            ApiError::from(akunu::Error::Constraint { language, place, problem }).param("tools")
        }
        None => {
            let error = ApiError::from(akunu::Error::Constraint { language, place, problem });
            form.into_iter().fold(error, ApiError::param)
        }
    }
}

/// Tools a model may, or must, call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tools {
    /// As OpenAI's interface has them.
    definitions: Vec<Value>,
    /// As the request has them.
    pub(crate) layout: Layout,
    choice: ToolChoice,
    /// Whether one answer may call several.
    several: bool,
}

impl Tools {
    /// `tools`, `tool_choice` and `parallel_tool_calls`; `None` where there are none, or none may be called.
    pub(crate) fn openai(fields: &mut Fields) -> Result<Option<Tools>> {
        for name in ["functions", "function_call"] {
            fields.refuse(name, &[json!([]), json!("none")], "is the old way: use `tools`")?;
        }
        Tools::chosen(definitions(fields)?, Layout::Function, fields)
    }

    /// The same in the words of OpenAI's newer interface, where a definition has its fields one step higher.
    pub(crate) fn responses(fields: &mut Fields) -> Result<Option<Tools>> {
        let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
        let definition = |(i, mut tool): (usize, Value)| {
            if tool["type"] != "function" {
                return Err(ApiError::unsupported(&format!("tools[{i}].type"), "may only be \"function\""));
            }
            let function: Map<String, Value> = ["name", "description", "parameters", "strict"]
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), tool.get_mut(name)?.take())))
                .collect();
            Ok(json!({"type": "function", "function": function}))
        };
        let definitions = tools.into_iter().enumerate().map(definition).collect::<Result<Vec<_>>>()?;
        Tools::chosen(definitions, Layout::Flat, fields)
    }

    fn chosen(definitions: Vec<Value>, layout: Layout, fields: &mut Fields) -> Result<Option<Tools>> {
        let several = fields.take("parallel_tool_calls")?.unwrap_or(true);
        let choice = match fields.take::<Value>("tool_choice")? {
            None => Some(ToolChoice::Auto),
            Some(Value::String(choice)) => match choice.as_str() {
                "none" => None,
                "auto" => Some(ToolChoice::Auto),
                "required" => Some(ToolChoice::Required),
                _ => return Err(unknown_choice()),
            },
            Some(choice) => {
                let name = [&choice["function"]["name"], &choice["name"]].into_iter().find_map(Value::as_str);
                Some(ToolChoice::Named(name.ok_or_else(unknown_choice)?.to_owned()))
            }
        };
        Tools::new(definitions, layout, choice, several)
    }

    /// The same in Anthropic's words.
    pub(crate) fn anthropic(fields: &mut Fields) -> Result<Option<Tools>> {
        let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
        let definition = |(i, mut tool): (usize, Value)| match tool["type"].as_str() {
            _ if !tool.is_object() => Err(ApiError::field(format!("tools[{i}]"), "must be an object")),
            None | Some("custom") => {
                let mut function =
                    json!({"name": tool["name"].take(), "parameters": tool["input_schema"].take()});
                if let Some(description) = tool.get_mut("description") {
                    function["description"] = description.take();
                }
                Ok(json!({"type": "function", "function": function}))
            }
            Some(other) => {
                Err(ApiError::unsupported(&format!("tools[{i}]"), format!("is of the type \"{other}\"")))
            }
        };
        let definitions = tools.into_iter().enumerate().map(definition).collect::<Result<Vec<_>>>()?;
        let Some(mut given) = fields.object("tool_choice")? else {
            return Tools::new(definitions, Layout::InputSchema, Some(ToolChoice::Auto), true);
        };
        let choice = match given.need::<String>("type")?.as_str() {
            "none" => None,
            "auto" => Some(ToolChoice::Auto),
            "any" => Some(ToolChoice::Required),
            "tool" => Some(ToolChoice::Named(given.need("name")?)),
            _ => return Err(unknown_choice()),
        };
        let several = !given.take("disable_parallel_tool_use")?.unwrap_or(false);
        given.end()?;
        Tools::new(definitions, Layout::InputSchema, choice, several)
    }

    /// The same in Ollama's words, which leave the choice to the model.
    pub(crate) fn ollama(fields: &mut Fields) -> Result<Option<Tools>> {
        Tools::new(definitions(fields)?, Layout::Function, Some(ToolChoice::Auto), true)
    }

    fn new(
        definitions: Vec<Value>,
        layout: Layout,
        choice: Option<ToolChoice>,
        several: bool,
    ) -> Result<Option<Tools>> {
        match choice {
            Some(ToolChoice::Required | ToolChoice::Named(_)) if definitions.is_empty() => {
                Err(ApiError::field("tool_choice", "needs `tools`"))
            }
            Some(choice) if !definitions.is_empty() => {
                Ok(Some(Tools { definitions, layout, choice, several }))
            }
            _ => Ok(None),
        }
    }

    /// Holds answers to the form of calls, and says how they are read back. Where the request has a form for answers too, it is
    /// for those that call nothing.
    pub(crate) fn apply(
        &self,
        served: &Served,
        template: &ChatTemplate,
        settings: &mut Settings,
    ) -> Result<&'static ToolSyntax> {
        let syntax = ToolSyntax::of_template(template.source()).ok_or_else(|| {
            let problem = format!("cannot be used: how {} calls them is not known here", served.id);
            ApiError::unsupported("tools", problem)
        })?;
        let tokenizer = served.scheduler.model().tokenizer()?;
        let Tools { definitions, layout, choice, several } = self;
        let constraint = match settings.constraint.take().filter(|_| *choice == ToolChoice::Auto) {
            Some(answer) => answer.or_calls(syntax, definitions, *several, tokenizer),
            None => Constraint::tools(syntax, definitions, choice, *several, tokenizer),
        };
        settings.constraint = Some(constraint.map_err(|error| refused(error, Some(*layout), None))?);
        // Marks that are control tokens have no text otherwise.
        settings.shown_tokens.extend(Syntax::all_marks().filter_map(|mark| tokenizer.id_of(mark)));
        Ok(syntax)
    }

    /// What templates are given.
    pub(crate) fn definitions(&self) -> &[Value] {
        &self.definitions
    }
}

/// Anthropic's messages in OpenAI's form, as far as tools go: calls become fields of their message, results messages of their own.
pub(crate) fn without_tool_blocks(messages: Vec<Value>) -> Result<Vec<Value>> {
    let mut plain = Vec::new();
    for (i, mut message) in messages.into_iter().enumerate() {
        let blocks = match message.get_mut("content") {
            Some(Value::Array(blocks)) => std::mem::take(blocks),
            _ => {
                plain.push(message);
                continue;
            }
        };
        let (mut rest, mut calls) = (Vec::new(), Vec::new());
        for (j, block) in blocks.into_iter().enumerate() {
            match block["type"].as_str() {
                Some("tool_use") => calls.push(json!({
                    "id": block["id"], "type": "function",
                    "function": {"name": block["name"], "arguments": block["input"]},
                })),
                Some("tool_result") => plain.push(json!({
                    "role": "tool",
                    "tool_call_id": block["tool_use_id"],
                    "content": result_text(&block, &format!("messages[{i}].content[{j}]"))?,
                })),
                _ => rest.push(block),
            }
        }
        if rest.is_empty() && calls.is_empty() {
            continue;
        }
        message["content"] = if rest.is_empty() { Value::Null } else { Value::Array(rest) };
        if !calls.is_empty() {
            message["tool_calls"] = Value::Array(calls);
        }
        plain.push(message);
    }
    Ok(plain)
}

/// What a tool said, as text. `name` is the block's in the request.
fn result_text(block: &Value, name: &str) -> Result<String> {
    let only_text = || ApiError::unsupported(&format!("{name}.content"), "may only be text");
    let text = match &block["content"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
            texts.ok_or_else(only_text)?.join("\n")
        }
        _ => return Err(only_text()),
    };
    Ok(if block["is_error"] == true { format!("Error: {text}") } else { text })
}

fn definitions(fields: &mut Fields) -> Result<Vec<Value>> {
    let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
    for (i, tool) in tools.iter().enumerate() {
        if !matches!(tool["type"].as_str(), None | Some("function")) {
            return Err(ApiError::unsupported(&format!("tools[{i}].type"), "may only be \"function\""));
        }
        if !tool["function"].is_object() {
            return Err(ApiError::field(format!("tools[{i}].function"), "is missing"));
        }
    }
    Ok(tools)
}

fn unknown_choice() -> ApiError {
    ApiError::field("tool_choice", "must be none, auto, required (Anthropic: any) or name a function")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    fn sum() -> Value {
        json!({"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}})
    }

    #[test]
    fn all_interfaces_say_the_same() {
        let openai = |choice: Value| {
            Tools::openai(&mut fields(&json!({"tools": [sum()], "tool_choice": choice}))).unwrap()
        };
        let anthropic = |choice: Value| {
            let tool = json!({"name": "sum", "input_schema": {"type": "object"}});
            Tools::anthropic(&mut fields(&json!({"tools": [tool], "tool_choice": choice}))).unwrap()
        };
        let responses = |choice: Value| {
            let tool = json!({"type": "function", "name": "sum", "parameters": {"type": "object"}});
            Tools::responses(&mut fields(&json!({"tools": [tool], "tool_choice": choice}))).unwrap()
        };
        for (theirs, others, choice) in [
            (json!("auto"), json!({"type": "auto"}), ToolChoice::Auto),
            (json!("required"), json!({"type": "any"}), ToolChoice::Required),
            (
                json!({"type": "function", "function": {"name": "sum"}}),
                json!({"type": "tool", "name": "sum"}),
                ToolChoice::Named("sum".to_owned()),
            ),
        ] {
            let expected = |layout| {
                Some(Tools { definitions: vec![sum()], layout, choice: choice.clone(), several: true })
            };
            assert_eq!(openai(theirs.clone()), expected(Layout::Function));
            assert_eq!(responses(theirs), expected(Layout::Flat));
            assert_eq!(anthropic(others), expected(Layout::InputSchema));
        }
        assert_eq!((openai(json!("none")), anthropic(json!({"type": "none"}))), (None, None));
        assert_eq!(Tools::openai(&mut fields(&json!({}))).unwrap(), None);
        assert_eq!(
            Tools::ollama(&mut fields(&json!({"tools": [sum()]}))).unwrap().unwrap().choice,
            ToolChoice::Auto
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (body, param) in [
            (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tools": [sum()], "tool_choice": "perhaps"}), "tool_choice"),
            (json!({"functions": [{"name": "f"}]}), "functions"),
        ] {
            assert_eq!(
                Tools::openai(&mut fields(&body)).unwrap_err().param.as_deref(),
                Some(param),
                "{body}"
            );
        }
    }

    #[test]
    fn places_are_those_of_the_request() {
        let schema = "tools/1/function/parameters/properties/function/not";
        for (layout, name, place) in [
            (Layout::Function, "tools/0/function/name", schema),
            (Layout::Flat, "tools/0/name", "tools/1/parameters/properties/function/not"),
            (Layout::InputSchema, "tools/0/name", "tools/1/input_schema/properties/function/not"),
        ] {
            assert_eq!(
                (layout.place("tools/0/function/name").as_str(), layout.place(schema).as_str()),
                (name, place)
            );
        }
    }

    #[test]
    fn anthropics_tools_are_objects() {
        for tool in [json!("x"), json!(1), json!([])] {
            let error = Tools::anthropic(&mut fields(&json!({"tools": [tool]}))).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("tools[0]"));
        }
    }

    #[test]
    fn blocks_of_calls_and_results_become_messages() {
        let messages = vec![
            json!({"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "sum", "input": {"of": [1]}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "1"}]},
                {"type": "text", "text": "and?"},
            ]}),
            json!({"role": "user", "content": "hi"}),
        ];
        assert_eq!(
            without_tool_blocks(messages).unwrap(),
            [
                json!({"role": "assistant", "content": [{"type": "text", "text": "I look."}], "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "sum", "arguments": {"of": [1]}}},
                ]}),
                json!({"role": "tool", "tool_call_id": "t1", "content": "1"}),
                json!({"role": "user", "content": [{"type": "text", "text": "and?"}]}),
                json!({"role": "user", "content": "hi"}),
            ]
        );
        let image = json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image"}]});
        let error = without_tool_blocks(vec![json!({"role": "user", "content": [image]})]).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages[0].content[0].content"));
        let failed = json!({"type": "tool_result", "content": "no such city", "is_error": true});
        let messages = without_tool_blocks(vec![json!({"role": "user", "content": [failed]})]).unwrap();
        assert_eq!(messages[0]["content"], "Error: no such city");
    }
}
