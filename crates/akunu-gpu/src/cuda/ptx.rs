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

/// The function by which the walking kernel calls others: each of them (its name, its threads) by its place in the list.
pub(super) fn walk_call(called: &[(&str, u32)]) -> String {
    let mut text = String::from(
        ".func walk_call(.param .b32 number, .param .b64 buffers, .param .b64 params, .param .b64 pool,\n\
         .param .b32 x, .param .b32 y, .param .b32 z)\n{\n\
         .reg .pred %p;\n.reg .b32 %n, %t, %x, %y, %z;\n.reg .b64 %b, %q, %m;\n\
         ld.param.u32 %n, [number];\nld.param.u64 %b, [buffers];\nld.param.u64 %q, [params];\n\
         ld.param.u64 %m, [pool];\nld.param.u32 %x, [x];\nld.param.u32 %y, [y];\nld.param.u32 %z, [z];\n\
         mov.u32 %t, %tid.x;\nand.b32 %t, %t, 127;\n",
    );
    for (i, (name, threads)) in called.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "setp.ne.u32 %p, %n, {i};\n@%p bra NEXT_{i};\n\
             setp.ge.u32 %p, %t, {threads};\n@%p bra END;\n\
             {{\n.param .b64 a0;\n.param .b64 a1;\n.param .b64 a2;\n.param .b32 a3;\n.param .b32 a4;\n.param .b32 a5;\n\
             st.param.b64 [a0], %b;\nst.param.b64 [a1], %q;\nst.param.b64 [a2], %m;\n\
             st.param.b32 [a3], %x;\nst.param.b32 [a4], %y;\nst.param.b32 [a5], %z;\n\
             call walk_{name}, (a0, a1, a2, a3, a4, a5);\n}}\nbra END;\nNEXT_{i}:\n"
        );
    }
    text += "END:\nret;\n}\n";
    text
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
}
