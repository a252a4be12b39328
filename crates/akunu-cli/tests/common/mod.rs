//! Running the built binary as a user would.

// Each test target uses its own part of this.
#![allow(dead_code)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use akunu_format::DType;
use akunu_format::gguf::Writer;

/// What the binary did.
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl Run {
    /// stdout of a run that must have succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stderr: {}", self.stderr);
        self.stdout
    }

    /// stdout as JSON.
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("stdout is one JSON document")
    }

    /// stderr of a run that must have failed with `code` and printed no result.
    pub fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "stderr: {}", self.stderr);
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        self.stderr
    }
}

/// The command with a cache of its own and nothing of the user's settings.
pub fn akunu(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_akunu"));
    command.args(arguments).env("AKUNU_CACHE", cache).stdin(Stdio::null());
    for name in ["HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "HF_ENDPOINT", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// Runs it to its end.
pub fn run(cache: &Path, arguments: &[&str]) -> Run {
    finish(akunu(cache, arguments))
}

/// Runs it with something on stdin.
pub fn run_with_input(cache: &Path, arguments: &[&str], input: &[u8]) -> Run {
    let mut command = akunu(cache, arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    ran(&child.wait_with_output().expect("it ends"))
}

/// Runs a prepared command to its end.
pub fn finish(mut command: Command) -> Run {
    ran(&command.output().expect("it starts"))
}

fn ran(output: &std::process::Output) -> Run {
    Run {
        stdout: String::from_utf8(output.stdout.clone()).expect("stdout is text"),
        stderr: String::from_utf8(output.stderr.clone()).expect("stderr is text"),
        code: output.status.code(),
    }
}

/// Writes a small model: two layers, a vocabulary of three tokens, one F32 and one Q8_0 tensor.
pub fn write_model(path: &Path) {
    try_write_model(path).expect("a model can be written");
}

fn try_write_model(path: &Path) -> akunu_format::Result<()> {
    let mut writer = Writer::new();
    writer.metadata("general.architecture", "llama")?;
    writer.metadata("general.name", "Tiny\u{1b}[31m")?;
    for (key, value) in [
        ("llama.block_count", 2_u32),
        ("llama.context_length", 128),
        ("llama.embedding_length", 64),
        ("llama.feed_forward_length", 96),
        ("llama.attention.head_count", 4),
        ("llama.attention.head_count_kv", 2),
    ] {
        writer.metadata(key, &value)?;
    }
    writer.metadata("tokenizer.ggml.model", "gpt2")?;
    writer.metadata("tokenizer.ggml.tokens", &["a", "b", "<|end|>"])?;
    writer.metadata("tokenizer.ggml.eos_token_id", &2_u32)?;
    writer.tensor("token_embd.weight", DType::Q8_0, &[3, 64])?;
    writer.tensor("output_norm.weight", DType::F32, &[64])?;
    let mut tensors = writer.create(path)?;
    tensors.append("token_embd.weight", &[0; 3 * 2 * 34])?;
    tensors.append("output_norm.weight", &[0; 256])?;
    tensors.finish()
}
