//! The weights of a model, on the device.

use std::ops::Range;
use std::sync::Arc;

use akunu_format::{Data, Mapping, Tensor};
use akunu_program::program::{Slice, WeightUse};
use akunu_program::{Error, Result, TensorSource, Weights};

use crate::form::{Form, Planes};
use crate::host::{Bind, Host};
use crate::params::{Matrix, NONE};
use crate::upload::{PIECE, Piece, upload};

/// Planes begin at multiples of so many bytes; their offsets are counted in them.
const UNIT: usize = 16;

/// A file is used where it lies when so many of its bytes are, in sixteenths: the device keeps all of it in memory.
const USED_IN_PLACE: usize = 12;

/// How a matrix is stored, and in which buffer: kernels take matrices together that are stored alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) form: Form,
    pub(crate) bind: Bind,
}

/// Where one weight lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) kind: Kind,
    pub(crate) matrix: Matrix,
    pub(crate) rows: usize,
    /// F32, for norms and biases; [`NONE`] when it is not used as a vector.
    pub(crate) vector: u32,
}

/// Where all weights lie, and how many bytes they take.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) placed: Vec<Placed>,
    pub(crate) units: usize,
}

/// The weights of a model: in a buffer of planes, and in the model's file.
pub(crate) struct GpuWeights<H: Host> {
    pub(crate) layout: Layout,
    pub(crate) buffer: H::Buffer,
    /// Where [`Bind::File`] is used.
    pub(crate) file: Option<H::Buffer>,
}

impl<H: Host> Weights for GpuWeights<H> {}

impl<H: Host> GpuWeights<H> {
    /// Uploads the weights piece by piece, so that the host never holds a second copy of more than a few.
    pub(crate) fn load(
        host: &H,
        source: &dyn TensorSource,
        uses: &[WeightUse],
    ) -> Result<Arc<GpuWeights<H>>> {
        let adopted = match usable_file(source, uses)? {
            Some(file) => host.adopt(file)?.map(|buffer| (file, buffer)),
            None => None,
        };
        let (mut layout, mut tensors) = (Layout::default(), Vec::with_capacity(uses.len()));
        for used in uses {
            let tensor = checked(source, used)?;
            let in_place = adopted.as_ref().and_then(|(file, _)| place_in(file, &tensor));
            layout.place(used, &tensor, in_place)?;
            tensors.push(tensor);
        }
        let buffer = host.allocate(layout.units * UNIT)?;
        let (mut pieces, mut parts) = (Vec::new(), Vec::new());
        for (number, (placed, tensor)) in layout.placed.iter().zip(&tensors).enumerate() {
            for (piece, content) in placed.pieces(tensor) {
                pieces.push(piece);
                parts.push((number, content));
            }
        }
        // Pieces that are not sent yet, of each weight.
        let mut left = vec![0; uses.len()];
        parts.iter().for_each(|(number, _)| left[*number] += 1);
        let (mut done, total) = (0, pieces.iter().map(Piece::bytes).sum::<usize>() as u64);
        let fill = |piece: usize, out: &mut [u8]| {
            let (number, content) = &parts[piece];
            content.write(&uses[*number].name, &tensors[*number], &pieces[piece], out)
        };
        upload(host, &buffer, &pieces, &fill, &mut |piece| {
            let number = parts[piece].0;
            left[number] -= 1;
            if left[number] == 0 && layout.placed[number].kind.bind == Bind::Weights {
                source.release(&uses[number].name);
            }
            done += pieces[piece].bytes() as u64;
            source.loaded(done, total)
        })?;
        Ok(Arc::new(GpuWeights { layout, buffer, file: adopted.map(|(_, buffer)| buffer) }))
    }
}

/// What a piece is made of.
enum Content {
    /// Rows of a matrix, as planes.
    Rows(Range<usize>),
    /// All numbers, as F32.
    Vector,
}

impl Content {
    fn write(&self, name: &str, tensor: &Tensor<'_>, piece: &Piece, out: &mut [u8]) -> Result<()> {
        match self {
            Content::Rows(rows) => {
                let planes = Planes::new(out, piece.ranges.map(|(_, bytes)| bytes));
                Form::of(tensor).cut(tensor, rows.clone(), planes)
            }
            Content::Vector => {
                let values = tensor.to_f32()?;
                if let Some(bad) = values.iter().position(|v| !v.is_finite()) {
                    let row = bad / tensor.row_len().max(1);
                    return Err(Error::NotFinite { name: name.to_owned(), row });
                }
                out.copy_from_slice(bytemuck::cast_slice(&values));
                Ok(())
            }
        }
    }
}

