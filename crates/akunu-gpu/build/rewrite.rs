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
    /// OpenCL kernels that take pointers, and their parameters by value.
    Ptx,
}

const THREADS: &str = "[[max_total_threads_per_threadgroup(";
const KERNEL: &str = "kernel void ";

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
        let end =
            open + closing(&rest[open..]).ok_or_else(|| format!("{name}: parameters are not closed"))?;
        let (parameters, statements) =
            bind(&rest[open + 1..end], target).map_err(|p| format!("{name}: {p}"))?;
        let body = end + rest[end..].find('{').ok_or_else(|| format!("{name} has no body"))?;
        text += &match target {
            Target::Emulator => format!("__kernel void akunu_kernel_{name}({parameters}) {{ {statements}"),
            Target::Ptx => format!(
                "__kernel __attribute__((reqd_work_group_size({threads}, 1, 1))) void {name}({parameters}) {{ {statements}"
            ),
        };
        rest = &rest[body + 1..];
        kernels.push(Kernel { name, threads });
    }
    if rest.contains(KERNEL) {
        return Err("a kernel does not say how many threads its threadgroups have".to_owned());
    }
    Ok((text + rest, kernels))
}

/// Where the parenthesis that opens `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(i, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (depth == 0).then_some(i)
    })
}

/// The parameters a kernel takes instead, and the statements that bind what it took before.
fn bind(parameters: &str, target: Target) -> Result<(String, String), String> {
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
        let value = match attribute {
            "threadgroup_position_in_grid" => "shim::group()",
            "thread_index_in_threadgroup" => "shim::thread_index()",
            "thread_index_in_simdgroup" => "shim::thread_index() % 32",
            "simdgroup_index_in_threadgroup" => "shim::thread_index() / 32",
            other => return Err(format!("[[{other}]] is not known here")),
        };
        statements += &format!("{declaration} = {value}; ");
    }
    if target == Target::Emulator {
        kept = vec!["const __global ulong* buffers".to_owned(), "const __global uchar* params".to_owned()];
    }
    Ok((kept.join(", "), statements))
}
