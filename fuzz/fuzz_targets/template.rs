//! A chat template, and after a zero byte what a user says to it.

#![no_main]

use akunu_text::chat::{ChatTemplate, DateTime, Limits, Message, RenderOptions};
use libfuzzer_sys::fuzz_target;

/// A character of the user's: if the template has none, trusted text must have none.
const CANARY: char = '\u{10fffd}';

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let said = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let Ok(template) = ChatTemplate::from_source(&source) else { return };
    let tools = [serde_json::json!({"type": "function", "function": {"name": format!("{CANARY}f"), "parameters": {}}})];
    let messages = [
        Message::system(format!("{CANARY}system")),
        Message::user(format!("{CANARY}{said}{CANARY}")),
        Message::assistant(format!("<think>{CANARY}{said}</think>{said}")),
    ];
    let options = RenderOptions {
        messages: &messages,
        tools: Some(&tools),
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        now: DateTime { year: 2026, month: 3, day: 5, hour: 14, minute: 7, second: 9 },
        limits: Limits { steps: 200_000, memory: 8 << 20, output: 1 << 20 },
        ..RenderOptions::default()
    };
    let Ok(prompt) = template.render(&options) else { return };
    let segments: Vec<_> = prompt.segments().collect();
    assert_eq!(segments.iter().map(|segment| segment.text).collect::<String>(), prompt.text());
    assert!(segments.windows(2).all(|pair| pair[0].trusted != pair[1].trusted));
    // A template could name the character, also by an escape in one of its strings.
    if !source.contains(CANARY) && !source.contains('\\') {
        assert!(!segments.iter().any(|segment| segment.trusted && segment.text.contains(CANARY)));
    }
});
