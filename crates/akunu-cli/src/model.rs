//! The model a command works on: the argument, and getting from it to a file.

use std::path::PathBuf;

use akunu::hub::{Hub, Progress};
use akunu::{Error, Result};

use crate::progress::{self, Meter};
use crate::stop;

/// `[MODEL]` or `-m MODEL`.
#[derive(clap::Args)]
pub struct ModelArgument {
    /// A path, a name that `akunu models` lists, or `hf:OWNER/REPO[:QUANTISATION]`
    #[arg(value_name = "MODEL")]
    positional: Option<String>,

    /// The same, as an option
    #[arg(short = 'm', long = "model", value_name = "MODEL", conflicts_with = "positional")]
    option: Option<String>,
}

impl ModelArgument {
    /// What was given.
    pub fn given(&self) -> Option<&str> {
        self.positional.as_deref().or(self.option.as_deref())
    }
}

/// The file or folder a MODEL stands for. A name that is not on this machine yet is fetched first.
pub fn locate(model: &str) -> Result<PathBuf> {
    let hub = Hub::from_env()?;
    match hub.resolve(model) {
        Err(Error::NotPulled { .. }) => {
            progress::line(&format!("{model} is not on this machine yet"));
            pull(&hub, model)
        }
        found => found,
    }
}

/// Fetches a model and shows how it goes.
pub fn pull(hub: &Hub, name: &str) -> Result<PathBuf> {
    let mut meter = Meter::new();
    let pulled = hub.pull(name, &mut |progress| {
        match progress {
            Progress::Stage(text) => meter.stage(text),
            Progress::Bytes { done, total } => meter.bytes(done, total),
            Progress::Waiting => {}
        }
        stop::asked()
    });
    meter.clear();
    pulled
}

/// The model of a command that has no default.
pub fn required(given: Option<&str>) -> Result<&str> {
    given.ok_or_else(|| Error::Usage {
        problem: "which model?".to_owned(),
        hint: "name one; `akunu models` lists those with a name".to_owned(),
    })
}
