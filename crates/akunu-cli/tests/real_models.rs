//! The commands on real models.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::run;

fn test_data(path: &str) -> String {
    akunu_testing::data(path).into_os_string().into_string().expect("the path is text")
}

#[test]
fn inspect_fits_80_columns_whatever_the_model() {
    let cache = tempfile::tempdir().unwrap();
    for path in [
        "models/smollm2.gguf",
        "models/qwen2.5-coder-0.5b.gguf",
        "models/gemma3-270m.gguf",
        "models/minilm",
        "models/whisper-tiny.bin",
        "vocab/ggml-vocab-llama-spm.gguf",
    ] {
        let text = run(cache.path(), &["inspect", &test_data(path), "--metadata"]).ok();
        for line in text.lines() {
            assert!(line.chars().count() <= 80 && line.trim_end() == line, "{path}: {line:?}");
        }
    }
}

#[test]
fn tokenize_agrees_with_the_vectors_of_a_vocabulary() {
    let cache = tempfile::tempdir().unwrap();
    let vocabulary = test_data("vocab/ggml-vocab-llama-spm.gguf");
    let inputs = std::fs::read_to_string(test_data("vocab/ggml-vocab-llama-spm.gguf.inp")).unwrap();
    let outputs = std::fs::read_to_string(test_data("vocab/ggml-vocab-llama-spm.gguf.out")).unwrap();
    let texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
    let mut compared = 0;
    for (text, expected) in texts.iter().zip(outputs.lines()) {
        let expected: Vec<u32> = expected.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let arguments = ["tokenize", "-m", &vocabulary, "--no-special", "--plain", "--json", "-"];
        let json = common::run_with_input(cache.path(), &arguments, text.as_bytes()).json();
        assert_eq!(json["ids"], serde_json::json!(expected), "{text:?}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn tokenize_takes_vocabularies_of_every_kind() {
    let cache = tempfile::tempdir().unwrap();
    // The ids are those of the libraries that the vocabularies come with.
    for (path, ids) in [
        ("models/whisper-tiny.bin", vec![15947, 1002]),
        ("tokenizers/mistral/tekken_240911.json", vec![1, 22177, 4304]),
        ("tokenizers/mistral/tokenizer.model.v1", vec![1, 22557, 1526]),
        ("tokenizers/gpt2/tokenizer.json", vec![15496, 995]),
        ("tokenizers/gpt2", vec![15496, 995]),
    ] {
        let json = run(cache.path(), &["tokenize", "-m", &test_data(path), "--json", "Hello world"]).json();
        assert_eq!(json["ids"], serde_json::json!(ids), "{path}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_quantize_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.gguf");
    let input = test_data("models/qwen2.5-coder-0.5b.gguf");
    let arguments = ["quantize", &input, output.to_str().unwrap(), "Q3_K_M", "--allow-requantize"];
    let mut command = common::akunu(folder.path(), &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while std::fs::read_dir(folder.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began to write");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&ended.stderr).lines().last(), Some("error: stopped"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn embed_prints_one_vector_a_text_and_numpy_reads_them() {
    let cache = tempfile::tempdir().unwrap();
    let model = test_data("models/minilm");
    let texts = ["Where is the station?", "How do I get to the train?", "Cells have mitochondria."];
    let arguments = [&["embed", "-m", &model][..], &texts[..]].concat();
    let lines = run(cache.path(), &arguments).ok();
    let vectors: Vec<Vec<f32>> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [384; 3]);
    let cosine = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f32>();
    assert!(cosine(0, 1) > 3.0 * cosine(0, 2).abs(), "{} {}", cosine(0, 1), cosine(0, 2));

    let input = texts.join("\n");
    let arguments = ["embed", "-m", &model, "--output", "npy"];
    let output = common::akunu(cache.path(), &arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes())?;
            child.wait_with_output()
        })
        .unwrap();
    let numbers = &output.stdout[128..];
    assert!(output.stdout.starts_with(b"\x93NUMPY\x01\x00") && numbers.len() == 3 * 384 * 4);
    let first = f32::from_le_bytes(numbers[..4].try_into().unwrap());
    assert!((first - vectors[0][0]).abs() < 1e-6, "{first}");

    let long = "word ".repeat(300);
    let refused = run(cache.path(), &["embed", "-m", &model, "short", &long]);
    assert!(refused.stderr.contains("text 2 has 302 tokens") && refused.stderr.contains("--truncate"));
}

#[test]
fn transcribe_prints_what_is_said_in_every_format() {
    let cache = tempfile::tempdir().unwrap();
    let (model, audio) = (test_data("models/whisper-tiny.bin"), test_data("audio/jfk.wav"));
    let transcribe = |more: &[&str]| run(cache.path(), &[&["transcribe", "-m", &model], more].concat());
    let text = transcribe(&[&audio]).ok();
    let said = "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country.";
    assert_eq!(text, format!("{said}\n"));
    let subtitles = transcribe(&[&audio, "--output", "srt"]).ok();
    assert_eq!(subtitles, format!("1\n00:00:00,000 --> 00:00:11,000\n{said}\n\n"));
    let json = transcribe(&["--language", "English", "--word-timestamps", "--json", &audio]).json();
    assert_eq!(
        (&json["language"], json["segments"][0]["words"].as_array().unwrap().len()),
        (&"en".into(), 22)
    );

    // What cannot be read does not keep others from being read.
    let notes = cache.path().join("notes.wav");
    std::fs::write(&notes, "not sound").unwrap();
    let failed = transcribe(&[
        "--beam",
        "1",
        notes.to_str().unwrap(),
        &audio,
        "--output-dir",
        cache.path().to_str().unwrap(),
    ]);
    let message = failed.failed(1);
    assert!(message.contains("notes.wav: not a sound file that can be read"), "{message}");
    assert!(
        std::fs::read_to_string(cache.path().join("jfk.txt"))
            .unwrap()
            .starts_with("And so my fellow Americans")
    );
    // Every transcription has a place of its own, whatever dots its name has.
    let (first, second) = (cache.path().join("talk.1.wav"), cache.path().join("talk.2.wav"));
    for talk in [&first, &second] {
        std::fs::copy(&audio, talk).unwrap();
    }
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let folder = cache.path().join("texts");
    let into = ["--beam", "1", "--output-dir", folder.to_str().unwrap()];
    transcribe(&[&into[..], &[first, second]].concat()).ok();
    assert!(folder.join("talk.1.txt").exists() && folder.join("talk.2.txt").exists());
    let twice = transcribe(&[&into[..], &[first, first]].concat()).failed(2);
    assert!(twice.contains("would both become"), "{twice}");
    let subtitles = transcribe(&["--output", "srt", first, second]).failed(2);
    assert!(subtitles.contains("--output-dir"), "{subtitles}");
    let many = transcribe(&["--beam", "100000", first]).failed(2);
    assert!(many.contains("100000 hypotheses"), "{many}");
    assert!(transcribe(&[&audio, "--word-timestamps"]).failed(2).contains("no room for the times of words"));
    assert!(
        transcribe(&[&audio, "--language", "klingon"])
            .failed(2)
            .contains("no language is called \"klingon\"")
    );
}
