//! SafeTensors directories against what `transformers`, `mlx` and `mlx-lm` write and read
//! (`scripts/oracle/checkpoints.py`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::checkpoint::{Checkpoint, Config};
use akunu_format::{DType, Data, Error};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Deserialize;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoint").join(name)
}

fn expected<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap()
}

#[derive(Deserialize)]
struct ExpectedTensor {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    bytes: String,
}

#[test]
fn reads_a_sharded_directory_as_torch_does() {
    let checkpoint = Checkpoint::open(fixture("sharded")).unwrap();
    assert_eq!(checkpoint.files().len(), 4);
    let expected: Vec<ExpectedTensor> = expected("sharded.json");
    assert_eq!(checkpoint.tensors().len(), expected.len());
    for expected in expected {
        let tensor = checkpoint.tensor(&expected.name).unwrap();
        assert_eq!((tensor.shape, &*tensor.dtype_name()), (&*expected.shape, &*expected.dtype));
        let Data::Blocks { dtype: DType::BF16, bytes } = tensor.data else { panic!("{:?}", tensor.data) };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.bytes);
    }
}

#[test]
fn gives_the_configuration_files() {
    let checkpoint = Checkpoint::open(fixture("sharded")).unwrap();
    let config = checkpoint.config().unwrap();
    assert_eq!(config.require::<&str>("model_type").unwrap(), "llama");
    assert_eq!(config.require::<u32>("num_hidden_layers").unwrap(), 2);
    assert_eq!(config.get::<u32>("pad_token_id").unwrap(), None);
    let generation = checkpoint.generation_config().unwrap();
    assert_eq!(generation.require::<u32>("eos_token_id").unwrap(), 2);
    assert_eq!(checkpoint.companion("tokenizer.json"), None);
    assert_eq!(checkpoint.companion("config.json"), Some(fixture("sharded").join("config.json")));
}

#[test]
fn a_single_file_opens_like_its_directory() {
    let whole = Checkpoint::open(fixture("mixed")).unwrap();
    let single = Checkpoint::open(fixture("mixed").join("model.safetensors")).unwrap();
    let list = |checkpoint: &Checkpoint| -> Vec<(String, Vec<usize>, String)> {
        let tensors = checkpoint.tensors();
        tensors.map(|t| (t.name.to_owned(), t.shape.to_vec(), t.dtype_name().into_owned())).collect()
    };
    assert_eq!(list(&whole), list(&single));
}

#[test]
fn dequantises_every_affine_format_exactly_as_mlx_does() {
    let checkpoint = Checkpoint::open(fixture("affine")).unwrap();
    let mut compared = 0;
    for bits in [2, 3, 4, 5, 6, 8] {
        for group_size in [32, 64, 128] {
            for (name, dtype) in [("f16", DType::F16), ("bf16", DType::BF16), ("f32", DType::F32)] {
                let module = format!("b{bits}.g{group_size}.{name}");
                let tensor = checkpoint.tensor(&format!("{module}.weight")).unwrap();
                let Data::Affine(affine) = tensor.data else { panic!("{module} is not quantised") };
                assert_eq!((affine.bits, affine.group_size, affine.scale_dtype), (bits, group_size, dtype));
                assert_eq!(tensor.shape, [2, 128]);
                let expected = checkpoint.tensor(&format!("{module}.expected")).unwrap().to_f32().unwrap();
                assert_eq!(tensor.to_f32().unwrap(), expected, "{module}");
                let mut second_row = [0.0; 128];
                tensor.dequantize_rows(1..2, &mut second_row).unwrap();
                assert_eq!(second_row, expected[128..]);
                compared += 1;
            }
        }
    }
    // Each matrix and its expected values, and nothing else: scales and biases have been absorbed.
    assert_eq!(checkpoint.tensors().len(), 2 * compared);
}

#[derive(Deserialize)]
struct ExpectedMatrix {
    name: String,
    bits: u32,
    group_size: usize,
    shape: Vec<usize>,
}

