//! `akunu transcribe`

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use akunu::speech::{
    Event, Format, Sound, SpeechOptions, SpeechSettings, Transcriber, Transcription, Writer,
};
use akunu::{Error, StopHandle};
use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::engine::{backend_names, positive};
use crate::model::locate;
use crate::output::{self, Out};
use crate::progress::{self, SoundMeter, Spinner};
use crate::stop;

/// The model of a command that transcribes and was given none.
const DEFAULT_MODEL: &str = "whisper-tiny";
/// Sound that is longer than this gets a bar, in seconds: shorter is done before anybody looks.
const LONG: f64 = 60.0;
/// By how much the temperature grows when a window is tried again.
const TEMPERATURE_STEP: f32 = 0.2;

const EXAMPLES: &str = "\
Examples:
  akunu transcribe interview.mp3
  akunu transcribe talk.m4a --output srt > talk.srt
  akunu transcribe one.wav two.flac --output vtt --output-dir subtitles
  akunu transcribe rede.ogg --language de --translate
  akunu transcribe lecture.mp3 --timestamps --prompt \"Lecture on Fourier transforms, by Dr. Nguyen\"
  ffmpeg -i film.mkv -f wav - | akunu transcribe - --word-timestamps --output json

Segments are printed as they come. WAV, AIFF, FLAC, MP3, Ogg/Vorbis and M4A (AAC, ALAC) are read.";

/// Write down what is said in recordings
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Sound files; - is stdin
    #[arg(value_name = "AUDIO", required = true)]
    audio: Vec<PathBuf>,

    /// A path, a name that `akunu models` lists, or hf:OWNER/REPO
    #[arg(short, long, default_value = DEFAULT_MODEL)]
    model: String,

    /// Text, subtitles or JSON
    #[arg(short, long, value_name = "FORMAT", default_value = "txt", value_parser = Format::NAMES)]
    output: String,

    /// Write a file for each recording into this folder, instead of stdout
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,

    /// The language that is spoken, by code or name [default: found out from the first 30 seconds]
    #[arg(short, long, value_name = "LANGUAGE")]
    language: Option<String>,

    /// Write English, whatever is spoken
    #[arg(long)]
    translate: bool,

    /// Put times before each line of text
    #[arg(long)]
    timestamps: bool,

    /// Find out when each word is said: for JSON, and for subtitles that begin and end with their words
    #[arg(long)]
    word_timestamps: bool,

    /// Let the model tell no times: segments are whole windows of 30 seconds
    #[arg(long, conflicts_with_all = ["timestamps", "word_timestamps"])]
    no_timestamps: bool,

    /// Text that could have come before: names to expect, a style
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Give the prompt to every window, not to the first alone
    #[arg(long, requires = "prompt")]
    carry_prompt: bool,

    /// Give windows no text from before as context: repetitions do not spread, but names may change
    #[arg(long)]
    no_context: bool,

    /// Hypotheses to follow; 1 takes the likeliest token each time, and is fastest
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive(), help_heading = "Search")]
    beam: u32,

    /// How many times as many hypotheses must end before a search does
    #[arg(long, value_name = "X", default_value_t = 1.0, help_heading = "Search")]
    patience: f32,

    /// Samples of which the best is taken, above temperature 0
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive(), help_heading = "Search")]
    best_of: u32,

    /// The first temperature; unsure or repetitive text is tried again at 0.2 more, up to 1
    #[arg(long, value_name = "T", default_value_t = 0.0, help_heading = "Search")]
    temp: f32,

    /// Try every window once only
    #[arg(long, help_heading = "Search")]
    no_fallback: bool,

    /// The same seed gives the same samples
    #[arg(long, default_value_t = 0, help_heading = "Search")]
    seed: u64,

    /// What computes: `akunu devices` lists what there is
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backend_names())]
    backend: String,

    /// CPU threads [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = positive())]
    threads: Option<u32>,

    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Transcribes the recordings.
