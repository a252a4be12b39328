//! PTX in pieces: the driver takes long to compile all kernels, so it is given those that are needed.

use std::collections::HashMap;
use std::fmt::Write;

/// The text of a module: what all functions need, and the functions.
pub(super) struct Ptx {
    preamble: &'static str,
    functions: HashMap<&'static str, &'static str>,
}

/// How clang marks where a function begins and ends.
const BEGIN: &str = "-- Begin function ";
const END: &str = "-- End function\n}\n";

/// How the head of a function that others see begins.
const HEAD: &str = "\n.visible .";

impl Ptx {
    /// Cuts a module into its functions.
    pub(super) fn new(text: &'static str) -> Ptx {
        let mut functions = HashMap::new();
        // What is declared for all functions stands behind the first one's mark, before its head.
        let first = text.find(HEAD).map_or(text.len(), |at| at + 1);
        let (preamble, mut rest) = text.split_at(first);
        let mut name = preamble.rsplit_once(BEGIN).map_or("", |(_, after)| line(after));
        while let Some(end) = rest.find(END) {
            let (function, after) = rest.split_at(end + END.len());
            functions.insert(name, function);
            rest = after;
            name = rest.split_once(BEGIN).map_or("", |(_, after)| line(after));
        }
        Ptx { preamble, functions }
    }

    /// What must begin every module; functions that are declared there are left to whoever defines them.
    pub(super) fn preamble(&self) -> String {
        match self.preamble.split_once(".extern .func") {
            Some((before, declaration)) => {
                before.to_owned() + declaration.split_once(";\n").map_or("", |(_, after)| after)
            }
            None => self.preamble.to_owned(),
        }
    }

    /// A function as it was compiled.
    pub(super) fn function(&self, name: &str) -> Option<&'static str> {
        self.functions.get(name).copied()
    }

    /// A kernel, told how many threads its blocks have and how many blocks a multiprocessor runs at once: that bounds its
    /// registers.
    pub(super) fn kernel(&self, name: &str, threads: u32, blocks: u32) -> Option<String> {
        let (head, body) = self.function(name)?.split_once("\n{\n")?;
        Some(format!("{head}\n.reqntid {threads}, 1, 1\n.minnctapersm {blocks}\n{{\n{body}"))
    }
}

/// The rest of a line.
fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

/// The kernel that walks, with the functions it calls (names, threads and texts) written out where it calls them by their places in
/// the list: a call would save registers to memory.
pub(super) fn inlined(kernel: &str, called: &[(&str, u32, &str)]) -> Option<String> {
    let (before, rest) = kernel.split_once("{ // callseq")?;
    let (call, after) = rest.split_once("} // callseq")?;
    let after = after.split_once('\n')?.1;
    // What is passed, in order: a number, three addresses, three numbers.
    let passed: Vec<&str> = call
        .lines()
        .filter(|line| line.contains("st.param"))
        .filter_map(|line| Some(line.rsplit_once(' ')?.1.trim().trim_end_matches(';')))
        .collect();
    let [number, buffers, params, pool, x, y, z] = passed[..] else { return None };
    let mut text = format!(
        "{before}{{\n.reg .pred %walk_p;\n.reg .b32 %walk_t;\n.reg .b32 %walk_n;\n.reg .b64 %walk_a<3>;\n.reg .b32 %walk_g<3>;\n\
         mov.u32 %walk_t, %tid.x;\nand.b32 %walk_t, %walk_t, 127;\nmov.b32 %walk_n, {number};\n\
         mov.b64 %walk_a0, {buffers};\nmov.b64 %walk_a1, {params};\nmov.b64 %walk_a2, {pool};\n\
         mov.b32 %walk_g0, {x};\nmov.b32 %walk_g1, {y};\nmov.b32 %walk_g2, {z};\n"
    );
    for (i, (_, threads, function)) in called.iter().enumerate() {
        let body = function.split_once("\n{\n")?.1.split_once(&END[..END.len() - 3])?.0;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "setp.ne.u32 %walk_p, %walk_n, {i};\n@%walk_p bra WALK_NEXT_{i};\n\
             setp.ge.u32 %walk_p, %walk_t, {threads};\n@%walk_p bra WALK_END;\n{{\n"
        );
        for line in body.lines() {
            if let Some(cleared) = cleared(line) {
                text += &cleared;
                continue;
            }
            match parameter(line) {
                _ if line.trim() == "ret;" => writeln!(text, "bra WALK_END;"),
                Some((register, at @ 0..3)) => writeln!(text, "mov.b64 {register}, %walk_a{at};"),
                Some((register, at)) => writeln!(text, "mov.b32 {register}, %walk_g{};", at - 3),
                None => writeln!(text, "{line}"),
            }
            .ok()?;
        }
        let _ = write!(text, "}}\nbra WALK_END;\nWALK_NEXT_{i}:\n");
    }
    Some(text + "WALK_END:\n}\n" + after)
}

