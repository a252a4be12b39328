//! The vocabularies that come with test vectors: every one must give the listed ids.

use akunu_format::gguf::Gguf;
use akunu_text::Tokenizer;
use akunu_text::tokenizer::{AddSpecial, Special};

/// Checks that each text of `ggml-vocab-NAME.gguf.inp` gives the ids on the same line of `.out`.
fn agrees_with_its_vectors(name: &str) {
    let file = akunu_testing::data(&format!("vocab/ggml-vocab-{name}.gguf"));
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&file).unwrap()).unwrap();
    let read = |extension| std::fs::read_to_string(file.with_extension(extension)).unwrap();
    let (texts, ids) = (read("gguf.inp"), read("gguf.out"));
    let texts: Vec<&str> = texts.split_terminator("\n__ggml_vocab_test__\n").collect();
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(texts.len(), ids.len());
    for (text, ids) in texts.iter().zip(ids) {
        let expected: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text, Special::Plain, AddSpecial::No), expected, "{name}: {text:?}");
    }
}

macro_rules! vectors {
    ($($test:ident $name:literal)*) => { $(
        #[test]
        fn $test() {
            agrees_with_its_vectors($name);
        }
    )* };
}

vectors! {
    bert_bge_agrees_with_its_vectors "bert-bge"
    command_r_agrees_with_its_vectors "command-r"
    deepseek_coder_agrees_with_its_vectors "deepseek-coder"
    deepseek_llm_agrees_with_its_vectors "deepseek-llm"
    falcon_agrees_with_its_vectors "falcon"
    gemma_4_agrees_with_its_vectors "gemma-4"
    gpt_2_agrees_with_its_vectors "gpt-2"
    llama_bpe_agrees_with_its_vectors "llama-bpe"
    llama_spm_agrees_with_its_vectors "llama-spm"
    mpt_agrees_with_its_vectors "mpt"
    phi_3_agrees_with_its_vectors "phi-3"
    qwen2_agrees_with_its_vectors "qwen2"
    qwen35_agrees_with_its_vectors "qwen35"
    refact_agrees_with_its_vectors "refact"
    starcoder_agrees_with_its_vectors "starcoder"
}