#[test]
fn finds_the_choice_of_each_module() {
    let checkpoint = Checkpoint::open(fixture("mixed")).unwrap();
    let matrices: Vec<ExpectedMatrix> = expected("mixed.json");
    let quantised = checkpoint.tensors().filter(|tensor| matches!(tensor.data, Data::Affine(_)));
    assert_eq!(quantised.count(), matrices.len());
    for expected in matrices {
        let tensor = checkpoint.tensor(&expected.name).unwrap();
        let Data::Affine(affine) = tensor.data else { panic!("{} is not quantised", expected.name) };
        assert_eq!((affine.bits, affine.group_size), (expected.bits, expected.group_size));
        assert_eq!(tensor.shape, expected.shape);
        assert_eq!(tensor.byte_len(), affine.byte_len());
    }
    let plain = checkpoint.tensor("model.layers.0.self_attn.v_proj.weight").unwrap();
    assert!(matches!(plain.data, Data::Blocks { dtype: DType::BF16, .. }));
}

/// The mixed checkpoint with another `config.json`.
fn open_mixed(config: &str) -> Result<Checkpoint, Error> {
    let weights = fs::read(fixture("mixed").join("model.safetensors")).unwrap();
    Checkpoint::from_bytes(weights, Some(Config::from_json(config)?))
}

fn assert_refused(result: Result<Checkpoint, Error>, parts: &[&str]) {
    let message = result.unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "\"{part}\" is not in \"{message}\"");
    }
}

const O_PROJ: &str = "model.layers.0.self_attn.o_proj";
const EMBED: &str = r#""model.embed_tokens": {"bits": 6}"#;

