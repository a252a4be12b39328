//! Whisper tiny on a recording, against openai-whisper (`scripts/oracle/speech.py`). Run scripts/fetch-test-data first.

use std::path::Path;
use std::sync::Arc;

use akunu::speech::{SpeechModel, SpeechOptions};
use akunu_format::{DType, ModelFile, quant};
use akunu_program::arch::{SpeechArchitecture, SpeechTensors};
use akunu_program::{
    BLOCK, Batch, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span, SpeechPrograms, StopFlag, Work,
    build_speech,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Tokens {
    prompt: Vec<u32>,
    text: Vec<u32>,
}

fn model() -> ModelFile {
    ModelFile::open(akunu_testing::data("models/whisper-tiny.bin")).unwrap()
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/speech").join(name)).unwrap()
}

fn numbers(name: &str) -> Vec<f32> {
    fixture(name).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The whole window: the recording, and its last frame again and again.
fn window() -> Vec<f32> {
    let bytes = fixture("mel.bin");
    let mut mel = vec![0.0; bytes.len() / 2];
    quant::dequantize(DType::F16, &bytes, &mut mel).unwrap();
    let last = mel[mel.len() - 80..].to_vec();
    mel.extend(last.iter().cycle().take(3000 * 80 - mel.len()));
    mel
}

/// The largest error as a share of the largest number. Weights are F16 on both sides; here keys and values are too, which
/// have 11 bits and pass through four layers.
fn error(actual: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(actual.len(), expected.len());
    let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
    actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale
}

#[test]
fn the_encoder_hears_what_openais_does() {
    let file = model();
    let arch = SpeechArchitecture::of(&file).unwrap();
    let tensors = SpeechTensors::new(&file);
    let program = build_speech(&arch, &tensors, file.tensors().map(|t| t.name)).unwrap().encoder;
    let cpu = akunu::backend("cpu", None).unwrap();
    let states = arch.encoder.context as u32;
    let blocks: Vec<u32> = (0..states.div_ceil(BLOCK as u32)).collect();
    let kv = cpu.kv(&program.groups, &[blocks.len() as u32; 3], KvType::F16).unwrap();
    let weights = cpu.load(&tensors, &program.weights).unwrap();
    let limits = Limits { slots: 1, rows: states, outputs: 15, context: states };
    let mut encoder = cpu.compile(&program, weights, Arc::clone(&kv), &limits).unwrap();
    let slot = SlotId(0);
    let edit = |group| SlotEdit::Blocks { slot, group, first: 0, blocks: &blocks };
    let mut out = Outputs::default();
    let batch = Batch {
        edits: &[edit(SpeechPrograms::SOUND), edit(SpeechPrograms::CROSS)],
        spans: &[Span { slot, start: 0, rows: states, phase: Phase::Prompt }],
        inputs: &window(),
        outputs: &(0..15).map(|i| 100 * i).collect::<Vec<u32>>(),
        ..Batch::default()
    };
    encoder.run(&batch, Work::Forward, &StopFlag::default(), &mut out).unwrap();
    for (ours, theirs) in out.logits.chunks_exact(384).zip(numbers("states.bin").chunks_exact(384)) {
        assert!(error(ours, theirs) < 2e-3, "{}", error(ours, theirs));
    }
}

#[test]
fn the_decoder_writes_what_openais_does_and_aligns_it_alike() {
    let Tokens { prompt, text } = serde_json::from_slice(&fixture("tokens.json")).unwrap();
    let top: Vec<(Vec<u32>, Vec<f32>)> = serde_json::from_slice(&fixture("top.json")).unwrap();
    let mut model = SpeechModel::from_file(&model(), &SpeechOptions::default()).unwrap();
    assert_eq!((model.mels(), model.frames(), model.vocabulary()), (80, 3000, 51_865));
    assert!(model.multilingual());
    let stop = StopFlag::default();
    model.encode(&window(), &stop).unwrap();
    let check = |logits: &[f32], (ids, expected): &(Vec<u32>, Vec<f32>)| {
        let ours: Vec<f32> = ids.iter().map(|&id| logits[id as usize]).collect();
        assert!(error(&ours, expected) < 3e-3, "{ours:?} instead of {expected:?}");
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        assert_eq!(best as u32, ids[0]);
    };
    check(&model.begin(&prompt, &stop).unwrap().last, &top[0]);
    for (&token, top) in text.iter().zip(&top[1..]) {
        check(model.step(&[(0, token)], &stop).unwrap(), top);
    }
    let ours = model.align(&[prompt, text].concat(), &stop).unwrap();
    let ours: Vec<f32> = ours.chunks_exact(10).map(|states| states.iter().sum()).collect();
    for (ours, theirs) in ours.chunks_exact(150).zip(numbers("weights.bin").chunks_exact(150)) {
        assert!(error(ours, theirs) < 1e-2, "{}", error(ours, theirs));
    }
}