impl Placed {
    /// What is uploaded of a weight.
    fn pieces(&self, tensor: &Tensor<'_>) -> Vec<(Piece, Content)> {
        let mut pieces = Vec::new();
        let m = &self.matrix;
        if m.low != NONE && self.kind.bind == Bind::Weights {
            let starts = [m.low, m.high, m.scale, m.super_scale].map(|at| at as usize * UNIT);
            // Planes are cut where rows are.
            let row = plane_bytes(self.kind.form, tensor, m.eights as usize);
            let together = (PIECE / row.iter().sum::<usize>().max(1)).max(1);
            for first in (0..self.rows).step_by(together) {
                let rows = first..self.rows.min(first + together);
                let range = |i: usize| (starts[i] + first * row[i], rows.len() * row[i]);
                pieces.push((Piece { ranges: [0, 1, 2, 3].map(range) }, Content::Rows(rows)));
            }
        }
        if self.vector != NONE {
            let (at, bytes) = (self.vector as usize * UNIT, tensor.len() * size_of::<f32>());
            pieces.push((Piece { ranges: [(at, bytes), (at, 0), (at, 0), (at, 0)] }, Content::Vector));
        }
        pieces
    }
}

/// The file that weights can be used in where they lie: it is mapped, holds all matrices that are numbers, each where kernels can read
/// it, and little else.
fn usable_file<'a>(source: &'a dyn TensorSource, uses: &[WeightUse]) -> Result<Option<&'a Mapping>> {
    let (mut file, mut in_place) = (None::<&Mapping>, 0);
    for used in uses.iter().filter(|used| used.role.is_matrix()) {
        let tensor = checked(source, used)?;
        let Some(bytes) = Form::of(&tensor).plane_of(&tensor) else { continue };
        let Some(mapping) = source.mapping(&used.name) else { return Ok(None) };
        let is_same = file.is_none_or(|file| std::ptr::eq(file.bytes(), mapping.bytes()));
        if !is_same || place_in(mapping, &tensor).is_none() {
            return Ok(None);
        }
        file = Some(mapping);
        in_place += bytes.len();
    }
    Ok(file.filter(|file| 16 * in_place >= USED_IN_PLACE * file.bytes().len()))
}

/// Where in a file a tensor lies as a plane, in units.
fn place_in(file: &Mapping, tensor: &Tensor<'_>) -> Option<u32> {
    let bytes = Form::of(tensor).plane_of(tensor)?;
    let at = bytes.as_ptr().addr().checked_sub(file.bytes().as_ptr().addr())?;
    let is_inside = at.checked_add(bytes.len()).is_some_and(|end| end <= file.bytes().len());
    if is_inside && at.is_multiple_of(UNIT) { u32::try_from(at / UNIT).ok() } else { None }
}

fn checked<'a>(source: &'a dyn TensorSource, used: &WeightUse) -> Result<Tensor<'a>> {
    let tensor = source.find(&used.name).ok_or_else(|| Error::NoWeight(used.name.clone()))?;
    if tensor.len() != used.rows * used.cols || tensor.row_len() != used.cols {
        let (actual, expected) = (tensor.shape.to_vec(), vec![used.rows, used.cols]);
        return Err(Error::Shape { name: used.name.clone(), actual, expected });
    }
    Ok(tensor)
}

