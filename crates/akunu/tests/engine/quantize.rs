//! Whole-file conversion: the dtypes llama.cpp would choose, the bytes of `akunu_format::quant`, nothing left behind.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use akunu::quantize::{Options, Progress, Recipe, Report, plan, quantize};
use akunu::{Error, Kind, Result};
use akunu_format::gguf::{Gguf, Writer};
use akunu_format::{DType, Data, ModelFile, quant};
use serde_json::Value;

fn go_on(_: Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn dtype_of(gguf: &Gguf, tensor: &str) -> DType {
    match gguf.tensor(tensor).unwrap().data {
        Data::Blocks { dtype, .. } => dtype,
        _ => panic!("GGUF holds blocks"),
    }
}

fn bytes_of<'a>(gguf: &'a Gguf, tensor: &str) -> &'a [u8] {
    match gguf.tensor(tensor).unwrap().data {
        Data::Blocks { bytes, .. } => bytes,
        _ => panic!("GGUF holds blocks"),
    }
}

/// What llama.cpp chooses (fixture: `scripts/oracle/quantize_recipes.py`).
mod recipes {
    use super::*;

    fn fixture() -> serde_json::Map<String, Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recipes.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        match serde_json::from_str(&text).unwrap() {
            Value::Object(models) => models,
            _ => panic!("an object of models"),
        }
    }

    /// The model as a file in memory, with tensors of zeros.
    fn build(model: &Value) -> ModelFile {
        let metadata = model["metadata"].as_object().unwrap();
        let architecture = metadata["general.architecture"].as_str().unwrap();
        let layers = metadata[&format!("{architecture}.block_count")].as_u64().unwrap();
        let mut writer = Writer::new();
        for (key, value) in metadata {
            match value {
                Value::String(text) => writer.metadata(key, text).unwrap(),
                number if number.is_u64() => {
                    writer.metadata(key, &(number.as_u64().unwrap() as u32)).unwrap()
                }
                number => writer.metadata(key, &(number.as_f64().unwrap() as f32)).unwrap(),
            };
        }
        let mut data_len = 0;
        for (name, kind) in model["tensors"].as_object().unwrap() {
            let (dtype, shape) = kind.as_str().unwrap().split_once(' ').unwrap();
            let dtype = DType::from_name(dtype).unwrap();
            let shape: Vec<usize> = shape.split('x').map(|dim| dim.parse().unwrap()).collect();
            let copies = if name.contains('*') { layers } else { 1 };
            for layer in 0..copies {
                writer.tensor(&name.replace('*', &layer.to_string()), dtype, &shape).unwrap();
                let bytes = dtype.row_bytes(shape.iter().product()).unwrap();
                data_len += bytes.next_multiple_of(32);
            }
        }
        let mut file = writer.header().unwrap();
        file.resize(file.len() + data_len, 0);
        ModelFile::Gguf(Gguf::from_bytes(file).unwrap())
    }

    /// `"Q6_K*3 Q4_K"` as four dtypes.
    fn runs(text: &str) -> Vec<DType> {
        let run = |run: &str| {
            let (name, count) = run.split_once('*').unwrap_or((run, "1"));
            vec![DType::from_name(name).unwrap(); count.parse().unwrap()]
        };
        text.split(' ').flat_map(run).collect()
    }

    /// The number of the layer, if any, and the name with `*` in its place.
    fn any_layer(name: &str) -> (usize, String) {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        layer.map_or((0, name.to_owned()), |(layer, rest)| (layer.parse().unwrap(), format!("blk.*.{rest}")))
    }

    #[test]
    fn every_tensor_gets_the_dtype_that_llama_cpp_gives_it() {
        let mut compared = 0;
        for (title, model) in &fixture() {
            let file = build(model);
            for (recipe, expected) in model["recipes"].as_object().unwrap() {
                let expected: BTreeMap<&str, Vec<DType>> = expected
                    .as_object()
                    .unwrap()
                    .iter()
                    .map(|(name, dtypes)| (name.as_str(), runs(dtypes.as_str().unwrap())))
                    .collect();
                for tensor in plan(&file, recipe.parse().unwrap()).unwrap() {
                    let (layer, kind) = any_layer(&tensor.name);
                    let before = DType::from_name(&tensor.from).unwrap();
                    let expected = expected.get(kind.as_str()).map_or(before, |dtypes| dtypes[layer]);
                    assert_eq!(tensor.to, expected, "{title}, {recipe}, {}", tensor.name);
                    compared += 1;
                }
            }
        }
        assert!(compared > 50_000, "{compared} tensors");
    }

    #[test]
    fn the_fixture_covers_every_recipe() {
        for (title, model) in &fixture() {
            let recipes = model["recipes"].as_object().unwrap();
            for recipe in Recipe::ALL {
                assert!(recipes.contains_key(recipe.name()), "{title}: {recipe}");
            }
        }
    }

    #[test]
    fn rows_that_divide_into_no_block_are_said_to_be_second_choice() {
        let fixture = fixture();
        let file = build(&fixture["llama, 576 columns"]);
        let planned = plan(&file, Recipe::Q4_K_M).unwrap();
        let tensor = |name: &str| planned.iter().find(|tensor| tensor.name == name).unwrap();
        assert_eq!(tensor("blk.5.attn_q.weight").instead_of, Some(DType::Q4_K));
        assert_eq!(tensor("blk.5.ffn_down.weight").instead_of, None);
    }
}

