//! What can be wrong with sound.

use std::io;

/// Why there is no sound. Every message begins with the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What the system said.
        source: io::Error,
    },

    /// The file is empty, or is sound of no length.
    #[error("{name}: there is no sound in it")]
    Empty {
        /// The file.
        name: String,
    },

    /// The file is not in any of the formats that can be read.
    #[error("{name}: not a sound file that can be read: {problem}")]
    Unknown {
        /// The file.
        name: String,
        /// What was found, or missed.
        problem: String,
    },

    /// A sound file, but of a kind that cannot be read.
    #[error("{name}: {problem}")]
    Unsupported {
        /// The file.
        name: String,
        /// What cannot be read.
        problem: String,
    },

    /// The file does not follow its own format, and no sound could be saved.
    #[error("{name}: the file is damaged: {problem}")]
    Malformed {
        /// The file.
        name: String,
        /// What is wrong.
        problem: String,
    },

    /// More sound than is taken at once.
    #[error("{name}: the sound is longer than {}", length(*seconds))]
    TooLong {
        /// The file.
        name: String,
        /// How much is taken.
        seconds: u64,
    },
}

fn length(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7200 => (seconds / 60, "minute"),
        _ => (seconds / 3600, "hour"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