#[test]
fn modules_that_are_not_named_take_their_bits_from_the_shape() {
    // o_proj has 3 bits, which nothing here says.
    let config = format!(r#"{{"quantization": {{"bits": 4, "group_size": 32, {EMBED}}}}}"#);
    let checkpoint = open_mixed(&config).unwrap();
    let Data::Affine(affine) = checkpoint.tensor(&format!("{O_PROJ}.weight")).unwrap().data else { panic!() };
    assert_eq!(affine.bits, 3);
}

#[test]
fn quantisation_that_cannot_be_right_is_refused() {
    let with = |members: &str| {
        open_mixed(&format!(r#"{{"quantization": {{"bits": 4, "group_size": 32, {EMBED}{members}}}}}"#))
    };
    assert!(with("").is_ok());
    assert_refused(
        with(&format!(r#", "{O_PROJ}": {{"bits": 5, "group_size": 32}}"#)),
        &["says 5 bits, its shape 3"],
    );
    assert_refused(with(&format!(r#", "{O_PROJ}": {{"bits": 3}}"#)), &["group size is wrong"]);
    assert_refused(with(&format!(r#", "{O_PROJ}": false"#)), &[O_PROJ, "not quantised, but it has scales"]);
    assert_refused(with(&format!(r#", "{O_PROJ}": 3"#)), &["expected a boolean", " at byte "]);
    assert_refused(
        with(&format!(r#", "{O_PROJ}": {{"mode": "mxfp4"}}"#)),
        &["mode \"mxfp4\" is not supported", O_PROJ],
    );
    assert_refused(with(r#", "mode": "nvfp4""#), &["mode \"nvfp4\" is not supported"]);
    assert!(with(r#", "mode": "affine", "some.other.module": {"bits": 77}"#).is_ok());
    assert_refused(open_mixed(r#"{"quantization": {"group_size": 32}}"#), &["quantization.bits", "missing"]);
    assert_refused(
        open_mixed(r#"{"quantization": {"bits": 7, "group_size": 32}}"#),
        &["bits", "7 is not one of"],
    );
    assert_refused(open_mixed(r#"{"quantization": {"bits": 4, "group_size": 16}}"#), &["16 is not one of"]);
    assert_refused(open_mixed(r#"{"quantization": []}"#), &["expected an object"]);
    assert_refused(
        open_mixed(r#"{"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "gptq"}}"#),
        &["method \"gptq\" is not supported"],
    );
}

#[test]
fn without_a_quantisation_packed_words_stay_what_they_are() {
    let checkpoint = open_mixed("{}").unwrap();
    let tensor = checkpoint.tensor("lm_head.weight").unwrap();
    assert!(matches!(tensor.data, Data::Opaque { dtype: "U32", .. }));
    assert!(tensor.to_f32().unwrap_err().to_string().contains("U32 values cannot be read"));
}

#[test]
fn agrees_with_the_safetensors_crate_on_every_dtype() {
    let bytes: Vec<u8> = (0..192).collect();
    let dtypes = [
        Dtype::BOOL,
        Dtype::U8,
        Dtype::I8,
        Dtype::F8_E5M2,
        Dtype::F8_E4M3,
        Dtype::F8_E8M0,
        Dtype::F8_E4M3FNUZ,
        Dtype::F8_E5M2FNUZ,
        Dtype::F4,
        Dtype::F6_E2M3,
        Dtype::F6_E3M2,
        Dtype::I16,
        Dtype::U16,
        Dtype::F16,
        Dtype::BF16,
        Dtype::I32,
        Dtype::U32,
        Dtype::F32,
        Dtype::C64,
        Dtype::F64,
        Dtype::I64,
        Dtype::U64,
    ];
    let views = dtypes.map(|dtype| {
        let view = TensorView::new(dtype, vec![2, 3, 4], &bytes[..24 * dtype.bitsize() / 8]).unwrap();
        (format!("tensor of {dtype}"), view)
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let file = safetensors::serialize(views, Some(metadata)).unwrap();
    let theirs = SafeTensors::deserialize(&file).unwrap();
    let ours = Checkpoint::from_bytes(file.clone(), None).unwrap();
    assert_eq!(ours.tensors().len(), dtypes.len());
    for (name, view) in theirs.tensors() {
        let tensor = ours.tensor(&name).unwrap();
        assert_eq!((tensor.shape, &*tensor.dtype_name()), (view.shape(), &*view.dtype().to_string()));
        let (Data::Blocks { bytes, .. } | Data::Opaque { bytes, .. }) = tensor.data else { panic!("{name}") };
        assert_eq!(bytes, view.data());
    }
}

/// A SafeTensors file with this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn headers_that_cannot_be_right_are_refused() {
    let open = |header: &str, data: usize| Checkpoint::from_bytes(file(header, data), None);
    let one = |dtype: &str, shape: &str, offsets: &str| {
        open(&format!(r#"{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#), 8)
    };
    assert!(one("F32", "[2]", "[0, 8]").is_ok());
    assert_refused(one("F31", "[2]", "[0, 8]"), &["tensor \"a\" at byte 14", "dtype \"F31\" is unknown"]);
    assert_refused(one("F32", "[3]", "[0, 8]"), &["hold 8 bytes, but F32 [3] takes 12"]);
    assert_refused(one("F32", "[2]", "[0, 9]"), &["do not lie within the 8 bytes"]);
    assert_refused(one("F32", "[2]", "[8, 0]"), &["do not lie within"]);
    assert_refused(one("F32", "[1]", "[0, 4]"), &["4 bytes at the end belong to no tensor"]);
    assert_refused(one("F32", "[1]", "[4, 8]"), &["4 bytes before its data belong to no tensor"]);
    assert_refused(one("F32", "[4294967296, 4294967296]", "[0, 8]"), &["no size in whole bytes"]);
    assert_refused(one("F32", "[0, 4294967296, 4294967296]", "[0, 0]"), &["no size in whole bytes"]);
    assert_refused(one("F4", "[3]", "[0, 1]"), &["no size in whole bytes"]);
    assert_refused(one("F32", "[-2]", "[0, 8]"), &["invalid value"]);
    assert_refused(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0, 8]"), &["at most 8 dimensions"]);
    assert_refused(one("F32", "[2]", "[0, 18446744073709551615]"), &["do not lie within"]);
    assert_refused(open("[]", 0), &["header", "an object"]);
    assert_refused(open(r#"{"a": 1}"#, 0), &["tensor \"a\""]);
    assert_refused(
        open(r#"{"__metadata__": {"format": 3}}"#, 0),
        &["__metadata__ \"format\"", "expected a string"],
    );
    let pair = |second: &str, offsets: &str| {
        open(
            &format!(
                r#"{{"a": {{"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}},
                    "{second}": {{"dtype": "I8", "shape": [4], "data_offsets": {offsets}}}}}"#
            ),
            8,
        )
    };
    assert!(pair("b", "[4, 8]").is_ok());
    assert_refused(pair("a", "[4, 8]"), &["another tensor has the same name"]);
    assert_refused(pair("b", "[2, 6]"), &["overlap"]);
    let hostile = [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat();
    assert_refused(Checkpoint::from_bytes(hostile, None), &["header length at byte 0", "at most 100000000"]);
}

/// Copies the sharded directory and lets `edit` change its index.
fn open_with_index(edit: impl Fn(String) -> String) -> Result<Checkpoint, Error> {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("sharded")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let index = directory.path().join("model.safetensors.index.json");
    fs::write(&index, edit(fs::read_to_string(&index).unwrap())).unwrap();
    Checkpoint::open(directory.path())
}

#[test]
fn an_index_must_describe_the_shards() {
    let shard = "model-00004-of-00004.safetensors";
    assert!(open_with_index(|index| index).is_ok());
    for outside in ["../model.safetensors", "/etc/model.safetensors", "a/../../model.safetensors"] {
        assert_refused(
            open_with_index(|index| index.replace(shard, outside)),
            &["model.safetensors.index.json: weight_map at byte", "leads out of the directory"],
        );
    }
    // An index that lists itself would go round in circles.
    assert_refused(
        open_with_index(|index| index.replace(shard, "model.safetensors.index.json")),
        &["is not a .safetensors file"],
    );
    let missing = open_with_index(|index| index.replace(shard, "model-00005-of-00004.safetensors"));
    assert!(
        matches!(missing, Err(Error::Io { path, .. }) if path.ends_with("model-00005-of-00004.safetensors"))
    );
    assert_refused(
        open_with_index(|index| index.replacen("00004-of", "00003-of", 1)),
        &["weight_map \"lm_head.weight\"", "model-00003-of-00004.safetensors has no such tensor"],
    );
    assert_refused(open_with_index(|_| "{}".to_owned()), &["weight_map", "missing"]);
    assert_refused(
        open_with_index(|_| r#"{"weight_map": {}}"#.to_owned()),
        &["weight_map", "lists no tensor"],
    );
    assert_refused(
        open_with_index(|_| r#"{"weight_map": {"a": 1}}"#.to_owned()),
        &["weight_map \"a\" at byte 21"],
    );
    assert_refused(open_with_index(|index| index[..200].to_owned()), &["index.json", "EOF"]);
}

#[test]
fn shards_without_an_index_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["config.json", "model-00001-of-00004.safetensors", "model-00004-of-00004.safetensors"] {
        fs::copy(fixture("sharded").join(name), directory.path().join(name)).unwrap();
    }
    // The same weights in another layout are left alone.
    fs::copy(fixture("mixed/model.safetensors"), directory.path().join("consolidated.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    assert_eq!(checkpoint.files().len(), 2);
    assert!(checkpoint.get_tensor("lm_head.weight").is_some());
}

#[test]
fn a_directory_without_weights_says_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    assert_refused(Checkpoint::open(directory.path()), &["without config.json", "it holds nothing"]);
    fs::write(directory.path().join("config.json"), "{}").unwrap();
    fs::write(directory.path().join("pytorch_model.bin"), "PK").unwrap();
    assert_refused(
        Checkpoint::open(directory.path()),
        &["without *.safetensors", "it holds config.json, pytorch_model.bin"],
    );
}
