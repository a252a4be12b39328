//! From a program to steps: row-wise operations as they are, quantised activations where weights are integers, gates and
//! caps folded into the products before them.

use std::collections::HashMap;

use akunu_program::program::{
    CacheLayer, Domain, Expert, Head, KvGroup, Mask, Op, Part, Program, Slice, ValueId,
};
use akunu_program::{Error, Result};

use crate::Isa;
use crate::kernels::product::{Group, product_fn};
use crate::kernels::tiles::{self, Laid, LaidForm, TILE_ROWS, several_fn, tile_product_fn};
use crate::pack::{Form, Matrix, TILE};
use crate::plan::{BufferId, Plan};
use crate::share::Sharing;
use crate::simd::LANES;
use crate::step::{
    Attention, ExpertProduct, ExpertsDown, ExpertsUp, IntegerForm, Integers, Linear, LinearPart, Maker,
    Rotation, Several, Shares, Step, Stored, Then, TileForm, Tiled, WeightsHead, WeightsStep,
};
use crate::weights::{CpuWeights, Rows};

/// A lowered program.
pub(crate) struct Lowered {
    pub(crate) steps: Vec<Step>,
    pub(crate) plan: Plan,
    pub(crate) logits: BufferId,
    /// Where the numbers of a batch go, if it has any.
    pub(crate) input: Option<BufferId>,
}

/// Lowers a program for a number of workers.
pub(crate) fn lower(program: &Program, weights: &CpuWeights, isa: Isa, workers: usize) -> Result<Lowered> {
    let mut uses = vec![0; program.values.len()];
    for op in &program.body {
        op.reads(|id| uses[id.0 as usize] += 1);
    }
    let mut lowering = Lowering {
        program,
        weights,
        isa,
        workers,
        uses,
        plan: Plan::default(),
        steps: Vec::new(),
        values: HashMap::new(),
        quantized: HashMap::new(),
        split: HashMap::new(),
        laid: HashMap::new(),
    };
    // It is written before the first step.
    let mut inputs =
        program.body.iter().filter_map(|op| if let Op::Input { out } = op { Some(*out) } else { None });
    let input = inputs.next().map(|out| lowering.value(out, false));
    let mut at = 0;
    while let Some(op) = program.body.get(at) {
        at += lowering.op(op, &program.body[at + 1..])?;
    }
    let logits = lowering.read(program.logits)?;
    lowering.plan.keep(logits);
    fold(&mut lowering.steps, &mut lowering.plan);
    (0..workers).for_each(|worker| foretell(&mut lowering.steps, worker));
    Ok(Lowered { steps: lowering.steps, plan: lowering.plan, logits, input })
}

/// Lets products and attention make the integers that the next products read of their results, where they have whole tiles of columns.
fn fold(steps: &mut [Step], plan: &mut Plan) {
    for at in 0..steps.len() {
        let (x, by) = match &steps[at] {
            Step::Linear(Linear { parts, then, .. }) if parts[0].weight.first.is_multiple_of(LANES) => {
                match then {
                    Then::Gate { out, .. } => (*out, Maker::Product),
                    Then::Activate { .. } => (parts[0].out, Maker::Product),
                    Then::Nothing | Then::Cap { .. } => continue,
                }
            }
            Step::Attend { attention: a, .. } if (a.sharing * a.head_dim).is_multiple_of(TILE) => {
                (a.out, Maker::Attention)
            }
            _ => continue,
        };
        let (before, after) = steps.split_at_mut(at + 1);
        let mut made = Vec::new();
        for step in after.iter_mut().take_while(|step| !step.is_wide()) {
            if let Step::Integers(integers) = step
                && integers.x == x
            {
                integers.by = by;
                plan.write_early(integers.out);
                made.push(*integers);
            }
        }
        if let Step::Linear(Linear { makes, .. }) | Step::Attend { makes, .. } = &mut before[at] {
            *makes = made;
        }
    }
}

