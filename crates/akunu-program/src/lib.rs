//! Models as programs.
//!
//! Everything that can be decided when a model is loaded is decided then. A file's settings become an
//! [`Architecture`](arch::Architecture), which is data; [`build`] turns it into a [`Program`](program::Program), a flat
//! list of typed operations over rows; a [`Backend`] loads the weights once and compiles programs over them; an
//! [`Executable`] runs batches. Nothing after loading asks which family a model is of.
//!
//! | module | holds |
//! |---|---|
//! | [`arch`] | architectures, one constructor per family; what tensors are called |
//! | [`rope`] | rotary embeddings, every scaling folded into one table |
//! | [`program`] | operations, values, weights |
//! | [`select`] | how the next token is chosen, and where its noise comes from |
//! | [`slots`] | what executables remember of each sequence, and the checks of a batch |
//! | [`mod@reference`] | the plain f32 backend, the definition of right |
//!
//! ```
//! use akunu_format::ModelFile;
//! use akunu_program::{arch::Architecture, program::GroupId, reference::Reference, *};
//!
//! # std::env::set_current_dir(env!("CARGO_MANIFEST_DIR"))?;
//! let file = ModelFile::open("tests/fixtures/tiny/llama/model.gguf")?;
//! let (arch, names) = Architecture::of(&file)?;
//! let program = build(&arch, &names, &file, 64)?;
//!
//! // One sequence of up to 64 positions: one block in the only KV group.
//! let weights = Reference.load(&file, &program.weights)?;
//! let kv = Reference.kv(&program.groups, &[1], KvType::F16)?;
//! let limits = Limits { slots: 1, rows: 8, outputs: 1, context: 64 };
//! let mut executable = Reference.compile(&program, weights, kv, &limits)?;
//!
//! // Three prompt tokens; the next one is chosen greedily from the logits of the last row.
//! let slot = SlotId(0);
//! let batch = Batch {
//!     edits: &[SlotEdit::Blocks { slot, group: GroupId(0), first: 0, blocks: &[0] }],
//!     spans: &[Span { slot, start: 0, rows: 3, phase: Phase::Prompt }],
//!     tokens: &[1, 5, 9],
//!     outputs: &[2],
//!     ..Batch::default()
//! };
//! let mut out = Outputs::default();
//! executable.run(&batch, Work::Step, &StopFlag::default(), &mut out)?;
//! assert_eq!(out.tokens.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod arch;
mod backend;
mod builder;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod kv_type;
pub mod program;
pub mod reference;
pub mod rope;
pub mod select;
pub mod slots;
mod timing;

pub use backend::{
    BLOCK, Backend, Batch, BlockCopy, Executable, KeyShift, KvStore, Limits, Outputs, Phase, SlotEdit,
    SlotId, Span, StopFlag, TensorSource, Weights, Work,
};
pub use builder::{
    SpeechPrograms, build, build_alignment, build_hidden, build_rank, build_speech, refuse_extra,
};
pub use error::{Error, Result};
pub use kv_type::{KV_GROUP, KvType, round_to_q8};
pub use timing::{Cost, Tally, Timing};
