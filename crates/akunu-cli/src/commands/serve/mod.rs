//! `akunu serve`

mod library;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use akunu::Error;
use akunu::scheduler::{Chunk, Limits};
use akunu_server::{Config, Log, Server, Source, Tls};
use akunu_text::chat::{BUILTIN_NAMES, ChatTemplate};
use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;

use crate::engine::{DEFAULT_MODEL, EngineArguments, positive};
use crate::model::locate;
use crate::progress::line;
use crate::stop;
use library::Local;

/// Where a key may come from without being seen in the list of processes.
const KEY_VARIABLE: &str = "AKUNU_API_KEY";
/// How soon Ctrl-C is noticed.
const POLL: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "\
Examples:
  akunu serve
  akunu serve smollm2 coder=qwen2.5-coder-0.5b.gguf --parallel 8
  AKUNU_API_KEY=secret akunu serve --host 0.0.0.0 --port 80
  curl http://127.0.0.1:8080/v1/chat/completions \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'";

/// Answer OpenAI's, Anthropic's and Ollama's HTTP interfaces
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Paths or names of models, each perhaps as ID=MODEL; requests name a model by its id [default: smollm2]
    #[arg(value_name = "MODEL")]
    positional: Vec<String>,

    /// The same, as an option
    #[arg(short = 'm', long = "model", value_name = "MODEL", conflicts_with = "positional")]
    option: Vec<String>,

    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_parser = address)]
    host: IpAddr,

    /// The port to listen on; 0 takes any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,

    /// Answers that each model generates at the same time, each with a whole context
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive())]
    parallel: u32,

    /// Requests to each model that may wait for one to finish; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 16)]
    max_queue: usize,

    /// The chat template of all models, in place of their own: the name of a built-in one, or a file
    #[arg(long, value_name = "TEMPLATE")]
    chat_template: Option<String>,

    /// How long answers may pause, in each step, while other prompts are read; or as long as a step takes without them
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 50)]
    max_pause: u64,

    /// Do not keep prompts for others that begin alike
    #[arg(long)]
    no_prefix_cache: bool,

    /// Most tokens of an answer whose request does not say
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    default_max_tokens: usize,

    /// A key that clients must show; may be given several times [environment: AKUNU_API_KEY]
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,

    /// A file with one key in each line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Listen on a public address although no key is set
    #[arg(long)]
    allow_public: bool,

    /// A certificate (chain) in PEM: the server then speaks HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A web page's origin whose scripts may call the server, `*` for any; may be given several times
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors_origin: Vec<String>,

    /// Memory that models may take together, in GiB: to load another, idle ones are unloaded [default: no limit]
    #[arg(long, value_name = "GIB", value_parser = gibibytes)]
    memory_budget: Option<u64>,

    /// Unload models nobody has used for this long, until they are asked for again; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    idle_timeout: u64,

    /// Let clients load and unload models although others can reach the server
    #[arg(long)]
    manage_models: bool,

    /// Find a model by its exact id alone
    #[arg(long)]
    strict_models: bool,

    /// Requests a client may make in a minute; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    rate_limit: u32,

    /// Connections at the same time; others wait until one closes
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive())]
    max_connections: u32,

    /// Largest body of a request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = positive())]
    max_body: u32,

    /// Longest recording that is transcribed, in minutes; what it may take counts as memory of the model
    #[arg(long, value_name = "MINUTES", default_value_t = 120, value_parser = positive())]
    max_audio: u32,

    /// How long a client may take to send a request's body
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = positive())]
    body_timeout: u32,

    /// How long answers may take to finish after Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    shutdown_grace: u64,

    /// What to write to standard error about each request
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,

    /// Write prompts into the log too, as models read them
    #[arg(long)]
    log_prompts: bool,

    #[command(flatten)]
    engine: EngineArguments,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Off,
    Text,
    Json,
}

