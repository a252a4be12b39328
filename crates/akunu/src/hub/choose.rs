//! Which files of a repository make up the model that was asked for.

use crate::{Error, Result};

/// What of a repository is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// The model, whichever way it is stored.
    Any,
    /// The GGUF file in this quantisation.
    Quantization(String),
    /// This file.
    File(String),
}

/// The files to fetch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// What to open: a file, or the repository's folder.
    pub model: Option<String>,
    /// Everything that is needed, in order.
    pub files: Vec<String>,
}

/// What people mean when they name no quantisation, best compromise first.
const USUAL: [&str; 6] = ["Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0", "F16"];

/// Chooses among the files of `repository`.
pub(super) fn choose(repository: &str, files: &[String], want: &Want) -> Result<Choice> {
    let models: Vec<&String> = files.iter().filter(|file| is_model(file)).collect();
    match want {
        Want::File(file) => {
            if !files.contains(file) {
                return Err(missing(repository, &format!("file {file}"), files));
            }
            with_siblings(repository, file, files)
        }
        Want::Quantization(quantization) => {
            let matching: Vec<&String> =
                models.iter().copied().filter(|file| names(file, quantization)).collect();
            match matching.as_slice() {
                [file] => with_siblings(repository, file, files),
                [] => Err(missing(repository, &format!("GGUF file in {quantization}"), files)),
                several => Err(Error::Usage {
                    problem: format!("{repository} holds more than one GGUF file in {quantization}"),
                    hint: format!("name one of {}", list(several)),
                }),
            }
        }
        Want::Any if !models.is_empty() => {
            let usual = USUAL.iter().find_map(|usual| models.iter().copied().find(|file| names(file, usual)));
            match (usual, models.as_slice()) {
                (_, &[file]) | (Some(file), _) => with_siblings(repository, file, files),
                (None, several) => Err(Error::Usage {
                    problem: format!("{repository} holds several GGUF files"),
                    hint: format!("name one of {}", list(several)),
                }),
            }
        }
        Want::Any => checkpoint(repository, files),
    }
}

/// Whether a file opens a model: a GGUF file that is no later part of a split one, nor an addition to another model.
fn is_model(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let addition = ["mmproj", "imatrix"].iter().any(|word| name.contains(word));
    name.ends_with(".gguf") && !addition && Split::of(file).is_none_or(|split| split.number == 1)
}

