//! Choosing tokens: with masks and without, in one batch, by every way of sampling.

use super::{Outcome, SLOTS, Sketch, numbers};
use crate::select::Sampling;
use crate::{Backend, Batch, KvType, Phase, Result, SlotEdit, SlotId, Span, Work};

/// Tokens, of which the last word of a mask holds few.
const VOCABULARY: usize = 1003;
/// Of those, tokens that can be fed.
const ROWS: usize = 60;

pub(super) fn check(backend: &dyn Backend) -> Vec<Outcome> {
    // The table's rows are the logits: nothing is computed, so that choices must be the same to the bit.
    let table: Vec<f32> = numbers(11, ROWS * VOCABULARY).iter().map(|x| x * 4.0).collect();
    let sketch = Sketch::new(&table, VOCABULARY);
    let logits = sketch.x;
    let sketch = sketch.finish(logits);
    let warm = Sampling { temperature: 1.0, seed: 5, ..Sampling::GREEDY };
    let penalties = Sampling { repeat_penalty: 1.3, presence_penalty: 0.4, ..warm.clone() };
    let filters = Sampling { top_k: 50, top_p: 0.9, min_p: 0.01, ..warm.clone() };
    let cases = [
        ("greedy", Sampling::GREEDY),
        ("at temperature 1", warm),
        ("with penalties", penalties),
        ("with filters", filters),
    ];
    let outcome = |(name, sampling): (&str, Sampling)| {
        let run =
            |backend: &dyn Backend| choices(&sketch, backend, &sampling).map_err(|error| error.to_string());
        let worst = run(backend).and_then(|chosen| {
            let expected = run(&crate::reference::Reference)?;
            let same = chosen == expected;
            same.then_some(0.0).ok_or_else(|| format!("chose {chosen:?} instead of {expected:?}"))
        });
        Outcome { case: format!("select {name}, rows with masks and without"), worst }
    };
    cases.into_iter().map(outcome).collect()
}

/// What is chosen after four rows of each slot: every second row has a mask.
fn choices(sketch: &Sketch, backend: &dyn Backend, sampling: &Sampling) -> Result<Vec<u32>> {
    let mut runner = sketch.runner(backend, KvType::F16)?;
    let sparse: Vec<u32> = (0..VOCABULARY.div_ceil(32) as u32).map(|word| 1 << (word % 7)).collect();
    // All but a few of the first, and nothing beyond.
    let short = [u32::MAX << 3, u32::MAX, 0x00ff_0000];
    let masks = [None, Some(&sparse[..]), None, Some(&short[..])];
    let masks: Vec<_> = masks.into_iter().cycle().take(4 * SLOTS as usize).collect();
    let slots = (0..SLOTS).map(SlotId);
    let edits: Vec<SlotEdit<'_>> =
        slots.clone().map(|slot| SlotEdit::Sampling { slot, sampling: sampling.clone() }).collect();
    let spans: Vec<Span> = slots.map(|slot| Span { slot, start: 0, rows: 4, phase: Phase::Decode }).collect();
    let tokens: Vec<u32> = (0..4 * SLOTS).map(|i| i * 5 % ROWS as u32).collect();
    let outputs: Vec<u32> = (0..4 * SLOTS).collect();
    let batch = Batch {
        edits: &edits,
        spans: &spans,
        tokens: &tokens,
        outputs: &outputs,
        masks: &masks,
        ..Batch::default()
    };
    runner.run(&batch, Work::Step)?;
    Ok(runner.out.tokens.clone())
}
