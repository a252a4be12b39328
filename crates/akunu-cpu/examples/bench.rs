//! Times prompts and decoding, in tokens per second: `bench MODEL [THREADS [PROMPT [TOKENS [REPEATS [SEQUENCES [DEPTH]]]]]]`, and shows
//! where the time went. Several sequences decode together, one token of each at a time, after DEPTH tokens.

use std::collections::BTreeMap;

use std::error::Error;
use std::time::Instant;

use akunu_cpu::Cpu;
use akunu_format::ModelFile;
use akunu_program::arch::Architecture;
use akunu_program::program::{GroupId, WeightId};
use akunu_program::{
    BLOCK, Backend, Batch, Executable, KvType, Limits, Outputs, Phase, SlotEdit, SlotId, Span, StopFlag,
    Work, build,
};

/// Tokens decoded without returning to the host.
const CHAIN: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("which model?")?;
    let mut number = |default: u32| args.next().map_or(Ok(default), |n| n.parse());
    let (threads, prompt, tokens, repeats) = (number(2)?, number(512)?, number(128)?, number(5)?);
    let (sequences, depth) = (number(1)?, number(0)?);

    let begin = Instant::now();
    let file = ModelFile::open(&path)?;
    let (arch, names) = Architecture::of(&file)?;
    let context = prompt.max(depth + tokens).max(1).next_multiple_of(BLOCK as u32);
    let program = build(&arch, &names, &file, context as usize)?;
    let cpu = Cpu::new(threads as usize)?;
    let weights = cpu.load(&file, &program.weights)?;
    let blocks = context / BLOCK as u32;
    let kv = cpu.kv(&program.groups, &vec![sequences * blocks; program.groups.len()], KvType::F16)?;
    let limits = Limits { slots: sequences, rows: 512, outputs: sequences, context };
    let mut executable = cpu.compile(&program, weights, kv, &limits)?;
    println!("{}: loaded in {:.0} ms", cpu.isa(), begin.elapsed().as_secs_f64() * 1e3);

    let (stop, mut out) = (StopFlag::default(), Outputs::default());
    let numbers: Vec<u32> = (0..sequences * blocks).collect();
    for (slot, numbers) in (0..).map(SlotId).zip(numbers.chunks_exact(blocks as usize)) {
        for group in 0..program.groups.len() as u32 {
            let edit = SlotEdit::Blocks { slot, group: GroupId(group), first: 0, blocks: numbers };
            executable.run(&Batch { edits: &[edit], ..Batch::default() }, Work::Forward, &stop, &mut out)?;
        }
    }
    let slots: Vec<u32> = (0..sequences).collect();
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    let ids: Vec<u32> = (0..context).map(|i| 100 + i * 37 % 1000).collect();
    let read = |executable: &mut dyn Executable, slot, count: u32| -> Result<(), Box<dyn Error>> {
        for (i, ids) in ids[..count as usize].chunks(512).enumerate() {
            let (start, rows) = (512 * i as u32, ids.len() as u32);
            let spans = [Span { slot: SlotId(slot), start, rows, phase: Phase::Prompt }];
            let outputs = [rows - 1];
            let batch = Batch { spans: &spans, tokens: ids, outputs: &outputs, ..Batch::default() };
            executable.run(&batch, Work::Step, &stop, &mut Outputs::default())?;
        }
        Ok(())
    };
    for &slot in &slots {
        read(&mut *executable, slot, depth)?;
    }
    for repeat in 0..=repeats {
        executable.set_timing(repeat == repeats);
        let begin = Instant::now();
        read(&mut *executable, 0, prompt)?;
        prefill.push(f64::from(prompt) / begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let (mut next, mut done) = (vec![100; slots.len()], 0);
        while done < tokens {
            let n = CHAIN.min(tokens - done);
            // As llama-bench does, from an empty context unless told otherwise.
            let span =
                |&slot: &u32| Span { slot: SlotId(slot), start: depth + done, rows: 1, phase: Phase::Decode };
            let spans: Vec<Span> = slots.iter().map(span).collect();
            let batch = Batch { spans: &spans, tokens: &next, outputs: &slots, ..Batch::default() };
            executable.run(&batch, Work::Chain(n), &stop, &mut out)?;
            let last = out.tokens.len() - next.len();
            next.copy_from_slice(&out.tokens[last..]);
            done += n;
        }
        decode.push(f64::from(sequences * tokens) / begin.elapsed().as_secs_f64());
    }
    for (what, count, mut rates) in [("pp", prompt, prefill), ("tg", tokens, decode)] {
        if count > 0 {
            rates.remove(0); // the first round warms up
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
            println!("{what}{count}: median {median:.1}, best {best:.1} tokens/s");
        }
    }
    // Of the last round, layers together.
    let mut times: BTreeMap<(&str, String), f64> = BTreeMap::new();
    for timing in executable.timings() {
        let name = |id: &WeightId| {
            let name = &program.weights[id.0 as usize].name;
            name.splitn(3, '.').last().unwrap_or(name).to_owned()
        };
        let names: Vec<String> = timing.weights.iter().map(name).collect();
        *times.entry((timing.kind, names.join(" "))).or_default() += timing.tally.time.as_secs_f64() * 1e3;
    }
    for ((kind, names), time) in times {
        println!("{time:9.2} ms  {kind} {names}");
    }
    Ok(())
}
