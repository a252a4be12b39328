//! Tiny encoders and models of speech against their oracles.

use std::path::Path;
use std::sync::Arc;

use akunu_format::ModelFile;
use akunu_program::arch::{Architecture, SpeechArchitecture, SpeechTensors};
use akunu_program::conformance::Runner;
use akunu_program::program::Program;
use akunu_program::{
    BLOCK, Backend, Batch, Executable, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span,
    SpeechPrograms, StopFlag, Weights, Work, build_alignment, build_hidden, build_speech,
};

/// The encoders among the fixtures, and the models of speech.
pub const ENCODERS: [&str; 4] = ["bert", "bert-tanh", "nomic-bert", "xlm-roberta"];
pub const SPEECH: [&str; 2] = ["plain", "turbo"];

fn numbers(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The largest difference of a number relative to the largest of its row.
fn error(actual: &[f32], expected: &[f32], width: usize) -> f32 {
    assert_eq!(actual.len(), expected.len());
    let rows = actual.chunks_exact(width).zip(expected.chunks_exact(width));
    rows.fold(0f32, |worst, (actual, expected)| {
        let scale = expected.iter().fold(0f32, |m, x| m.max(x.abs()));
        let far = actual.iter().zip(expected).fold(0f32, |m, (a, e)| m.max((a - e).abs()));
        worst.max(if actual.iter().all(|x| x.is_finite()) { far / scale } else { f32::INFINITY })
    })
}

/// The error of an encoder's states: of two texts side by side, and of the shorter one alone as if it were decoded.
pub fn encoder(backend: &dyn Backend, folder: &Path) -> f32 {
    let context = 64;
    let file = ModelFile::open(folder).unwrap();
    let (arch, names) = Architecture::of(&file).unwrap();
    let program = build_hidden(&arch, &names, &file, context as usize).unwrap();
    let width = program.value(program.logits).width;
    let expected = numbers(&folder.join("hidden.bin"));
    let prompts = std::fs::read(folder.join("prompts.json")).unwrap();
    let prompts: Vec<Vec<u32>> = serde_json::from_slice(&prompts).unwrap();
    let mut runner = Runner::new(backend, &program, &file, 2, context).unwrap();
    runner.feed(&[(0, 0, &prompts[0]), (1, 0, &prompts[1])], Work::Forward).unwrap();
    let beside = error(&runner.out.logits, &expected, width);
    runner.phase = Some(Phase::Decode);
    runner.feed(&[(0, 0, &prompts[1])], Work::Forward).unwrap();
    beside.max(error(&runner.out.logits, &expected[prompts[0].len() * width..], width))
}

/// Runs rows of an executable's only slot and gives the numbers of all of them.
fn run(executable: &mut dyn Executable, start: u32, rows: u32, batch: &Batch<'_>) -> Vec<f32> {
    let phase = if rows == 1 { Phase::Decode } else { Phase::Prompt };
    let spans = [Span { slot: SlotId(0), start, rows, phase }];
    let outputs: Vec<u32> = (0..rows).collect();
    let mut out = Outputs::default();
    let batch = Batch { spans: &spans, outputs: &outputs, ..*batch };
    executable.run(&batch, Work::Forward, &StopFlag::default(), &mut out).unwrap();
    out.logits
}

/// The errors of a model of speech: of its states, of logits at once and one by one, and of its alignment.
pub fn speech(backend: &dyn Backend, folder: &Path) -> [f32; 4] {
    let file = ModelFile::open(folder).unwrap();
    let arch = SpeechArchitecture::of(&file).unwrap();
    let (states, context) = (arch.encoder.context, arch.decoder.context);
    let tensors = SpeechTensors::new(&file);
    let programs = build_speech(&arch, &tensors, file.tensors().map(|t| t.name)).unwrap();
    let groups = [SpeechPrograms::SOUND, SpeechPrograms::TEXT, SpeechPrograms::CROSS];
    let blocks = [states, context, states].map(|positions| positions.div_ceil(BLOCK) as u32);
    let kv = backend.kv(&programs.decoder.groups, &blocks, KvType::F16).unwrap();
    let compile = |program: &Program, weights: Arc<dyn Weights>, context: usize, used: &[bool; 3]| {
        let count = context as u32;
        let limits = Limits { slots: 1, rows: count, outputs: count, context: count };
        let mut executable = backend.compile(program, weights, Arc::clone(&kv), &limits).unwrap();
        // Blocks in descending order, so that nothing works by accident.
        let tables = blocks.map(|count| (0..count).rev().collect::<Vec<u32>>());
        let edits: Vec<SlotEdit<'_>> = groups
            .into_iter()
            .zip(&tables)
            .zip(used)
            .filter(|(_, used)| **used)
            .map(|((group, blocks), _)| SlotEdit::Blocks { slot: SlotId(0), group, first: 0, blocks })
            .collect();
        let batch = Batch { edits: &edits, ..Batch::default() };
        executable.run(&batch, Work::Forward, &StopFlag::default(), &mut Outputs::default()).unwrap();
        executable
    };

    let weights = backend.load(&tensors, &programs.encoder.weights).unwrap();
    let mut encoder = compile(&programs.encoder, weights, states, &[true, false, true]);
    let mel = numbers(&folder.join("mel.bin"));
    let found = run(&mut *encoder, 0, states as u32, &Batch { inputs: &mel, ..Batch::default() });
    let of_states = error(&found, &numbers(&folder.join("states.bin")), arch.encoder.hidden);

    let tokens: Vec<u32> =
        serde_json::from_slice(&std::fs::read(folder.join("tokens.json")).unwrap()).unwrap();
    let batch = Batch { tokens: &tokens, ..Batch::default() };
    let count = tokens.len() as u32;
    let weights = backend.load(&tensors, &programs.decoder.weights).unwrap();
    let used = [false, true, true];
    let mut decoder = compile(&programs.decoder, Arc::clone(&weights), context, &used);
    let expected = numbers(&folder.join("logits.bin"));
    let at_once = error(&run(&mut *decoder, 0, count, &batch), &expected, arch.vocabulary);
    let one_by_one = (0..count).zip(&tokens).flat_map(|(i, token)| {
        run(&mut *decoder, i, 1, &Batch { tokens: std::slice::from_ref(token), ..Batch::default() })
    });
    let one_by_one = error(&one_by_one.collect::<Vec<f32>>(), &expected, arch.vocabulary);

    let alignment = build_alignment(&programs.decoder, &arch.alignment).unwrap();
    let found = run(&mut *compile(&alignment, weights, context, &used), 0, count, &batch);
    // The oracle's order is [heads][tokens][states].
    let heads = arch.alignment.len();
    let rows: Vec<&[f32]> = found.chunks_exact(states).collect();
    let turned: Vec<f32> = (0..heads)
        .flat_map(|head| rows.iter().skip(head).step_by(heads).copied().flatten().copied())
        .collect();
    let aligned = error(&turned, &numbers(&folder.join("weights.bin")), states);
    [of_states, at_once, one_by_one, aligned]
}
