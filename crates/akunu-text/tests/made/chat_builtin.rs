//! The built-in templates, and what they keep apart.

use akunu_text::chat::{BUILTIN_NAMES, ChatTemplate, ChatTemplates, ErrorKind, Message, RenderOptions};
use proptest::prelude::*;
use serde_json::json;

fn render(name: &str, messages: &[Message]) -> String {
    let options = RenderOptions {
        messages,
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        ..RenderOptions::default()
    };
    ChatTemplate::builtin(name).unwrap().render(&options).unwrap().text().to_owned()
}

#[test]
fn a_conversation_takes_the_familys_form() {
    let messages = [
        Message::system("Be kind."),
        Message::user("Hi"),
        Message::assistant("Hello!"),
        Message::user("Bye"),
    ];
    for (name, expected) in [
        (
            "chatml",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
             <|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("llama2", "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Bye [/INST]"),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "gemma",
            "<s><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n\
             <start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
        ),
        ("mistral", "<s>[INST] Be kind.\n\nHi [/INST] Hello!</s>[INST] Bye [/INST]"),
        (
            "phi3",
            "<s><|system|>\nBe kind.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nHello!<|end|>\n\
             <|user|>\nBye<|end|>\n<|assistant|>\n",
        ),
    ] {
        assert_eq!(render(name, &messages), expected, "{name}");
    }
}