impl Layout {
    /// Finds room for a weight; for its matrix only where that is not used where it lies in the file, from so many units on.
    pub(crate) fn place(
        &mut self,
        used: &WeightUse,
        tensor: &Tensor<'_>,
        in_place: Option<u32>,
    ) -> Result<()> {
        let form = Form::of(tensor);
        let is_matrix = used.role.is_matrix();
        let in_place = in_place.filter(|_| is_matrix);
        let bind = if in_place.is_some() { Bind::File } else { Bind::Weights };
        let (mut matrix, mut vector) = (Matrix { low: NONE, ..Matrix::default() }, NONE);
        let eights = used.cols.div_ceil(8);
        if is_matrix {
            let count = used.rows * eights;
            let bytes = if in_place.is_some() { [0; 4] } else { plane_bytes(form, tensor, count) };
            matrix = Matrix {
                low: in_place.map_or_else(|| self.take(bytes[0]), Ok)?,
                high: self.take(bytes[1])?,
                scale: self.take(bytes[2])?,
                super_scale: self.take(bytes[3])?,
                first: 0,
                eights: eights as u32,
                shift: if let Data::Affine(a) = tensor.data { (a.group_size / 8).ilog2() } else { 0 },
                pad: 0,
            };
            if u32::try_from(count).is_err() {
                return Err(Error::Batch(format!("tensor \"{}\" is too large for this backend", used.name)));
            }
        }
        if used.role.vector {
            vector = self.take(used.rows * used.cols * size_of::<f32>())?;
        }
        self.placed.push(Placed { kind: Kind { form, bind }, matrix, rows: used.rows, vector });
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<u32> {
        let at = self.units;
        self.units += bytes.div_ceil(UNIT);
        u32::try_from(at).map_err(|_| Error::Batch("the weights take more than 64 GiB".into()))
    }

    /// The matrix a slice is of, and how it is stored.
    pub(crate) fn matrix(&self, slice: Slice) -> Result<(Kind, Matrix)> {
        let placed = self.placed.get(slice.weight.0 as usize);
        let placed = placed.filter(|p| p.matrix.low != NONE && slice.first + slice.rows <= p.rows);
        let placed = placed
            .ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a matrix", slice.weight.0)))?;
        Ok((placed.kind, Matrix { first: slice.first as u32, ..placed.matrix }))
    }

    /// Where a norm's weight or a bias lies.
    pub(crate) fn vector(&self, slice: Slice) -> Result<u32> {
        let vector = self.placed.get(slice.weight.0 as usize).map(|p| p.vector).filter(|v| *v != NONE);
        vector.ok_or_else(|| Error::Batch(format!("weight {} is not loaded as a vector", slice.weight.0)))
    }
}

/// Bytes of the four planes of so many groups of eight.
pub(crate) fn plane_bytes(form: Form, tensor: &Tensor<'_>, eights: usize) -> [usize; 4] {
    use akunu_format::DType as D;
    match form {
        Form::F32 => [32 * eights, 0, 0, 0],
        Form::F16 | Form::BF16 => [16 * eights, 0, 0, 0],
        Form::Affine(bits) => {
            let group = if let Data::Affine(a) = tensor.data { a.group_size / 8 } else { 1 };
            let high = high_bits(bits) as usize;
            [(bits as usize - high) * eights, high * eights, 8 * eights / group, 0]
        }
        Form::Quantised(dtype) => {
            let (bits, scale, super_scale) = match dtype {
                D::Q4_0 | D::IQ4_NL => (4, eights / 4 * 2, 0),
                D::Q4_1 => (4, eights / 4 * 4, 0),
                D::Q5_0 => (5, eights / 4 * 2, 0),
                D::Q5_1 => (5, eights / 4 * 4, 0),
                D::Q8_0 => (8, eights / 4 * 2, 0),
                D::Q2_K => (2, eights / 2 * 2, eights / 32 * 4),
                D::Q3_K => (3, eights / 2, eights / 32 * 2),
                D::Q4_K => (4, eights / 4 * 2, eights / 32 * 4),
                D::Q5_K => (5, eights / 4 * 2, eights / 32 * 4),
                _ => (6, eights / 2, eights / 32 * 2),
            };
            let high = high_bits(bits) as usize;
            [(bits as usize - high) * eights, high * eights, scale, super_scale]
        }
    }
}

/// Bits of a code that lie in a plane of their own.
fn high_bits(bits: u32) -> u32 {
    match bits {
        3 | 5 => 1,
        6 => 2,
        _ => 0,
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;
    use std::ops::ControlFlow;

    use akunu_format::ModelFile;
    use akunu_program::arch::Architecture;
    use akunu_program::build;

    use super::*;
    use crate::{Emulator, Schedule};

    fn loaded(folder: &str) -> (ModelFile, Vec<WeightUse>, Arc<GpuWeights<Emulator>>) {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../akunu-program/tests/fixtures");
        let file = ModelFile::open(format!("{fixtures}/{folder}")).unwrap();
        let (arch, names) = Architecture::of(&file).unwrap();
        let uses = build(&arch, &names, &file, 64).unwrap().weights;
        let weights = GpuWeights::load(&Emulator::new(Schedule::InTurn), &file, &uses).unwrap();
        (file, uses, weights)
    }

    #[test]
    fn matrices_of_halves_are_used_where_they_lie_in_the_file() {
        let (file, uses, weights) = loaded("tiny/llama-f16/model.gguf");
        let host = Emulator::new(Schedule::InTurn);
        let mut in_place = 0;
        for (used, placed) in uses.iter().zip(&weights.layout.placed) {
            let tensor = file.get_tensor(&used.name).unwrap();
            // Rows of 52 are padded, so they are copied; norms are vectors.
            let is_whole = placed.matrix.low != NONE && used.cols.is_multiple_of(8);
            assert_eq!(placed.kind.bind == Bind::File, is_whole, "{}", used.name);
            if let (true, Data::Blocks { bytes, .. }) = (is_whole, tensor.data) {
                let mut found = vec![0; bytes.len()];
                let buffer = weights.file.as_ref().unwrap();
                host.read(buffer, placed.matrix.low as usize * UNIT, &mut found).unwrap();
                assert_eq!(found, bytes, "{}", used.name);
                in_place += bytes.len();
            }
        }
        assert!(in_place > 40_000 && weights.layout.units * UNIT < 20_000);
        // The buffer keeps the file.
        drop(file);
        assert!(host.read(weights.file.as_ref().unwrap(), 0, &mut [0; 4]).is_ok());
    }

    /// A file that is told what happens.
    struct Told<'a> {
        file: &'a ModelFile,
        loaded: RefCell<Vec<(u64, u64)>>,
        released: RefCell<Vec<String>>,
    }

    impl TensorSource for Told<'_> {
        fn find(&self, name: &str) -> Option<Tensor<'_>> {
            self.file.find(name)
        }

