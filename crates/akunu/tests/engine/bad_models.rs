//! Models that make no sense: each is refused with an error that names what is wrong, on every backend.

use akunu::{Error, Kind, Model, Options};
use akunu_format::DType;
use akunu_format::gguf::{Gguf, Writer};

use crate::tiny::{self, FAMILIES, directory, options};

/// What to change in a fixture.
#[derive(Default)]
struct Changes<'a> {
    counts: &'a [(&'a str, u32)],
    numbers: &'a [(&'a str, f32)],
    texts: &'a [(&'a str, &'a str)],
    without_key: Option<&'a str>,
    without_tensor: Option<&'a str>,
    /// A tensor of two numbers that the model has no use for.
    extra: Option<&'a str>,
    /// A tensor and its new shape, of zeros.
    reshaped: Option<(&'a str, &'a [usize])>,
    /// A tensor, one of its elements and what becomes of it.
    value: Option<(&'a str, usize, f32)>,
}

/// The llama fixture with changes, loaded.
fn load(changes: &Changes<'_>, options: &Options) -> akunu::Result<Model> {
    let fixture = Gguf::open(tiny::path("llama")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = Writer::new();
    let changed: Vec<&str> = (changes.counts.iter().map(|c| c.0))
        .chain(changes.numbers.iter().map(|c| c.0))
        .chain(changes.texts.iter().map(|c| c.0))
        .chain(changes.without_key)
        .collect();
    for (key, value) in fixture.metadata().iter().filter(|(key, _)| !changed.contains(key)) {
        writer.metadata_value(key, value).unwrap();
    }
    for (key, count) in changes.counts {
        writer.metadata(key, count).unwrap();
    }
    for (key, number) in changes.numbers {
        writer.metadata(key, number).unwrap();
    }
    for (key, text) in changes.texts {
        writer.metadata(key, *text).unwrap();
    }
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = fixture
        .tensors()
        .filter(|tensor| changes.without_tensor != Some(tensor.name))
        .map(|tensor| (tensor.name.to_owned(), tensor.shape.to_vec(), tensor.to_f32().unwrap()))
        .collect();
    if let Some(name) = changes.extra {
        tensors.push((name.to_owned(), vec![2], vec![0.0; 2]));
    }
    for (name, shape, values) in &mut tensors {
        if let Some((_, new)) = changes.reshaped.filter(|(changed, _)| changed == name) {
            *shape = new.to_vec();
            *values = vec![0.0; new.iter().product()];
        }
        if let Some((_, at, value)) = changes.value.filter(|(changed, ..)| changed == name) {
            values[at] = value;
        }
        writer.tensor(name, DType::F32, shape).unwrap();
    }
    let mut file = writer.create(&path).unwrap();
    for (name, _, values) in &tensors {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        file.append(name, &bytes).unwrap();
    }
    file.finish().unwrap();
    Model::load(&path, options)
}

fn refused(changes: &Changes<'_>, kind: Kind, named: &[&str]) {
    for backend in ["cpu", "reference"] {
        let options = Options { backend: backend.to_owned(), ..options() };
        let error = load(changes, &options).unwrap_err();
        let said = format!("{error} ({})", error.hint().unwrap_or_default());
        assert!(
            named.iter().all(|name| said.contains(name)),
            "{backend}: {said:?} names not all of {named:?}"
        );
        assert_eq!(said.matches("model.gguf").count(), 1, "{said}");
        assert_eq!(error.kind(), kind, "{said}");
    }
}

#[test]
fn an_unchanged_model_loads() {
    load(&Changes::default(), &options()).unwrap();
}

#[test]
fn no_fixture_has_a_tensor_too_many() {
    for folder in std::fs::read_dir(directory("llama").parent().unwrap()).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        for path in [folder.join("model.gguf"), folder.clone()] {
            if path.is_dir() && !path.join("config.json").exists() {
                continue;
            }
            Model::load(&path, &options()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

#[test]
fn a_chat_template_that_is_none_is_named_with_its_file() {
    let typed = Changes { counts: &[("tokenizer.chat_template", 7)], ..Changes::default() };
    refused(&typed, Kind::BadData, &["tokenizer.chat_template", "at byte", "expected a string"]);
    let broken = Changes { texts: &[("tokenizer.chat_template", "{% for %}")], ..Changes::default() };
    let model = load(&broken, &options()).unwrap();
    let error = model.chat(&akunu::Settings::default()).err().unwrap();
    assert_eq!(error.kind(), Kind::BadData);
    let said = error.to_string();
    assert!(said.contains("model.gguf: chat template line 1: syntax error"), "{said}");
}

#[test]
fn a_vocabulary_of_an_unknown_kind_is_named_before_the_weights() {
    let unknown = Changes { texts: &[("tokenizer.ggml.model", "mystery")], ..Changes::default() };
    refused(&unknown, Kind::Unsupported, &["mystery"]);
    let both = Changes { value: Some(("blk.0.attn_q.weight", 1, f32::NAN)), ..unknown };
    refused(&both, Kind::Unsupported, &["mystery"]);
}

#[test]
fn missing_tensors_are_named() {
    for name in ["token_embd.weight", "blk.1.attn_k.weight", "output_norm.weight", "blk.0.ffn_down.weight"] {
        let changes = Changes { without_tensor: Some(name), ..Changes::default() };
        refused(&changes, Kind::BadData, &[name, "llama"]);
    }
}

#[test]
fn tensors_without_a_place_are_named() {
    for name in ["blk.0.attn_sinks.weight", "blk.7.attn_q.weight", "mystery.weight"] {
        let changes = Changes { extra: Some(name), ..Changes::default() };
        refused(&changes, Kind::BadData, &[name, "no place"]);
    }
    // What rotations are described by is used, if not as a weight.
    let factors = Changes { extra: Some("rope_freqs.weight"), ..Changes::default() };
    refused(&factors, Kind::BadData, &["rope factors", "2 factors"]);
}

#[test]
fn tensors_of_another_shape_are_named_with_both() {
    for (name, shape) in [
        ("blk.0.attn_q.weight", &[3, 5][..]),
        ("blk.1.attn_norm.weight", &[7]),
        ("output_norm.weight", &[1]),
        ("token_embd.weight", &[128, 3]),
    ] {
        let changes = Changes { reshaped: Some((name, shape)), ..Changes::default() };
        refused(&changes, Kind::BadData, &[name, &format!("{shape:?}"), "expected"]);
    }
}

#[test]
fn weights_that_are_no_numbers_are_named_with_their_row() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for name in ["blk.0.attn_q.weight", "token_embd.weight", "blk.1.ffn_norm.weight"] {
            let changes = Changes { value: Some((name, 1, value)), ..Changes::default() };
            refused(&changes, Kind::BadData, &[name, "not finite", "row 0"]);
        }
    }
}

#[test]
fn counts_of_zero_and_beyond_all_reason_are_named() {
    for key in [
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.context_length",
    ] {
        for count in [0, u32::MAX] {
            let changes = Changes { counts: &[(key, count)], ..Changes::default() };
            refused(&changes, Kind::BadData, &[key]);
        }
        // Without KV heads there are as many as heads, which the tensors deny.
        let changes = Changes { without_key: Some(key), ..Changes::default() };
        let named = if key.ends_with("_kv") { "attn_k.weight" } else { key };
        refused(&changes, Kind::BadData, &[named]);
    }
}

#[test]
fn heads_that_do_not_go_round_are_named() {
    let changes = Changes { counts: &[("llama.attention.head_count_kv", 3)], ..Changes::default() };
    refused(&changes, Kind::BadData, &["head"]);
}

#[test]
fn absurd_rotations_are_named() {
    for (value, named) in [
        (0.0, "rope base"),
        (-1.0, "rope base"),
        (0.5, "rope base"),
        (f32::NAN, "llama.rope.freq_base"),
        (f32::INFINITY, "llama.rope.freq_base"),
    ] {
        let changes = Changes { numbers: &[("llama.rope.freq_base", value)], ..Changes::default() };
        refused(&changes, Kind::BadData, &[named]);
    }
    for (dims, named) in [(3, "rope dimensions"), (0, "rope dimensions"), (4096, "4096")] {
        let changes = Changes { counts: &[("llama.rope.dimension_count", dims)], ..Changes::default() };
        refused(&changes, Kind::BadData, &[named]);
    }
    let scaled = |kind, factor| Changes {
        texts: match kind {
            0 => &[("llama.rope.scaling.type", "linear")],
            1 => &[("llama.rope.scaling.type", "yarn")],
            _ => &[("llama.rope.scaling.type", "spiral")],
        },
        numbers: match factor {
            0 => &[("llama.rope.scaling.factor", 0.0)],
            1 => &[("llama.rope.scaling.factor", -4.0)],
            2 => &[("llama.rope.scaling.factor", 1e-30)],
            _ => &[("llama.rope.scaling.factor", f32::NAN)],
        },
        ..Changes::default()
    };
    for (kind, factor) in [(1, 0), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)] {
        refused(&scaled(kind, factor), Kind::BadData, &["rope"]);
    }
    refused(&scaled(2, 0), Kind::Unsupported, &["spiral"]);
}

#[test]
fn families_that_are_not_known_are_named() {
    let changes = Changes { texts: &[("general.architecture", "abacus")], ..Changes::default() };
    refused(&changes, Kind::Unsupported, &["abacus", "llama"]);
}

#[test]
fn contexts_threads_and_prompts_beyond_the_model_are_refused() {
    for name in FAMILIES {
        for backend in ["cpu", "reference"] {
            let with = |options: Options| Model::load(tiny::path(name), &options);
            let base = || Options { backend: backend.to_owned(), ..options() };
            let usage = |error: Error, named: &str| {
                let said = format!("{error} ({})", error.hint().unwrap_or_default());
                assert!(error.kind() == Kind::Usage && said.contains(named), "{name}, {backend}: {said}");
            };
            usage(with(Options { context: Some(1 << 20), ..base() }).unwrap_err(), "context of 1048576");
            usage(with(Options { threads: Some(0), ..base() }).unwrap_err(), "0 threads");
            let model = with(Options { context: Some(64), ..base() }).unwrap();
            let mut sequence = model.sequence().unwrap();
            usage(sequence.prefill(&[]).unwrap_err(), "empty");
            usage(sequence.prefill(&[5; 65]).unwrap_err(), "65 tokens");
            usage(sequence.prefill(&[5, u32::MAX]).unwrap_err(), "token 4294967295");
            usage(sequence.step(model.vocabulary() as u32).unwrap_err(), "there is no token");
            assert_eq!(sequence.position(), 0, "nothing of a refused prompt stays");
        }
    }
}
