//! GGUF against what Python's `gguf` package writes and reads (`scripts/oracle/gguf_files.py`).

use std::fs;
use std::path::{Path, PathBuf};

use akunu_format::gguf::{Gguf, Value, ValueType, Writer};
use akunu_format::{DType, Data, Error};
use serde_json::Value as Json;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf").join(name)
}

/// The value as the oracle's JSON has it.
fn to_json(value: Value<'_>) -> Json {
    match value {
        Value::F32(value) => f64::from(value).into(),
        Value::F64(value) => value.into(),
        Value::Bool(value) => value.into(),
        Value::String(value) => value.into(),
        Value::Array(array) => array.iter().map(to_json).collect(),
        Value::U64(value) => value.into(),
        other => i64::try_from(other.as_integer().unwrap()).unwrap().into(),
    }
}

/// The value's types from the outside in, named as the oracle names them.
fn type_names(value: Value<'_>) -> Vec<String> {
    let mut names = vec![value.value_type().name().to_uppercase()];
    if let Value::Array(array) = value {
        match array.iter().next().unwrap() {
            inner @ Value::Array(_) => names.extend(type_names(inner)),
            _ => names.push(array.element_type().name().to_uppercase()),
        }
    }
    names
}

#[test]
fn reads_every_metadata_type_as_the_oracle_does() {
    let gguf = Gguf::open(fixture("all-types.gguf")).unwrap();
    let expected: Json = serde_json::from_slice(&fs::read(fixture("all-types.json")).unwrap()).unwrap();
    let expected = expected["metadata"].as_array().unwrap();
    assert_eq!(gguf.metadata().len(), expected.len());
    for ((key, value), expected) in gguf.metadata().iter().zip(expected) {
        assert_eq!(key, expected["key"]);
        assert_eq!(to_json(value), expected["value"], "{key}");
        assert_eq!(
            type_names(value),
            serde_json::from_value::<Vec<String>>(expected["types"].clone()).unwrap()
        );
        assert_eq!(gguf.metadata().value(key), Some(value));
    }
}

#[test]
fn reads_every_tensor_as_the_oracle_does() {
    let gguf = Gguf::open(fixture("all-types.gguf")).unwrap();
    let file = fs::read(fixture("all-types.gguf")).unwrap();
    let expected: Json = serde_json::from_slice(&fs::read(fixture("all-types.json")).unwrap()).unwrap();
    let expected = expected["tensors"].as_array().unwrap();
    assert_eq!(gguf.tensors().len(), expected.len());
    for (tensor, expected) in gguf.tensors().zip(expected) {
        assert_eq!(tensor.name, expected["name"]);
        let shape: Vec<usize> = serde_json::from_value(expected["shape"].clone()).unwrap();
        assert_eq!(tensor.shape, shape);
        assert_eq!(tensor.dtype_name(), expected["dtype"].as_str().unwrap());
        let Data::Blocks { bytes, .. } = tensor.data else { panic!("GGUF holds blocks only") };
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected["bytes"]);
        let offset = expected["offset"].as_u64().unwrap() as usize;
        assert_eq!(&file[offset..][..bytes.len()], bytes);
    }
}

#[test]
fn version_2_has_the_same_layout() {
    let mut bytes = fs::read(fixture("all-types.gguf")).unwrap();
    bytes[4] = 2;
    let gguf = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(gguf.version(), 2);
    assert_eq!(gguf.metadata().require::<&str>("general.architecture").unwrap(), "test");
}

#[test]
fn other_versions_and_byte_orders_are_refused_by_name() {
    let message = |version: [u8; 4]| {
        let mut bytes = fs::read(fixture("all-types.gguf")).unwrap();
        bytes[4..8].copy_from_slice(&version);
        let error = Gguf::from_bytes(bytes).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        error.to_string()
    };
    assert!(message([1, 0, 0, 0]).contains("GGUF version 1 is not supported"));
    assert!(message([0, 0, 0, 3]).contains("big-endian GGUF is not supported"));
    assert!(message([4, 0, 0, 0]).contains("GGUF version 4 is not supported"));
    assert!(message([0, 0, 0, 0]).contains("GGUF version 0 is not supported"));
}

