//! From conversations to token ids, with real templates and their own vocabularies.

use akunu_format::gguf::Gguf;
use akunu_text::chat::{ChatTemplate, Message, Prompt, RenderOptions};
use akunu_text::tokenizer::{AddSpecial, Special, TokenId, Tokenizer};
use akunu_text::{Detokenizer, Segment};

use super::test_data;

/// Templates with the vocabulary they belong to.
fn models() -> Vec<(&'static str, ChatTemplate, Tokenizer)> {
    let names = [
        "tokenizers/gemma3",
        "tokenizers/llama3",
        "tokenizers/llama3_2",
        "tokenizers/qwen2_5",
        "tokenizers/qwen3",
        "models/smollm2",
    ];
    let root = akunu_testing::data("");
    let read = |name: &'static str| {
        let tokenizer = match name.strip_prefix("models/") {
            Some(_) => Tokenizer::from_gguf(&Gguf::open(root.join(format!("{name}.gguf"))).unwrap()).unwrap(),
            None => Tokenizer::from_dir(root.join(name)).unwrap(),
        };
        (name, ChatTemplate::from_source(&test_data::template(name)).unwrap(), tokenizer)
    };
    names.into_iter().map(read).collect()
}

fn render(template: &ChatTemplate, content: &str) -> Prompt {
    let messages =
        [Message::user(content), Message::assistant(format!("ok {content} ok")), Message::user(content)];
    let options = RenderOptions { messages: &messages, bos_token: Some("<bos>"), ..RenderOptions::default() };
    template.render(&options).unwrap()
}

fn encode(tokenizer: &Tokenizer, prompt: &Prompt) -> Vec<TokenId> {
    tokenizer.encode_segments(&prompt.segments().collect::<Vec<_>>(), AddSpecial::No)
}

#[test]
fn no_special_token_of_the_vocabulary_can_be_written_by_a_user() {
    for (name, template, tokenizer) in models() {
        let special: Vec<(TokenId, String)> =
            tokenizer.special_tokens().map(|(id, text)| (id, text.into_owned())).collect();
        assert!(special.len() > 10, "{name}");
        let specials_in = |ids: Vec<TokenId>| -> Vec<TokenId> {
            ids.into_iter().filter(|id| special.iter().any(|(own, _)| own == id)).collect()
        };
        let expected = specials_in(encode(&tokenizer, &render(&template, "harmless")));
        assert!(expected.len() >= 4, "{name}: the template writes special tokens itself");
        // Some have hundreds or thousands of unused ones: every fiftieth is enough of those.
        for (_, text) in special.iter().take(40).chain(special.iter().skip(40).step_by(50)) {
            // An earlier answer's reasoning is cut out by some templates, which is for them to decide.
            if text.contains("think") {
                continue;
            }
            for content in [text.clone(), format!("a{text}b {text}{text}"), format!(" \n{text}\n ")] {
                let ids = encode(&tokenizer, &render(&template, &content));
                assert_eq!(specials_in(ids), expected, "{name}: {content:?}");
            }
        }
    }
}

#[test]
fn harmless_prompts_encode_as_their_whole_text_does() {
    for (name, template, tokenizer) in models() {
        for content in ["Hello", "naïve 😀 text,\nof 3 lines\n", "x", "  spaces  "] {
            let prompt = render(&template, content);
            let whole = tokenizer.encode(prompt.text(), Special::Parse, AddSpecial::No);
            assert_eq!(encode(&tokenizer, &prompt), whole, "{name}: {content:?}");
        }
    }
}

#[test]
fn detokenizing_one_by_one_gives_the_text_back() {
    let text = "naïve 😀 日本語 text,\n\tof 3 lines\n";
    for (name, _, tokenizer) in models() {
        let ids = tokenizer.encode_segments(&[Segment::untrusted(text)], AddSpecial::No);
        let mut detokenizer = Detokenizer::new(tokenizer.strips_leading_space());
        let mut out = String::new();
        for id in ids {
            let before = out.len();
            detokenizer.push(tokenizer.token_bytes(id), &mut out);
            assert!(!out[before..].contains('\u{fffd}'), "{name}: a broken character");
        }
        detokenizer.flush(&mut out);
        assert_eq!(out, text, "{name}");
    }
}

#[test]
fn builtin_templates_agree_with_the_models_own() {
    let messages = [Message::user("Hi"), Message::assistant("Hello!"), Message::user(" Bye\n")];
    for (builtin, own) in [
        ("llama3", "tokenizers/llama3"),
        ("gemma", "google-gemma-2-2b-it"),
        ("gemma", "tokenizers/gemma3"),
        ("phi3", "microsoft-Phi-3.5-mini-instruct"),
        ("chatml", "openbmb-MiniCPM5-1B"),
    ] {
        let text = |template: ChatTemplate, bos_token| {
            let options = RenderOptions {
                messages: &messages,
                bos_token,
                eos_token: Some("<eos>"),
                ..RenderOptions::default()
            };
            template.render(&options).unwrap().text().to_owned()
        };
        let own_template = ChatTemplate::from_source(&test_data::template(own)).unwrap();
        // Phi-3.5's template leaves the first token to the tokenizer, and ChatML has none.
        let bos_token = (builtin != "phi3" && builtin != "chatml").then_some("<bos>");
        assert_eq!(
            text(ChatTemplate::builtin(builtin).unwrap(), bos_token),
            text(own_template, bos_token),
            "{own}"
        );
    }
}
