//! Compiles the kernels with clang for the hosts that are asked for: objects for the emulator, PTX for NVIDIA GPUs.
//! Without the features `emulator` and `cuda` nothing is compiled and no clang is needed.

#[path = "build/rewrite.rs"]
mod rewrite;

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::{env, fs, thread};

use rewrite::{Kernel, Target};

/// In the order they are joined: later files use what earlier ones define.
const SOURCES: [&str; 11] =
    ["base", "forms", "gemv", "wide", "several", "gemm", "rows", "attention", "encoder", "experts", "select"];

/// Names under which clang may be installed, the preferred one first.
const CLANGS: [&str; 7] = ["clang-19", "clang-20", "clang-21", "clang-18", "clang-17", "clang-16", "clang"];

/// Set, to have the emulator's kernels stop where they leave a buffer or an array: clang's AddressSanitizer. Tests and examples of this
/// package are then linked with what that needs.
const CHECKED: &str = "AKUNU_EMULATOR_CHECKED";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=kernels");
    println!("cargo:rerun-if-env-changed=AKUNU_CLANG");
    println!("cargo:rerun-if-env-changed={CHECKED}");
    let mut source = String::new();
    for name in SOURCES {
        source += &read(format!("kernels/{name}.metal").as_ref());
    }
    let joined = out.join("kernels.metal");
    write(&joined, &source);
    // Each takes a core for some ten seconds.
    thread::scope(|scope| {
        if env::var_os("CARGO_FEATURE_EMULATOR").is_some() {
            scope.spawn(|| emulator(&clang("emulator"), &joined, &out));
        }
        if env::var_os("CARGO_FEATURE_CUDA").is_some() {
            scope.spawn(|| ptx(&clang("cuda"), &joined, &out));
            scope.spawn(|| walk(&clang("cuda"), &joined, &out));
        }
    });
}

/// The kernels as functions of the emulator, in a library linked into this crate, and a table of them.
fn emulator(clang: &str, source: &Path, out: &Path) {
    let (text, kernels) = rewritten(clang, source, Target::Emulator, &[]);
    let (unit, object) = (out.join("emulator.clcpp"), out.join("emulator.o"));
    write(&unit, &text);
    let target = format!("--target={}", env::var("TARGET").unwrap_or_default());
    // Stacks of fibers are not the thread's own, where frames could be kept back.
    let checks = ["-fsanitize=address", "-fsanitize-address-use-after-return=never"];
    let checks = if env::var_os(CHECKED).is_some() { &checks[..] } else { &[] };
    if !checks.is_empty() {
        // Rust links without a compiler's usual libraries. The whole archive, so that its allocator takes the place of the system's.
        for kind in ["tests", "examples"] {
            println!(
                "cargo:rustc-link-arg-{kind}=-Wl,--whole-archive,-l:libasan.a,--no-whole-archive,-lstdc++,-lm,-ldl"
            );
        }
    }
    let joined = joins_products();
    run(Command::new(clang)
        .args(FLAGS)
        .args(checks)
        .args(if joined { &["-mfma", "-mf16c"][..] } else { &[] })
        .args([&target, "-O2", "-fPIC", "-ffp-contract=off", "-c", "-o"])
        .args([&object, &unit]));
    let library = out.join("libakunu_kernels.a");
    let _ = fs::remove_file(&library);
    run(Command::new("ar").arg("crs").args([&library, &object]));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=akunu_kernels");
    println!("cargo:rustc-link-lib=m");
    let mut table = format!(
        "/// Whether they need a processor with FMA and F16C.\n#[cfg(target_arch = \"x86_64\")]\nconst JOINED: bool = {joined};\n\nunsafe extern \"C\" {{\n"
    );
    for Kernel { name, .. } in &kernels {
        table += &format!("    fn akunu_kernel_{name}(buffers: *const u64, params: *const u8);\n");
    }
    table += "}\n\n/// Every kernel: its name, the threads of a threadgroup, the function.\n";
    table += "pub(crate) static KERNELS: &[(&str, u32, Entry)] = &[\n";
    for Kernel { name, threads } in &kernels {
        table += &format!("    (\"{name}\", {threads}, akunu_kernel_{name}),\n");
    }
    table += "];\n";
    write(&out.join("emulator_kernels.rs"), &table);
}

/// Whether the emulator's kernels use the instructions FMA and F16C, which give the same bits sooner: where the target
/// is said to have them, or is the machine that builds. The emulator refuses to run where they are missing.
fn joins_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    let here = is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    #[cfg(not(target_arch = "x86_64"))]
    let here = false;
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let features = variable("CARGO_CFG_TARGET_FEATURE");
    let has = |feature| features.split(',').any(|f| f == feature);
    (variable("TARGET") == variable("HOST") && here) || (has("fma") && has("f16c"))
}