/// A declaration of registers, with statements that clear them. What a function leaves undefined on some path would else be taken for what
/// the call before left, and be kept all the while.
fn cleared(line: &str) -> Option<String> {
    let (kind, registers) = line.trim().strip_prefix(".reg .")?.split_once(char::is_whitespace)?;
    let (name, count) = registers.trim().strip_suffix(">;")?.split_once('<')?;
    let zero = match kind {
        "f32" => "0f00000000",
        "f64" => "0d0000000000000000",
        _ => "0",
    };
    let mut text = format!("{line}\n");
    for i in 1..count.parse::<u32>().ok()? {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "mov.{kind} {name}{i}, {zero};");
    }
    Some(text)
}

/// The register that a line loads a parameter to, and the parameter's place.
fn parameter(line: &str) -> Option<(&str, u32)> {
    let (register, from) =
        line.trim().strip_prefix("ld.param.")?.split_once(char::is_whitespace)?.1.split_once(',')?;
    let place = from.rsplit_once("_param_")?.1.trim_end_matches("];").parse().ok()?;
    Some((register.trim(), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.version 7.0
\t// .globl f  // -- Begin function f
.extern .func g
(
)
;
.global .b8 table[2];
.visible .func f(
)
{
\tret;
  // -- End function
}
\t// .globl k  // -- Begin function k
.visible .entry k(
)  // @k
{
\tret;
  // -- End function
}
";

    #[test]
    fn modules_are_cut_into_functions() {
        let ptx = Ptx::new(TEXT);
        assert_eq!(
            ptx.preamble(),
            ".version 7.0\n\t// .globl f  // -- Begin function f\n.global .b8 table[2];\n"
        );
        assert!(ptx.function("f").is_some_and(|f| f.starts_with(".visible .func f(") && f.ends_with("}\n")));
        assert!(ptx.function("g").is_none());
    }

    #[test]
    fn kernels_say_how_many_threads_they_have() {
        let kernel = Ptx::new(TEXT).kernel("k", 64, 2);
        assert!(kernel.is_some_and(|k| k.contains("// @k\n.reqntid 64, 1, 1\n.minnctapersm 2\n{\n")));
    }

    #[test]
    fn calls_of_the_walking_kernel_are_written_out() {
        let kernel = "mov.u32 %r1, 0;\n\t{ // callseq 0, 0\n\t.param .b32 param0;\n\tst.param.b32 \t[param0+0], %r1;\n\
            \tst.param.b64 \t[param1+0], %rd1;\n\tst.param.b64 \t[param2+0], %rd2;\n\tst.param.b64 \t[param3+0], %rd3;\n\
            \tst.param.b32 \t[param4+0], %r4;\n\tst.param.b32 \t[param5+0], %r5;\n\tst.param.b32 \t[param6+0], %r6;\n\
            \tcall.uni walk_call, (param0);\n\t} // callseq 0\n\tbar.sync 0;\n";
        let function = ".visible .func walk_f(\n)\n{\n\tld.param.u64 \t%rd9, [walk_f_param_1];\n\
            \t.reg .f32 \t%f<2>;\n\tld.param.u32 \t%r9, [walk_f_param_4];\n\tret;\n  // -- End function\n}\n";
        let text = inlined(kernel, &[("f", 64, function)]).unwrap_or_default();
        assert!(text.starts_with("mov.u32 %r1, 0;\n\t{\n.reg .pred %walk_p;\n"), "{text}");
        let body = "setp.ge.u32 %walk_p, %walk_t, 64;\n@%walk_p bra WALK_END;\n{\nmov.b64 %rd9, %walk_a1;\n\t.reg .f32 \t%f<2>;\nmov.f32 %f1, 0f00000000;\nmov.b32 %r9, %walk_g1;\nbra WALK_END;\n  // \n}\n";
        assert!(text.contains(body), "{text}");
        assert!(text.ends_with("WALK_END:\n}\n\tbar.sync 0;\n"), "{text}");
    }
}
