//! The networks of a Whisper model: one window of sound at a time, and several hypotheses about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use akunu_audio::LONGEST;
use akunu_format::ModelFile;
use akunu_program::arch::{SpeechArchitecture, SpeechTensors};
use akunu_program::program::{FRAMES_PER_TOKEN, GroupId, Program};
use akunu_program::{
    BLOCK, Backend, Batch, Executable, KvStore, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span,
    SpeechPrograms, StopFlag, Weights, Work, build_alignment, build_speech,
};
use akunu_text::Tokenizer;
use akunu_text::tokenizer::TokenId;

use super::hypotheses::Hypotheses;
use crate::backends::backend;
use crate::{Error, Result, text};

/// What every transcript begins with.
const START: &str = "<|startoftranscript|>";
/// Tokens that are aligned at a time: each has a number for every state and head.
const ALIGNED_ROWS: usize = 64;

/// Most hypotheses that can be asked for.
const MOST_BEAMS: usize = 256;

/// How a model of speech is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeechOptions {
    /// The backend's name; `auto` leaves the choice to akunu.
    pub backend: String,
    /// Threads, for backends that run on the CPU; by default all cores.
    pub threads: Option<usize>,
    /// Most hypotheses at once.
    pub beams: usize,
    /// The longest recording that is taken; a day by default, which is also the most. An hour takes 115 MB (80 bands).
    pub longest: Duration,
}

impl Default for SpeechOptions {
    fn default() -> SpeechOptions {
        SpeechOptions {
            backend: "auto".to_owned(),
            threads: None,
            beams: 5,
            longest: Duration::from_secs(LONGEST),
        }
    }
}

/// Logits after a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Begun {
    /// `[vocabulary]`, after the prompt's last token.
    pub last: Vec<f32>,
    /// `[vocabulary]`, after the token that every transcript begins with; empty if the prompt has none.
    pub start: Vec<f32>,
}

/// A Whisper model ready to run.
///
/// ```no_run
/// use akunu::speech::{SpeechModel, SpeechOptions};
/// use akunu_program::StopFlag;
///
/// let file = akunu_format::ModelFile::open("whisper-tiny.bin")?;
/// let mut model = SpeechModel::from_file(&file, &SpeechOptions::default())?;
/// let stop = StopFlag::default();
/// let silence = vec![0.0; model.frames() * model.mels()];
/// model.encode(&silence, &stop)?;
/// let begun = model.begin(&[50258, 50259, 50359], &stop)?;
/// assert_eq!(begun.last.len(), model.vocabulary());
/// // The same hypothesis in two ways.
/// let logits = model.step(&[(0, 50364), (0, 50363)], &stop)?;
/// # Ok::<(), akunu::Error>(())
/// ```
pub struct SpeechModel {
    path: PathBuf,
    architecture: SpeechArchitecture,
    tokenizer: Tokenizer,
    start: Option<TokenId>,
    backend: Box<dyn Backend>,
    kv: Arc<dyn KvStore>,
    decoder_program: Program,
    decoder_weights: Arc<dyn Weights>,
    encoder: Box<dyn Executable>,
    decoder: Box<dyn Executable>,
    /// Only once words were aligned.
    aligner: Option<Box<dyn Executable>>,
    /// The blocks that alignment has for its text.
    aligner_blocks: Vec<u32>,
    hypotheses: Hypotheses,
    /// Whether a window is encoded.
    encoded: bool,
    out: Outputs,
    /// Room for a step's tokens and spans.
    tokens: Vec<u32>,
    spans: Vec<Span>,
    outputs: Vec<u32>,
}