/// Tells each product what the worker multiplies after it, experts left out; after the last one, that is the first one again.
fn foretell(steps: &mut [Step], worker: usize) {
    // As one row is multiplied.
    let first = |linear: &Linear| {
        linear.first(linear.shares.pieces[0].get(worker).unwrap_or(&linear.shares.even[worker]))
    };
    let mut after =
        steps.iter().find_map(|step| if let Step::Linear(linear) = step { first(linear) } else { None });
    for step in steps.iter_mut().rev() {
        if let Step::Linear(linear) = step {
            linear.next.push(after);
            after = first(linear).or(after);
        }
    }
}

struct Lowering<'a> {
    program: &'a Program,
    weights: &'a CpuWeights,
    isa: Isa,
    workers: usize,
    /// How often each value is read.
    uses: Vec<usize>,
    plan: Plan,
    steps: Vec<Step>,
    values: HashMap<ValueId, BufferId>,
    /// The same values as integers.
    quantized: HashMap<ValueId, Made>,
    /// The same values as tiles.
    split: HashMap<(ValueId, TileForm), BufferId>,
    /// The same values as several rows are laid out.
    laid: HashMap<(ValueId, LaidForm), Made>,
}

/// [`Op::Attend`], of queries that are ready or that it makes ready itself.
#[derive(Clone, Copy)]
struct Attend {
    q: BufferId,
    q_width: usize,
    mask: Mask,
    cache: CacheLayer,
    scale: f32,
    cap: Option<f32>,
    out: ValueId,
}

/// A value in another form.
#[derive(Clone, Copy)]
struct Made {
    buffer: BufferId,
    /// Which step makes it.
    step: usize,
}

