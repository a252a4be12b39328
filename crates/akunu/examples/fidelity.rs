//! Writes docs/fidelity.md: how close every architecture, format and dtype comes to its oracle. scripts/fidelity runs it.
//!
//!     cargo run --release -p akunu --example fidelity -- TEST_DATA > docs/fidelity.md

#![allow(clippy::unwrap_used, reason = "a generator ends where it fails")]

#[path = "../tests/greedy/mod.rs"]
mod greedy;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use akunu_cpu::{Cpu, Isa};
use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::conformance::Runner;
use akunu_program::reference::Reference;
use akunu_program::{Backend, Work, build};
use serde_json::Value;

const CONTEXT: u32 = 128;

fn main() {
    let Some(data) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: fidelity TEST_DATA");
        std::process::exit(2);
    };
    println!("{HEAD}");
    tiny();
    quants();
    mlx();
    greedy_text(&data);
    perplexities();
}

const HEAD: &str = "\
# Fidelity

How close akunu comes to an oracle, for every architecture, format and dtype. `scripts/fidelity` measures and writes this page; nothing \
on it is typed by hand. *reference* is the plain f32 backend that defines what is right, *cpu* the backend that is fast: with the portable \
instruction set in the first two tables, with the machine's best one in the others. Keys and values are F16 on the CPU backend, which \
is most of its error. Errors are rounded up to 1, 2 or 5 times a power of ten, llama.cpp's too.";

fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../akunu-program/tests/fixtures").join(kind)
}

fn backends() -> [Box<dyn Backend>; 2] {
    [Box::new(Reference), Box::new(Cpu::with_isa(2, Isa::Portable).unwrap())]
}

/// The logits of a prompt: `[position][vocabulary]`.
fn logits(backend: &dyn Backend, model: &Path, prompt: &[u32]) -> (Vec<f32>, String) {
    let file = ModelFile::open(model).unwrap();
    let (architecture, names) = Architecture::of(&file).unwrap();
    let program = build(&architecture, &names, &file, CONTEXT as usize).unwrap();
    let mut runner = Runner::new(backend, &program, &file, 1, CONTEXT).unwrap();
    runner.feed(&[(0, 0, prompt)], Work::Forward).unwrap();
    (runner.out.logits, architecture.family.to_string())
}

fn tiny() {
    println!("\n## Tiny random models of every architecture\n");
    println!(
        "Logits at all 40 positions of a prompt, against `transformers` in float64: the largest difference of a logit as a share of the \
         largest logit of its row. Files ending in -f16 and -bf16 hold such weights, the others F32. (`crates/akunu-program/tests/fixtures/tiny`)\n"
    );
    println!(
        "| model | architecture | GGUF, reference | SafeTensors, reference | GGUF, cpu | SafeTensors, cpu |"
    );
    println!("|---|---|---:|---:|---:|---:|");
    whole_logits("tiny", |folder| vec![folder.join("model.gguf"), folder.to_owned()]);
}

/// A line for each folder of that kind: its name, the family, and the errors of the files in it, with each backend.
fn whole_logits(kind: &str, files: impl Fn(&Path) -> Vec<PathBuf>) {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures(kind))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    for folder in folders {
        let bytes = std::fs::read(folder.join("logits.bin")).unwrap();
        let expected: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let prompt: Vec<u32> =
            serde_json::from_slice(&std::fs::read(folder.join("prompt.json")).unwrap()).unwrap();
        let vocabulary = expected.len() / prompt.len();
        let mut family = String::new();
        let mut cells = Vec::new();
        for backend in backends() {
            for model in files(&folder) {
                let (actual, found) = logits(&*backend, &model, &prompt);
                family = found;
                let rows = actual.chunks_exact(vocabulary).zip(expected.chunks_exact(vocabulary));
                cells.push(bound(rows.map(|(a, e)| relative_error(a, e)).fold(0.0, f64::max)));
            }
        }
        let name = folder.file_name().unwrap().to_string_lossy();
        println!("| {name} | {family} | {} |", cells.join(" | "));
    }
}

fn mlx() {
    println!("\n## MLX's types\n");
    println!(
        "Small models quantised by `mlx-lm`, with groups of 32, 64 and 128 and scales in F16 and BF16; -mixed has matrices of 3, 4 and 6 bits and one \
         that is not quantised. Logits at all 40 positions of a prompt, against `transformers` in float64 on the weights decoded by `mlx`, as in the first \
         table. (`crates/akunu-program/tests/fixtures/mlx`)\n"
    );
    println!("| checkpoint | architecture | reference | cpu |");
    println!("|---|---|---:|---:|");
    whole_logits("mlx", |folder| vec![folder.to_owned()]);
}

fn relative_error(actual: &[f32], expected: &[f32]) -> f64 {
    let scale = expected.iter().fold(0_f32, |most, x| most.max(x.abs()));
    let error = actual.iter().zip(expected).fold(0_f32, |most, (a, e)| most.max((a - e).abs()));
    f64::from(error / scale)
}

