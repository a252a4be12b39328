//! Threads of the kernels' threadgroups, for hosts that compile the sources themselves.

/// How the names of kernels begin whose threadgroups have 512 threads.
const WHOLE: [&str; 5] = ["attend_part_", "wide1_", "wide2_", "wide4_", "several_"];

/// Threads of a kernel's threadgroup, as `[[max_total_threads_per_threadgroup]]` in its source says.
pub(crate) fn threads(kernel: &str) -> u32 {
    match kernel {
        "threshold" => 1024,
        "penalize" => 256,
        "attend_merge" | "remember" | "shift_keys" => 64,
        name if WHOLE.iter().any(|kind| name.starts_with(kind)) => 512,
        "choose" | "route" => 32,
        _ => 128,
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    #[test]
    fn threads_are_those_the_sources_say() {
        for &(kernel, threads, _) in crate::emulator::KERNELS {
            assert_eq!(super::threads(kernel), threads, "{kernel}");
        }
    }
}