#[test]
fn a_value_may_be_asked_for_at_any_width_that_holds_it() {
    let gguf = Gguf::open(fixture("all-types.gguf")).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require::<u64>("test.u8").unwrap(), 255);
    assert_eq!(metadata.require::<i16>("test.i8").unwrap(), -128);
    assert!(metadata.require::<usize>("test.u64s").is_err());
    assert_eq!(metadata.require::<Vec<u64>>("test.u8s").unwrap(), [0, 7, 255]);
    assert_eq!(metadata.require::<Vec<Vec<u8>>>("test.nested").unwrap(), [vec![1, 2, 3], vec![4]]);
    assert_eq!(metadata.require::<Vec<&str>>("test.strings").unwrap(), ["<s>", "", "Ġhello", "▁world"]);
    assert_eq!(metadata.require::<f32>("test.f64").unwrap(), 0.1);
}

#[test]
fn absent_and_wrong_are_told_apart() {
    let path = fixture("all-types.gguf");
    let gguf = Gguf::open(&path).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.get::<u32>("test.nowhere").unwrap(), None);
    assert!(
        matches!(metadata.require::<u32>("test.nowhere"), Err(Error::NoKey { key, .. }) if key == "test.nowhere")
    );
    for (error, found) in [
        (metadata.get::<u8>("test.u16").unwrap_err(), "expected an integer from 0 to 255, found U16(65535)"),
        (metadata.get::<u32>("test.string").unwrap_err(), "found a string"),
        (metadata.get::<&str>("test.u8s").unwrap_err(), "found an array of 3 uint8"),
        (metadata.get::<Vec<u8>>("test.i8s").unwrap_err(), "an array, each element an integer from 0 to 255"),
    ] {
        let message = error.to_string();
        assert!(message.contains(found), "{message}");
        assert!(message.contains(path.to_str().unwrap()) && message.contains(" at byte "), "{message}");
    }
}

/// Writes everything in `gguf` to `path`.
fn copy(gguf: &Gguf, path: &Path) -> Result<(), Error> {
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.metadata_value(key, value)?;
    }
    let blocks = |data| match data {
        Data::Blocks { dtype, bytes } => (dtype, bytes),
        _ => unreachable!("GGUF holds blocks only"),
    };
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name, blocks(tensor.data).0, tensor.shape)?;
    }
    let mut tensors = writer.create(path)?;
    for tensor in gguf.tensors() {
        for chunk in blocks(tensor.data).1.chunks(7) {
            tensors.append(tensor.name, chunk)?;
        }
    }
    tensors.finish()
}

#[test]
fn writes_byte_for_byte_what_the_oracle_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("copy.gguf");
    copy(&Gguf::open(fixture("all-types.gguf")).unwrap(), &path).unwrap();
    assert!(fs::read(path).unwrap() == fs::read(fixture("all-types.gguf")).unwrap());
}

#[test]
fn nested_arrays_can_be_written_from_slices() {
    let mut writer = Writer::new();
    writer.metadata("nested", &[vec![1u16, 2], vec![]]).unwrap();
    writer.metadata("owned", &vec![String::from("a"), String::from("b")]).unwrap();
    let gguf = Gguf::from_bytes(writer.header().unwrap()).unwrap();
    assert_eq!(gguf.metadata().require::<Vec<Vec<u16>>>("nested").unwrap(), [vec![1, 2], vec![]]);
    let Some(Value::Array(owned)) = gguf.metadata().value("owned") else { panic!("an array was written") };
    assert_eq!((owned.element_type(), owned.len()), (ValueType::String, 2));
}

#[test]
fn the_writer_refuses_what_cannot_be_read_back() {
    let problem = |result: Result<&mut Writer, Error>| result.unwrap_err().to_string();
    let mut writer = Writer::new();
    writer.metadata("a", &1u8).unwrap().tensor("t", DType::F32, &[1]).unwrap();
    assert!(problem(writer.metadata("a", &2u8)).contains("added before"));
    assert!(problem(writer.metadata("general.alignment", &48u32)).contains("power of two"));
    assert!(problem(writer.metadata("general.alignment", &64u64)).contains("uint32"));
    let deep = [[[[[[[[[1u8]]]]]]]]];
    assert!(problem(writer.metadata("deep", &deep)).contains("nested deeper"));
    assert!(problem(writer.tensor("t", DType::F32, &[1])).contains("declared before"));
    assert!(problem(writer.tensor(&"n".repeat(64), DType::F32, &[1])).contains("63 bytes"));
    assert!(problem(writer.tensor("r", DType::F32, &[1; 5])).contains("5 dimensions"));
    assert!(problem(writer.tensor("q", DType::Q4_K, &[2, 576])).contains("whole blocks of 256"));
    assert!(problem(writer.tensor("o", DType::F32, &[usize::MAX, 2])).contains("64 bits"));
}