/// The kernels as PTX for every NVIDIA GPU from the sm_80 generation on, and a table of their thread counts.
fn ptx(clang: &str, source: &Path, out: &Path) {
    let with_tensor = out.join("kernels.clcpp");
    write(&with_tensor, &(read(source) + &read("kernels/tensor.clcpp".as_ref())));
    let (text, kernels) = rewritten(clang, &with_tensor, Target::Ptx, &PTX);
    let unit = out.join("cuda.clcpp");
    write(&unit, &text);
    assemble(clang, &PTX, &unit, &out.join("kernels.ptx"));
    let table = threads_of("KERNELS", "Every kernel", &kernels);
    write(&out.join("cuda_kernels.rs"), &table);
}

/// Threadgroup memory of each of the four threadgroups that a block of a walking kernel emulates, in bytes.
const WALK_POOL: u32 = 23 * 1024;

/// The most threadgroup memory that a block may be given, on devices that have as much.
const WALK_LARGEST: u32 = 217 * 1024;

/// The kernel that walks lists of commands and the functions it may call, as PTX that is put together when it is known which of
/// them a list needs.
fn walk(clang: &str, source: &Path, out: &Path) {
    let flags = [&PTX[..], &["-DSHIM_WALK"]].concat();
    let (functions, kernels) = rewritten(clang, source, Target::Walk, &flags);
    let unit = out.join("walk.clcpp");
    let pool = format!("enum {{ WALK_POOL = {WALK_POOL}, WALK_LARGEST = {WALK_LARGEST} }};\n");
    write(&unit, &(pool + &functions + &read("kernels/walk.clcpp".as_ref())));
    assemble(clang, &flags, &unit, &out.join("walk.ptx"));
    let memory = format!(
        "/// Bytes of threadgroup memory that walking takes.\nconst WALK_MEMORY: u32 = 4 * {WALK_POOL};\n\n\
         /// The most that it can use.\npub(super) const WALK_LARGEST: u32 = {WALK_LARGEST};\n\n"
    );
    let table = threads_of("WALKED", "The kernels that can be walked", &kernels);
    write(&out.join("walk_kernels.rs"), &(memory + &table));
}

/// A table of kernels, as Rust.
fn threads_of(table: &str, what: &str, kernels: &[Kernel]) -> String {
    let mut text = format!(
        "/// {what}: the name and the threads of a threadgroup.\nconst {table}: &[(&str, u32)] = &[\n"
    );
    for Kernel { name, threads } in kernels {
        text += &format!("    (\"{name}\", {threads}),\n");
    }
    text + "];\n"
}

fn assemble(clang: &str, target: &[&str], unit: &Path, ptx: &Path) {
    run(Command::new(clang)
        .args(FLAGS)
        .args(target)
        // A call would take its parameters through memory.
        .args(["-O3", "-mllvm", "-inline-threshold=100000", "-ffp-contract=off", "-S", "-o"])
        .args([ptx, unit]));
}

/// What PTX is made for.
const PTX: [&str; 6] =
    ["--target=nvptx64-nvidia-cuda", "-march=sm_80", "-Xclang", "-target-feature", "-Xclang", "+ptx74"];

/// How clang reads Metal: as C++ for OpenCL, with our own standard library.
const FLAGS: [&str; 7] = [
    "-x",
    "clcpp",
    "-cl-std=CLC++2021",
    "-cl-no-stdinc",
    "-Ishim",
    "-Xclang",
    "-cl-ext=+cl_khr_fp16,+__opencl_c_generic_address_space,+__opencl_c_program_scope_global_variables",
];

/// The preprocessed source with its kernels' signatures rewritten for the target.
fn rewritten(clang: &str, source: &Path, target: Target, flags: &[&str]) -> (String, Vec<Kernel>) {
    let output = Command::new(clang).args(FLAGS).args(flags).args(["-E", "-P"]).arg(source).output();
    let output = output.unwrap_or_else(|error| fail(&format!("cannot run {clang}: {error}")));
    if !output.status.success() {
        fail(&String::from_utf8_lossy(&output.stderr));
    }
    rewrite::rewrite(&String::from_utf8_lossy(&output.stdout), target)
        .unwrap_or_else(|problem| fail(&problem))
}

/// The compiler: what `AKUNU_CLANG` names, or the first of the usual names.
fn clang(feature: &str) -> String {
    let works = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    if let Ok(name) = env::var("AKUNU_CLANG") {
        if !works(&name) {
            fail(&format!("AKUNU_CLANG={name} does not run"));
        }
        return name;
    }
    CLANGS.into_iter().find(|name| works(name)).map_or_else(
        || {
            fail(&format!(
                "the feature \"{feature}\" of akunu-gpu compiles its kernels with clang 16 or later, and none was found; \
                 install it (Debian: apt install clang-19), or name one in AKUNU_CLANG, or build without the feature"
            ))
        },
        str::to_owned,
    )
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{command:?}: {status}")),
        Err(error) => fail(&format!("{command:?}: {error}")),
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
}

fn fail(problem: &str) -> ! {
    eprintln!("error: {problem}");
    exit(1);
}
