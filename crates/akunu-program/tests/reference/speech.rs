//! Tiny random Whisper models: the reference backend's states, logits and alignment against those of `transformers`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use akunu_format::ModelFile;
use akunu_program::arch::{Architecture, SpeechArchitecture, SpeechTensors};
use akunu_program::reference::Reference;
use akunu_program::{
    BLOCK, Backend, Batch, Executable, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span,
    SpeechPrograms, StopFlag, Work, build_alignment, build_speech,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/speech")
}

/// Every model file, with the folder of its fixture.
fn models() -> Vec<(PathBuf, PathBuf)> {
    ["plain", "turbo"]
        .map(|name| fixtures().join(name))
        .into_iter()
        .flat_map(|dir| {
            let files = ["", "model.gguf", "model.bin", "model.pt"].map(|name| dir.join(name));
            files.map(|file| (dir.clone(), file))
        })
        .collect()
}

fn numbers(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// An executable, and what it gave last.
struct Runner {
    executable: Box<dyn Executable>,
    out: Outputs,
}

impl Runner {
    /// Runs rows of the only slot, whose blocks are the first of each group; all rows are outputs.
    fn run(&mut self, start: u32, rows: u32, batch: &Batch<'_>) -> Vec<f32> {
        let phase = if rows == 1 { Phase::Decode } else { Phase::Prompt };
        let spans = [Span { slot: SlotId(0), start, rows, phase }];
        let outputs: Vec<u32> = (0..rows).collect();
        let batch = Batch { spans: &spans, outputs: &outputs, ..*batch };
        self.executable.run(&batch, Work::Forward, &StopFlag::default(), &mut self.out).unwrap();
        self.out.logits.clone()
    }
}

#[track_caller]
fn check(what: &str, model: &Path, actual: &[f32], expected: &[f32], width: usize) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (actual, expected) in actual.chunks_exact(width).zip(expected.chunks_exact(width)) {
        let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
        let error = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs())) / scale;
        assert!(error < 1e-4, "{}, {what}: relative error {error}", model.display());
    }
}

#[test]
fn models_of_speech_hear_and_write_what_the_oracle_does() {
    for (dir, model) in models() {
        let file = ModelFile::open(&model).unwrap();
        let mut arch = SpeechArchitecture::of(&file).unwrap_or_else(|e| panic!("{}: {e}", model.display()));
        if model.is_file() {
            // Only checkpoints can say which heads these are.
            arch.alignment = SpeechArchitecture::of(&ModelFile::open(&dir).unwrap()).unwrap().alignment;
        }
        let (states, context) = (arch.encoder.context, arch.decoder.context);
        let tensors = SpeechTensors::new(&file);
        let programs = build_speech(&arch, &tensors, file.tensors().map(|t| t.name)).unwrap();
        let blocks = [states, context, states].map(|positions| positions.div_ceil(BLOCK) as u32);
        let kv = Reference.kv(&programs.decoder.groups, &blocks, KvType::F16).unwrap();
        let encoder_weights = Reference.load(&tensors, &programs.encoder.weights).unwrap();
        let decoder_weights = Reference.load(&tensors, &programs.decoder.weights).unwrap();
        let compile = |program, weights, context: usize| {
            let count = context as u32;
            let limits = Limits { slots: 1, rows: count, outputs: count, context: count };
            let executable = Reference.compile(program, weights, Arc::clone(&kv), &limits).unwrap();
            let mut runner = Runner { executable, out: Outputs::default() };
            let tables = blocks.map(|count| (0..count).collect::<Vec<u32>>());
            let groups = [SpeechPrograms::SOUND, SpeechPrograms::TEXT, SpeechPrograms::CROSS];
            for (group, blocks) in groups.into_iter().zip(&tables) {
                let edits = [SlotEdit::Blocks { slot: SlotId(0), group, first: 0, blocks }];
                // A program has no table for positions that it does not need.
                let _ = runner.executable.run(
                    &Batch { edits: &edits, ..Batch::default() },
                    Work::Forward,
                    &StopFlag::default(),
                    &mut runner.out,
                );
            }
            runner
        };
        let mel = numbers(&dir.join("mel.bin"));
        let found = compile(&programs.encoder, encoder_weights, states).run(
            0,
            states as u32,
            &Batch { inputs: &mel, ..Batch::default() },
        );
        check("states", &model, &found, &numbers(&dir.join("states.bin")), arch.encoder.hidden);

        let tokens: Vec<u32> =
            serde_json::from_slice(&std::fs::read(dir.join("tokens.json")).unwrap()).unwrap();
        let expected = numbers(&dir.join("logits.bin"));
        let mut decoder = compile(&programs.decoder, Arc::clone(&decoder_weights), context);
        let count = tokens.len() as u32;
        let found = decoder.run(0, count, &Batch { tokens: &tokens, ..Batch::default() });
        check("logits at once", &model, &found, &expected, arch.vocabulary);
        for (i, expected) in expected.chunks_exact(arch.vocabulary).enumerate() {
            let found = decoder.run(i as u32, 1, &Batch { tokens: &tokens[i..=i], ..Batch::default() });
            check("logits one by one", &model, &found, expected, arch.vocabulary);
        }

        let program = build_alignment(&programs.decoder, &arch.alignment).unwrap();
        let found = compile(&program, decoder_weights, context).run(
            0,
            count,
            &Batch { tokens: &tokens, ..Batch::default() },
        );
        // The oracle's order is [heads][tokens][states].
        let heads = arch.alignment.len();
        let rows: Vec<&[f32]> = found.chunks_exact(states).collect();
        let turned: Vec<f32> = (0..heads)
            .flat_map(|head| rows.iter().skip(head).step_by(heads).flat_map(|row| row.iter().copied()))
            .collect();
        check("weights", &model, &turned, &numbers(&dir.join("weights.bin")), states);
    }
}

