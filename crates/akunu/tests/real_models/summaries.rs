//! Summaries of real models, against what independent readers say of them (scripts/oracle/summaries.py).

use akunu::Summary;
use akunu_format::ModelFile;
use akunu_testing::data;
use serde_json::Value;

fn summary(path: &str) -> Summary {
    Summary::of(&ModelFile::open(data(path)).unwrap(), None).unwrap()
}

#[test]
fn parameters_and_dtypes_are_what_other_readers_count() {
    let expected: Value = serde_json::from_str(include_str!("../fixtures/summaries.json")).unwrap();
    for (path, expected) in expected.as_object().unwrap() {
        let found = summary(path);
        assert_eq!(found.parameters, expected["parameters"], "{path}");
        let dtypes = expected["dtypes"].as_object().unwrap();
        assert_eq!(found.dtypes.len(), dtypes.len(), "{path}");
        for share in &found.dtypes {
            let expected = &dtypes[&share.dtype];
            assert_eq!(share.tensors, expected["tensors"], "{path} {}", share.dtype);
            assert_eq!(share.parameters, expected["parameters"], "{path} {}", share.dtype);
            assert_eq!(share.bytes, expected["bytes"], "{path} {}", share.dtype);
        }
    }
}

#[test]
fn the_default_models_are_described_in_full() {
    let smollm2 = summary("models/smollm2.gguf");
    assert_eq!(smollm2.architecture.as_deref(), Some("llama"));
    assert_eq!(smollm2.chat_template.unwrap().style, Some("chatml"));
    assert_eq!(smollm2.tokenizer.unwrap().special["eos"].text.as_deref(), Some("<|im_end|>"));
    // 30 layers, 3 heads of 64 for keys and for values, 4096 positions, two bytes each.
    assert_eq!(smollm2.memory.unwrap().kv_cache, Some(30 * 3 * 2 * 64 * 4096 * 2));

    let minilm = summary("models/minilm");
    assert_eq!((minilm.architecture.as_deref(), minilm.shape.layers), (Some("bert"), Some(6)));
    assert_eq!(minilm.tokenizer.unwrap().special["cls"].id, 101);
    assert_eq!(minilm.memory.unwrap().kv_cache, Some(0));

    let whisper = summary("models/whisper-tiny.bin");
    assert_eq!((whisper.architecture.as_deref(), whisper.shape.layers), (Some("whisper"), Some(4)));
    assert_eq!(whisper.shape.encoder.unwrap().context_length, 1500);
}

#[test]
fn files_with_a_vocabulary_alone_have_a_tokenizer_and_no_memory() {
    for entry in std::fs::read_dir(data("vocab")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let found = Summary::of(&ModelFile::open(&path).unwrap(), None).unwrap();
            assert!(found.tokenizer.unwrap().vocabulary_size > 1000, "{}", path.display());
            assert_eq!((found.memory, found.parameters), (None, 0), "{}", path.display());
        }
    }
}
