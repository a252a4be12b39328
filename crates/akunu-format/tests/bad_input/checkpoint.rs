//! SafeTensors and the JSON beside it.

use std::fs;

use akunu_format::Error;
use akunu_format::checkpoint::{Checkpoint, Config};
use proptest::prelude::*;

use super::{fixture, overwrite_everywhere, read_all, within_limits};

fn open(bytes: Vec<u8>, config: &str) -> Result<Checkpoint, Error> {
    within_limits(bytes.len() + config.len(), || {
        Checkpoint::from_bytes(bytes, Some(Config::from_json(config)?))
    })
}

fn exercise(bytes: Vec<u8>, config: &str) {
    if let Ok(checkpoint) = open(bytes, config) {
        read_all(checkpoint.tensors());
    }
}

/// A quantised checkpoint and its configuration.
fn mixed() -> (Vec<u8>, String) {
    let directory = fixture("checkpoint/mixed");
    let weights = fs::read(directory.join("model.safetensors")).unwrap();
    (weights, fs::read_to_string(directory.join("config.json")).unwrap())
}

/// Length, JSON, and that many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn weights_cut_off_anywhere_are_an_error() {
    let (weights, config) = mixed();
    for len in 0..weights.len() {
        assert!(open(weights[..len].to_vec(), &config).is_err(), "{len} of {} bytes", weights.len());
    }
}

#[test]
fn a_configuration_cut_off_anywhere_is_an_error() {
    let (_, config) = mixed();
    for len in 0..config.trim_end().len() {
        assert!(
            within_limits(len, || Config::from_json(&config[..len])).is_err(),
            "{len} of {}",
            config.len()
        );
    }
}

#[test]
fn overwritten_header_fields_do_no_harm() {
    let header = r#"{"__metadata__":{"a":"b"},"m.weight":{"dtype":"U32","shape":[1,8],"data_offsets":[0,32]},
        "m.scales":{"dtype":"F16","shape":[1,2],"data_offsets":[32,36]},
        "m.biases":{"dtype":"F16","shape":[1,2],"data_offsets":[36,40]}}"#;
    let config = r#"{"quantization":{"bits":4,"group_size":32,"m":{"bits":4,"group_size":32}}}"#;
    assert!(open(file(header, 40), config).is_ok());
    overwrite_everywhere(&file(header, 40), |bytes| exercise(bytes, config));
    let (weights, config) = mixed();
    overwrite_everywhere(config.as_bytes(), |bytes| {
        exercise(weights.clone(), &String::from_utf8_lossy(&bytes));
    });
}

proptest! {
    #[test]
    fn numbers_and_names_may_be_anything(
        dtype in prop::sample::select(&["U32", "F16", "F32", "F4", "BOOL", "I64", "X"][..]),
        dims in prop::collection::vec(prop_oneof![0..9u64, any::<u64>()], 0..5),
        offsets in prop_oneof![Just((0u64, 40u64)), any::<(u64, u64)>()],
        name in "(m\\.)?(weight|scales|biases|\\PC{0,4})",
        bits in prop_oneof![0..9u64, any::<u64>()],
        group_size in prop_oneof![Just(32u64), Just(64), any::<u64>()],
    ) {
        let name = serde_json::to_string(&name).unwrap();
        let header = format!(
            r#"{{{name}:{{"dtype":"{dtype}","shape":{dims:?},"data_offsets":[{},{}]}}}}"#, offsets.0, offsets.1
        );
        let config = format!(r#"{{"quantization":{{"bits":{bits},"group_size":{group_size}}}}}"#);
        exercise(file(&header, 40), &config);
    }

    #[test]
    fn any_text_is_a_configuration_or_an_error(text in "\\PC{0,64}") {
        let _ = within_limits(text.len(), || Config::from_json(&text));
    }
}

#[test]
fn matrices_whose_size_does_not_fit_are_refused() {
    // No rows, so that no data are needed for rows of any length.
    let header = format!(
        r#"{{"m.weight":{{"dtype":"U32","shape":[0,{words}],"data_offsets":[0,0]}},
            "m.scales":{{"dtype":"F16","shape":[0,{groups}],"data_offsets":[0,0]}},
            "m.biases":{{"dtype":"F16","shape":[0,{groups}],"data_offsets":[0,0]}}}}"#,
        words = 1u64 << 62,
        groups = 1u64 << 60
    );
    let message =
        open(file(&header, 0), r#"{"quantization":{"bits":4,"group_size":32}}"#).unwrap_err().to_string();
    assert!(message.contains("does not fit") || message.contains("whole bytes"), "{message}");
}