#[test]
fn alignment_heads_come_from_the_checkpoint_or_are_the_upper_half() {
    let heads = |file: &str| {
        SpeechArchitecture::of(&ModelFile::open(fixtures().join(file)).unwrap()).unwrap().alignment
    };
    assert_eq!(heads("plain"), [(0, 1), (1, 0), (1, 2)]);
    assert_eq!(heads("plain/model.bin"), [(1, 0), (1, 1), (1, 2)]);
}

#[test]
fn texts_are_not_written_by_models_of_speech_nor_speech_by_models_of_text() {
    let file = ModelFile::open(fixtures().join("plain")).unwrap();
    let problem = Architecture::of(&file).unwrap_err().to_string();
    assert!(problem.contains("whisper"), "{problem}");
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/llama/model.gguf");
    let problem = SpeechArchitecture::of(&ModelFile::open(text).unwrap()).unwrap_err().to_string();
    assert!(problem.contains("as a model of speech"), "{problem}");
}

#[test]
fn sizes_beyond_reason_are_refused() {
    // The states of a window are the second number after the magic.
    let mut bytes = std::fs::read(fixtures().join("plain/model.bin")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    for (at, value, named) in
        [(8, 1 << 20, "1048576 positions"), (16, 5, "5 heads"), (12, 96, "96 in the encoder")]
    {
        let kept: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        std::fs::write(&path, &bytes).unwrap();
        let problem = SpeechArchitecture::of(&ModelFile::open(&path).unwrap()).unwrap_err().to_string();
        assert!(problem.contains(named), "{problem:?} does not say {named:?}");
        bytes[at..at + 4].copy_from_slice(&kept);
    }
}

#[test]
fn a_tensor_without_a_place_is_refused() {
    let file = ModelFile::open(fixtures().join("plain")).unwrap();
    let arch = SpeechArchitecture::of(&file).unwrap();
    let names = file.tensors().map(|t| t.name).chain(["model.decoder.layers.1.adapter.weight"]);
    let problem = build_speech(&arch, &SpeechTensors::new(&file), names).unwrap_err().to_string();
    assert!(problem.contains("adapter"), "{problem}");
}
