//! The one change Metal source needs for clang: what Metal binds by attributes of a kernel's parameters is bound by
//! statements at the start of its body.

/// A kernel found in the source.
pub struct Kernel {
    pub name: String,
    /// Threads of a threadgroup, by `max_total_threads_per_threadgroup`.
    pub threads: u32,
}

/// What the kernels are rewritten for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Kernels that take an array of addresses, and the address of their parameters.
    Emulator,
    /// OpenCL kernels that take pointers, and their parameters by value; without the products of prompts that tensor cores do.
    Ptx,
    /// Functions that a kernel which walks a list of commands calls; those it cannot call are left out.
    Walk,
}

const THREADS: &str = "[[max_total_threads_per_threadgroup(";
const KERNEL: &str = "kernel void ";

/// Threads of the threadgroups that a walking kernel emulates: kernels may use fewer, or those of four.
const WALK_THREADS: u32 = 128;
const WALK_WHOLE: u32 = 4 * WALK_THREADS;

/// How the names of kernels begin and end that are never walked: they are for many rows, and would only make the walking kernel larger.
const MANY_ROWS: [(&str, &str); 5] =
    [("gemm_", ""), ("attend_all_", ""), ("attend_weights", ""), ("unfold", ""), ("gemv_", "_8")];

/// How the names of kernels begin that use as much threadgroup memory as a device has: they are told how much that is.
const SEVERAL: &str = "several_";

/// Rewrites preprocessed source and lists its kernels.
pub fn rewrite(source: &str, target: Target) -> Result<(String, Vec<Kernel>), String> {
    let (mut text, mut kernels) = (String::with_capacity(source.len()), Vec::new());
    let mut rest = source;
    while let Some(at) = rest.find(THREADS) {
        text += &rest[..at];
        rest = &rest[at + THREADS.len()..];
        let close = rest.find(")]]").ok_or("an attribute is not closed")?;
        let threads = rest[..close].trim().parse().map_err(|_| "threads of a kernel are not a number")?;
        rest = rest[close + 3..].trim_start();
        rest = rest.strip_prefix(KERNEL).ok_or("a thread count that no kernel follows")?;
        let open = rest.find('(').ok_or("a kernel without parameters")?;
        let name = rest[..open].trim().to_owned();
        let unclosed = |what: &str| format!("{name}: its {what} is not closed");
        let end = open + closing(&rest[open..], '(', ')').ok_or_else(|| unclosed("list of parameters"))?;
        let begin = end + rest[end..].find('{').ok_or_else(|| format!("{name} has no body"))?;
        let after = begin + closing(&rest[begin..], '{', '}').ok_or_else(|| unclosed("body"))? + 1;
        let (parameters, statements) =
            bind(&rest[open + 1..end], target, threads).map_err(|p| format!("{name}: {p}"))?;
        let body = &rest[begin + 1..after];
        rest = &rest[after..];
        match target {
            Target::Walk if !is_walked(&name, threads) => continue,
            Target::Ptx if name.starts_with("gemm_") && name != "gemm_f32" => continue,
            Target::Emulator => {
                text += &format!("__kernel void akunu_kernel_{name}({parameters}) {{ {statements}{body}");
            }
            Target::Ptx => text += &format!("__kernel void {name}({parameters}) {{ {statements}{body}"),
            Target::Walk => {
                let pool = match threads {
                    _ if name.starts_with(SEVERAL) => "WALK_LARGEST",
                    WALK_WHOLE => "4 * WALK_POOL",
                    _ => "WALK_POOL",
                };
                let body = pooled(body, pool);
                text += &format!(
                    "extern \"C\" __attribute__((noinline)) void walk_{name}({parameters}) {{ {statements}{body}"
                );
            }
        }
        kernels.push(Kernel { name, threads });
    }
    if rest.contains(KERNEL) {
        return Err("a kernel does not say how many threads its threadgroups have".to_owned());
    }
    Ok((text + rest, kernels))
}

fn is_walked(name: &str, threads: u32) -> bool {
    let for_many = MANY_ROWS.iter().any(|(start, end)| name.starts_with(start) && name.ends_with(end));
    (threads <= WALK_THREADS || threads == WALK_WHOLE) && !for_many
}

