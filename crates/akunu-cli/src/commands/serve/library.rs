//! The models of this machine, as the server loads them.

use std::time::Duration;

use akunu::embed::{EmbedOptions, Embedder, Ranker, is_encoder, is_ranker};
use akunu::hub::Hub;
use akunu::scheduler::{Limits, Scheduler};
use akunu::speech::{SpeechOptions, Transcriber};
use akunu::{KvType, Options, Result, Summary};
use akunu_format::ModelFile;
use akunu_server::{Library, Loaded, Source, Task};
use akunu_text::chat::ChatTemplate;

use crate::engine::EngineArguments;

/// Models by path or name. Nothing is downloaded while the server runs.
pub struct Local {
    pub engine: EngineArguments,
    /// Answers that each model generates at the same time.
    pub parallel: usize,
    /// The longest recording that is transcribed.
    pub longest: Duration,
    pub limits: Limits,
    /// The source of a chat template in place of every model's own.
    pub template: Option<String>,
}

impl Local {
    /// The flags, with the context a source asks for.
    fn engine(&self, source: &Source) -> EngineArguments {
        let asked = source.context.map(|context| u32::try_from(context).unwrap_or(u32::MAX));
        EngineArguments { ctx: asked.or(self.engine.ctx), ..self.engine.clone() }
    }
}

impl Library for Local {
    fn tasks(&self, source: &Source) -> Result<Vec<Task>> {
        let file = ModelFile::open(Hub::from_env()?.resolve(&source.model)?)?;
        if Summary::of(&file, None)?.architecture.as_deref() == Some("whisper") {
            return Ok(vec![Task::Transcribe]);
        }
        if is_ranker(&file)? {
            return Ok(vec![Task::Rank, Task::Embed]);
        }
        Ok(if is_encoder(&file)? { vec![Task::Embed] } else { vec![Task::Write, Task::Embed] })
    }

    fn memory(&self, source: &Source, task: Task) -> Result<u64> {
        let file = ModelFile::open(Hub::from_env()?.resolve(&source.model)?)?;
        let summary = Summary::of(&file, self.engine(source).ctx.map(u64::from))?;
        let bands = summary.shape.encoder.as_ref().map_or(0, |encoder| encoder.mels);
        let Some(memory) = summary.memory else { return Ok(0) };
        // These keep about one context, in F16; speech also a recording, a number for each band and hundredth of a second.
        if task != Task::Write {
            // No recording is longer than what is taken by default.
            let seconds = self.longest.min(SpeechOptions::default().longest).as_secs();
            let sound = if task == Task::Transcribe { bands.saturating_mul(seconds * 100 * 4) } else { 0 };
            let cache = memory.kv_cache.unwrap_or(0);
            return Ok((memory.weights + memory.scratch.unwrap_or(0) + cache).saturating_add(sound));
        }
        let elements = memory.kv_cache.unwrap_or(0) / 2;
        let cache = match self.engine.kv {
            KvType::F16 => elements * 2,
            kv => kv.bytes(elements as usize) as u64,
        };
        Ok(memory.weights + memory.scratch.unwrap_or(0) + cache * self.parallel as u64)
    }

    fn shared(&self, source: &Source) -> Result<u64> {
        let file = ModelFile::open(Hub::from_env()?.resolve(&source.model)?)?;
        Ok(Summary::of(&file, None)?.memory.map_or(0, |memory| memory.weights))
    }

    fn load(&self, source: &Source, task: Task) -> Result<Loaded> {
        let path = Hub::from_env()?.resolve(&source.model)?;
        if task == Task::Transcribe {
            let engine = self.engine(source);
            let threads = engine.threads.map(|n| n as usize);
            let (backend, longest) = (engine.backend, self.longest);
            let options = SpeechOptions { backend, threads, longest, ..SpeechOptions::default() };
            return Ok(Loaded::Transcriber(Box::new(Transcriber::load(path, &options)?)));
        }
        if task == Task::Embed || task == Task::Rank {
            let engine = self.engine(source);
            let options = EmbedOptions {
                backend: engine.backend,
                threads: engine.threads.map(|n| n as usize),
                context: source.context,
                ..EmbedOptions::default()
            };
            return Ok(match task {
                Task::Rank => Loaded::Ranker(Ranker::load(path, &options)?),
                _ => Loaded::Embedder(Embedder::load(path, &options)?),
            });
        }
        let default = Options::default();
        let options = Options {
            sequences: self.parallel,
            outputs: self.parallel.max(default.outputs),
            batch: self.parallel.max(default.batch),
            ..default
        };
        let model = self.engine(source).load(Some(&path.to_string_lossy()), &options)?;
        let scheduler = Scheduler::new(model, &self.limits)?;
        let template = self.template.as_deref().map(ChatTemplate::from_source).transpose()?;
        Ok(Loaded::Writer { scheduler, template })
    }
}