pub fn run(arguments: &Arguments, out: &mut Out) -> Result<()> {
    let settings = settings(arguments)?;
    let format = format(arguments)?;
    let kept = arguments.output_dir.as_deref().map(|folder| places(folder, arguments)).transpose()?;
    if kept.is_none() && arguments.audio.len() > 1 && matches!(format, Format::Srt | Format::Vtt) {
        return Err(Error::Usage {
            problem: "subtitles of several recordings make no file one after the other".to_owned(),
            hint: "name a folder for them: --output-dir DIR".to_owned(),
        }
        .into());
    }
    if let Some(folder) = &arguments.output_dir {
        std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
    }
    let path = locate(&arguments.model)?;
    let spinner = Spinner::new(&format!("loading {}", path.display()));
    let options = SpeechOptions {
        backend: arguments.backend.clone(),
        threads: arguments.threads.map(|n| n as usize),
        beams: settings.beams.max(settings.best_of),
        ..SpeechOptions::default()
    };
    let transcriber = Transcriber::load(&path, &options);
    spinner.clear();
    let transcriber = transcriber?;

    let several = arguments.audio.len() > 1;
    let mut failed = 0;
    let mut all = Vec::new();
    for (i, audio) in arguments.audio.iter().enumerate() {
        let streams = kept.is_none() && format != Format::Json;
        if streams && several {
            writeln!(out, "{}# {}{:#}", output::HEADING, audio.display(), output::HEADING)?;
        }
        match one(&transcriber, audio, &settings, streams.then_some((format, &mut *out))) {
            Ok(transcription) => match &kept {
                Some(places) => keep(&places[i], &transcription.write(format))?,
                None if format == Format::Json => all.push((audio, transcription)),
                None => {}
            },
            // The others may be fine.
            Err(error) if several && !is_stop(&error) => {
                progress::line(&format!("error: {}", output::message(&error)));
                failed += 1;
            }
            Err(error) => return Err(error),
        }
    }
    if format == Format::Json && kept.is_none() {
        write_json(&all, several, out)?;
    }
    match failed {
        0 => Ok(()),
        count => bail!("{count} of {} recordings could not be transcribed", arguments.audio.len()),
    }
}

/// One recording; segments are written as they come, where that is wanted.
fn one(
    transcriber: &Transcriber,
    audio: &Path,
    settings: &SpeechSettings,
    mut streamed: Option<(Format, &mut Out)>,
) -> Result<Transcription> {
    let handle = StopHandle::default();
    let watch = stop::Watch::new(handle.clone());
    let spinner = Spinner::new(&format!("reading {}", audio.display()));
    let sound = read(transcriber, audio, &handle);
    spinner.clear();
    let sound = sound?;
    if let Some(damage) = sound.damage() {
        progress::line(&format!("warning: {}: {damage}", audio.display()));
    }
    let meter = SoundMeter::new((sound.seconds() > LONG).then(|| sound.seconds()));
    let mut writer = Writer::new(streamed.as_ref().map_or(Format::Json, |(format, _)| *format));
    let mut written = match &mut streamed {
        Some((_, out)) => out.write_all(writer.begin().as_bytes()),
        None => Ok(()),
    };
    let transcription = transcriber.transcribe(&sound, settings, &handle, &mut |event| match event {
        Event::Segment(segment) => {
            if let (Some((_, out)), Ok(())) = (&mut streamed, &written) {
                let text = writer.segment(segment);
                written = meter.above(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()));
                if written.is_err() {
                    handle.stop();
                }
            }
        }
        Event::Progress { done, .. } => meter.set(done),
        Event::Language { code, probability } => {
            meter.note(&format!("language: {code} ({:.0} %)", 100.0 * probability));
        }
        Event::Done(_) => {}
    });
    drop(watch);
    meter.clear();
    // What could not be written explains why the rest was stopped.
    written?;
    Ok(transcription?)
}