#[test]
fn an_unfinished_file_leaves_the_old_one_in_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    fs::write(&path, "what was there before").unwrap();
    let mut writer = Writer::new();
    writer.tensor("a", DType::F32, &[2]).unwrap().tensor("b", DType::I8, &[1]).unwrap();
    let mut tensors = writer.create(&path).unwrap();
    assert!(tensors.append("b", &[0]).unwrap_err().to_string().contains("the turn of \"a\""));
    tensors.append("a", &[0; 4]).unwrap();
    assert!(tensors.append("a", &[0; 5]).unwrap_err().to_string().contains("where 4 are left"));
    assert!(tensors.finish().unwrap_err().to_string().contains("only 4 of 8 bytes"));
    assert_eq!(fs::read(&path).unwrap(), b"what was there before");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn any_shard_opens_the_whole_model() {
    for shard in 1..=3 {
        let gguf = Gguf::open(fixture(&format!("split-0000{shard}-of-00003.gguf"))).unwrap();
        assert_eq!(gguf.files().len(), 3);
        assert_eq!(gguf.metadata().require::<&str>("general.name").unwrap(), "split");
        let names: Vec<&str> = gguf.tensors().map(|tensor| tensor.name).collect();
        assert_eq!(names, [0, 1, 2, 3, 4].map(|i| format!("blk.{i}.weight")));
        for i in 0..5u8 {
            let tensor = gguf.tensor(&format!("blk.{i}.weight")).unwrap();
            assert_eq!(tensor.to_f32().unwrap(), [f32::from(i); 8]);
        }
    }
}

/// Copies the shards into a fresh directory after `edit` had its way with names and bytes, and opens the first.
fn open_edited(edit: impl Fn(usize, &mut String, &mut Vec<u8>)) -> Result<Gguf, Error> {
    let directory = tempfile::tempdir().unwrap();
    let mut first = PathBuf::new();
    for shard in (0..3).rev() {
        let mut name = format!("split-0000{}-of-00003.gguf", shard + 1);
        let mut bytes = fs::read(fixture(&name)).unwrap();
        edit(shard, &mut name, &mut bytes);
        first = directory.path().join(name);
        fs::write(&first, bytes).unwrap();
    }
    Gguf::open(first)
}

fn position(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

#[test]
fn shards_must_be_complete_and_agree() {
    assert!(open_edited(|_, _, _| ()).is_ok());
    let missing = open_edited(|i, name, _| {
        if i == 1 {
            *name = "elsewhere.gguf".to_owned();
        }
    });
    assert!(matches!(missing, Err(Error::Io { path, .. }) if path.ends_with("split-00002-of-00003.gguf")));

    let renamed = open_edited(|_, name, _| *name = name.replace("-of-", "-in-")).unwrap_err().to_string();
    assert!(renamed.contains("one of 3 shards") && renamed.contains("NAME-00001-of-00003.gguf"), "{renamed}");

    let swapped = open_edited(|i, _, bytes| {
        let at = position(bytes, b"split.no") + 8 + 4;
        bytes[at] = [0, 2, 1][i];
    });
    let swapped = swapped.unwrap_err().to_string();
    assert!(swapped.contains("\"split.no\"") && swapped.contains("asks for 1"), "{swapped}");

    let counted = open_edited(|_, _, bytes| {
        let at = position(bytes, b"split.tensors.count") + 19 + 4;
        bytes[at] = 6;
    });
    let counted = counted.unwrap_err().to_string();
    assert!(counted.contains("6, but the shards hold 5 tensors"), "{counted}");

    let repeated = open_edited(|i, _, bytes| {
        if i == 2 {
            let at = position(bytes, b"blk.4") + 4;
            bytes[at] = b'0';
        }
    });
    let repeated = repeated.unwrap_err().to_string();
    assert!(repeated.contains("split-00003") && repeated.contains("the same name"), "{repeated}");
}

#[test]
fn a_name_that_promises_shards_needs_the_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model-00001-of-00002.gguf");
    fs::copy(fixture("all-types.gguf"), &path).unwrap();
    assert!(matches!(Gguf::open(&path), Err(Error::NoKey { key, .. }) if key == "split.count"));
}

#[test]
fn an_unknown_tensor_is_an_error_that_names_it() {
    let gguf = Gguf::open(fixture("all-types.gguf")).unwrap();
    assert!(gguf.get_tensor("nothing").is_none());
    assert!(gguf.tensor("nothing").unwrap_err().to_string().contains("there is no tensor \"nothing\""));
    let tensor = gguf.tensor("f32.matrix").unwrap();
    assert!(matches!(tensor.dequantize_rows(1..3, &mut [0.0; 6]), Err(Error::RowRange { rows: 2, .. })));
}
