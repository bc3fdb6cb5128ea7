//! Turns the declarations into questions and the C program that answers them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use xen_abi::layout::{Header, StructLayout};

/// One number that the C compiler is asked for.
pub struct Question {
    /// What it is, for messages.
    pub what: String,
    /// The declared value.
    pub expected: i128,
}

/// The C program and what is expected of it.
pub struct Probe {
    /// C source; prints one decimal number per question.
    pub source: String,
    /// In the order of the answers.
    pub questions: Vec<Question>,
    /// Declarations that are exempt, with the reason.
    pub skipped: Vec<(String, &'static str)>,
    /// Structures asked about.
    pub structs: usize,
    /// Fields asked about.
    pub fields: usize,
    /// Constants asked about.
    pub constants: usize,
}

impl Probe {
    /// Asks about everything in `headers`, which are below `include`. They are included by path: some have the names of
    /// the C library's own headers, so the directory must not be on the search path.
    pub fn new(headers: &[&Header], include: &Path) -> Self {
        let mut probe = Probe {
            // The tools' view: the latest interface version and the parameters that only tools see.
            source: String::from(
                "#define __XEN_TOOLS__ 1\n#include <stdint.h>\n#include <stddef.h>\n#include <stdio.h>\n",
            ),
            questions: Vec::new(),
            skipped: Vec::new(),
            structs: 0,
            fields: 0,
            constants: 0,
        };
        let files: BTreeSet<_> = headers.iter().map(|h| h.file).chain(["xen.h"]).collect();
        for file in files {
            let _ = writeln!(
                probe.source,
                "#include \"{}\"",
                include.join(file).display()
            );
        }
        probe.source.push_str("int main(void) {\n");
        for header in headers {
            for layout in header.structs {
                match layout.skip {
                    Some(reason) => probe.skipped.push((layout.c_type.into(), reason)),
                    None => probe.ask_struct(layout),
                }
            }
            for constant in header.constants {
                match constant.skip {
                    Some(reason) => probe.skipped.push((constant.c_name.into(), reason)),
                    None => {
                        probe.constants += 1;
                        probe.ask_constant(constant.c_name, constant.value);
                    }
                }
            }
        }
        probe.source.push_str("return 0; }\n");
        probe
    }

    fn ask_struct(&mut self, layout: &StructLayout) {
        let c = layout.c_type;
        self.structs += 1;
        self.ask_size(format!("sizeof({c})"), format!("sizeof({c})"), layout.size);
        for field in layout.fields {
            let Some(member) = field.c_name() else {
                continue;
            };
            self.fields += 1;
            let offset = format!("offsetof({c}, {member})");
            self.ask_size(offset.clone(), offset, field.offset);
            let size = format!("sizeof((({c} *)0)->{member})");
            self.ask_size(format!("size of {c} {member}"), size, field.size);
        }
    }

    fn ask_size(&mut self, what: String, expression: String, expected: usize) {
        let _ = writeln!(
            self.source,
            "printf(\"%llu\\n\", (unsigned long long)({expression}));"
        );
        self.questions.push(Question {
            what,
            expected: expected as i128,
        });
    }

    /// Constants print signed if they are negative, unsigned otherwise, so that all 64 bits count.
    fn ask_constant(&mut self, name: &str, expected: i128) {
        let _ = writeln!(
            self.source,
            "if (({name}) < 0) printf(\"%lld\\n\", (long long)({name})); else printf(\"%llu\\n\", (unsigned long long)({name}));"
        );
        self.questions.push(Question {
            what: name.into(),
            expected,
        });
    }
}

/// Assertions about the structures of 32-bit callers, for a compiler of i386 that need not make programs: each that fails is
/// an error with its text.
pub struct Assertions {
    /// C source.
    pub source: String,
    /// How many.
    pub count: usize,
}

impl Assertions {
    /// Those about the `twins`, and that the `native` structures which have none are the same; `apart` are neither.
    pub fn new(
        twins: &[&Header],
        native: &[&Header],
        apart: &[(&str, &str)],
        include: &Path,
    ) -> Self {
        let structs = |headers: &[&Header]| -> Vec<StructLayout> {
            headers.iter().flat_map(|h| h.structs.to_vec()).collect()
        };
        let twins = structs(twins);
        let other = |s: &StructLayout| {
            !twins.iter().any(|t| t.c_type == s.c_type) && !apart.iter().any(|a| a.0 == s.c_type)
        };
        let same: Vec<_> = structs(native).into_iter().filter(other).collect();
        let mut source =
            String::from("#define __XEN_TOOLS__ 1\n#include <stdint.h>\n#include <stddef.h>\n");
        let files: BTreeSet<_> = native.iter().map(|h| h.file).chain(["xen.h"]).collect();
        for file in files {
            let _ = writeln!(source, "#include \"{}\"", include.join(file).display());
        }
        let mut count = 0;
        let mut assert = |expression: String, expected: usize| {
            count += 1;
            let _ = writeln!(
                source,
                "_Static_assert({expression} == {expected}, \"i386: {expression}, declared {expected}\");"
            );
        };
        for layout in twins.iter().chain(&same).filter(|s| s.skip.is_none()) {
            let c = layout.c_type;
            assert(format!("sizeof({c})"), layout.size);
            for (member, field) in layout.fields.iter().filter_map(|f| Some((f.c_name()?, f))) {
                assert(format!("offsetof({c}, {member})"), field.offset);
                assert(format!("sizeof((({c} *)0)->{member})"), field.size);
            }
        }
        Assertions { source, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every declared field that C can name must be asked about, with offset and size, and every constant once.
    #[test]
    fn asks_about_everything() {
        let probe = Probe::new(xen_abi::HEADERS, Path::new("/x"));
        let structs = xen_abi::HEADERS
            .iter()
            .flat_map(|h| h.structs)
            .filter(|s| s.skip.is_none());
        let fields = structs
            .clone()
            .flat_map(|s| s.fields)
            .filter(|f| f.c_name().is_some())
            .count();
        let constants = xen_abi::HEADERS
            .iter()
            .flat_map(|h| h.constants)
            .filter(|c| c.skip.is_none())
            .count();
        assert_eq!(
            probe.questions.len(),
            structs.count() + 2 * fields + constants
        );
        assert_eq!(
            probe.source.matches("printf").count(),
            probe.questions.len() + constants
        );
    }
}