fn quants() {
    println!("\n## Quantised dtypes\n");
    println!(
        "A small llama quantised by llama.cpp, all columns multiples of 256: the largest difference among the 20 best log-probabilities at 8 \
         positions, against `transformers` in float64 on the weights decoded from the file. llama.cpp rounds activations to 8 bits. \
         (`crates/akunu-program/tests/fixtures/quants`)\n"
    );
    println!("| dtype | reference | cpu | llama.cpp |");
    println!("|---|---:|---:|---:|");
    let oracle: Value =
        serde_json::from_slice(&std::fs::read(fixtures("quants").join("top20.json")).unwrap()).unwrap();
    let prompt: Vec<u32> = serde_json::from_value(oracle["prompt"].clone()).unwrap();
    let positions: Vec<usize> = serde_json::from_value(oracle["positions"].clone()).unwrap();
    type Tops = Vec<Vec<(usize, f64)>>;
    for (dtype, known) in oracle["dtypes"].as_object().unwrap() {
        let [exact, peer]: [Tops; 2] =
            ["exact", "llama.cpp"].map(|key| serde_json::from_value(known[key].clone()).unwrap());
        let mut cells = Vec::new();
        for backend in backends() {
            let (logits, _) = logits(&*backend, &fixtures("quants").join(format!("{dtype}.gguf")), &prompt);
            let vocabulary = logits.len() / prompt.len();
            let mut worst = 0_f64;
            for (position, top) in positions.iter().zip(&exact) {
                let row = &logits[position * vocabulary..][..vocabulary];
                let total: f64 = row.iter().map(|z| f64::from(*z).exp()).sum();
                for &(token, expected) in top {
                    worst = worst.max((f64::from(row[token]) - total.ln() - expected).abs());
                }
            }
            cells.push(bound(worst));
        }
        let both = exact.iter().zip(&peer).flat_map(|(exact, peer)| {
            let peer: BTreeMap<usize, f64> = peer.iter().copied().collect();
            exact.iter().filter_map(move |(token, value)| peer.get(token).map(|other| (value - other).abs()))
        });
        cells.push(bound(both.fold(0.0, f64::max)));
        println!("| {dtype} | {} |", cells.join(" | "));
    }
}

fn greedy_text(data: &Path) {
    println!("\n## Greedy text of real models\n");
    println!(
        "20 continuations of up to 64 tokens by llama.cpp, from the same weights expanded to F32 (on quantised files it rounds activations to 8 bits, \
         which moves its own choices at margins of 0.16 to 0.36). akunu runs the file as it is and follows llama.cpp's tokens; a place counts where \
         llama.cpp's two best logits differ by more than {}. (`crates/akunu/tests/real_models/continuations.rs`)\n",
        greedy::MARGIN
    );
    println!("| model | places | that count | same token, cpu | largest margin of a difference |");
    println!("|---|---:|---:|---:|---:|");
    for name in greedy::MODELS {
        let model = greedy::load(data, name, "cpu");
        let cases = greedy::cases(name);
        let differences: Vec<greedy::Difference> =
            cases.iter().flat_map(|case| greedy::differences(&model, case).unwrap()).collect();
        let places: usize = cases.iter().map(|case| case.tokens.len()).sum();
        let margins = || cases.iter().flat_map(|case| &case.margins);
        let decided = margins().filter(|&&margin| margin > greedy::MARGIN).count();
        let wrong = differences.iter().filter(|difference| difference.margin > greedy::MARGIN).count();
        let largest = differences.iter().map(|difference| difference.margin).fold(0.0, f64::max);
        let largest = if differences.is_empty() { "none".to_owned() } else { format!("{largest:.4}") };
        println!("| {name} | {places} | {decided} | {} | {largest} |", decided - wrong);
    }
}

fn perplexities() {
    println!("\n## Perplexity\n");
    println!(
        "SmolLM2-135M-Instruct in every form that llama-quantize makes of it (from its Q4_1 file expanded to F32; types that do not fit its 576 \
         columns fall back to others), on the first 4 windows of 512 tokens of Moby Dick, as llama.cpp defines it and for the same files. llama.cpp rounds \
         activations to 8 bits where weights are quantised, akunu to 15; *expanded* is llama.cpp on the same weights as F32, where it rounds nothing. \
         `scripts/oracle/perplexity.py` measured them: they are not measured again for this page.\n"
    );
    println!("| type | llama.cpp | llama.cpp, expanded | cpu | cpu / llama.cpp | cpu / expanded |");
    println!("|---|---:|---:|---:|---:|---:|");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perplexity_smollm2.json");
    let figures: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (kind, row) in figures.as_object().unwrap() {
        let figure = |engine: &str| row[engine][0].as_f64();
        let show = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.4}"));
        let ratio = |a: Option<f64>, b: Option<f64>| {
            a.zip(b).map_or("-".to_owned(), |(a, b)| format!("{:+.2} %", (a / b - 1.0) * 100.0))
        };
        let (peer, exact, cpu) = (figure("llama.cpp"), figure("llama.cpp, expanded"), figure("cpu"));
        let cells = [show(peer), show(exact), show(cpu), ratio(cpu, peer), ratio(cpu, exact)];
        println!("| {kind} | {} |", cells.join(" | "));
    }
}

/// Rounded up to 1, 2 or 5 times a power of ten, so that the last bits of another machine change nothing.
fn bound(error: f64) -> String {
    if error == 0.0 {
        return "0".to_owned();
    }
    let power = error.log10().floor();
    let digit =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|digit| error <= digit * 10_f64.powf(power)).unwrap_or(10.0);
    format!("{:.0e}", digit * 10_f64.powf(power))
}