/// Whether a file's path names a quantisation, as a word of its own: `Q4_K` does not name `Q4_K_M`.
fn names(file: &str, quantization: &str) -> bool {
    let (file, wanted) = (file.to_ascii_uppercase(), quantization.to_ascii_uppercase());
    file.match_indices(&wanted).any(|(at, _)| {
        let before = file[..at].chars().next_back();
        let after = file[at + wanted.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
            && !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// `STEM-00001-of-00003.gguf`
#[derive(Debug, PartialEq, Eq)]
struct Split<'a> {
    stem: &'a str,
    number: u32,
    count: u32,
}

impl<'a> Split<'a> {
    fn of(file: &'a str) -> Option<Split<'a>> {
        let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(number) || !digits(count) {
            return None;
        }
        Some(Split { stem, number: number.parse().ok()?, count: count.parse().ok()? })
    }
}

/// A file with the other parts of it, when it is split.
fn with_siblings(repository: &str, file: &str, files: &[String]) -> Result<Choice> {
    let Some(split) = Split::of(file) else {
        return Ok(Choice { model: Some(file.to_owned()), files: vec![file.to_owned()] });
    };
    let mut parts = Vec::new();
    for number in 1..=split.count {
        let part = format!("{}-{number:05}-of-{:05}.gguf", split.stem, split.count);
        if !files.contains(&part) {
            return Err(missing(repository, &format!("part {part}"), files));
        }
        parts.push(part);
    }
    let first = parts.first().cloned();
    Ok(Choice { model: first, files: parts })
}

/// A SafeTensors checkpoint with everything that describes it.
fn checkpoint(repository: &str, files: &[String]) -> Result<Choice> {
    let tensors: Vec<&String> =
        files.iter().filter(|file| !file.contains('/') && file.ends_with(".safetensors")).collect();
    // Some repositories hold the weights a second time, for another program.
    let named_model = tensors.iter().any(|file| file.starts_with("model"));
    let has_config = files.iter().any(|file| file == "config.json");
    if tensors.is_empty() || !has_config {
        return Err(missing(repository, "GGUF file and no SafeTensors checkpoint", files));
    }
    let wanted = |file: &String| match file.rsplit_once('/') {
        // Sentence-transformers keeps its pooling in `1_Pooling/config.json`.
        Some((folder, name)) => name == "config.json" && folder.starts_with(|c: char| c.is_ascii_digit()),
        None if file.ends_with(".safetensors") => file.starts_with("model") || !named_model,
        None => {
            let described = [".json", ".jinja", ".txt"].iter().any(|end| file.ends_with(end));
            (described && !file.ends_with(".bin.index.json")) || file == "tokenizer.model"
        }
    };
    Ok(Choice { model: None, files: files.iter().filter(|file| wanted(file)).cloned().collect() })
}

fn missing(repository: &str, what: &str, files: &[String]) -> Error {
    let models: Vec<&String> = files.iter().filter(|file| is_model(file)).collect();
    Error::Missing {
        what: format!("{repository} holds no {what}"),
        hint: match models.as_slice() {
            [] => "only GGUF files and SafeTensors checkpoints can be pulled".to_owned(),
            models => format!("it holds {}", list(models)),
        },
    }
}

/// Up to a dozen names.
fn list(files: &[&String]) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<String> = files.iter().take(SHOWN).map(|file| (*file).clone()).collect();
    if files.len() > SHOWN {
        names.push(format!("{} more", files.len() - SHOWN));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(names: &[&str], want: &Want) -> Result<Choice> {
        choose("o/r", &files(names), want)
    }

    fn quantization(name: &str) -> Want {
        Want::Quantization(name.to_owned())
    }

    #[test]
    fn a_quantisation_is_matched_as_a_whole_word() {
        let names = ["m-Q4_K.gguf", "m-Q4_K_M.gguf", "m.IQ4_XS.gguf", "mmproj-Q4_K_M.gguf"];
        for (want, file) in
            [("q4_k", "m-Q4_K.gguf"), ("Q4_K_M", "m-Q4_K_M.gguf"), ("iq4_xs", "m.IQ4_XS.gguf")]
        {
            assert_eq!(chosen(&names, &quantization(want)).unwrap().model.as_deref(), Some(file));
        }
        let error = chosen(&names, &quantization("Q4_XS")).unwrap_err();
        assert!(error.hint().unwrap().contains("m.IQ4_XS.gguf"), "{error:?}");
    }

    #[test]
    fn a_split_file_brings_all_its_parts_in_order() {
        let names = ["b/m-Q8_0-00002-of-00002.gguf", "b/m-Q8_0-00001-of-00002.gguf", "m-Q2_K.gguf"];
        let choice = chosen(&names, &quantization("Q8_0")).unwrap();
        assert_eq!(choice.files, files(&["b/m-Q8_0-00001-of-00002.gguf", "b/m-Q8_0-00002-of-00002.gguf"]));
        assert_eq!(choice.model.as_deref(), Some("b/m-Q8_0-00001-of-00002.gguf"));
        assert!(chosen(&names[..1], &Want::File(names[0].to_owned())).is_err());
    }

    #[test]
    fn without_a_wish_the_usual_quantisation_is_taken() {
        let names = ["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"];
        assert_eq!(chosen(&names, &Want::Any).unwrap().model.as_deref(), Some("m-Q4_K_M.gguf"));
        assert_eq!(chosen(&["m-odd.gguf"], &Want::Any).unwrap().model.as_deref(), Some("m-odd.gguf"));
        assert!(matches!(chosen(&["a.gguf", "b.gguf"], &Want::Any), Err(Error::Usage { .. })));
    }

    #[test]
    fn a_checkpoint_comes_with_what_describes_it_and_nothing_else() {
        let names = [
            ".gitattributes",
            "1_Pooling/config.json",
            "README.md",
            "config.json",
            "consolidated.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "onnx/config.json",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "tokenizer.json",
            "tokenizer.model",
        ];
        let choice = chosen(&names, &Want::Any).unwrap();
        assert_eq!(choice.model, None);
        let kept = [1, 3, 5, 6, 7, 11, 12].map(|index: usize| names[index]);
        assert_eq!(choice.files, files(&kept));
        assert!(matches!(chosen(&["README.md"], &Want::Any), Err(Error::Missing { .. })));
    }
}
