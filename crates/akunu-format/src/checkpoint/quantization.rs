//! MLX's quantised checkpoints: which triplets of tensors are one matrix, and with how many bits.
//!
//! `config.json` has an object `quantization` with `bits` and `group_size` for the whole model, `mode`, and members
//! named after modules that differ: an object with the same three, or `false` for one that is not quantised.

use std::borrow::Cow;

use super::config::Config;
use super::json::Json;
use super::safetensors::RawTensor;
use crate::mapped::MappedFile;
use crate::table::{Entry, Span, Stored, StoredAffine};
use crate::{DType, Error, Result, table};

const BITS: [u32; 6] = [2, 3, 4, 5, 6, 8];
const GROUP_SIZES: [usize; 3] = [32, 64, 128];
/// What MLX assumes where an override leaves it open.
const DEFAULT: Grouping = Grouping { bits: 4, group_size: 64 };

/// How a matrix is quantised.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Grouping {
    bits: u32,
    group_size: usize,
}

/// What the configuration says about one module.
#[derive(Clone, Copy, Debug)]
enum Module {
    /// Nothing: as the whole, with the bits its shape gives.
    Unnamed,
    Quantized(Grouping),
    Plain,
}

/// Turns the tensors of a checkpoint, sorted by name, into table entries in file order, each triplet into one.
pub(super) fn assemble(
    config: Option<&Config>,
    files: &[MappedFile],
    tensors: Vec<RawTensor>,
) -> Result<Vec<Entry>> {
    let quantization = match config {
        Some(config) => find_quantization(config)?,
        None => None,
    };
    let mut entries = Vec::with_capacity(tensors.len());
    let mut absorbed = vec![false; tensors.len()];
    if let Some(quantization) = quantization {
        let whole = read_whole(quantization)?;
        let modules = read_modules(quantization, &tensors)?;
        join_triplets(files, &tensors, whole, &modules, &mut entries, &mut absorbed)?;
    }
    let rest = tensors.into_iter().zip(absorbed).filter(|(_, absorbed)| !absorbed);
    entries.extend(rest.map(|(tensor, _)| plain(tensor)));
    entries.sort_unstable_by_key(|entry| {
        let span = entry.stored.span();
        (span.file, span.range.start)
    });
    Ok(entries)
}

/// Adds an entry for each triplet and marks its parts as absorbed.
fn join_triplets(
    files: &[MappedFile],
    tensors: &[RawTensor],
    whole: Grouping,
    modules: &[Module],
    entries: &mut Vec<Entry>,
    absorbed: &mut [bool],
) -> Result<()> {
    for (scales, &module) in modules.iter().enumerate() {
        let Some(base) = tensors[scales].name.strip_suffix(".scales") else { continue };
        let Some(weight) = find(tensors, base, "weight") else { continue };
        let triplet = Triplet { files, weight: &tensors[weight], scales: &tensors[scales] };
        let biases = find(tensors, base, "biases").ok_or_else(|| {
            triplet.malformed(&format!(
                "it has {base}.scales but no {base}.biases, as affine quantisation needs"
            ))
        })?;
        entries.push(triplet.entry(&tensors[biases], whole, module)?);
        for part in [weight, scales, biases] {
            absorbed[part] = true;
        }
    }
    Ok(())
}

/// MLX's own object. What other quantisers leave under `quantization_config` is refused by its name.
fn find_quantization(config: &Config) -> Result<Option<Json<'_>>> {
    if let Some(quantization) = config.find("quantization")? {
        return Ok(Some(quantization));
    }
    let Some(quantization) = config.find("quantization_config")? else { return Ok(None) };
    match quantization.member("quantization_config", "quant_method")? {
        None => Ok(Some(quantization)),
        Some(method) => {
            let method: Cow<'_, str> = method.parse("quant_method")?;
            Err(Error::unsupported(
                config.path(),
                format!("the quantisation method \"{method}\""),
                "MLX's affine quantisation is read",
            ))
        }
    }
}

fn read_whole(json: Json<'_>) -> Result<Grouping> {
    let no_key = |key: &str| Error::NoKey { path: json.path.to_owned(), key: format!("quantization.{key}") };
    check_mode("quantization", json)?;
    Ok(Grouping {
        bits: read_bits("quantization", json)?.ok_or_else(|| no_key("bits"))?,
        group_size: read_group_size("quantization", json)?.ok_or_else(|| no_key("group_size"))?,
    })
}

/// What the configuration says of each tensor that is some module's `scales`.
fn read_modules(json: Json<'_>, tensors: &[RawTensor]) -> Result<Vec<Module>> {
    let mut modules = vec![Module::Unnamed; tensors.len()];
    json.for_each_member("quantization", &mut |name, value| {
        // Members that name no quantised module of this checkpoint decide nothing.
        let Some(scales) = find(tensors, &name, "scales") else { return Ok(()) };
        let field = format!("quantization \"{name}\"");
        modules[scales] = if value.begins_with('{') {
            check_mode(&field, value)?;
            Module::Quantized(Grouping {
                bits: read_bits(&field, value)?.unwrap_or(DEFAULT.bits),
                group_size: read_group_size(&field, value)?.unwrap_or(DEFAULT.group_size),
            })
        } else if value.parse(&field)? {
            Module::Unnamed
        } else {
            Module::Plain
        };
        Ok(())
    })?;
    Ok(modules)
}

