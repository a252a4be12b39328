//! What a model file says about text.

use std::fs;
use std::io;
use std::path::Path;

use akunu_format::ModelFile;
use akunu_format::checkpoint::Checkpoint;
use akunu_format::gguf::Gguf;
use akunu_format::torch::TorchCheckpoint;
use akunu_program::select::Sampling;
use akunu_text::Tokenizer;
use akunu_text::chat::ChatTemplates;
use akunu_text::tokenizer::TokenizerError;

use crate::{Error, Result, hub};

/// Whisper's vocabularies from this size on hold the tokens for all languages.
pub(crate) const MULTILINGUAL_VOCABULARY: usize = 51_865;

/// Whisper's tokens for 0 to 30 seconds in steps of 20 milliseconds.
const WHISPER_TIMES: usize = 1501;

const TEMPLATE: &str = "tokenizer.chat_template";

/// The text in a file; what is not UTF-8 is refused by its place.
pub fn read_text(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(Error::io(path))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let problem = format!("not text: the bytes from {at} on are not UTF-8");
        Error::Io { path: path.to_path_buf(), source: io::Error::new(io::ErrorKind::InvalidData, problem) }
    })
}

/// Builds the tokenizer of the model at `path`. Weights are not needed: a GGUF file with a vocabulary alone will do, and
/// so will a `tokenizer.json`, `tekken.json` or `tokenizer.model`, or the directory one of them lies in.
///
/// ```no_run
/// use akunu_text::tokenizer::{AddSpecial, Special};
///
/// let tokenizer = akunu::load_tokenizer("model.gguf")?;
/// let ids = tokenizer.encode("Hello", Special::Plain, AddSpecial::Yes);
/// # Ok::<(), akunu::Error>(())
/// ```
pub fn load_tokenizer(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    if path.is_dir() {
        return Tokenizer::from_dir(path).map_err(Error::tokenizer(path));
    }
    if path.is_file() && Tokenizer::is_vocabulary_file(path) {
        return Tokenizer::from_file(path).map_err(Error::tokenizer(path));
    }
    tokenizer(&ModelFile::open(path)?)?.ok_or_else(|| no_vocabulary(path))
}

/// The tokenizer; `None` when the file has no vocabulary.
pub(crate) fn tokenizer(file: &ModelFile) -> Result<Option<Tokenizer>> {
    let built = match file {
        ModelFile::Gguf(gguf) if gguf.metadata().value("tokenizer.ggml.model").is_none() => None,
        ModelFile::Gguf(gguf) => Some(Tokenizer::from_gguf(gguf)),
        ModelFile::Checkpoint(checkpoint) => {
            let names = ["tokenizer.json", "tekken.json", "tokenizer.model"];
            let path = names.into_iter().find_map(|name| checkpoint.companion(name));
            path.as_deref().and_then(Path::parent).map(Tokenizer::from_dir)
        }
        ModelFile::WhisperGgml(whisper) => Some(Tokenizer::from_whisper(whisper)),
        ModelFile::Torch(checkpoint) => beside(checkpoint),
    };
    built.transpose().map_err(Error::tokenizer(file.path()))
}

/// OpenAI's models hold weights alone; their vocabularies come with its programs, or with other versions of the models.
fn beside(checkpoint: &TorchCheckpoint) -> Option<Result<Tokenizer, TokenizerError>> {
    let size = checkpoint.size("n_vocab").and_then(|size| usize::try_from(size).ok())?;
    let name = if size < MULTILINGUAL_VOCABULARY { "gpt2.tiktoken" } else { "multilingual.tiktoken" };
    let file = |name: &str| Some(checkpoint.path().with_file_name(name)).filter(|path| path.is_file());
    match file(name) {
        Some(path) => Some(Tokenizer::from_whisper_tiktoken(path, size)),
        None => file("tokenizer.json")
            .map(|path| Tokenizer::from_file(&path).and_then(|it| fits(it, &path, size))),
    }
}

/// Refuses the vocabulary of another Whisper: ids would mean other tokens, and transcripts would be wrong without a word.
fn fits(tokenizer: Tokenizer, path: &Path, size: usize) -> Result<Tokenizer, TokenizerError> {
    // Older files do not spell the times out, which follow the last of the others.
    let with_times = tokenizer.id_of("<|notimestamps|>").map(|id| id as usize + 1 + WHISPER_TIMES);
    if tokenizer.vocab_size() == size || with_times == Some(size) {
        return Ok(tokenizer);
    }
    Err(TokenizerError::Invalid {
        field: path.display().to_string(),
        problem: format!(
            "{} tokens for a model of {size}: it belongs to another model",
            tokenizer.vocab_size()
        ),
    })
}

