//! From a program to nodes: operations that go together become one, and every value gets its place.

use std::collections::HashMap;

use akunu_program::program::{
    Activation, CacheLayer, Domain, Element, Expert, FRAMES_PER_TOKEN, Head, Index, Mask, NormKind, Op, Part,
    Program, RopeId, Slice, Value, ValueId,
};
use akunu_program::{BLOCK, Error, KvType, Limits, Result};

use crate::ChipConfig;
use crate::arena::Arena;
use crate::params::Matrix;
use crate::table::{Halved, attend_parts, decode_rows};
use crate::weights::Layout;

/// A norm's settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    pub(crate) eps: f32,
    pub(crate) weight: Slice,
    pub(crate) bias: Option<Slice>,
    pub(crate) groups: usize,
}

/// Element-wise operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Elements {
    Add,
    Gate(Activation),
    Activate(Activation),
    Cap { scale: f32, cap: Option<f32> },
}

/// What is done to a product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Then {
    Nothing,
    /// The first part gates the second; the result goes to a value of its own.
    Gate(Activation, ValueId),
    /// A value is added.
    Add(ValueId),
    Cap {
        scale: f32,
        cap: Option<f32>,
    },
}

/// What a rotation takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Raw {
    pub(crate) q: ValueId,
    pub(crate) k: ValueId,
    pub(crate) v: ValueId,
    pub(crate) rope: Option<RopeId>,
}

/// One step of a lowered program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Unfold {
        x: ValueId,
        out: ValueId,
    },
    Embed {
        table: Slice,
        by: Index,
        scale: f32,
        out: ValueId,
    },
    Norm {
        x: ValueId,
        norm: Norm,
        residual: Option<ValueId>,
        out: ValueId,
    },
    /// Products of `x`, which is the norm of another value where `norm` says so. `scratch` holds a prompt's `x` as tensor cores take
    /// it.
    Linear {
        x: ValueId,
        norm: Option<(Norm, ValueId)>,
        parts: Vec<Part>,
        then: Then,
        scratch: u32,
    },
    /// `scratch` holds rotated keys on their way to a quantised cache.
    Rotate {
        q: ValueId,
        k: ValueId,
        v: ValueId,
        rope: Option<RopeId>,
        cache: CacheLayer,
        out: ValueId,
        scratch: u32,
    },
    Store {
        k: ValueId,
        v: ValueId,
        cache: CacheLayer,
    },
    Weights {
        heads: Vec<Head>,
        positions: u32,
        out: ValueId,
    },
    /// `scratch` holds the parts of rows that are decoded. `raw` is what a rotation just before made `q` of.
    Attend {
        q: ValueId,
        raw: Option<Raw>,
        mask: Mask,
        cache: CacheLayer,
        scale: f32,
        cap: Option<f32>,
        out: ValueId,
        scratch: u32,
    },
    Elements {
        operation: Elements,
        x: ValueId,
        y: ValueId,
        out: ValueId,
    },
    Route {
        logits: ValueId,
        normalize: bool,
        out: ValueId,
    },
    /// `tables` holds the matrices of gates, ups and downs; `scratch` what the experts gave, before and after `down`.
    Experts {
        x: ValueId,
        routes: ValueId,
        experts: Vec<Expert>,
        activation: Activation,
        out: ValueId,
        tables: [u32; 3],
        scratch: [u32; 2],
    },
    Gather {
        x: ValueId,
        out: ValueId,
    },
}

/// Where a value lies in the arena, in floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: u32,
    /// From one row to the next.
    pub(crate) stride: u32,
    pub(crate) width: u32,
}

/// A lowered program.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) nodes: Vec<Node>,
    pub(crate) places: Vec<Place>,
    /// Where the numbers that come with a batch are put.
    pub(crate) input: Option<Place>,
    /// Entries of each group in a slot's block tables.
    pub(crate) entries: usize,
    /// Floats of the arena.
    pub(crate) size: usize,
    /// What must be written to the arena before the first run.
    pub(crate) constants: Vec<(u32, Vec<Matrix>)>,
    /// Thresholds, and the best of each block, for choosing tokens.
    pub(crate) thresholds: u32,
    pub(crate) best: u32,
    /// Counts of what is done of decoded rows' attention: zero before and after it.
    pub(crate) arrivals: u32,
}

