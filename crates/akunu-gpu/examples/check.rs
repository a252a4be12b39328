//! Checks a device against the reference backend and the oracles' logits, and measures how fast it decodes models of random
//! weights:
//!
//! ```text
//! cargo run --release -p akunu-gpu --features cuda --example check -- cuda crates/akunu-program/tests/fixtures 135M 1B 8B
//! ```

#![allow(clippy::unwrap_used)]

#[path = "check/encoders.rs"]
mod encoders;
#[path = "check/gated.rs"]
mod gated;
#[path = "check/models.rs"]
mod models;
#[path = "check/shapes.rs"]
mod shapes;

use std::path::Path;

use akunu_program::{Backend, conformance};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, fixtures, shapes @ ..] = &arguments[..] else {
        eprintln!("usage: check emulator|cuda FIXTURES|none [SHAPE...]");
        std::process::exit(2);
    };
    let backend = open(device);
    let mut wrong = 0;
    if fixtures != "none" {
        wrong += check(&*backend);
        wrong += check_wide(&*backend);
        wrong += models::check(&*backend, fixtures.as_ref());
        wrong += check_encoders(&*backend, fixtures.as_ref());
    }
    for shape in shapes {
        shapes::measure(&*backend, shape);
    }
    std::process::exit(i32::from(wrong > 0));
}

fn open(device: &str) -> Box<dyn Backend> {
    match device {
        #[cfg(feature = "emulator")]
        "emulator" => Box::new(akunu_gpu::Gpu::new(akunu_gpu::Emulator::new(akunu_gpu::Schedule::InTurn))),
        #[cfg(feature = "cuda")]
        "cuda" => {
            let began = std::time::Instant::now();
            let gpu = akunu_gpu::Gpu::new(akunu_gpu::Cuda::new().unwrap());
            println!(
                "{:?}, ready in {:.1} s",
                akunu_gpu::Host::facts(gpu.host()),
                began.elapsed().as_secs_f64()
            );
            Box::new(gpu)
        }
        other => panic!("{other} is not in this build"),
    }
}

/// Every operation in every dtype; gives how many are wrong.
fn check(backend: &dyn Backend) -> usize {
    let began = std::time::Instant::now();
    let outcomes = conformance::run(backend);
    let wrong: Vec<_> = outcomes.iter().filter(|o| !o.is_right()).collect();
    wrong.iter().for_each(|outcome| println!("WRONG {outcome}"));
    let seconds = began.elapsed().as_secs_f64();
    println!("operations: {} of {} right, {seconds:.1} s", outcomes.len() - wrong.len(), outcomes.len());
    wrong.len()
}

/// Wide products in every storage; gives how many are wrong.
fn check_wide(backend: &dyn Backend) -> usize {
    let outcomes: Vec<_> = gated::storages().map(|storage| gated::compare(backend, storage)).collect();
    let wrong: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    wrong.iter().for_each(|problem| println!("WRONG {problem}"));
    println!("wide products: {} of {} right", outcomes.len() - wrong.len(), outcomes.len());
    wrong.len()
}

/// Tiny encoders and models of speech against their oracles; gives how many are wrong.
fn check_encoders(backend: &dyn Backend, fixtures: &Path) -> usize {
    let encoders = encoders::ENCODERS
        .map(|name| (name, vec![encoders::encoder(backend, &fixtures.join("encoders").join(name))]));
    let speech = encoders::SPEECH
        .map(|name| (name, encoders::speech(backend, &fixtures.join("speech").join(name)).to_vec()));
    let all = encoders.into_iter().chain(speech);
    let wrong = all.filter(|(name, errors)| {
        println!("{name}: errors {errors:.6?}");
        errors.iter().any(|error| *error >= models::ERROR)
    });
    wrong.count()
}
