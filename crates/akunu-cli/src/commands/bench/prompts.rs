//! Real prompts end to end: what a user waits for.

use std::path::Path;
use std::time::{Duration, Instant};

use akunu::{FinishReason, Model, Settings, Statistics};
use anyhow::Result;
use serde::Serialize;

use super::sample::median;
use super::table::{Column, left, right};
use crate::stop;

/// Short and long, to answer in few words and in many.
const PROMPTS: [(&str, &str); 5] = [
    ("question", "What is the capital of France?"),
    ("list", "Write a list of twenty animals that live in the sea, one on each line."),
    ("story", "Tell a story about a lighthouse keeper who finds a letter in a bottle. Take your time."),
    (
        "code",
        "Explain what this function does, and rewrite it so that it does not copy the list.\n\n\
         def second_largest(numbers):\n    numbers = sorted(set(numbers))\n    if len(numbers) < 2:\n        return None\n    \
         return numbers[-2]\n",
    ),
    ("summary", SUMMARY),
];

const SUMMARY: &str = "\
Summarise the following text in three sentences.

The harbour of the town had been built when ships were still made of wood, and it had never been made any deeper. For a \
hundred years nobody minded. The boats that came were small, they carried herring and salt, and the people who sailed them \
had been born in the houses that looked down on the quay. In the evening they tied their boats to iron rings in the wall, \
walked up the hill, and slept. When the railway came, the herring went inland on ice, and the town grew along the \
tracks. A market hall was built, and a school with two clocks, one of which was always right. The harbour master kept a \
book in which he wrote down every boat that came in, with its name, its load and the height of the tide, and because he was a \
careful man, and his son after him, and her daughter after that, the book is now the longest record of the tides on that coast. \
It shows that the water stands a hand higher today than it did when the first page was written. It also shows the winter in \
which no boat came for eleven weeks because the bay was frozen, and the summer in which a whale swam in under the bridge, \
turned around in the basin, and swam out again, having been entered in the book with a length, an hour, and no load. \
Engineers who want to know how high a wall must be ask for copies of it. The present harbour master, who has a computer for \
the tides, still writes the book by hand. Asked why, she says that a computer knows how high the water was, but that it would not \
have written down the whale.";

/// The table.
pub const COLUMNS: [Column; 9] = [
    left("model", 30),
    left("backend", 10),
    right("threads", 7),
    left("prompt", 10),
    right("tokens", 11),
    right("first token", 11),
    right("prefill t/s", 11),
    right("decode t/s", 10),
    right("total", 9),
];

/// One prompt, answered several times: medians.
#[derive(Serialize)]
pub struct Answered {
    pub model_type: String,
    pub model_filename: String,
    pub backends: String,
    pub n_threads: usize,
    pub prompt: String,
    pub n_prompt: usize,
    pub n_gen: usize,
    /// From the text of the prompt to the first token of the answer.
    pub first_token_ms: f64,
    pub prefill_ts: f64,
    pub decode_ts: f64,
    /// From the text of the prompt to the end of the answer.
    pub total_ms: f64,
    pub samples_ms: Vec<f64>,
}

/// The prompts of this build, or those of a file: one on each line.
pub fn read(file: Option<&Path>) -> Result<Vec<(String, String)>> {
    let Some(path) = file else {
        return Ok(PROMPTS.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec());
    };
    let text = akunu::read_text(path)?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.enumerate().map(|(i, line)| (format!("line {}", i + 1), line.to_owned())).collect())
}

/// One answer.
pub struct Sample {
    statistics: Statistics,
    first_token: Duration,
    total: Duration,
}

/// Answers a prompt greedily: as a question where the model has a chat template, as a text to go on with otherwise.
pub fn answer(model: &Model, prompt: &str, most_tokens: usize) -> Result<Sample> {
    let settings = Settings { max_tokens: Some(most_tokens), ..Settings::default() };
    let begin = Instant::now();
    if model.templates().names().next().is_none() {
        let mut generation = model.generate(prompt, &settings)?;
        let _watch = stop::Watch::new(generation.stop_handle());
        let first_token = first(&mut generation, begin)?;
        return Sample::new(*generation.statistics(), generation.finish_reason(), first_token, begin);
    }
    let mut chat = model.chat(&settings)?;
    let mut answer = chat.ask(prompt)?;
    let _watch = stop::Watch::new(answer.stop_handle());
    let first_token = first(&mut answer, begin)?;
    Sample::new(*answer.statistics(), answer.finish_reason(), first_token, begin)
}

/// Takes all pieces, and says when the first came.
fn first<T>(pieces: &mut impl Iterator<Item = akunu::Result<T>>, begin: Instant) -> Result<Duration> {
    let mut came = None;
    for piece in pieces {
        piece?;
        came.get_or_insert_with(|| begin.elapsed());
    }
    Ok(came.unwrap_or_else(|| begin.elapsed()))
}

impl Sample {
    fn new(
        statistics: Statistics,
        reason: Option<FinishReason>,
        first_token: Duration,
        begin: Instant,
    ) -> Result<Sample> {
        crate::engine::stopped(reason)?;
        Ok(Sample { statistics, first_token, total: begin.elapsed() })
    }
}

impl Answered {
    /// The medians of several answers, which have the same tokens.
    pub fn new(
        model: &Model,
        model_type: &str,
        threads: usize,
        prompt: &str,
        samples: &[Sample],
    ) -> Answered {
        let median_of = |f: &dyn Fn(&Sample) -> f64| median(&samples.iter().map(f).collect::<Vec<f64>>());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let tokens = |f: &dyn Fn(&Statistics) -> usize| samples.first().map_or(0, |s| f(&s.statistics));
        Answered {
            model_type: model_type.to_owned(),
            model_filename: model.path().display().to_string(),
            backends: model.backend().to_owned(),
            n_threads: threads,
            prompt: prompt.to_owned(),
            n_prompt: tokens(&|s| s.prompt_tokens),
            n_gen: tokens(&|s| s.generated_tokens),
            first_token_ms: median_of(&|s| milliseconds(s.first_token)),
            prefill_ts: median_of(&|s| s.statistics.prefill_rate()),
            decode_ts: median_of(&|s| s.statistics.decode_rate()),
            total_ms: median_of(&|s| milliseconds(s.total)),
            samples_ms: samples.iter().map(|s| milliseconds(s.total)).collect(),
        }
    }

    /// What stands in the table's line.
    pub fn cells(&self) -> Vec<String> {
        vec![
            self.model_type.clone(),
            self.backends.clone(),
            self.n_threads.to_string(),
            self.prompt.clone(),
            format!("{} + {}", self.n_prompt, self.n_gen),
            format!("{:.1} ms", self.first_token_ms),
            format!("{:.1}", self.prefill_ts),
            format!("{:.1}", self.decode_ts),
            format!("{:.2} s", self.total_ms / 1e3),
        ]
    }
}