impl SpeechModel {
    /// Loads a model from an open file.
    pub fn from_file(file: &ModelFile, options: &SpeechOptions) -> Result<SpeechModel> {
        if !(1..=MOST_BEAMS).contains(&options.beams) {
            return Err(Error::Usage {
                problem: format!("{} hypotheses cannot be followed", options.beams),
                hint: format!("ask for 1 to {MOST_BEAMS}"),
            });
        }
        let wrong = Error::model(file.path());
        let architecture = SpeechArchitecture::of(file).map_err(&wrong)?;
        let backend = backend(&options.backend, options.threads)?;
        let tokenizer = text::tokenizer(file)?.ok_or_else(|| text::no_vocabulary(file.path()))?;
        let tensors = SpeechTensors::new(file);
        let names = file.tensors().map(|tensor| tensor.name);
        let SpeechPrograms { encoder, decoder } =
            build_speech(&architecture, &tensors, names).map_err(&wrong)?;
        let (states, context) = (architecture.encoder.context, architecture.decoder.context);
        let blocks = |positions: usize| positions.div_ceil(BLOCK);
        let texts = Hypotheses::blocks(options.beams, context);
        let reserved = [blocks(states), texts + blocks(context), blocks(states)].map(|count| count as u32);
        let kv = backend.kv(&decoder.groups, &reserved, KvType::F16)?;
        let encoder_weights = backend.load(&tensors, &encoder.weights).map_err(&wrong)?;
        let decoder_weights = backend.load(&tensors, &decoder.weights).map_err(&wrong)?;
        let whole = Limits { slots: 1, rows: states as u32, outputs: 1, context: states as u32 };
        let encoder = backend.compile(&encoder, encoder_weights, Arc::clone(&kv), &whole)?;
        let limits = Limits {
            slots: options.beams as u32,
            rows: context.max(options.beams) as u32,
            outputs: options.beams.max(2) as u32,
            context: context as u32,
        };
        let executable = backend.compile(&decoder, Arc::clone(&decoder_weights), Arc::clone(&kv), &limits)?;
        let mut model = SpeechModel {
            path: file.path().to_owned(),
            start: tokenizer.id_of(START),
            tokenizer,
            backend,
            kv,
            decoder_program: decoder,
            decoder_weights,
            encoder,
            decoder: executable,
            aligner: None,
            aligner_blocks: (texts as u32..reserved[1]).collect(),
            hypotheses: Hypotheses::new(SpeechPrograms::TEXT, options.beams, context),
            encoded: false,
            out: Outputs::default(),
            tokens: Vec::with_capacity(options.beams),
            spans: Vec::with_capacity(options.beams),
            outputs: Vec::with_capacity(options.beams),
            architecture,
        };
        let sound: Vec<u32> = (0..reserved[0]).collect();
        let groups = [SpeechPrograms::SOUND, SpeechPrograms::CROSS];
        set_blocks(model.encoder.as_mut(), 1, &groups.map(|group| (group, sound.as_slice())))?;
        set_blocks(model.decoder.as_mut(), options.beams, &[(SpeechPrograms::CROSS, &sound)])?;
        Ok(model)
    }

    /// Where the model came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the backend that runs the model.
    pub fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// What the model is made of.
    pub fn architecture(&self) -> &SpeechArchitecture {
        &self.architecture
    }

    /// Bands of a frame of sound: 80 or 128.
    pub fn mels(&self) -> usize {
        self.architecture.mels
    }

    /// Frames of a window.
    pub fn frames(&self) -> usize {
        FRAMES_PER_TOKEN * self.states()
    }

    /// States the encoder makes of a window.
    pub fn states(&self) -> usize {
        self.architecture.encoder.context
    }

    /// Tokens of a hypothesis, the prompt included.
    pub fn context(&self) -> usize {
        self.architecture.decoder.context
    }

    /// Tokens there are.
    pub fn vocabulary(&self) -> usize {
        self.architecture.vocabulary
    }