fn read(transcriber: &Transcriber, audio: &Path, stop: &StopHandle) -> Result<Sound> {
    if audio != Path::new("-") {
        return Ok(transcriber.open(audio, stop)?);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
    Ok(transcriber.decode(bytes, "standard input", stop)?)
}

/// Where each transcription goes: named after its recording, and no two to the same place.
fn places(folder: &Path, arguments: &Arguments) -> Result<Vec<PathBuf>> {
    let extension = if arguments.json { "json" } else { arguments.output.as_str() };
    let mut places: Vec<PathBuf> = Vec::new();
    for audio in &arguments.audio {
        let name = if audio == Path::new("-") { Path::new("stdin") } else { audio };
        let mut file = name.file_stem().unwrap_or(name.as_os_str()).to_owned();
        file.push(".");
        file.push(extension);
        let place = folder.join(file);
        if let Some(other) = places.iter().position(|other| *other == place) {
            let other = arguments.audio[other].display();
            return Err(Error::Usage {
                problem: format!("{other} and {} would both become {}", audio.display(), place.display()),
                hint: "transcribe them into different folders".to_owned(),
            }
            .into());
        }
        places.push(place);
    }
    Ok(places)
}

/// Writes a transcription into a file of its own.
fn keep(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    progress::line(&format!("{}", path.display()));
    Ok(())
}

/// A transcription, or an array of them, each with the name of its recording.
fn write_json(all: &[(&PathBuf, Transcription)], several: bool, out: &mut Out) -> Result<()> {
    if !several {
        return all.iter().try_for_each(|(_, transcription)| output::json(out, transcription));
    }
    let named: Vec<_> = all
        .iter()
        .map(|(audio, transcription)| {
            let mut value = json!({"audio": audio.display().to_string()});
            if let (Some(value), Ok(serde_json::Value::Object(fields))) =
                (value.as_object_mut(), serde_json::to_value(transcription))
            {
                value.extend(fields);
            }
            value
        })
        .collect();
    output::json(out, &named)
}

fn is_stop(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    kind == Some(akunu::Kind::Stopped) || error.is::<io::Error>()
}

fn format(arguments: &Arguments) -> Result<Format> {
    let name = if arguments.json { "json" } else { arguments.output.as_str() };
    let format = name.parse::<Format>().map_err(anyhow::Error::msg)?;
    match format {
        Format::Text if arguments.timestamps => Ok(Format::TimedText),
        Format::Text if arguments.word_timestamps => Err(Error::Usage {
            problem: "plain text has no room for the times of words".to_owned(),
            hint: "add --output json, srt or vtt".to_owned(),
        }
        .into()),
        format => Ok(format),
    }
}

fn settings(arguments: &Arguments) -> Result<SpeechSettings> {
    if !(0.0..=1.0).contains(&arguments.temp) {
        return Err(Error::Usage {
            problem: format!("a temperature of {}", arguments.temp),
            hint: "give one from 0 to 1".to_owned(),
        }
        .into());
    }
    let steps = if arguments.no_fallback {
        1
    } else {
        1 + ((1.0 - arguments.temp) / TEMPERATURE_STEP + 1e-3) as usize
    };
    Ok(SpeechSettings {
        language: arguments.language.clone(),
        translate: arguments.translate,
        prompt: arguments.prompt.clone(),
        carry_prompt: arguments.carry_prompt,
        condition_on_previous_text: !arguments.no_context,
        timestamps: !arguments.no_timestamps,
        words: arguments.word_timestamps,
        beams: arguments.beam as usize,
        patience: arguments.patience,
        best_of: arguments.best_of as usize,
        temperatures: (0..steps).map(|i| arguments.temp + i as f32 * TEMPERATURE_STEP).collect(),
        seed: arguments.seed,
        ..SpeechSettings::default()
    })
}
