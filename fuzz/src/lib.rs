//! What the fuzz targets share.

use akunu_format::{Error, Tensor};

/// Tensors with more elements than this are not turned into floats, to keep executions short.
const MAX_ELEMENTS: usize = 1 << 16;

/// Reads all that can be read of some tensors.
pub fn read_tensors<'a>(tensors: impl Iterator<Item = Tensor<'a>>) {
    for tensor in tensors {
        assert_eq!(tensor.rows() * tensor.row_len(), tensor.len());
        if tensor.len() <= MAX_ELEMENTS {
            match tensor.to_f32() {
                Ok(values) => assert_eq!(values.len(), tensor.len()),
                Err(Error::NoConversion { .. } | Error::OpaqueValues { .. }) => {}
                Err(error) => panic!("{}: {error}", tensor.name),
            }
        }
    }
}
