//! Hugging Face directories as GGUF, against the twins that `scripts/oracle/tiny_models.py` wrote by llama.cpp's
//! conventions (and checked with llama.cpp): the same architecture, the same tensors.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use akunu::Kind;
use akunu::quantize::{Options, Recipe, Report, quantize};
use akunu_format::gguf::Gguf;
use akunu_format::{DType, Data, ModelFile};
use akunu_program::arch::Architecture;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special};
use serde_json::{Value, json};

fn twins() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/tiny");
    let mut twins: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.gguf").is_file())
        .collect();
    twins.sort();
    twins
}

fn convert(from: &Path, to: &Path, recipe: Recipe) -> akunu::Result<Report> {
    quantize(from, to, &Options::new(recipe), &mut |_| ControlFlow::Continue(()))
}

/// The recipe that leaves the matrices of a file as they are.
fn recipe_of(gguf: &Gguf) -> Recipe {
    match gguf.tensor("token_embd.weight").unwrap().data {
        Data::Blocks { dtype: DType::F32, .. } => Recipe::F32,
        Data::Blocks { dtype: DType::F16, .. } => Recipe::F16,
        Data::Blocks { dtype: DType::BF16, .. } => Recipe::BF16,
        _ => panic!("floats"),
    }
}

#[test]
fn every_family_becomes_what_llama_cpp_would_make_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let twins = twins();
    assert!(twins.len() >= 20, "{} twins", twins.len());
    for twin in twins {
        let title = twin.file_name().unwrap().to_str().unwrap();
        let expected = Gguf::open(twin.join("model.gguf")).unwrap();
        let report = convert(&twin, &out, recipe_of(&expected)).unwrap_or_else(|e| panic!("{title}: {e}"));
        let converted = Gguf::open(&out).unwrap();

        let names = |gguf: &Gguf| {
            let mut names: Vec<_> = gguf.tensors().map(|tensor| tensor.name.to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&converted), names(&expected), "{title}");
        for tensor in expected.tensors() {
            let ours = converted.tensor(tensor.name).unwrap();
            assert_eq!(ours.shape, tensor.shape, "{title}: {}", tensor.name);
            assert_eq!(ours.dtype_name(), tensor.dtype_name(), "{title}: {}", tensor.name);
            // A factor folded into the queries is rounded once more or less, and a 16-bit matrix rounds that again.
            let tolerance = match (tensor.name.contains("attn_q"), title.starts_with("gemma")) {
                (true, true) if tensor.dtype_name() == "BF16" => 1.0 / 128.0,
                (true, true) => 1e-3,
                _ => 1e-7,
            };
            for (ours, theirs) in ours.to_f32().unwrap().iter().zip(tensor.to_f32().unwrap()) {
                let near = (ours - theirs).abs() <= tolerance * theirs.abs();
                assert!(near, "{title}: {} has {ours}, not {theirs}", tensor.name);
            }
        }
        let architecture = |path: &Path| Architecture::of(&ModelFile::open(path).unwrap()).unwrap();
        assert_eq!(architecture(&out), architecture(&twin.join("model.gguf")), "{title}");
        assert!(report.notes.iter().any(|note| note.contains("no vocabulary")), "{:?}", report.notes);
    }
}

/// A checkpoint of one llama layer with weights of zero.
struct Checkpoint {
    folder: tempfile::TempDir,
}

impl Checkpoint {
    fn new(vocabulary: usize, more: &[(&str, &[usize])]) -> Checkpoint {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({
            "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": vocabulary,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        });
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let mut tensors: Vec<(String, Vec<usize>)> = vec![
            ("model.embed_tokens.weight".into(), vec![vocabulary, 32]),
            ("model.norm.weight".into(), vec![32]),
        ];
        let layer: [(&str, &[usize]); 9] = [
            ("input_layernorm", &[32]),
            ("post_attention_layernorm", &[32]),
            ("self_attn.q_proj", &[32, 32]),
            ("self_attn.k_proj", &[16, 32]),
            ("self_attn.v_proj", &[16, 32]),
            ("self_attn.o_proj", &[32, 32]),
            ("mlp.gate_proj", &[64, 32]),
            ("mlp.up_proj", &[64, 32]),
            ("mlp.down_proj", &[32, 64]),
        ];
        tensors.extend(layer.map(|(name, shape)| (format!("model.layers.0.{name}.weight"), shape.to_vec())));
        tensors.extend(more.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())));
        let mut header = serde_json::Map::new();
        let mut offset = 0;
        for (name, shape) in tensors {
            let end = offset + 2 * shape.iter().product::<usize>();
            header.insert(name, json!({ "dtype": "BF16", "shape": shape, "data_offsets": [offset, end] }));
            offset = end;
        }
        let header = Value::Object(header).to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.resize(file.len() + offset, 0);
        fs::write(folder.path().join("model.safetensors"), file).unwrap();
        Checkpoint { folder }
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        fs::write(self.folder.path().join(name), text).unwrap();
        self
    }

    fn convert(&self) -> akunu::Result<Gguf> {
        let out = self.folder.path().join("out.gguf");
        convert(self.folder.path(), &out, Recipe::Q8_0)?;
        Ok(Gguf::open(out)?)
    }
}