impl Lowering<'_> {
    /// Lowers one operation, with the one after it where the two go together; returns how many were taken.
    fn op(&mut self, op: &Op, rest: &[Op]) -> Result<usize> {
        match *op {
            Op::Input { .. } => {}
            Op::Unfold { x, out } => {
                let x = self.read(x)?;
                let out = self.row_value(out);
                self.steps.push(Step::Unfold { x, out });
            }
            Op::Store { k, v, cache } => {
                let (k, v) = (self.read(k)?, self.read(v)?);
                let &KvGroup { head_dim, kv_heads, .. } = &self.program.groups[cache.group.0 as usize];
                self.steps.push(Step::Store(Stored { k, v, cache, head_dim, kv_heads }));
            }
            Op::Weights { ref heads, positions, out } => self.weights(heads, positions, out)?,
            Op::Embed { table, by, scale, out } => {
                if matches!(self.weights.rows(table)?, Rows::Packed(matrix) if matrix.form == Form::Pairs) {
                    return Err(unsupported("rows looked up in an encoder's weights"));
                }
                let out = self.row_value(out);
                self.steps.push(Step::Embed { table, by, scale, out });
            }
            Op::Norm { x, kind, eps, weight, bias, out, .. } => {
                let x = self.read(x)?;
                let out = self.row_value(out);
                self.steps.push(Step::Norm { x, kind, eps, weight, bias, out });
            }
            Op::Add { x, y, out } => {
                let (x, y) = (self.read(x)?, self.read(y)?);
                let out = self.row_value(out);
                self.steps.push(Step::Add { x, y, out });
            }
            Op::Gate { gate, up, activation, out } => {
                let (gate, up) = (self.read(gate)?, self.read(up)?);
                let out = self.row_value(out);
                self.steps.push(Step::Gate { gate, up, activation, out });
            }
            Op::Activate { x, activation, out } => {
                let x = self.read(x)?;
                let out = self.row_value(out);
                self.steps.push(Step::Activate { x, activation, out });
            }
            Op::Cap { x, scale, cap, out } => {
                let x = self.read(x)?;
                let out = self.row_value(out);
                self.steps.push(Step::Cap { x, scale, cap, out });
            }
            Op::Gather { x, out } => {
                let x = self.read(x)?;
                let out = self.row_value(out);
                self.steps.push(Step::Gather { x, out });
            }
            Op::Route { logits, normalize, out } => {
                let experts = self.program.value(logits).width;
                let logits = self.read(logits)?;
                let pairs = 2 * self.program.value(out).width;
                let buffer = self.plan.add(Domain::Tokens, pairs * size_of::<f32>(), true);
                self.values.insert(out, buffer);
                self.steps.push(Step::Route { logits, normalize, experts, out: buffer });
            }
            Op::Linear { x, ref parts } => return self.linear(x, parts, rest),
            Op::RopeKv { .. } => return self.attention(op, rest.first()),
            Op::Attend { q, mask: mask @ Mask::Stored(_), cache, scale, cap, out } => {
                let q_width = self.program.value(q).width;
                let q = self.read(q)?;
                self.attend(Attend { q, q_width, mask, cache, scale, cap, out }, None);
            }
            Op::Attend { .. } => return Err(unsupported("attention without its own keys and values")),
            Op::Experts { x, routes, ref experts, activation, out } => {
                self.experts(x, routes, experts, activation, out)?;
            }
        }
        Ok(1)
    }

    /// The buffer of a value that is read now.
    fn read(&mut self, id: ValueId) -> Result<BufferId> {
        let buffer = self.values.get(&id).copied();
        let buffer =
            buffer.ok_or_else(|| Error::Batch(format!("value {} is read before it is written", id.0)))?;
        self.plan.read(buffer);
        Ok(buffer)
    }

    /// A buffer for a value that a row step writes.
    fn row_value(&mut self, id: ValueId) -> BufferId {
        self.value(id, true)
    }

    fn value(&mut self, id: ValueId, private: bool) -> BufferId {
        let value = self.program.value(id);
        let buffer = self.plan.add(value.domain, value.width * size_of::<f32>(), private);
        self.values.insert(id, buffer);
        buffer
    }

    /// The value in the form that products with such a matrix read; of `all` rows, or only of those that are not in tiles, and of
    /// those that are `laid` out too, or not.
    fn input(&mut self, x: ValueId, form: Form, all: bool, laid: bool) -> Result<BufferId> {
        let floats = self.read(x)?;
        if !matches!(form, Form::Int { .. }) {
            return Ok(floats);
        }
        if let Some(&Made { buffer, step }) = self.quantized.get(&x) {
            self.plan.read(buffer);
            if let Some(Step::Integers(Integers {
                form: IntegerForm::Groups { all: made, laid: also },
                ..
            })) = self.steps.get_mut(step)
            {
                *made |= all;
                *also |= laid;
            }
            return Ok(buffer);
        }
        let value = self.program.value(x);
        let step = self.steps.len();
        let buffer = self.quantize(floats, value.domain, value.width, all, laid);
        self.quantized.insert(x, Made { buffer, step });
        Ok(buffer)
    }

    fn quantize(&mut self, x: BufferId, domain: Domain, width: usize, all: bool, laid: bool) -> BufferId {
        let out = self.plan.add(domain, width / TILE * size_of::<Group>(), true);
        self.integers(x, out, IntegerForm::Groups { all, laid });
        out
    }

    fn integers(&mut self, x: BufferId, out: BufferId, form: IntegerForm) {
        self.steps.push(Step::Integers(Integers { x, out, form, by: Maker::Step }));
    }

    /// How several rows are multiplied by a matrix, where it is in another way than one.
    fn several(&mut self, x: ValueId, matrix: &Matrix) -> Result<Option<Several>> {
        let (Some((form, product)), Form::Int { scales, .. }) = (several_fn(self.isa, matrix), matrix.form)
        else {
            return Ok(None);
        };
        let floats = self.read(x)?;
        if let Some(&Made { buffer, step }) = self.laid.get(&(x, form)) {
            self.plan.read(buffer);
            if let Some(Step::Integers(Integers { form: IntegerForm::Laid { sums, .. }, .. })) =
                self.steps.get_mut(step)
            {
                *sums |= scales.min();
            }
            return Ok(Some(Several { x: buffer, form, product }));
        }
        let value = self.program.value(x);
        let bytes = Laid::bytes(form, value.width / TILE) / TILE_ROWS;
        let buffer = self.plan.add_blocks(value.domain, bytes, TILE_ROWS);
        self.laid.insert((x, form), Made { buffer, step: self.steps.len() });
        self.integers(floats, buffer, IntegerForm::Laid { form, sums: scales.min() });
        Ok(Some(Several { x: buffer, form, product }))
    }

    /// The tiles in which each part of a product takes prompt rows, where it does. Outputs are not prompts: there are few of them.
    /// Which experts are chosen must not hang on rounding to pairs.
    fn tile_forms(&self, x: ValueId, parts: &[Part], next: Option<&Op>) -> Result<Vec<Option<TileForm>>> {
        let outputs = self.program.value(x).domain == Domain::Outputs;
        let routes = matches!(next, Some(Op::Route { logits, .. }) if parts.iter().any(|p| p.out == *logits));
        let form = |part: &Part| {
            let matrix = self.weights.matrix(part.weight)?;
            let form = TileForm::of(self.isa, matrix.form)
                .filter(|form| !(outputs || routes && *form == TileForm::Pairs));
            if form.is_none() && matrix.form == Form::Pairs {
                return Err(unsupported("an encoder's weights for other rows than prompts"));
            }
            Ok(form)
        };
        parts.iter().map(form).collect()
    }

    /// The value in tiles.
    fn tiles(&mut self, x: ValueId, form: TileForm) -> Result<BufferId> {
        let value = self.program.value(x);
        let floats = self.read(x)?;
        if let Some(&tiles) = self.split.get(&(x, form)) {
            self.plan.read(tiles);
            return Ok(tiles);
        }
        let out = self.plan.add_blocks(value.domain, tiles::row_bytes(form, value.width), TILE_ROWS);
        self.steps.push(Step::Split { x: floats, form, out });
        self.split.insert((x, form), out);
        Ok(out)
    }

    fn wide(&mut self, step: Step) {
        self.steps.push(step);
        self.plan.next_epoch();
    }

    fn linear(&mut self, x: ValueId, parts: &[Part], rest: &[Op]) -> Result<usize> {
        if parts.is_empty() {
            return Err(unsupported("a product with no matrix"));
        }
        let weights = self.weights;
        let matrices = parts.iter().map(|p| weights.matrix(p.weight)).collect::<Result<Vec<_>>>()?;
        let forms = self.tile_forms(x, parts, rest.first())?;
        let tiles = forms.iter().map(|form| form.map(|form| self.tiles(x, form)).transpose());
        let tiles = tiles.collect::<Result<Vec<_>>>()?;
        let isa = self.isa;
        let inputs = matrices
            .iter()
            .zip(&tiles)
            .map(|(m, tiles)| self.input(x, m.form, tiles.is_none(), several_fn(isa, m).is_none()));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let several = matrices.iter().map(|matrix| self.several(x, matrix));
        let several = several.collect::<Result<Vec<_>>>()?;
        let outs: Vec<BufferId> = parts.iter().map(|p| self.value(p.out, false)).collect();
        let mut taken = 2;
        let mut same_share = false;
        let then = match rest.first() {
            Some(&Op::Gate { gate, up, activation, out })
                if parts.len() == 2
                    && (parts[0].out, parts[1].out) == (gate, up)
                    && [gate, up].iter().all(|id| self.uses[id.0 as usize] == 1)
                    && parts[0].weight.rows == parts[1].weight.rows
                    && parts.iter().all(|p| p.weight.first.is_multiple_of(LANES)) =>
            {
                same_share = true;
                let fits = parts.iter().all(|part| part.bias.is_none()) && forms.iter().all(Option::is_some);
                let tiles = if fits { self.next_tiles(out, &rest[1..])? } else { None };
                Then::Gate { activation, out: self.value(out, false), tiles }
            }
            Some(&Op::Cap { x, scale, cap, out })
                if parts.len() == 1 && parts[0].out == x && self.uses[x.0 as usize] == 1 =>
            {
                self.values.insert(out, outs[0]);
                Then::Cap { scale, cap }
            }
            Some(&Op::Activate { x, activation, out })
                if parts.len() == 1 && parts[0].out == x && self.uses[x.0 as usize] == 1 =>
            {
                let pairs = if forms == [Some(TileForm::Pairs)] && parts[0].weight.first.is_multiple_of(LANES)
                {
                    self.next_tiles(out, &rest[1..])?
                } else {
                    None
                };
                self.values.insert(out, outs[0]);
                Then::Activate { activation, pairs: pairs.map(|(_, pairs)| pairs) }
            }
            _ => {
                taken = 1;
                Then::Nothing
            }
        };
        // Whole tiles of columns are made integers.
        let unit = if matches!(then, Then::Gate { .. } | Then::Activate { .. }) { TILE / LANES } else { 1 };
        let sharing = Sharing::new(&matrices, parts, self.workers, same_share, unit);
        let tiled = match then {
            Then::Gate { tiles: Some((form, _)), .. } => sharing.even_multiples(tiles::gate_panels(form)),
            Then::Activate { pairs: Some(_), .. } => {
                sharing.even_multiples(tiles::gate_panels(TileForm::Pairs))
            }
            _ => sharing.even(),
        };
        let shares = Shares { even: sharing.even(), tiled, pieces: sharing.pieces(), sharing };
        let parts = parts
            .iter()
            .zip(matrices)
            .zip(inputs.iter().zip(several).zip(outs.into_iter().zip(tiles)))
            .map(|((part, matrix), ((&x, several), (out, tiles)))| LinearPart {
                weight: part.weight,
                bias: part.bias,
                x,
                out,
                product: product_fn(self.isa, matrix.form),
                several,
                tiled: tiles.map(|x| Tiled { x, product: tile_product_fn(self.isa, matrix.form) }),
            })
            .collect();
        self.wide(Step::Linear(Linear { parts, then, makes: Vec::new(), shares, next: Vec::new() }));
        Ok(taken)
    }

    /// Tiles that products in tiles can write themselves by way of a gate or an activation, if all that follows is products that
    /// ask for the same form.
    fn next_tiles(&mut self, out: ValueId, rest: &[Op]) -> Result<Option<(TileForm, BufferId)>> {
        let value = self.program.value(out);
        let fits = value.domain == Domain::Tokens
            && value.width.is_multiple_of(TILE)
            && self.uses[out.0 as usize] == 1;
        let forms = match rest.first() {
            Some(Op::Linear { x, parts }) if *x == out && fits => self.tile_forms(out, parts, rest.get(1))?,
            _ => return Ok(None),
        };
        let Some(&Some(form)) = forms.first() else { return Ok(None) };
        let pieces = value.width.div_ceil(tiles::gate_panels(form) * LANES);
        if forms.iter().any(|other| *other != Some(form)) || !shares_well(pieces, self.workers) {
            return Ok(None);
        }
        let tiles = self.plan.add_blocks(value.domain, tiles::row_bytes(form, value.width), TILE_ROWS);
        self.split.insert((out, form), tiles);
        Ok(Some((form, tiles)))
    }

    /// Rotation and the attention after it, which may write the keys itself.
    fn attention(&mut self, rope_kv: &Op, next: Option<&Op>) -> Result<usize> {
        let (
            &Op::RopeKv { q, k, v, rope, cache, out: rotated },
            Some(&Op::Attend { q: asked, mask, cache: read, scale, cap, out }),
        ) = (rope_kv, next)
        else {
            return Err(unsupported("keys and values that are not attended to at once"));
        };
        if asked != rotated || read != cache || self.uses[rotated.0 as usize] != 1 {
            return Err(unsupported("attention to another layer's keys and values"));
        }
        let &KvGroup { head_dim, kv_heads, .. } = &self.program.groups[cache.group.0 as usize];
        let (q_width, k_width) = (self.program.value(q).width, self.program.value(k).width);
        let (q, k, v) = (self.read(q)?, self.read(k)?, self.read(v)?);
        // What is not rotated stays where it is.
        let (q_out, k_out) = if rope.is_some() {
            (self.row_value(rotated), self.plan.add(Domain::Tokens, k_width * size_of::<f32>(), true))
        } else {
            self.values.insert(rotated, q);
            (q, k)
        };
        let rope = rope.map(|r| r.0 as usize);
        let stored = Stored { k: k_out, v, cache, head_dim, kv_heads };
        let rotation = Rotation { q, k, rope, q_out, stored };
        self.steps.push(Step::Rotate(rotation));
        self.attend(Attend { q: q_out, q_width, mask, cache, scale, cap, out }, Some(rotation));
        Ok(2)
    }

    /// Attention to what is stored, or to the rows' own keys and values too, which it may have to write.
    fn attend(&mut self, op: Attend, rotation: Option<Rotation>) {
        let Attend { q, q_width, mask, cache, scale, cap, out } = op;
        let &KvGroup { head_dim, kv_heads, window, .. } = &self.program.groups[cache.group.0 as usize];
        let sharing = q_width / head_dim / kv_heads;
        let out = self.value(out, true);
        let window = window.unwrap_or(usize::MAX);
        let attention = Attention { q, cache, scale, cap, out, kv_heads, sharing, head_dim, mask, window };
        self.wide(Step::Attend { attention, rotation, makes: Vec::new() });
        self.plan.read(out);
        self.steps.push(Step::Merge { attention });
    }

    fn weights(&mut self, heads: &[Head], positions: u32, out: ValueId) -> Result<()> {
        let mut lowered = Vec::with_capacity(heads.len());
        for &Head { q, cache, head, scale } in heads {
            let &KvGroup { head_dim, kv_heads, .. } = &self.program.groups[cache.group.0 as usize];
            let kv_head = head / (self.program.value(q).width / head_dim / kv_heads);
            let q = self.read(q)?;
            lowered.push(WeightsHead { q, cache, scale, first: head * head_dim, head_dim, kv_head });
        }
        let out = self.value(out, false);
        self.wide(Step::Weights(WeightsStep { heads: lowered, positions: positions as usize, out }));
        Ok(())
    }

    /// How rows are multiplied with experts like this one, and laid out of `floats` where there are several.
    fn expert_product(&self, x: BufferId, floats: BufferId, weight: Slice) -> Result<ExpertProduct> {
        let matrix = self.weights.matrix(weight)?;
        let (product, several) = (product_fn(self.isa, matrix.form), several_fn(self.isa, matrix));
        Ok(ExpertProduct { x, product, several, floats })
    }

    fn experts(
        &mut self,
        x: ValueId,
        routes: ValueId,
        experts: &[Expert],
        activation: akunu_program::program::Activation,
        out: ValueId,
    ) -> Result<()> {
        let weights = self.weights;
        let Some(first) = experts.first() else { return Err(unsupported("a mixture of no experts")) };
        let chosen = self.program.value(routes).width;
        let (inner, hidden) = (first.gate.rows, first.down.rows);
        let form = |slice: Slice| weights.matrix(slice).map(|m| m.form);
        let [gate_form, up_form, down_form] = [form(first.gate)?, form(first.up)?, form(first.down)?];
        if [gate_form, up_form, down_form].contains(&Form::Pairs) {
            return Err(unsupported("an encoder's weights for experts"));
        }
        for e in experts {
            let same = form(e.gate)? == gate_form && form(e.up)? == up_form && form(e.down)? == down_form;
            if !same || [e.gate.rows, e.up.rows, e.down.rows] != [inner, inner, hidden] {
                return Err(unsupported("experts of different kinds"));
            }
        }
        let [gate_x, up_x] = [self.input(x, gate_form, true, true)?, self.input(x, up_form, true, true)?];
        let floats = self.read(x)?;
        let gate = self.expert_product(gate_x, floats, first.gate)?;
        let up = self.expert_product(up_x, floats, first.up)?;
        let routes = self.read(routes)?;
        let buffer = |plan: &mut Plan, width: usize| {
            plan.add(Domain::Tokens, chosen * width * size_of::<f32>(), false)
        };
        let activated = buffer(&mut self.plan, inner);
        self.wide(Step::ExpertsUp(ExpertsUp {
            routes,
            chosen,
            experts: experts.to_vec(),
            activation,
            gate,
            up,
            out: activated,
        }));
        self.plan.read(activated);
        self.plan.read(routes);
        let down_x = if matches!(down_form, Form::Int { .. }) {
            self.quantize(activated, Domain::Tokens, chosen * inner, true, true)
        } else {
            activated
        };
        let down = self.expert_product(down_x, activated, first.down)?;
        let parts = buffer(&mut self.plan, hidden);
        let out = self.value(out, false);
        self.wide(Step::ExpertsDown(ExpertsDown {
            routes,
            chosen,
            downs: experts.iter().map(|e| e.down).collect(),
            down,
            parts,
            out,
        }));
        Ok(())
    }
}

/// Whether no worker gets much more of so many pieces than another.
fn shares_well(pieces: usize, workers: usize) -> bool {
    pieces.div_ceil(workers) * workers * 8 <= pieces * 9
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), supported: "the programs akunu builds".to_owned() }
}