#[test]
fn recipes_are_found_by_name_and_the_error_lists_them() {
    for recipe in Recipe::ALL {
        assert_eq!(recipe.name().to_lowercase().parse::<Recipe>().unwrap(), *recipe);
    }
    let error = "Q4_K_XL".parse::<Recipe>().unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let hint = error.hint().unwrap();
    assert!(hint.contains("Q4_K_M") && hint.contains("BF16"), "{hint}");
}

/// A model of two layers in `folder`, in which `spoil` may change values.
struct Fixture {
    folder: tempfile::TempDir,
    values: BTreeMap<String, Vec<f32>>,
}

const ROWS: usize = 300;
const COLUMNS: usize = 512;

impl Fixture {
    fn new(dtype: DType, spoil: impl Fn(&str, &mut [f32])) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new();
        writer.metadata("general.architecture", "llama").unwrap();
        writer.metadata("llama.block_count", &2u32).unwrap();
        writer.metadata("general.file_type", &1u32).unwrap();
        writer.metadata("split.no", &0u16).unwrap();
        writer.metadata("tokenizer.ggml.tokens", ["a", "b"].as_slice()).unwrap();
        let names = ["output_norm.weight", "blk.1.ffn_up.weight", "blk.0.ffn_up.weight", "token_embd.weight"];
        let mut values = BTreeMap::new();
        for (n, name) in names.into_iter().enumerate() {
            let is_norm = name.contains("norm");
            let shape = [ROWS, COLUMNS];
            let (shape, dtype) = if is_norm { (&shape[1..], DType::F32) } else { (&shape[..], dtype) };
            writer.tensor(name, dtype, shape).unwrap();
            let mut of_tensor: Vec<f32> =
                (0..shape.iter().product()).map(|i: usize| ((i * (n + 7)) as f32 * 0.37).sin()).collect();
            spoil(name, &mut of_tensor);
            values.insert(name.to_owned(), of_tensor);
        }
        let mut tensors = writer.create(folder.path().join("in.gguf")).unwrap();
        for name in names {
            let dtype = if name.contains("norm") { DType::F32 } else { dtype };
            let mut bytes = vec![0; dtype.row_bytes(values[name].len()).unwrap()];
            quant::quantize(dtype, &values[name], &mut bytes).unwrap();
            tensors.append(name, &bytes).unwrap();
        }
        tensors.finish().unwrap();
        Fixture { folder, values }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn convert(&self, options: &Options) -> Result<Report> {
        quantize(self.path("in.gguf"), self.path("out.gguf"), options, &mut go_on)
    }

    fn files(&self) -> Vec<String> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    }
}

#[test]
fn tensors_hold_the_quantised_rows_whatever_the_number_of_threads() {
    let fixture = Fixture::new(DType::F32, |_, _| {});
    for recipe in [Recipe::Q4_K_M, Recipe::Q5_0, Recipe::IQ4_NL, Recipe::BF16, Recipe::F32] {
        for threads in [1, 3] {
            let options = Options { threads: NonZero::new(threads).unwrap(), ..Options::new(recipe) };
            let report = fixture.convert(&options).unwrap();
            let out = Gguf::open(fixture.path("out.gguf")).unwrap();
            assert_eq!(report.tensors.len(), fixture.values.len());
            let mut written = 0;
            for tensor in &report.tensors {
                let values = &fixture.values[&tensor.name];
                assert_eq!(dtype_of(&out, &tensor.name), tensor.to);
                let mut expected = vec![0; tensor.to.row_bytes(values.len()).unwrap()];
                quant::quantize(tensor.to, values, &mut expected).unwrap();
                let bytes = bytes_of(&out, &tensor.name);
                assert!(bytes == expected, "{recipe}, {threads} threads: {}", tensor.name);
                written += bytes.len() as u64;
            }
            assert_eq!(report.bytes_after, written);
        }
    }
}