/// Lowers a program.
pub(crate) fn lower(
    program: &Program,
    layout: &Layout,
    limits: &Limits,
    kind: KvType,
    chip: &ChipConfig,
) -> Result<Lowered> {
    let mut nodes = fuse(program, layout)?;
    let mut arena = Arena::default();
    let outputs = limits.outputs as usize;
    let thresholds = arena.take(outputs)?;
    let best = arena.take(2 * outputs * chip.blocks as usize)?;
    let heads = nodes.iter().map(|node| match node {
        Node::Attend { q, cache, .. } => {
            program.value(*q).width / program.groups[cache.group.0 as usize].head_dim
        }
        _ => 0,
    });
    let arrivals = arena.take(decode_rows(limits) * heads.max().unwrap_or(0))?;
    let constants =
        nodes.iter_mut().map(|node| node.constants(layout, &mut arena)).collect::<Result<Vec<_>>>()?;
    let constants = constants.into_iter().flatten().collect();
    let mut places = vec![Place::default(); program.values.len()];
    let sizes: Vec<usize> = program
        .values
        .iter()
        .zip(&mut places)
        .map(|(value, place)| {
            let width = if value.element == Element::Route { 2 * value.width } else { value.width };
            let stride = if value.element == Element::Route { width } else { width.next_multiple_of(4) };
            (place.stride, place.width) = (stride as u32, value.width as u32);
            stride * rows_of(value.domain, limits) as usize
        })
        .collect();
    let mut last_read = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        node.values(|id, _| {
            last_read.insert(id, i);
        });
    }
    last_read.insert(program.logits, nodes.len());
    // What comes with a batch is there before the first node.
    let input = program.body.iter().find_map(|op| if let Op::Input { out } = op { Some(*out) } else { None });
    if let Some(id) = input {
        places[id.0 as usize].at = arena.take(sizes[id.0 as usize])?;
    }
    for (i, node) in nodes.iter_mut().enumerate() {
        let (mut written, mut values) = (Vec::new(), Vec::new());
        node.values(|id, writes| if writes { written.push(id) } else { values.push(id) });
        for &id in &written {
            places[id.0 as usize].at = arena.take(sizes[id.0 as usize])?;
        }
        let scratch = node.scratch(program, limits, kind, chip.tensor, &mut arena)?;
        scratch.into_iter().for_each(|(at, floats)| arena.give(at, floats));
        values.extend(written);
        values.sort_unstable();
        values.dedup();
        for id in values.into_iter().filter(|id| last_read[id] == i) {
            arena.give(places[id.0 as usize].at, sizes[id.0 as usize]);
        }
    }
    let (size, entries) = (arena.size, table_entries(program, limits));
    let input = input.map(|id| places[id.0 as usize]);
    Ok(Lowered { nodes, places, input, entries, size, constants, thresholds, best, arrivals })
}

/// The most rows that a value may have.
fn rows_of(domain: Domain, limits: &Limits) -> u32 {
    match domain {
        Domain::Tokens => limits.rows,
        Domain::Outputs => limits.outputs,
        Domain::Frames => FRAMES_PER_TOKEN as u32 * limits.rows,
    }
}

/// Entries of a block table: for a slot's own positions, and for those that another program stored.
fn table_entries(program: &Program, limits: &Limits) -> usize {
    let stored = program.body.iter().map(|op| match op {
        Op::Attend { mask: Mask::Stored(count), .. } | Op::Weights { positions: count, .. } => *count,
        _ => 0,
    });
    stored.fold(limits.context, u32::max).div_ceil(BLOCK as u32) as usize
}

impl Node {
    /// Calls `f` with every value and whether the node writes it.
    fn values(&self, mut f: impl FnMut(ValueId, bool)) {
        match self {
            Node::Embed { out, .. } => f(*out, true),
            Node::Norm { x, residual, out, .. } => {
                f(*x, false);
                residual.iter().for_each(|id| f(*id, false));
                f(*out, true);
            }
            Node::Linear { x, norm, parts, then, .. } => {
                f(*x, norm.is_some());
                norm.iter().for_each(|(_, id)| f(*id, false));
                parts.iter().for_each(|part| f(part.out, true));
                match then {
                    Then::Gate(_, out) => f(*out, true),
                    Then::Add(id) => f(*id, false),
                    Then::Nothing | Then::Cap { .. } => {}
                }
            }
            Node::Rotate { q, k, v, out, .. } => {
                [*q, *k, *v].into_iter().for_each(|id| f(id, false));
                f(*out, true);
            }
            Node::Store { k, v, .. } => [*k, *v].into_iter().for_each(|id| f(id, false)),
            Node::Weights { heads, out, .. } => {
                heads.iter().for_each(|head| f(head.q, false));
                f(*out, true);
            }
            Node::Attend { q, raw, out, .. } => {
                f(*q, false);
                raw.iter().flat_map(|raw| [raw.q, raw.k, raw.v]).for_each(|id| f(id, false));
                f(*out, true);
            }
            Node::Gather { x, out } | Node::Unfold { x, out } | Node::Route { logits: x, out, .. } => {
                f(*x, false);
                f(*out, true);
            }
            Node::Elements { x, y, out, .. } | Node::Experts { x, routes: y, out, .. } => {
                f(*x, false);
                f(*y, false);
                f(*out, true);
            }
        }
    }