/// Where the bracket that opens `text` closes.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(i, c)| {
        depth += i32::from(c == open) - i32::from(c == close);
        (depth == 0).then_some(i)
    })
}

/// A body whose arrays in threadgroup memory are taken from what a walking kernel gives, which is at most so much.
fn pooled(body: &str, most: &str) -> String {
    let (mut text, mut sizes) = (String::new(), Vec::new());
    let mut pieces = body.split("__local ");
    text += pieces.next().unwrap_or_default();
    for piece in pieces {
        let declaration = piece.split_once(';').and_then(|(declaration, rest)| {
            let (kind, array) = declaration.split_once(' ')?;
            let (name, length) = array.strip_suffix(']')?.split_once('[')?;
            Some((kind, name, length, rest))
        });
        if let Some((kind, name, length, rest)) = declaration {
            let bytes = format!("((sizeof({kind}) * ({length}) + 15) / 16 * 16)");
            text += &format!("__local {kind}* {name} = (__local {kind}*)pool; pool += {bytes};{rest}");
            sizes.push(bytes);
        } else {
            text += "__local ";
            text += piece;
        }
    }
    if sizes.is_empty() {
        return text;
    }
    format!("static_assert({} <= {most}, \"the pool is too small\"); {text}", sizes.join(" + "))
}

/// The parameters a kernel takes instead, and the statements that bind what it took before.
fn bind(parameters: &str, target: Target, threads: u32) -> Result<(String, String), String> {
    let (mut kept, mut statements) = (Vec::new(), String::new());
    for parameter in parameters.split(',') {
        let (declaration, attribute) =
            parameter.split_once("[[").ok_or_else(|| format!("{} has no attribute", parameter.trim()))?;
        let (declaration, attribute) = (declaration.trim(), attribute.trim().trim_end_matches(']').trim());
        if let Some(index) = attribute.strip_prefix("buffer(") {
            let index = index.trim_end_matches(')');
            // `constant Params& p`: the type without its address space.
            if let Some((left, name)) = declaration.split_once('&') {
                let (kind, name) = (left.split_whitespace().last().unwrap_or_default(), name.trim());
                match target {
                    Target::Emulator => {
                        statements += &format!("const {kind} {name} = *(const __global {kind}*)params; ");
                    }
                    Target::Walk => {
                        statements +=
                            &format!("const __local {kind}& {name} = *(const __local {kind}*)params; ");
                    }
                    Target::Ptx => kept.push(format!("const {kind} {name}")),
                }
            } else if target == Target::Ptx {
                kept.push(declaration.to_owned());
            } else {
                let (kind, _) =
                    declaration.rsplit_once('*').ok_or_else(|| format!("{declaration} is no pointer"))?;
                statements += &format!("{declaration} = ({kind}*)buffers[{index}]; ");
            }
            continue;
        }
        let is_whole = threads == WALK_WHOLE;
        let value = match attribute {
            "thread_index_in_threadgroup" if is_whole => "shim::whole_index()",
            "thread_index_in_simdgroup" if is_whole => "shim::whole_index() % 32",
            "simdgroup_index_in_threadgroup" if is_whole => "shim::whole_index() / 32",
            "threadgroup_position_in_grid" if target == Target::Walk => "{walk_x, walk_y, walk_z}",
            "threadgroup_position_in_grid" => "shim::group()",
            "thread_index_in_threadgroup" => "shim::thread_index()",
            "thread_index_in_simdgroup" => "shim::thread_index() % 32",
            "simdgroup_index_in_threadgroup" => "shim::thread_index() / 32",
            other => return Err(format!("[[{other}]] is not known here")),
        };
        statements += &format!("{declaration} = {value}; ");
    }
    let kept = match target {
        Target::Ptx => kept.join(", "),
        Target::Emulator => "const __global ulong* buffers, const __global uchar* params".to_owned(),
        Target::Walk => {
            "const __local ulong* buffers, const __local uchar* params, __local uchar* pool, uint walk_x, uint walk_y, uint walk_z"
                .to_owned()
        }
    };
    Ok((kept, statements))
}