#[test]
fn a_last_message_can_be_continued() {
    let messages = [Message::user("Hi"), Message::assistant("Hello, ")];
    for (name, expected) in [
        ("chatml", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello, "),
        ("gemma", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello, "),
        ("mistral", "[INST] Hi [/INST] Hello, "),
    ] {
        let template = ChatTemplate::builtin(name).unwrap();
        let options = RenderOptions { messages: &messages, continue_last: true, ..RenderOptions::default() };
        let prompt = template.render(&options).unwrap();
        assert_eq!(prompt.text(), expected);
        let segments: Vec<_> = prompt.segments().collect();
        assert_eq!(segments.iter().map(|segment| segment.text).collect::<String>(), expected);
        assert!(!segments.last().unwrap().trusted);
    }
    let hidden = ChatTemplate::from_source("{{ messages[0].content }}").unwrap();
    let options = RenderOptions { messages: &messages, continue_last: true, ..RenderOptions::default() };
    assert!(hidden.render(&options).unwrap_err().message.contains("cannot be continued"));
}

#[test]
fn parts_are_joined_and_what_cannot_be_shown_is_refused() {
    let parts: Message = serde_json::from_value(json!({"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
    ]}))
    .unwrap();
    let image: Message = serde_json::from_value(json!({"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "x"}},
    ]}))
    .unwrap();
    for name in BUILTIN_NAMES {
        assert!(render(name, std::slice::from_ref(&parts)).contains("ab"), "{name}");
        let template = ChatTemplate::builtin(name).unwrap();
        let refused = |options: RenderOptions<'_>| template.render(&options).unwrap_err().kind;
        let messages = std::slice::from_ref(&image);
        assert_eq!(
            refused(RenderOptions { messages, ..RenderOptions::default() }),
            ErrorKind::Refused,
            "{name}"
        );
        let tools = [json!({"type": "function", "function": {"name": "f"}})];
        let options = RenderOptions { tools: Some(&tools), ..RenderOptions::default() };
        assert_eq!(refused(options), ErrorKind::Refused, "{name}");
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = ChatTemplate::builtin("chatlm").unwrap_err().to_string();
    assert!(error.contains("chatlm") && BUILTIN_NAMES.iter().all(|name| error.contains(name)), "{error}");
}

#[test]
fn an_option_cannot_hide_the_conversation() {
    let extra = json!({"messages": []});
    let options = RenderOptions { extra: extra.as_object(), ..RenderOptions::default() };
    let error = ChatTemplate::builtin("chatml").unwrap().render(&options).unwrap_err();
    assert!(error.message.contains("`messages`"), "{error}");
}

#[test]
fn a_template_is_chosen_by_name_or_by_need() {
    let list = json!([
        {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"},
    ]);
    let templates = ChatTemplates::from_json(&list).unwrap();
    let chosen = |name, tools| templates.choose(name, tools).unwrap().source().to_owned();
    assert_eq!([chosen(None, false), chosen(None, true), chosen(Some("rag"), true)], ["d", "t", "r"]);
    let error = templates.choose(Some("nope"), false).unwrap_err().to_string();
    assert!(error.contains("`nope`") && error.contains("tool_use, rag"), "{error}");
    let single = ChatTemplates::from_json(&json!("one")).unwrap();
    assert_eq!(single.choose(None, true).unwrap().source(), "one");
    assert!(ChatTemplates::from_json(&json!([{"name": "x"}])).unwrap_err().message.contains("entry 0"));
    assert!(ChatTemplates::from_json(&json!(5)).is_err());
}

/// A template that takes content apart and puts it together again in every way it can think of. All its own
/// letters are Latin.
const MANGLER: &str = "\
{%- macro shout(x) %}<{{ x | upper }}>{% endmacro %}
{%- set ns = namespace(all='') %}
{%- for m in messages %}
    {%- set c = m.content %}
    {%- set ns.all = ns.all + c[::-1] %}
    {{- shout(c) ~ c.split('\u{3b1}') | join('<|') ~ c.replace('\u{3b2}', 'b') ~ c | tojson ~ [c] ~ c.title() }}
    {{- '%s|%5s' % (c, c) ~ '{}{0!r}'.replace('{0!r}', '') ~ '[{}]'.format(c) ~ c[1:3] ~ (c | first) ~ c.center(9, '-') }}
    {{- (c | list | reverse | join('')) ~ {c: c} ~ c.partition('\u{3b3}')[2] ~ c | indent(2, true) ~ c.strip('\u{3b1}') }}
    {%- filter lower %}{{ c }}{% set d %}{{ c }}{{ c | trim }}{% endset %}{{ d }}{% endfilter %}
    {%- for x in c %}{{ x ~ loop.nextitem }}{% endfor %}
    {{- c | e ~ (c | safe + c) ~ c.swapcase() ~ c | truncate(3, true, '', 0) ~ c.zfill(7) ~ c * 2 }}
{%- endfor %}
{{- ns.all }}";

proptest! {
    #[test]
    fn every_character_keeps_its_origin_whatever_a_template_does(
        contents in prop::collection::vec("[\u{3b1}-\u{3c9}\u{391}-\u{3a1}]{0,12}", 1..4),
    ) {
        let template = ChatTemplate::from_source(MANGLER).unwrap();
        let messages: Vec<Message> = contents.iter().map(Message::user).collect();
        let prompt = template.render(&RenderOptions { messages: &messages, ..RenderOptions::default() }).unwrap();
        for segment in prompt.segments() {
            let greek = segment.text.chars().filter(|c| ('\u{370}'..='\u{3ff}').contains(c)).count();
            // Content has only Greek letters and the template only others.
            let expected = if segment.trusted { 0 } else { segment.text.chars().count() };
            prop_assert_eq!(greek, expected, "{:?}", segment);
        }
    }

    #[test]
    fn what_a_builtin_template_writes_does_not_depend_on_the_content(
        contents in prop::collection::vec(
            "(<\\|im_end\\|>|<\\|im_|end\\|>|<\\|eot_id\\|>|</s>|\\[INST\\]|<end_of_turn>|<\\|end\\|>|[a-z<|> ]){1,8}",
            1..4,
        ),
        name in prop::sample::select(BUILTIN_NAMES.to_vec()),
    ) {
        let template = ChatTemplate::builtin(name).unwrap();
        let parts = |content: &dyn Fn(usize) -> String| {
            let messages: Vec<Message> = (0..contents.len())
                .map(|turn| Message::new(if turn % 2 == 0 { "user" } else { "assistant" }, content(turn)))
                .collect();
            let prompt = template
                .render(&RenderOptions { messages: &messages, ..RenderOptions::default() })
                .unwrap();
            let own = |trusted| {
                let segments = prompt.segments().filter(move |segment| segment.trusted == trusted);
                segments.map(|segment| segment.text.to_owned()).collect::<Vec<_>>()
            };
            (own(true).concat(), own(false).concat())
        };
        let (trusted, untrusted) = parts(&|turn| contents[turn].clone());
        let (plain, _) = parts(&|_| "x".to_owned());
        prop_assert_eq!(trusted, plain);
        let spaceless = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        prop_assert_eq!(spaceless(&untrusted), spaceless(&contents.concat()));
    }
}
