//! The one error type of the engine. Its [`Kind`] decides the exit code of the command line and, in surfaces above,
//! HTTP statuses and exceptions.

use std::io;
use std::path::{Path, PathBuf};

use akunu_text::chat::{self, TemplateError};
use akunu_text::tokenizer::TokenizerError;

/// What went wrong, said so that a person can act on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model file could not be read or written.
    #[error(transparent)]
    Format(#[from] akunu_format::Error),

    /// A model makes no sense, or could not be run.
    #[error(transparent)]
    Program(#[from] akunu_program::Error),

    /// The model in a file makes no sense, or is none that can be run.
    #[error("{}: {source}", path.display())]
    Unfit {
        /// The model.
        path: PathBuf,
        /// What is wrong with it.
        source: akunu_program::Error,
    },

    /// A vocabulary makes no sense.
    #[error("{}: {source}", path.display())]
    Tokenizer {
        /// The model.
        path: PathBuf,
        /// What is wrong with its vocabulary.
        source: TokenizerError,
    },

    /// A sound file could not be read.
    #[error(transparent)]
    Sound(#[from] akunu_audio::Error),

    /// A chat template refused the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),

    /// The chat template of a model makes no sense, or cannot do what it was asked to.
    #[error("{}: {source}", path.display())]
    BrokenTemplate {
        /// The model.
        path: PathBuf,
        /// What is wrong with its template.
        source: TemplateError,
    },

    /// A schema or grammar that text should follow makes no sense, or asks for what cannot be had.
    #[error("{language}{}{place}: {problem}", if place.is_empty() { "" } else { ", " })]
    Constraint {
        /// What it is written in.
        language: &'static str,
        /// Line and column, or a JSON pointer; empty where it is all of it.
        place: String,
        /// What is wrong.
        problem: String,
    },

    /// More tokens than the context holds.
    #[error("{tokens} tokens are more than the context of {context} holds")]
    TooLong {
        /// Tokens there would be.
        tokens: usize,
        /// Tokens there may be.
        context: usize,
    },

    /// The KV cache has no room left.
    #[error("the KV cache is full: {needed} more positions are needed and {free} are free")]
    CacheFull {
        /// Positions asked for, in whole blocks.
        needed: usize,
        /// Positions free.
        free: usize,
    },

    /// Too many requests wait already.
    #[error("{waiting} requests are waiting already")]
    Busy {
        /// How many.
        waiting: usize,
    },

    /// A tensor could not be converted.
    #[error("{}: tensor \"{name}\": {source}", path.display())]
    Tensor {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Why not.
        source: Box<akunu_format::Error>,
    },

    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// Neither a path nor a known name.
    #[error("there is no model \"{name}\"")]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Known names that look like it.
        near: Vec<String>,
    },

    /// A model that can be fetched and has not been.
    #[error("the model \"{name}\" is not on this machine yet")]
    NotPulled {
        /// Its name.
        name: String,
    },

    /// Something that was asked for is not where it was looked for.
    #[error("{what}")]
    Missing {
        /// What is not there.
        what: String,
        /// What is, or where to look.
        hint: String,
    },

    /// The request itself makes no sense.
    #[error("{problem}")]
    Usage {
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hint: String,
    },

    /// A program akunu runs to fetch something is missing or failed.
    #[error("{problem}")]
    Tool {
        /// What happened.
        problem: String,
        /// What to install or look at.
        hint: String,
    },

    /// The network or the server at its other end failed.
    #[error("{url}: {problem}")]
    Network {
        /// What was asked of whom.
        url: String,
        /// What happened.
        problem: String,
        /// What to try.
        hint: String,
    },

    /// The server wants to know who asks.
    #[error("{url}: access denied ({status})")]
    Denied {
        /// What was asked of whom.
        url: String,
        /// The HTTP status: 401 or 403.
        status: u16,
        /// How to get access.
        hint: String,
    },

    /// A file is not the one that was promised.
    #[error("{file}: {what} is {actual}, expected {expected}")]
    Mismatch {
        /// The file as the user knows it.
        file: String,
        /// `"size"` or `"sha256"`.
        what: &'static str,
        /// What was promised.
        expected: String,
        /// What came.
        actual: String,
    },

    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// What sort of failure an [`enum@Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The caller asked for something that makes no sense.
    Usage,
    /// There is no such model, file or tensor.
    NotFound,
    /// A file does not follow its format, or is not the one that was promised.
    BadData,
    /// Well formed, but nothing akunu can do.
    Unsupported,
    /// Someone else said no.
    Denied,
    /// A network, a server or another program failed; trying again may help.
    Unavailable,
    /// The operating system refused.
    System,
    /// The caller asked to stop.
    Stopped,
}

impl Kind {
    /// The process exit code: 2 for misuse, 130 for an interrupted command (as shells have it), 1 for all else.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Usage => 2,
            Kind::Stopped => 130,
            _ => 1,
        }
    }
}

