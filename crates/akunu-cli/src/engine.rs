//! The flags of every command that runs a model, and loading it.

use std::time::{SystemTime, UNIX_EPOCH};

use akunu::{Error, KvType, Model, Options, Result, Sampling};
use akunu_format::ModelFile;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::model::locate;
use crate::progress::Spinner;

/// The model of a command that runs text and was given none.
pub const DEFAULT_MODEL: &str = "smollm2";

/// How the model is run.
#[derive(Clone, clap::Args)]
pub struct EngineArguments {
    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    pub backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    pub threads: Option<u32>,

    /// Tokens of context [default: the model's, at most 4096]
    #[arg(short, long, value_name = "TOKENS", value_parser = positive())]
    pub ctx: Option<u32>,

    /// How keys and values are kept: q8_0 takes little more than half the memory of f16
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = kv_type())]
    pub kv: KvType,
}

/// What `--backend` takes.
pub fn backend_names() -> Vec<&'static str> {
    std::iter::once("auto").chain(akunu::BACKENDS.iter().copied()).collect()
}

/// What `--kv` takes.
pub fn kv_type() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(KvType::ALL.map(KvType::name)).try_map(|name| name.parse::<KvType>())
}

/// Counts from 1.
pub fn positive() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

impl EngineArguments {
    /// Loads a model, and shows how far that is.
    pub fn load(&self, given: Option<&str>, options: &Options) -> Result<Model> {
        let path = locate(given.unwrap_or(DEFAULT_MODEL))?;
        let options = Options {
            backend: self.backend.clone(),
            threads: self.threads.map(|n| n as usize),
            kv: self.kv,
            context: self.ctx.map(|n| n as usize).or(options.context),
            ..options.clone()
        };
        load(&ModelFile::open(path)?, &options)
    }
}

/// Loads a model from an open file, and shows how far that is.
pub fn load(file: &ModelFile, options: &Options) -> Result<Model> {
    let spinner = Spinner::new(&format!("loading {}", file.path().display()));
    let model = Model::watched(file, options, &mut |done, total| spinner.bytes(done, total));
    spinner.clear();
    model
}

/// How tokens are chosen. What is not given has another default in each command.
#[derive(clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T")]
    temp: Option<f32>,

    /// Choose among the K most likely tokens; 0 among all
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,

    /// Choose among the most likely tokens that together have this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,

    /// Choose among tokens with at least this share of the best one's probability
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,

    /// Make tokens that came before less likely; 1 does not
    #[arg(long, value_name = "R")]
    repeat_penalty: Option<f32>,

    /// How many tokens the penalty looks back
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<u32>,

    /// The same seed gives the same text [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
}

impl SamplingArguments {
    /// What was given, and `default` for the rest.
    pub fn sampling(&self, default: Sampling) -> Sampling {
        Sampling {
            temperature: self.temp.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            repeat_last_n: self.repeat_last_n.unwrap_or(default.repeat_last_n),
            seed: self.seed.unwrap_or_else(clock_seed),
            ..default
        }
    }
}

fn clock_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A stop that came from the keyboard ends the command.
pub fn stopped(reason: Option<akunu::FinishReason>) -> Result<()> {
    if reason == Some(akunu::FinishReason::Cancelled) { Err(Error::Stopped) } else { Ok(()) }
}