#[test]
fn metadata_is_kept_save_for_what_states_the_dtypes() {
    let fixture = Fixture::new(DType::F16, |_, _| {});
    fixture.convert(&Options::new(Recipe::Q4_K_S)).unwrap();
    let out = Gguf::open(fixture.path("out.gguf")).unwrap();
    let metadata = out.metadata();
    assert_eq!(metadata.require::<Vec<&str>>("tokenizer.ggml.tokens").unwrap(), ["a", "b"]);
    assert_eq!(metadata.require::<u32>("general.file_type").unwrap(), 14);
    assert_eq!(metadata.require::<u32>("general.quantization_version").unwrap(), 2);
    assert!(metadata.value("split.no").is_none());
    let names: Vec<_> = out.tensors().map(|tensor| tensor.name.to_owned()).collect();
    let expected = ["output_norm.weight", "token_embd.weight", "blk.0.ffn_up.weight", "blk.1.ffn_up.weight"];
    assert_eq!(names, expected, "tensors of no layer first, then layer by layer");
}

#[test]
fn progress_goes_from_nothing_to_everything() {
    let fixture = Fixture::new(DType::F16, |_, _| {});
    let mut seen: Vec<(usize, u64)> = Vec::new();
    let report = quantize(
        fixture.path("in.gguf"),
        fixture.path("out.gguf"),
        &Options::new(Recipe::Q8_0),
        &mut |progress| {
            assert_eq!((progress.count, progress.total), (4, 923_648));
            seen.push((progress.index, progress.done));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert_eq!(report.bytes_before, 923_648);
    assert_eq!(seen[0], (0, 0));
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.last(), Some(&(3, 923_648)));
}

#[test]
fn stopping_leaves_the_old_file_and_nothing_else() {
    let fixture = Fixture::new(DType::F16, |_, _| {});
    fs::write(fixture.path("out.gguf"), "as it was").unwrap();
    for calls in [0, 1, 3, 6] {
        let mut left = calls;
        let stopped = quantize(
            fixture.path("in.gguf"),
            fixture.path("out.gguf"),
            &Options::new(Recipe::Q4_K_M),
            &mut |_| {
                left -= 1;
                if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
        assert_eq!(fs::read(fixture.path("out.gguf")).unwrap(), b"as it was");
        assert_eq!(fixture.files(), ["in.gguf", "out.gguf"]);
    }
}

#[test]
fn a_value_that_is_not_finite_is_an_error_that_names_file_tensor_and_index() {
    let place = 123 * COLUMNS + 45;
    let fixture = Fixture::new(DType::F32, |name, values| {
        if name == "blk.1.ffn_up.weight" {
            values[place] = f32::NAN;
        }
    });
    let error = fixture.convert(&Options::new(Recipe::Q6_K)).unwrap_err();
    assert_eq!(error.kind(), Kind::BadData);
    let text = error.to_string();
    assert!(text.contains("in.gguf: tensor \"blk.1.ffn_up.weight\": value NaN"), "{text}");
    assert!(text.contains(&format!("index {place} ")), "{text}");
    assert_eq!(fixture.files(), ["in.gguf"]);
}

#[test]
fn quantised_tensors_are_converted_only_if_that_is_allowed() {
    let fixture = Fixture::new(DType::Q8_0, |_, _| {});
    let error = fixture.convert(&Options::new(Recipe::Q4_0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("is quantised already (Q8_0)"), "{error}");
    assert!(error.hint().unwrap().contains("--allow-requantize"));
    assert_eq!(fixture.files(), ["in.gguf"]);

    // To the dtype they have, they are copied.
    fixture.convert(&Options::new(Recipe::Q8_0)).unwrap();
    let (before, after) = (Gguf::open(fixture.path("in.gguf")), Gguf::open(fixture.path("out.gguf")));
    let name = "blk.0.ffn_up.weight";
    assert_eq!(bytes_of(&before.unwrap(), name), bytes_of(&after.unwrap(), name));

    let options = Options { allow_requantize: true, ..Options::new(Recipe::Q4_0) };
    fixture.convert(&options).unwrap();
    let out = Gguf::open(fixture.path("out.gguf")).unwrap();
    assert_eq!(dtype_of(&out, name), DType::Q4_0);
    for (before, after) in fixture.values[name].iter().zip(out.tensor(name).unwrap().to_f32().unwrap()) {
        assert!((before - after).abs() < 0.15, "{before} {after}");
    }
}

#[test]
fn the_input_is_not_overwritten() {
    let fixture = Fixture::new(DType::F16, |_, _| {});
    let before = fs::read(fixture.path("in.gguf")).unwrap();
    let path = fixture.path("in.gguf");
    let error = quantize(&path, &path, &Options::new(Recipe::Q8_0), &mut go_on).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert_eq!(fs::read(&path).unwrap(), before);
}