        fn release(&self, name: &str) {
            self.released.borrow_mut().push(name.to_owned());
        }

        fn loaded(&self, done: u64, total: u64) -> ControlFlow<()> {
            self.loaded.borrow_mut().push((done, total));
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn the_source_is_told_how_far_loading_is() {
        let (file, uses, _) = loaded("tiny/llama/model.gguf");
        let told = Told { file: &file, loaded: RefCell::default(), released: RefCell::default() };
        let weights = GpuWeights::load(&Emulator::new(Schedule::InTurn), &told, &uses).unwrap();
        let (loaded, mut released) = (told.loaded.into_inner(), told.released.into_inner());
        let (done, total) = *loaded.last().unwrap();
        assert!(loaded.is_sorted() && done == total && loaded.len() >= uses.len());
        // Planes begin at whole units.
        let bytes = (weights.layout.units * UNIT) as u64;
        assert!(total <= bytes && total + (4 * UNIT * uses.len()) as u64 > bytes);
        let mut names: Vec<&str> = uses.iter().map(|used| used.name.as_str()).collect();
        names.sort_unstable();
        released.sort_unstable();
        assert_eq!(released, names);
    }

    #[test]
    fn numbers_that_are_none_are_found_while_loading() {
        struct Bad<'a>(&'a ModelFile);
        impl TensorSource for Bad<'_> {
            fn find(&self, name: &str) -> Option<Tensor<'_>> {
                const NAN: [u8; 4096] = [0xFF; 4096];
                let mut tensor = self.0.find(name)?;
                if name.contains("attn_norm") {
                    let bytes = &NAN[..4 * tensor.len()];
                    tensor.data = Data::Blocks { dtype: akunu_format::DType::F32, bytes };
                }
                Some(tensor)
            }
        }
        let (file, uses, _) = loaded("tiny/llama/model.gguf");
        let result = GpuWeights::load(&Emulator::new(Schedule::InTurn), &Bad(&file), &uses);
        assert!(matches!(result.err(), Some(Error::NotFinite { name, .. }) if name.contains("attn_norm")));
    }

    #[test]
    fn files_that_are_mostly_something_else_are_copied() {
        let (_, _, weights) = loaded("mlx/llama-4bit");
        assert!(weights.file.is_none());
        assert!(weights.layout.placed.iter().all(|placed| placed.kind.bind == Bind::Weights));
    }
}