#[test]
fn the_smallest_things_in_large_numbers_stay_within_limits() {
    let tensors: Vec<String> = (0..4096)
        .map(|i| format!(r#""{i:x}":{{"dtype":"I8","shape":[0,0,0,0,0,0,0,0],"data_offsets":[0,0]}}"#))
        .collect();
    let many = open(file(&format!("{{{}}}", tensors.join(",")), 0), "{}").unwrap();
    assert_eq!(many.tensors().len(), 4096);

    let zeros = format!("[{}0]", "0,".repeat(100_000));
    let shape = format!(r#"{{"a":{{"dtype":"I8","shape":{zeros},"data_offsets":[0,0]}}}}"#);
    assert!(open(file(&shape, 0), "{}").is_err());

    let overrides: Vec<String> = (0..4096).map(|i| format!(r#""{i:x}":false"#)).collect();
    let config =
        format!(r#"{{"x":{zeros},"quantization":{{"bits":4,"group_size":32,{}}}}}"#, overrides.join(","));
    let checkpoint = open(file("{}", 0), &config).unwrap();
    let (values, peak) =
        akunu_testing::allocator::peak(|| checkpoint.config().unwrap().require::<Vec<u8>>("x"));
    assert_eq!(values.unwrap().len(), 100_001);
    assert!(peak < 8 * config.len());

    let triplets: Vec<String> = (0..1024)
        .map(|i| {
            format!(
                r#""{i:x}.weight":{{"dtype":"U32","shape":[0],"data_offsets":[0,0]}},
                   "{i:x}.scales":{{"dtype":"F16","shape":[0],"data_offsets":[0,0]}},
                   "{i:x}.biases":{{"dtype":"F16","shape":[0],"data_offsets":[0,0]}}"#
            )
        })
        .collect();
    let header = format!("{{{}}}", triplets.join(","));
    let quantised = open(file(&header, 0), r#"{"quantization":{"bits":4,"group_size":32}}"#).unwrap();
    assert_eq!(quantised.tensors().len(), 1024);
}

#[test]
fn deeply_nested_json_is_an_error_or_ignored() {
    let deep = "[".repeat(200_000);
    assert!(within_limits(deep.len(), || Config::from_json(&deep)).is_err());
    let ignored = format!(r#"{{"a":{deep}{}}}"#, "]".repeat(200_000));
    let config = within_limits(ignored.len(), || Config::from_json(&ignored)).unwrap();
    assert!(config.get::<serde_json::Value>("a").is_err());
    let objects = format!("{}{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    assert!(within_limits(objects.len(), || Config::from_json(&objects)).is_err());
    assert!(open(file(&format!(r#"{{"a":{deep}"#), 0), "{}").is_err());
}

#[test]
fn invalid_utf_8_gives_its_place() {
    let mut bytes = file(r#"{"abc":0}"#, 0);
    bytes[11] = 0xff;
    let message = open(bytes, "{}").unwrap_err().to_string();
    assert!(message.contains("header at byte 11") && message.contains("UTF-8"), "{message}");

    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.json"), b"{\"a\": \"\xff\"}").unwrap();
    fs::write(directory.path().join("model.safetensors"), file("{}", 0)).unwrap();
    let message = Checkpoint::open(directory.path()).unwrap_err().to_string();
    assert!(message.contains("config.json: text at byte 7"), "{message}");
}
