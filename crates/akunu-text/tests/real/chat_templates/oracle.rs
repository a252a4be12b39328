//! Real chat templates, rendered byte for byte as `transformers` renders them.
//!
//! To see what differs, let `scripts/oracle/chat_templates.py --full` write the expected texts, name a folder in
//! `AKUNU_DIFFERING` for ours, and compare the two.

use akunu_text::chat::{ChatTemplate, DateTime, Message, RenderOptions, TemplateError};
use serde_json::Value as Json;

use super::test_data;

/// The moment `scripts/oracle/chat_templates.py` fixes.
const NOW: DateTime = DateTime { year: 2026, month: 3, day: 5, hour: 14, minute: 7, second: 9 };

type Read = Result<ChatTemplate, TemplateError>;

fn render(template: &Read, case: &Json, oracle: &Json) -> Result<String, TemplateError> {
    let messages: Vec<Message> = serde_json::from_value(case["messages"].clone()).unwrap();
    let options = RenderOptions {
        messages: &messages,
        tools: case.get("tools").and_then(Json::as_array).map(Vec::as_slice),
        documents: case.get("documents").and_then(Json::as_array).map(Vec::as_slice),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
        extra: case.get("kwargs").and_then(Json::as_object),
        bos_token: oracle["bos_token"].as_str(),
        eos_token: oracle["eos_token"].as_str(),
        now: NOW,
        ..RenderOptions::default()
    };
    let template = template.as_ref().map_err(Clone::clone)?;
    Ok(template.render(&options)?.text().to_owned())
}

#[test]
fn every_template_renders_every_conversation_as_transformers_does() {
    let oracle = test_data::oracle();
    let mut differing = Vec::new();
    let mut compared = 0;
    for (name, expected) in oracle["templates"].as_object().unwrap() {
        let source = test_data::template(name);
        assert_eq!(test_data::hash(&source), expected["source"], "{name} is not the template the oracle saw");
        let template = ChatTemplate::from_source(&source);
        for case in oracle["cases"].as_array().unwrap() {
            let case_name = case["name"].as_str().unwrap();
            let expected = expected["cases"][case_name].as_str().unwrap();
            let rendered = render(&template, case, &oracle);
            let outcome = rendered.as_ref().map_or_else(|_| "error".to_owned(), |text| test_data::hash(text));
            compared += 1;
            if outcome != expected {
                if let Some(folder) = std::env::var_os("AKUNU_DIFFERING") {
                    let text = rendered.as_ref().map_or_else(ToString::to_string, String::clone);
                    let path = std::path::Path::new(&folder).join(name.replace('/', "_"));
                    std::fs::create_dir_all(&path).unwrap();
                    std::fs::write(path.join(case_name), text).unwrap();
                }
                let got = rendered.map_or_else(|error| error.to_string(), |_| "another text".into());
                let wanted = if expected == "error" { "an error" } else { "a text" };
                differing.push(format!("{name}, {case_name}: {got}, and transformers gives {wanted}"));
            }
        }
    }
    assert!(compared > 3000, "only {compared} cases");
    assert!(differing.is_empty(), "{} of {compared} differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn kept_texts_are_rendered_as_they_are_written_down() {
    let oracle = test_data::oracle();
    let kept = oracle["texts"].as_object().unwrap();
    assert!(!kept.is_empty());
    for (name, texts) in kept {
        let template = ChatTemplate::from_source(&test_data::template(name));
        for (case_name, text) in texts.as_object().unwrap() {
            let cases = oracle["cases"].as_array().unwrap();
            let case = cases.iter().find(|case| case["name"] == **case_name).unwrap();
            match render(&template, case, &oracle) {
                Ok(rendered) => assert_eq!(rendered, text.as_str().unwrap(), "{name}, {case_name}"),
                Err(error) => assert_eq!(oracle["templates"][name]["cases"][case_name], "error", "{error}"),
            }
        }
    }
}