/// What is missing in a model that has weights alone.
pub(crate) fn no_vocabulary(path: &Path) -> Error {
    Error::Missing {
        what: format!("{} has no vocabulary", path.display()),
        hint: "a checkpoint needs its tokenizer.json beside it, a GGUF file its tokenizer.ggml fields, and OpenAI's .pt the \
               multilingual.tiktoken (for .en models gpt2.tiktoken) of the package openai-whisper, folder assets, or a \
               tokenizer.json"
            .to_owned(),
    }
}

/// The chat templates; empty when the file has none.
pub(crate) fn templates(file: &ModelFile) -> Result<ChatTemplates> {
    match file {
        ModelFile::Gguf(gguf) => gguf_templates(gguf),
        ModelFile::Checkpoint(checkpoint) => {
            let read = |name: &str| checkpoint.companion(name).map(read_text).transpose();
            if let Some(source) = read("chat_template.jinja")? {
                // Of the others beside it only this one is ever chosen without being asked for by name.
                let with_tools = read("additional_chat_templates/tool_use.jinja")?;
                let with_tools = with_tools.map(|source| ("tool_use".to_owned(), source));
                return Ok(ChatTemplates::new(
                    [("default".to_owned(), source)].into_iter().chain(with_tools),
                ));
            }
            let Some(config) = read("tokenizer_config.json")? else { return Ok(ChatTemplates::default()) };
            let config: serde_json::Value = serde_json::from_str(&config).map_err(|error| Error::Usage {
                problem: format!("{}: tokenizer_config.json: {error}", file.path().display()),
                hint: "the checkpoint is damaged: fetch it again".to_owned(),
            })?;
            match config.get("chat_template") {
                None | Some(serde_json::Value::Null) => Ok(ChatTemplates::default()),
                Some(template) => ChatTemplates::from_json(template).map_err(Error::template(file.path())),
            }
        }
        ModelFile::WhisperGgml(_) | ModelFile::Torch(_) => Ok(ChatTemplates::default()),
    }
}

/// One template as `tokenizer.chat_template`, others as `tokenizer.chat_template.NAME`.
fn gguf_templates(gguf: &Gguf) -> Result<ChatTemplates> {
    let metadata = gguf.metadata();
    let named = metadata.iter().filter_map(|(key, _)| {
        let name = match key.strip_prefix(TEMPLATE)? {
            "" => "default",
            rest => rest.strip_prefix('.')?,
        };
        Some(metadata.require::<&str>(key).map(|source| (name.to_owned(), source.to_owned())))
    });
    Ok(ChatTemplates::new(named.collect::<Result<Vec<_>, _>>()?))
}

/// How the model's makers sample from it, where they say: in `generation_config.json`, in `general.sampling.*` of a GGUF file, or
/// elsewhere, in which case the list of known models repeats it, and may add to it.
pub(crate) fn sampling(file: &ModelFile) -> Result<Option<Sampling>> {
    match file {
        ModelFile::Checkpoint(checkpoint) => checkpoint_sampling(checkpoint),
        ModelFile::Gguf(gguf) => Ok(gguf_sampling(gguf)?.or_else(|| hub::known_sampling(gguf.path()))),
        ModelFile::WhisperGgml(_) | ModelFile::Torch(_) => Ok(None),
    }
}

fn checkpoint_sampling(checkpoint: &Checkpoint) -> Result<Option<Sampling>> {
    let Some(config) = checkpoint.generation_config() else { return Ok(None) };
    if config.get::<bool>("do_sample")? != Some(true) {
        return Ok(None);
    }
    Ok(Some(Sampling {
        temperature: config.get("temperature")?.unwrap_or(1.0),
        top_k: config.get("top_k")?.unwrap_or(0),
        top_p: config.get("top_p")?.unwrap_or(1.0),
        min_p: config.get("min_p")?.unwrap_or(0.0),
        repeat_penalty: config.get("repetition_penalty")?.unwrap_or(1.0),
        ..Sampling::GREEDY
    }))
}

fn gguf_sampling(gguf: &Gguf) -> Result<Option<Sampling>> {
    let number = |name: &str| gguf.metadata().get::<f32>(&format!("general.sampling.{name}"));
    // Below 1 for all.
    let top_k = gguf.metadata().get::<i64>("general.sampling.top_k")?;
    let (temperature, top_p, min_p) = (number("temp")?, number("top_p")?, number("min_p")?);
    if top_k.is_none() && temperature.or(top_p).or(min_p).is_none() {
        return Ok(None);
    }
    Ok(Some(Sampling {
        temperature: temperature.unwrap_or(1.0),
        top_k: top_k.and_then(|k| u32::try_from(k).ok()).unwrap_or(0),
        top_p: top_p.unwrap_or(1.0),
        min_p: min_p.unwrap_or(0.0),
        repeat_penalty: number("penalty_repeat")?.unwrap_or(1.0),
        ..Sampling::GREEDY
    }))
}
