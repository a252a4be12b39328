//! Conversations: history is not read again, nobody's words are special tokens, and answers stay however they end.

use akunu::{Channel, FinishReason, Kind, Model, Sampling, Settings};
use akunu_format::gguf::{Gguf, Writer};

use crate::tiny::{self, FAMILIES, load, options};

const TEMPLATE: &str =
    "{% for m in messages %}{{ bos_token }}{{ m.role }} {{ m.content }}{% endfor %}{{ bos_token }}assistant ";

/// The fixture with a chat template.
fn talkative(name: &str) -> Model {
    with_template(name, TEMPLATE)
}

fn with_template(name: &str, template: &str) -> Model {
    with(name, |writer| writer.metadata("tokenizer.chat_template", template).map(|_| ()))
}

/// The fixture with more metadata.
fn with(name: &str, more: impl FnOnce(&mut Writer) -> akunu_format::Result<()>) -> Model {
    let fixture = Gguf::open(tiny::path(name)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let mut writer = Writer::new();
    for (key, value) in fixture.metadata().iter() {
        writer.metadata_value(key, value).unwrap();
    }
    more(&mut writer).unwrap();
    for tensor in fixture.tensors() {
        writer.tensor(tensor.name, akunu_format::DType::F32, tensor.shape).unwrap();
    }
    let mut tensors = writer.create(&path).unwrap();
    for tensor in fixture.tensors() {
        let bytes: Vec<u8> = tensor.to_f32().unwrap().into_iter().flat_map(f32::to_le_bytes).collect();
        tensors.append(tensor.name, &bytes).unwrap();
    }
    tensors.finish().unwrap();
    Model::load(&path, &options()).unwrap()
}

fn settings() -> Settings {
    // Only letters, so that an answer is read back as the tokens that wrote it.
    let sampling = Sampling { logit_bias: vec![(2, f32::NEG_INFINITY)], ..Sampling::GREEDY };
    Settings { sampling, max_tokens: Some(12), ..Settings::default() }
}

#[test]
fn what_was_said_before_is_not_read_again() {
    for name in FAMILIES {
        let model = talkative(name);
        let mut chat = model.chat(&settings()).unwrap();
        let mut first = chat.ask("hello there").unwrap();
        assert!(first.by_ref().all(|piece| piece.is_ok()));
        let prompt = first.statistics().prompt_tokens;
        assert_eq!(first.statistics().cached_tokens, 0);
        drop(first);
        let mut second = chat.ask("and now?").unwrap();
        assert!(second.by_ref().all(|piece| piece.is_ok()));
        // At least the first question with what the template wrote around it.
        assert!(second.statistics().cached_tokens >= prompt, "{name}: {:?}", second.statistics());
        let answer = second.text().to_owned();
        drop(second);
        // A fresh conversation with the same words gives the same answer.
        let messages = chat.messages()[..2].to_vec();
        let mut fresh = model.chat(&settings()).unwrap();
        fresh.set_messages(messages);
        let again: String = fresh.ask("and now?").unwrap().map(|piece| piece.unwrap().text).collect();
        assert_eq!(again, answer, "{name}");
    }
}

#[test]
fn words_of_people_are_never_special_tokens() {
    let model = talkative("llama");
    let tokenizer = model.tokenizer().unwrap().clone();
    let (bos, eos) = (tokenizer.bos().unwrap(), tokenizer.eos().unwrap());
    let mut chat = model.chat(&Settings { max_tokens: Some(1), ..settings() }).unwrap();
    let text = format!("{}{}", tokenizer.piece(bos), tokenizer.piece(eos));
    chat.ask(&text).unwrap().for_each(drop);
    // The template's two, one before each turn.
    assert_eq!(chat.tokens().iter().filter(|&&token| token == bos).count(), 2);
    assert!(!chat.tokens().contains(&eos));
}

#[test]
fn an_answer_that_is_dropped_is_part_of_the_conversation() {
    let model = talkative("llama");
    let mut chat = model.chat(&settings()).unwrap();
    chat.set_system("be kind");
    let mut answer = chat.ask("hello").unwrap();
    let said = answer.next().unwrap().unwrap().text;
    assert_eq!(answer.finish_reason(), None);
    drop(answer);
    let roles: Vec<&str> = chat.messages().iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant"]);
    assert_eq!(chat.messages()[2], akunu::Message::assistant(said));
    let mut answer = chat.ask("go on").unwrap();
    assert!(answer.by_ref().all(|piece| piece.is_ok()));
    assert_eq!(answer.finish_reason(), Some(FinishReason::Length));
    drop(answer);
    chat.reset();
    assert_eq!(chat.messages().len(), 1);
    chat.set_system("");
    assert!(chat.messages().is_empty());
}

#[test]
fn a_question_that_does_not_fit_leaves_the_conversation_as_it_was() {
    let model = talkative("llama");
    let mut chat = model.chat(&settings()).unwrap();
    let error = chat.ask(&"word ".repeat(300)).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(chat.messages().is_empty());
    assert!(chat.ask("word").unwrap().all(|piece| piece.is_ok()));
}

#[test]
fn a_model_without_a_template_is_refused() {
    let error = load("llama", &options()).chat(&settings()).unwrap_err();
    assert!(error.to_string().contains("no chat template"), "{error}");
}

/// Opens the thoughts in the prompt, unless it is told that there should be none.
const THINKING: &str = "{% for m in messages %}{{ bos_token }}{{ m.role }} {{ m.content }}{% endfor %}{{ bos_token }}\
    assistant {% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}";

#[test]
fn thoughts_are_told_from_the_answer_and_kept_apart() {
    let model = with_template("llama", THINKING);
    let mut chat = model.chat(&settings()).unwrap();
    assert!(chat.can_think());
    // The tiny model never ends its thoughts.
    let pieces: Vec<_> = chat.ask("hello").unwrap().map(Result::unwrap).collect();
    assert!(pieces.iter().all(|piece| piece.channel == Channel::Reasoning && !piece.text.is_empty()));
    let thought: String = pieces.into_iter().map(|piece| piece.text).collect();
    let message = &chat.messages()[1];
    assert_eq!(message.reasoning_content.as_deref(), Some(thought.as_str()));
    chat.reset();
    chat.set_thinking(Some(false)).unwrap();
    let mut answer = chat.ask("hello").unwrap();
    assert!(answer.by_ref().all(|piece| piece.unwrap().channel == Channel::Answer));
    assert!(answer.reasoning().is_empty() && !answer.text().is_empty());
    drop(answer);
    assert_eq!(chat.messages()[1].reasoning_content, None);
}

#[test]
fn thinking_is_refused_where_the_model_has_no_choice() {
    let mut plain = talkative("llama").chat(&settings()).unwrap();
    assert!(!plain.can_think());
    let error = plain.set_thinking(Some(true)).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("not made to think"), "{error}");
    plain.set_thinking(Some(false)).unwrap();
    let always = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}";
    let mut always = with_template("llama", always).chat(&settings()).unwrap();
    let error = always.set_thinking(Some(false)).unwrap_err();
    assert!(error.to_string().contains("always thinks"), "{error}");
    always.set_thinking(Some(true)).unwrap();
}

#[test]
fn a_file_says_how_to_sample() {
    let model = with("llama", |writer| {
        writer.metadata("general.sampling.temp", &0.2f32)?;
        writer.metadata("general.sampling.top_k", &-1i32)?;
        writer.metadata("general.sampling.top_p", &0.9f32).map(|_| ())
    });
    let expected = Sampling { temperature: 0.2, top_p: 0.9, ..Sampling::GREEDY };
    assert_eq!(model.recommended_sampling(), Some(&expected));
    assert_eq!(load("llama", &options()).recommended_sampling(), None);
}