/// Serves until Ctrl-C.
pub fn run(arguments: &Arguments) -> Result<()> {
    let keys = keys(arguments)?;
    let config = Config {
        keys,
        allow_public: arguments.allow_public,
        cors_origins: arguments.cors_origin.clone(),
        strict_models: arguments.strict_models,
        memory_budget: arguments.memory_budget,
        idle_timeout: (arguments.idle_timeout > 0).then(|| Duration::from_secs(arguments.idle_timeout)),
        manage_models: arguments.host.is_loopback() || arguments.manage_models,
        default_max_tokens: arguments.default_max_tokens,
        rate_limit: arguments.rate_limit,
        connections: arguments.max_connections as usize,
        body_limit: (arguments.max_body as usize) << 20,
        body_timeout: Duration::from_secs(arguments.body_timeout.into()),
        shutdown_grace: Duration::from_secs(arguments.shutdown_grace),
        log_prompts: arguments.log_prompts,
        log: match arguments.log {
            LogFormat::Off => Log::Off,
            LogFormat::Text => Log::Text,
            LogFormat::Json => Log::Json,
        },
        ..Config::default()
    };
    let config = config.at(arguments.host).map_err(|error| match error {
        Error::Usage { problem, .. } => {
            let hint = format!("set {KEY_VARIABLE} or --api-key, or say --allow-public");
            Error::Usage { problem, hint }
        }
        other => other,
    })?;
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::from_files(certificate, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let server = Server::with_library(
        config,
        Local {
            engine: arguments.engine.clone(),
            parallel: arguments.parallel as usize,
            longest: Duration::from_secs(60 * u64::from(arguments.max_audio)),
            limits: Limits {
                queue: arguments.max_queue,
                chunk: Chunk::Time(Duration::from_millis(arguments.max_pause)),
                reuse_prefixes: !arguments.no_prefix_cache,
            },
            template: arguments.chat_template.as_deref().map(template).transpose()?,
        },
    );
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Before the models: a port that is taken is told at once.
    let address = SocketAddr::new(arguments.host, arguments.port);
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .with_context(|| format!("cannot listen on {address}"))?;
    for (id, model) in models(arguments) {
        let model = locate(&model)?.to_string_lossy().into_owned();
        if !server.load(&id, &Source { model, context: None })? {
            line(&format!("{id} does not fit beside the others and will be loaded when it is asked for"));
        }
    }
    line(&format!("listening on {scheme}://{}", listener.local_addr()?));
    runtime.block_on(server.run(listener, async {
        while stop::asked().is_continue() {
            tokio::time::sleep(POLL).await;
        }
        line("stopping");
    }))?;
    Ok(())
}

/// An address of this machine.
fn address(given: &str) -> std::result::Result<IpAddr, String> {
    if given == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    given
        .parse()
        .map_err(|_| "it must be an address of this machine such as 127.0.0.1, ::1 or 0.0.0.0".to_owned())
}

/// A web page's origin, or any.
fn origin(given: &str) -> std::result::Result<String, String> {
    let place = given.split_once("://").map_or("", |(_, place)| place);
    if given == "*"
        || !place.is_empty() && !given.contains(|c: char| c.is_whitespace()) && !place.contains('/')
    {
        return Ok(given.to_owned());
    }
    Err("it must be `*` or a scheme and a host such as https://example.com, without a path".to_owned())
}

/// GiB as bytes.
fn gibibytes(given: &str) -> std::result::Result<u64, String> {
    match given.parse::<f64>() {
        Ok(gib) if gib > 0.0 && gib < 1e9 => Ok((gib * f64::from(1 << 30)) as u64),
        _ => Err("it must be a number above 0".to_owned()),
    }
}

/// The source of a built-in template, or of that in a file.
fn template(given: &str) -> Result<String> {
    if BUILTIN_NAMES.contains(&given) {
        return Ok(ChatTemplate::builtin(given)?.source().to_owned());
    }
    let source = akunu::read_text(given).map_err(|error| match error.kind() {
        akunu::Kind::NotFound => {
            anyhow!("{given} is neither a file nor a built-in template ({})", BUILTIN_NAMES.join(", "))
        }
        _ => error.into(),
    })?;
    ChatTemplate::from_source(&source).with_context(|| given.to_owned())?;
    Ok(source)
}

/// Ids and models.
fn models(arguments: &Arguments) -> Vec<(String, String)> {
    let given: Vec<&String> = arguments.positional.iter().chain(&arguments.option).collect();
    if given.is_empty() {
        return vec![(DEFAULT_MODEL.to_owned(), DEFAULT_MODEL.to_owned())];
    }
    given.into_iter().map(|given| named(given)).collect()
}

/// `ID=MODEL`, or a model whose id is its name or that of its file.
fn named(given: &str) -> (String, String) {
    if let Some((id, model)) = given.split_once('=')
        && !id.is_empty()
        && !id.contains(['/', '\\'])
    {
        return (id.to_owned(), model.to_owned());
    }
    let path = Path::new(given);
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let id = match stem {
        Some(stem) if path.exists() => stem.to_string_lossy().into_owned(),
        _ => given.to_owned(),
    };
    (id, given.to_owned())
}

fn keys(arguments: &Arguments) -> Result<Vec<String>> {
    let mut keys = arguments.api_key.clone();
    if keys.iter().any(String::is_empty) {
        return Err(no_key("--api-key is empty"));
    }
    if let Some(path) = &arguments.api_key_file {
        let text = akunu::read_text(path)?;
        let before = keys.len();
        keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        if keys.len() == before {
            return Err(no_key(&format!("{} has no key in it", path.display())));
        }
    }
    keys.extend(std::env::var(KEY_VARIABLE).into_iter().filter(|key| !key.is_empty()));
    Ok(keys)
}

/// Who meant to set a key is not served without one.
fn no_key(problem: &str) -> anyhow::Error {
    Error::Usage { problem: problem.to_owned(), hint: "give a key, or leave the option out".to_owned() }
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_its_id_its_name_or_its_file() {
        let of = |given: &str| named(given).0;
        assert_eq!(named("fast=hf:a/b"), ("fast".to_owned(), "hf:a/b".to_owned()));
        assert_eq!(of("smollm2"), "smollm2");
        assert_eq!(of("hf:owner/repo"), "hf:owner/repo");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(named(file), ("Cargo".to_owned(), file.to_owned()));
        assert_eq!(of(env!("CARGO_MANIFEST_DIR")), "akunu-cli");
        assert_eq!(of("/models/a=b.gguf"), "/models/a=b.gguf");
    }
}