    /// What must lie in the arena for good. Taken before any value is placed, so that none ever lies there.
    fn constants(&mut self, layout: &Layout, arena: &mut Arena) -> Result<Vec<(u32, Vec<Matrix>)>> {
        let Node::Experts { experts, tables, .. } = self else { return Ok(Vec::new()) };
        let slices: [fn(&Expert) -> Slice; 3] = [|e| e.gate, |e| e.up, |e| e.down];
        let table = |(table, slice): (&mut u32, fn(&Expert) -> Slice)| {
            let matrices = experts.iter().map(|e| Ok(layout.matrix(slice(e))?.1));
            let matrices = matrices.collect::<Result<Vec<Matrix>>>()?;
            *table = arena.take(matrices.len() * size_of::<Matrix>() / size_of::<f32>())?;
            Ok((*table, matrices))
        };
        tables.iter_mut().zip(slices).map(table).collect()
    }

    /// Takes what room the node needs besides its values; it is free again after the node.
    fn scratch(
        &mut self,
        program: &Program,
        limits: &Limits,
        kind: KvType,
        tensor: bool,
        arena: &mut Arena,
    ) -> Result<Vec<(u32, usize)>> {
        match self {
            Node::Linear { x, scratch, .. } if tensor => {
                let Value { domain, width, .. } = program.value(*x);
                let floats = Halved::new(0, rows_of(domain, limits), width as u32).floats();
                *scratch = arena.take(floats)?;
                Ok(vec![(*scratch, floats)])
            }
            Node::Rotate { k, scratch, .. } if kind == KvType::Q8_0 => {
                let floats = limits.rows as usize * program.value(*k).width.next_multiple_of(4);
                *scratch = arena.take(floats)?;
                Ok(vec![(*scratch, floats)])
            }
            Node::Attend { q, mask, cache, scratch, .. } => {
                let group = &program.groups[cache.group.0 as usize];
                let heads = program.value(*q).width / group.head_dim;
                let parts = attend_parts(*mask, group.window, limits.context);
                let floats = decode_rows(limits) * heads * parts as usize * (group.head_dim + 2);
                *scratch = arena.take(floats)?;
                Ok(vec![(*scratch, floats)])
            }
            Node::Experts { x, routes, experts, scratch, .. } => {
                let rows = limits.rows as usize * program.value(*routes).width;
                let inner = experts.first().map_or(0, |e| e.gate.rows).next_multiple_of(4);
                let hidden = program.value(*x).width.next_multiple_of(4);
                *scratch = [arena.take(rows * inner)?, arena.take(rows * hidden)?];
                Ok(vec![(scratch[0], rows * inner), (scratch[1], rows * hidden)])
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Operations in order, those that go together as one node.
fn fuse(program: &Program, layout: &Layout) -> Result<Vec<Node>> {
    let mut uses = vec![0; program.values.len()];
    for op in &program.body {
        op.reads(|id| uses[id.0 as usize] += 1);
    }
    uses[program.logits.0 as usize] += 1;
    let once = |id: ValueId| uses[id.0 as usize] == 1;
    let (mut nodes, mut at) = (Vec::new(), 0);
    while let Some(op) = program.body.get(at) {
        at += 1;
        let next = program.body.get(at);
        let node = match *op {
            Op::Input { .. } => continue,
            Op::Unfold { x, out } => Node::Unfold { x, out },
            Op::Embed { table, by, scale, out } => Node::Embed { table, by, scale, out },
            Op::Store { k, v, cache } => Node::Store { k, v, cache },
            Op::Weights { ref heads, positions, out } => {
                Node::Weights { heads: heads.clone(), positions, out }
            }
            Op::Norm { x, kind, eps, weight, bias, groups, out } => {
                let norm = Norm { kind, eps, weight, bias, groups };
                match next {
                    Some(Op::Linear { x: input, parts })
                        if *input == out && once(out) && groups == 1 && kind != NormKind::Layer =>
                    {
                        at += 1;
                        let (parts, then) = product(parts, program.body.get(at), &once, layout, &mut at)?;
                        Node::Linear { x: out, norm: Some((norm, x)), parts, then, scratch: 0 }
                    }
                    Some(&Op::Add { x: a, y: b, out: sum })
                        if once(out) && a != b && (a == out || b == out) =>
                    {
                        at += 1;
                        Node::Norm { x, norm, residual: Some(if a == out { b } else { a }), out: sum }
                    }
                    _ => Node::Norm { x, norm, residual: None, out },
                }
            }
            Op::Linear { x, ref parts } => {
                let (parts, then) = product(parts, next, &once, layout, &mut at)?;
                Node::Linear { x, norm: None, parts, then, scratch: 0 }
            }
            Op::RopeKv { q, k, v, rope, cache, out } => {
                Node::Rotate { q, k, v, rope, cache, out, scratch: 0 }
            }
            Op::Attend { q, mask, cache, scale, cap, out } => {
                let raw = match nodes.last() {
                    Some(&Node::Rotate { q: from, k, v, rope, cache: stored, out: turned, .. })
                        if turned == q && once(q) && stored == cache && mask == Mask::Causal =>
                    {
                        Some(Raw { q: from, k, v, rope })
                    }
                    _ => None,
                };
                Node::Attend { q, raw, mask, cache, scale, cap, out, scratch: 0 }
            }
            Op::Gate { gate, up, activation, out } => {
                Node::Elements { operation: Elements::Gate(activation), x: gate, y: up, out }
            }
            Op::Activate { x, activation, out } => {
                Node::Elements { operation: Elements::Activate(activation), x, y: x, out }
            }
            Op::Add { x, y, out } => Node::Elements { operation: Elements::Add, x, y, out },
            Op::Cap { x, scale, cap, out } => {
                Node::Elements { operation: Elements::Cap { scale, cap }, x, y: x, out }
            }
            Op::Route { logits, normalize, out } => Node::Route { logits, normalize, out },
            Op::Experts { x, routes, ref experts, activation, out } => {
                check_experts(experts, layout)?;
                let (tables, scratch) = ([0; 3], [0; 2]);
                Node::Experts { x, routes, experts: experts.clone(), activation, out, tables, scratch }
            }
            Op::Gather { x, out } => Node::Gather { x, out },
        };
        nodes.push(node);
    }
    Ok(nodes)
}

/// A product with what follows it, where the two go together.
fn product(
    parts: &[Part],
    next: Option<&Op>,
    once: &dyn Fn(ValueId) -> bool,
    layout: &Layout,
    at: &mut usize,
) -> Result<(Vec<Part>, Then)> {
    let are_alike =
        |a: &Part, b: &Part| Ok::<_, Error>(layout.matrix(a.weight)?.0 == layout.matrix(b.weight)?.0);
    match (parts, next) {
        ([a, b], Some(&Op::Gate { gate, up, activation, out }))
            if (a.out, b.out) == (gate, up)
                && once(gate)
                && once(up)
                && a.weight.rows == b.weight.rows
                && are_alike(a, b)? =>
        {
            *at += 1;
            Ok((parts.to_vec(), Then::Gate(activation, out)))
        }
        ([part], Some(&Op::Add { x, y, out }))
            if once(part.out) && x != y && (x == part.out || y == part.out) =>
        {
            *at += 1;
            let residual = if x == part.out { y } else { x };
            Ok((vec![Part { out, ..*part }], Then::Add(residual)))
        }
        ([part], Some(&Op::Cap { x, scale, cap, out })) if once(x) && x == part.out => {
            *at += 1;
            Ok((vec![Part { out, ..*part }], Then::Cap { scale, cap }))
        }
        _ => Ok((parts.to_vec(), Then::Nothing)),
    }
}

/// Experts of one layer are multiplied by one kernel: all gates and ups, and all downs, must be stored alike.
fn check_experts(experts: &[Expert], layout: &Layout) -> Result<()> {
    let refuse = |what: &str| {
        let supported = "mixtures whose experts are stored alike".to_owned();
        Err(Error::Unsupported { what: format!("{what} on the GPU"), supported })
    };
    let Some(first) = experts.first() else { return refuse("a mixture of no experts") };
    if experts.len() > 1024 {
        return refuse("a mixture of more than 1024 experts");
    }
    if !first.gate.rows.is_multiple_of(8) || !first.down.rows.is_multiple_of(8) {
        return refuse("a mixture of experts whose widths are no multiples of 8");
    }
    let (up, down) = (layout.matrix(first.gate)?.0, layout.matrix(first.down)?.0);
    for e in experts {
        let kind = |slice| layout.matrix(slice).map(|(kind, _)| kind);
        if (kind(e.gate)?, kind(e.up)?, kind(e.down)?) != (up, up, down) {
            return refuse("a mixture of experts stored in different dtypes");
        }
    }
    Ok(())
}
