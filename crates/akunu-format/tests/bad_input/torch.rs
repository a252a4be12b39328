//! PyTorch checkpoints: cut off, overwritten, and with pickles that would take the memory of the machine.

use std::fs;
use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use akunu_format::Error;
use akunu_format::torch::TorchCheckpoint;
use proptest::prelude::*;

use super::{fixture, overwrite_everywhere, read_all, within_limits};

fn open(bytes: Vec<u8>) -> Result<TorchCheckpoint, Error> {
    within_limits(bytes.len(), || TorchCheckpoint::from_bytes(bytes))
}

fn exercise(bytes: Vec<u8>) {
    if let Ok(checkpoint) = open(bytes) {
        read_all(checkpoint.tensors());
    }
}

fn whisper() -> Vec<u8> {
    fs::read(fixture("torch/whisper.pt")).unwrap()
}

/// An archive around a pickle, with one storage, which is empty.
fn archive(pickle: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("archive/data.pkl", stored).unwrap();
    zip.write_all(pickle).unwrap();
    zip.start_file("archive/data/0", stored).unwrap();
    zip.finish().unwrap().into_inner()
}

/// Instructions that make an empty tensor and keep it as value 0, and a text as value 1.
fn tensor_and_text(text: &[u8]) -> Vec<u8> {
    let tensor =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((\x8c\x07storagectorch\nFloatStorage\n\x8c\x010\
                   \x8c\x03cpuK\x00tQK\x00K\x00\x85K\x01\x85tRq\x00X";
    [tensor, (text.len() as u32).to_le_bytes().as_slice(), text, b"q\x01"].concat()
}

/// A dictionary with these instructions for its keys and values.
fn dictionary(mut before: Vec<u8>, entries: &[u8]) -> Vec<u8> {
    before.extend_from_slice(b"}(");
    before.extend_from_slice(entries);
    before.extend_from_slice(b"u.");
    before
}

fn error(pickle: &[u8]) -> String {
    open(archive(pickle)).unwrap_err().to_string()
}

#[test]
fn a_file_cut_off_anywhere_is_an_error() {
    let bytes = whisper();
    for len in 0..bytes.len() {
        assert!(open(bytes[..len].to_vec()).is_err(), "{len} of {} bytes", bytes.len());
    }
}

#[test]
fn overwritten_fields_do_no_harm() {
    overwrite_everywhere(&whisper(), exercise);
}

proptest! {
    #[test]
    fn overwritten_bytes_do_no_harm(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = whisper();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(bytes);
    }

    #[test]
    fn any_pickle_does_no_harm(pickle in prop::collection::vec(any::<u8>(), 0..400)) {
        exercise(archive(&pickle));
    }

    #[test]
    fn any_known_instructions_do_no_harm(
        codes in prop::collection::vec(prop::sample::select(b"N(]})tueasb.RQ\x85\x86\x87\x88\x94\x93h\x00q\x00K\x01".to_vec()), 0..400)
    ) {
        exercise(archive(&codes));
    }
}

#[test]
fn pickles_of_the_shortest_instructions_stay_within_limits() {
    // Vectors double: files of several sizes, so that one is just beyond what a vector holds.
    for len in (50_000..110_000).step_by(5000) {
        for code in [b'N', b'(', b']', b'}', b')', 0x88] {
            let error = error(&vec![code; len]);
            assert!(error.contains("more values than a file of this size can need"), "{error}");
        }
    }
    let remembering = [0x88, 0x94].repeat(50_000);
    assert!(error(&remembering).contains("more values than"), "{}", error(&remembering));
}

#[test]
fn a_long_name_that_is_used_again_and_again_is_neither_copied_nor_read_again() {
    let long = tensor_and_text(&vec![b'a'; 5_000_000]);
    let begun = Instant::now();
    // A terabyte of names, of tensors and of sizes.
    for value in [b"h\x01h\x00", b"h\x01K\x01"] {
        let entries = value.repeat(200_000);
        let sizes = [b"\x8c\x04dims}(", entries.as_slice(), b"u"].concat();
        for pickle in [dictionary(long.clone(), &entries), dictionary(long.clone(), &sizes)] {
            let error = error(&pickle);
            assert!(error.contains("pickle: key \"aaaa"), "{error}");
            assert!(error.contains("a dictionary has it twice"), "{error}");
            assert!(error.len() < 300, "{error}");
        }
    }
    let error = error(&dictionary(long, &b"h\x01h\x00".repeat(1_200_000)));
    assert!(error.contains("more values than a file of this size can need"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn tensors_with_the_shortest_names_stay_within_limits() {
    let names = (0..10_000u16)
        .flat_map(|i| [&[0x8c, 2, (i / 100) as u8, (i % 100) as u8], b"h\x00".as_slice()].concat());
    let entries: Vec<u8> = names.collect();
    let (mut opened, mut refused) = (0, 0);
    for padding in (0..1_000_000).step_by(50_000) {
        match open(archive(&dictionary(tensor_and_text(&vec![b'a'; padding]), &entries))) {
            Ok(checkpoint) => {
                assert_eq!(checkpoint.tensors().len(), 10_000);
                opened += 1;
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("more values than a file of this size can need"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}

#[test]
fn instructions_and_functions_that_are_not_needed_are_named() {
    let cases: [(&[u8], &str); 9] = [
        (b"\x80\x02cbuiltins\neval\n.", "\"builtins.eval\" in a checkpoint is not supported"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", "\"builtins.eval\" in a checkpoint is not supported"),
        (b"\x80\x02ctorch\nload\n.", "\"torch.load\" in a checkpoint"),
        (b"(S'false'\nios\nsystem\n.", "the pickle instruction STRING at byte"),
        (b"\x80\x02}(ios\nsystem\n.", "the pickle instruction INST at byte"),
        (b"\x80\x02}\x81.", "the pickle instruction NEWOBJ at byte"),
        (b"\x80\x02h\x07.", "it asks for value 7, which was never set"),
        (b"\x80\x02K\x01.", "a checkpoint that is no dictionary"),
        (b"\x80\x02}X\x01\x00\x00\x00aNs.", "\"a\", which is no tensor, is not supported"),
    ];
    for (pickle, expected) in cases {
        let error = error(pickle);
        assert!(error.contains(expected), "{error}");
    }
}