fn check_mode(field: &str, json: Json<'_>) -> Result<()> {
    let Some(mode) = json.member(field, "mode")? else { return Ok(()) };
    let mode: Cow<'_, str> = mode.parse(&format!("{field}: mode"))?;
    if mode == "affine" {
        return Ok(());
    }
    let what = format!("{field}: the quantisation mode \"{mode}\"");
    Err(Error::unsupported(json.path, what, "MLX's \"affine\" is read"))
}

fn read_bits(field: &str, json: Json<'_>) -> Result<Option<u32>> {
    let Some(value) = json.member(field, "bits")? else { return Ok(None) };
    let field = format!("{field}: bits");
    let bits = value.parse(&field)?;
    if BITS.contains(&bits) {
        return Ok(Some(bits));
    }
    Err(value.malformed(&field, format!("{bits} is not one of {BITS:?}")))
}

fn read_group_size(field: &str, json: Json<'_>) -> Result<Option<usize>> {
    let Some(value) = json.member(field, "group_size")? else { return Ok(None) };
    let field = format!("{field}: group_size");
    let group_size = value.parse(&field)?;
    if GROUP_SIZES.contains(&group_size) {
        return Ok(Some(group_size));
    }
    Err(value.malformed(&field, format!("{group_size} is not one of {GROUP_SIZES:?}")))
}

/// The position of `base.part`.
fn find(tensors: &[RawTensor], base: &str, part: &str) -> Option<usize> {
    let name = format!("{base}.{part}");
    tensors.binary_search_by(|tensor| tensor.name.as_ref().cmp(&name)).ok()
}

/// A tensor that is nothing more than it says.
fn plain(tensor: RawTensor) -> Entry {
    let bytes = Span { file: tensor.file, range: tensor.range };
    let stored = match tensor.element_type.dtype {
        Some(dtype) => Stored::Blocks { dtype, bytes },
        None => Stored::Opaque { dtype: tensor.element_type.name, bytes },
    };
    Entry { name: tensor.name, shape: tensor.shape, stored }
}

/// The codes and scales of one matrix.
struct Triplet<'a> {
    files: &'a [MappedFile],
    /// U32, `[.., rows, row_len * bits / 32]`.
    weight: &'a RawTensor,
    /// F16, BF16 or F32, `[.., rows, row_len / group_size]`.
    scales: &'a RawTensor,
}

impl Triplet<'_> {
    fn entry(&self, biases: &RawTensor, whole: Grouping, module: Module) -> Result<Entry> {
        let (weight, scales) = (self.weight, self.scales);
        if weight.element_type.name != "U32" {
            let problem = format!("it has scales, but holds {} instead of U32", weight.element_type.name);
            return Err(self.malformed(&problem));
        }
        let Some(scale_dtype @ (DType::F16 | DType::BF16 | DType::F32)) = scales.element_type.dtype else {
            let problem = format!("its scales are {}, not F16, BF16 or F32", scales.element_type.name);
            return Err(self.malformed(&problem));
        };
        if (biases.element_type, &biases.shape) != (scales.element_type, &scales.shape) {
            return Err(self.malformed("its scales and biases differ in dtype or shape"));
        }
        let (Some((words, outer)), Some((groups, scales_outer))) =
            (weight.shape.split_last(), scales.shape.split_last())
        else {
            return Err(self.malformed("a quantised matrix needs a dimension"));
        };
        if outer != scales_outer {
            return Err(self.malformed(&format!("its scales have the shape {:?}", scales.shape)));
        }
        let Grouping { bits, group_size } = self.grouping(*words, *groups, whole, module)?;
        let row_len = groups.checked_mul(group_size);
        let shape: Box<[usize]> = outer.iter().copied().chain(row_len).collect();
        // Too large is only possible where another dimension is zero.
        if row_len.is_none() || table::element_count(&shape).is_none() {
            return Err(self.malformed("the number of elements does not fit 64 bits"));
        }
        let span = |tensor: &RawTensor| Span { file: tensor.file, range: tensor.range.clone() };
        let stored = StoredAffine {
            bits,
            group_size,
            scale_dtype,
            codes: span(weight),
            scales: span(scales),
            biases: span(biases),
        };
        Ok(Entry { name: weight.name.clone(), shape, stored: Stored::Affine(Box::new(stored)) })
    }

    /// Settles bits and group size from the configuration and from what the shapes allow.
    fn grouping(&self, words: usize, groups: usize, whole: Grouping, module: Module) -> Result<Grouping> {
        let group_size = match module {
            Module::Unnamed => whole.group_size,
            Module::Quantized(grouping) => grouping.group_size,
            Module::Plain => {
                return Err(self.malformed("the configuration says it is not quantised, but it has scales"));
            }
        };
        let stored_bits = BITS.into_iter().find(|&bits| {
            let bits = u128::from(bits) * groups as u128 * group_size as u128;
            bits == words as u128 * 32
        });
        let Some(bits) = stored_bits else {
            let problem = format!(
                "{words} words for {groups} groups of {group_size} are none of {BITS:?} bits: the configuration's \
                 group size is wrong"
            );
            return Err(self.malformed(&problem));
        };
        match module {
            Module::Quantized(named) if named.bits != bits => {
                let problem = format!("the configuration says {} bits, its shape {bits}", named.bits);
                Err(self.malformed(&problem))
            }
            _ => Ok(Grouping { bits, group_size }),
        }
    }

    fn malformed(&self, problem: &str) -> Error {
        let RawTensor { name, file, described_at, shape, .. } = self.weight;
        let field = format!("tensor \"{name}\" {shape:?}");
        Error::malformed(self.files[*file].path(), field, *described_at, problem)
    }
}