/// A byte-level vocabulary with a few joins, cut as `pattern` says.
fn byte_level(pattern: &str) -> Value {
    let printable = |byte: u8| match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        _ => {
            let before = (0..byte).filter(|b| !matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)).count();
            char::from_u32(256 + before as u32).unwrap()
        }
    };
    let mut vocabulary = serde_json::Map::new();
    for byte in 0..=255 {
        vocabulary.insert(printable(byte).to_string(), byte.into());
    }
    let space = printable(b' ');
    let merges = [
        ("l".to_owned(), "l".to_owned()),
        ("1".to_owned(), "2".to_owned()),
        ("12".to_owned(), "3".to_owned()),
        (space.to_string(), "a".to_owned()),
        ("123".to_owned(), "4".to_owned()),
        ("'".to_owned(), "s".to_owned()),
    ];
    for (id, (left, right)) in merges.iter().enumerate() {
        vocabulary.insert(format!("{left}{right}"), (256 + id).into());
    }
    json!({
        "added_tokens": [
            { "id": 262, "content": "<|end|>", "special": true },
            { "id": 263, "content": "<tool>", "special": false },
        ],
        "normalizer": null,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        ] },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": false },
    })
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const CONFIG: &str = r#"{ "eos_token": "<|end|>", "chat_template": "{{ messages[0].content }}" }"#;

#[test]
fn a_byte_level_vocabulary_keeps_its_tokens() {
    let checkpoint = Checkpoint::new(270, &[]);
    checkpoint.write("tokenizer.json", &byte_level(GPT2).to_string()).write("tokenizer_config.json", CONFIG);
    let gguf = checkpoint.convert().unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require::<&str>("tokenizer.ggml.pre").unwrap(), "gpt-2");
    assert_eq!(metadata.require::<&str>("tokenizer.chat_template").unwrap(), "{{ messages[0].content }}");
    assert_eq!(metadata.require::<u32>("tokenizer.ggml.eos_token_id").unwrap(), 262);
    let tokens = metadata.require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens[256], tokens[269]), (270, "ll", "[PAD269]"));
    assert_eq!(metadata.require::<u32>("llama.vocab_size").unwrap(), 270);
    let kinds = metadata.require::<Vec<i32>>("tokenizer.ggml.token_type").unwrap();
    assert_eq!(kinds[261..265], [1, 3, 4, 5]);

    let (theirs, ours) = (Tokenizer::from_dir(checkpoint.folder.path()), Tokenizer::from_gguf(&gguf));
    let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
    for text in ["hello all", "it's 1234 <|end|> <tool>", "\u{e9}\n\n  x"] {
        for special in [Special::Parse, Special::Plain] {
            let ids = |tokenizer: &Tokenizer| tokenizer.encode(text, special, AddSpecial::Yes);
            assert_eq!(ids(&ours), ids(&theirs), "{text:?}");
        }
    }
    assert_eq!(ours.eog_ids(), theirs.eog_ids());
}

#[test]
fn a_vocabulary_that_gguf_cannot_describe_is_refused() {
    let checkpoint = Checkpoint::new(270, &[]);
    checkpoint.write("tokenizer.json", &byte_level("[aeiou]+|[^aeiou]+").to_string());
    let error = checkpoint.convert().unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("cuts text the same way"), "{error}");
}

#[test]
fn more_tokens_than_embeddings_are_refused() {
    let checkpoint = Checkpoint::new(200, &[]);
    checkpoint.write("tokenizer.json", &byte_level(GPT2).to_string());
    let error = checkpoint.convert().unwrap_err();
    assert!(error.to_string().contains("264 tokens for 200 rows"), "{error}");
}

#[test]
fn a_tensor_without_a_place_is_refused_by_name() {
    let error = Checkpoint::new(8, &[("model.layers.0.mystery.weight", &[4])]).convert().unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("\"model.layers.0.mystery.weight\""), "{error}");
}

#[test]
fn an_output_that_is_tied_is_left_out_and_so_are_tables_of_angles() {
    let more: [(&str, &[usize]); 2] =
        [("lm_head.weight", &[8, 32]), ("model.layers.0.self_attn.rotary_emb.inv_freq", &[8])];
    let gguf = Checkpoint::new(8, &more).convert().unwrap();
    assert!(gguf.get_tensor("output.weight").is_none());
    assert_eq!(gguf.tensors().len(), 11);
}

#[test]
fn encoders_become_what_llama_cpp_would_make_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.gguf");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures/encoders");
    for name in ["bert", "nomic-bert"] {
        let expected = ModelFile::open(fixtures.join(name).join("model.gguf")).unwrap();
        let report = convert(&fixtures.join(name), &out, Recipe::F32).unwrap();
        assert!(report.notes.iter().any(|note| note.contains("no tokenizer.json")), "{:?}", report.notes);
        let converted = ModelFile::open(&out).unwrap();
        assert_eq!(Architecture::of(&converted).unwrap().0, Architecture::of(&expected).unwrap().0, "{name}");
        assert_eq!(converted.tensors().len(), expected.tensors().len());
        for tensor in expected.tensors() {
            let ours = converted.tensor(tensor.name).unwrap();
            assert_eq!(ours.shape, tensor.shape, "{name}: {}", tensor.name);
            assert_eq!(ours.to_f32().unwrap(), tensor.to_f32().unwrap(), "{name}: {}", tensor.name);
        }
    }
    let refused =
        |name: &str| convert(&fixtures.join(name), &out, Recipe::F32).map(drop).unwrap_err().to_string();
    assert!(refused("xlm-roberta").contains("an encoder of RoBERTa's kind"));
    assert!(refused("bert-tanh").contains("hidden_act"));
}