impl Error {
    /// What sort of failure this is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Format(error) => format_kind(error),
            Error::Program(error) | Error::Unfit { source: error, .. } => program_kind(error),
            Error::Tokenizer { source, .. } => tokenizer_kind(source),
            Error::Sound(error) => sound_kind(error),
            Error::Template(_) | Error::BrokenTemplate { .. } => Kind::BadData,
            Error::TooLong { .. } | Error::Constraint { .. } => Kind::Usage,
            Error::CacheFull { .. } | Error::Busy { .. } => Kind::Unavailable,
            Error::Tensor { source, .. } => format_kind(source),
            Error::Io { source, .. } => io_kind(source),
            Error::UnknownModel { .. } | Error::NotPulled { .. } | Error::Missing { .. } => Kind::NotFound,
            Error::Usage { .. } => Kind::Usage,
            Error::Tool { .. } | Error::Network { .. } => Kind::Unavailable,
            Error::Denied { .. } => Kind::Denied,
            Error::Mismatch { .. } => Kind::BadData,
            Error::Stopped => Kind::Stopped,
        }
    }

    /// What the user can do about it, where that is not plain from the message.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::UnknownModel { near, .. } => Some(match near.as_slice() {
                [] => "give a path, or a name that `akunu models` lists".to_owned(),
                names => format!("did you mean {}? `akunu models` lists every name", names.join(" or ")),
            }),
            Error::NotPulled { name } => Some(format!("fetch it with `akunu pull {name}`")),
            Error::Missing { hint, .. }
            | Error::Usage { hint, .. }
            | Error::Tool { hint, .. }
            | Error::Network { hint, .. }
            | Error::Denied { hint, .. } => Some(hint.clone()),
            Error::Mismatch { .. } => {
                Some("nothing was kept; pull again, and if it repeats, do not trust the source".to_owned())
            }
            Error::TooLong { .. } => {
                Some("shorten the text, or load the model with a larger context".to_owned())
            }
            Error::CacheFull { .. } => {
                Some("end other sequences, or load the model with room for more of them".to_owned())
            }
            Error::Busy { .. } => Some("try again in a moment".to_owned()),
            Error::Sound(akunu_audio::Error::Unknown { .. }) => {
                Some("WAV, AIFF, FLAC, MP3, Ogg/Vorbis and M4A (AAC, ALAC) can be read".to_owned())
            }
            Error::Format(akunu_format::Error::Malformed { .. }) => Some(
                "the file is damaged or incomplete: compare its size with the original's, or fetch it again"
                    .to_owned(),
            ),
            Error::Program(akunu_program::Error::Memory { .. }) => {
                Some("a shorter context, or fewer sequences at the same time, take less".to_owned())
            }
            Error::Format(_)
            | Error::Tensor { .. }
            | Error::Program(_)
            | Error::Unfit { .. }
            | Error::Tokenizer { .. }
            | Error::Sound(_)
            | Error::Template(_)
            | Error::BrokenTemplate { .. }
            | Error::Constraint { .. }
            | Error::Io { .. }
            | Error::Stopped => None,
        }
    }

    /// An error of the vocabulary at `path`; those that name their file already do so once.
    pub(crate) fn tokenizer(path: &Path) -> impl FnOnce(TokenizerError) -> Error + '_ {
        move |error| match error {
            TokenizerError::File(error) => Error::Format(error),
            TokenizerError::Io { path, source } => Error::Io { path: path.into(), source },
            source => Error::Tokenizer { path: path.to_path_buf(), source },
        }
    }

    /// An error of the model at `path`; those that name their file already do so once, and some are not the model's.
    pub(crate) fn model(path: &Path) -> impl Fn(akunu_program::Error) -> Error + '_ {
        use akunu_program::Error as Program;
        move |error| match error {
            Program::Format(error) => Error::Format(error),
            error @ (Program::Memory { .. } | Program::Batch(_) | Program::Stopped) => Error::Program(error),
            source => Error::Unfit { path: path.to_path_buf(), source },
        }
    }

    /// An error of a chat template of the model at `path`. A refusal is the conversation's fault.
    pub(crate) fn template(path: &Path) -> impl FnOnce(TemplateError) -> Error + '_ {
        move |source| match source.kind {
            chat::ErrorKind::Refused => Error::Template(source),
            _ => Error::BrokenTemplate { path: path.to_path_buf(), source },
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::Io { path: path.to_path_buf(), source }
    }
}

fn format_kind(error: &akunu_format::Error) -> Kind {
    use akunu_format::Error as Format;
    match error {
        Format::Io { source, .. } => io_kind(source),
        Format::Unsupported { .. } | Format::NoConversion { .. } => Kind::Unsupported,
        Format::NoTensor { .. } => Kind::NotFound,
        _ => Kind::BadData,
    }
}

fn program_kind(error: &akunu_program::Error) -> Kind {
    use akunu_program::Error as Program;
    match error {
        Program::Format(error) => format_kind(error),
        Program::Unsupported { .. } => Kind::Unsupported,
        Program::Batch(_) => Kind::Usage,
        Program::Stopped => Kind::Stopped,
        _ => Kind::BadData,
    }
}

fn sound_kind(error: &akunu_audio::Error) -> Kind {
    use akunu_audio::Error as Sound;
    match error {
        Sound::Io { source, .. } => io_kind(source),
        Sound::Unsupported { .. } | Sound::TooLong { .. } => Kind::Unsupported,
        _ => Kind::BadData,
    }
}

fn tokenizer_kind(error: &TokenizerError) -> Kind {
    match error {
        TokenizerError::File(error) => format_kind(error),
        TokenizerError::Io { source, .. } => io_kind(source),
        TokenizerError::Unsupported { .. } => Kind::Unsupported,
        _ => Kind::BadData,
    }
}

fn io_kind(source: &io::Error) -> Kind {
    match source.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        io::ErrorKind::PermissionDenied => Kind::Denied,
        _ => Kind::System,
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