    /// Whether the model knows languages other than English.
    pub fn multilingual(&self) -> bool {
        self.vocabulary() >= text::MULTILINGUAL_VOCABULARY
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Most hypotheses at once.
    pub fn beams(&self) -> usize {
        self.hypotheses.most()
    }

    /// How many heads [`SpeechModel::align`] speaks of.
    pub fn alignment_heads(&self) -> usize {
        self.architecture.alignment.len()
    }

    /// Runs the encoder over one window, `[frames][mels]` row by row, and keeps what the decoder attends to of it.
    pub fn encode(&mut self, mel: &[f32], stop: &StopFlag) -> Result<()> {
        let (frames, mels) = (self.frames(), self.mels());
        if mel.len() != frames * mels {
            return Err(Error::Usage {
                problem: format!("a window of {} numbers", mel.len()),
                hint: format!("give {frames} frames of {mels} bands"),
            });
        }
        self.encoded = false;
        self.hypotheses.clear();
        let span = Span { slot: SlotId(0), start: 0, rows: self.states() as u32, phase: Phase::Prompt };
        let batch = Batch { spans: &[span], inputs: mel, ..Batch::default() };
        self.encoder.run(&batch, Work::Forward, stop, &mut self.out)?;
        self.encoded = true;
        Ok(())
    }

    /// Feeds a prompt to hypothesis 0, from position 0 on; all others end.
    pub fn begin(&mut self, prompt: &[u32], stop: &StopFlag) -> Result<Begun> {
        self.check(prompt.len(), prompt)?;
        self.hypotheses.begin(prompt.len());
        let slot = SlotId(0);
        let blocks = self.hypotheses.table(0);
        let edits = [SlotEdit::Blocks { slot, group: SpeechPrograms::TEXT, first: 0, blocks }];
        let span = Span { slot, start: 0, rows: prompt.len() as u32, phase: Phase::Prompt };
        let last = prompt.len() - 1;
        let start = self.start.and_then(|start| prompt.iter().rposition(|&token| token == start));
        let outputs = [start.unwrap_or(last) as u32, last as u32];
        let outputs = if start.is_none_or(|start| start == last) { &outputs[1..] } else { &outputs };
        let batch = Batch { edits: &edits, spans: &[span], tokens: prompt, outputs, ..Batch::default() };
        let result = self.decoder.run(&batch, Work::Forward, stop, &mut self.out);
        self.settle(result)?;
        let (first, last) = self.out.logits.split_at(self.out.logits.len() - self.architecture.vocabulary);
        let start = match start {
            None => Vec::new(),
            Some(_) if first.is_empty() => last.to_vec(),
            Some(_) => first.to_vec(),
        };
        Ok(Begun { last: last.to_vec(), start })
    }

    /// One token for each of several hypotheses: hypothesis `i` continues what was hypothesis `from[i].0` with the token
    /// `from[i].1`. Gives `[hypotheses][vocabulary]`. After an error there are none left.
    pub fn step(&mut self, from: &[(usize, u32)], stop: &StopFlag) -> Result<&[f32]> {
        self.tokens.clear();
        self.tokens.extend(from.iter().map(|(_, token)| *token));
        self.check(self.hypotheses.len() + 1, &self.tokens)?;
        let (count, most) = (self.hypotheses.count(), self.hypotheses.most());
        let parent = from.iter().map(|(parent, _)| *parent).find(|&parent| parent >= count);
        if from.len() > most || parent.is_some() {
            return Err(Error::Usage {
                problem: match parent {
                    Some(parent) => format!("hypothesis {parent} of {count}"),
                    None => format!("{} hypotheses", from.len()),
                },
                hint: format!("continue those of the step before, at most {most}"),
            });
        }
        let position = self.hypotheses.len() as u32;
        self.hypotheses.step(from.iter().map(|(parent, _)| *parent));
        self.spans.clear();
        self.outputs.clear();
        let mut edits = Vec::with_capacity(from.len());
        for i in 0..from.len() {
            let slot = SlotId(i as u32);
            self.spans.push(Span { slot, start: position, rows: 1, phase: Phase::Decode });
            self.outputs.push(i as u32);
            let blocks = self.hypotheses.table(i);
            edits.push(SlotEdit::Blocks { slot, group: SpeechPrograms::TEXT, first: 0, blocks });
        }
        let batch = Batch {
            edits: &edits,
            copies: self.hypotheses.copies(),
            spans: &self.spans,
            tokens: &self.tokens,
            outputs: &self.outputs,
            ..Batch::default()
        };
        let result = self.decoder.run(&batch, Work::Forward, stop, &mut self.out);
        drop(edits);
        self.settle(result)?;
        Ok(&self.out.logits)
    }

    /// How much each token attends to each state in the heads that follow the sound, `[heads][tokens][states]`: softmax over
    /// all states. Where sound ends before the window, divide a row by the sum of its first states: that is the softmax over
    /// those alone. Hypotheses stay as they are.
    pub fn align(&mut self, tokens: &[u32], stop: &StopFlag) -> Result<Vec<f32>> {
        self.check(tokens.len(), tokens)?;
        let (heads, states) = (self.alignment_heads(), self.states());
        let mut aligner = match self.aligner.take() {
            Some(aligner) => aligner,
            None => self.compile_aligner()?,
        };
        let mut weights = vec![0.0; heads * tokens.len() * states];
        for (i, piece) in tokens.chunks(ALIGNED_ROWS).enumerate() {
            let start = i * ALIGNED_ROWS;
            let span =
                Span { slot: SlotId(0), start: start as u32, rows: piece.len() as u32, phase: Phase::Prompt };
            let outputs: Vec<u32> = (0..piece.len() as u32).collect();
            let batch = Batch { spans: &[span], tokens: piece, outputs: &outputs, ..Batch::default() };
            aligner.run(&batch, Work::Forward, stop, &mut self.out)?;
            for (row, found) in self.out.logits.chunks_exact(heads * states).enumerate() {
                for (head, found) in found.chunks_exact(states).enumerate() {
                    let at = (head * tokens.len() + start + row) * states;
                    weights[at..at + states].copy_from_slice(found);
                }
            }
        }
        self.aligner = Some(aligner);
        Ok(weights)
    }

    fn compile_aligner(&self) -> Result<Box<dyn Executable>> {
        let program = build_alignment(&self.decoder_program, &self.architecture.alignment)?;
        let rows = ALIGNED_ROWS as u32;
        let limits = Limits { slots: 1, rows, outputs: rows, context: self.context() as u32 };
        let (weights, kv) = (Arc::clone(&self.decoder_weights), Arc::clone(&self.kv));
        let mut aligner = self.backend.compile(&program, weights, kv, &limits)?;
        let sound: Vec<u32> = (0..self.states().div_ceil(BLOCK) as u32).collect();
        let blocks =
            [(SpeechPrograms::CROSS, sound.as_slice()), (SpeechPrograms::TEXT, &self.aligner_blocks)];
        set_blocks(aligner.as_mut(), 1, &blocks)?;
        Ok(aligner)
    }

    /// Whether there is a window, and room for so many positions; tokens must be in the vocabulary.
    fn check(&self, positions: usize, tokens: &[u32]) -> Result<()> {
        if positions > self.context() {
            return Err(Error::TooLong { tokens: positions, context: self.context() });
        }
        let (problem, hint) = if !self.encoded {
            ("there is no window of sound".to_owned(), "encode one first")
        } else if tokens.is_empty() {
            ("there are no tokens".to_owned(), "give one or more")
        } else if let Some(&id) = tokens.iter().find(|&&id| id as usize >= self.vocabulary()) {
            let problem = format!("token {id} is not in the vocabulary of {}", self.vocabulary());
            (problem, "give ids that the model's tokenizer makes")
        } else {
            return Ok(());
        };
        Err(Error::Usage { problem, hint: hint.to_owned() })
    }

    /// What a run left behind: after an error no hypothesis is whole.
    fn settle(&mut self, result: akunu_program::Result<()>) -> Result<()> {
        if result.is_err() {
            self.hypotheses.clear();
        }
        Ok(result?)
    }
}

/// Gives the first slots of an executable these blocks.
fn set_blocks(executable: &mut dyn Executable, slots: usize, tables: &[(GroupId, &[u32])]) -> Result<()> {
    let edits: Vec<SlotEdit<'_>> = (0..slots as u32)
        .map(SlotId)
        .flat_map(|slot| {
            tables.iter().map(move |&(group, blocks)| SlotEdit::Blocks { slot, group, first: 0, blocks })
        })
        .collect();
    let batch = Batch { edits: &edits, ..Batch::default() };
    Ok(executable.run(&batch, Work::Forward, &StopFlag::default(), &mut Outputs::default())?)
}

impl fmt::Debug for SpeechModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpeechModel")
            .field("path", &self.path)
            .field("backend", &self.backend())
            .field("mels", &self.mels())
            .field("vocabulary", &self.vocabulary())
            .finish_non_exhaustive()
    }
}
