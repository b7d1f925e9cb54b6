//! Prints the C header of a model.

use std::fmt::Write;

use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;

use super::check::named;
use super::{Array, Entry, Group, Interface, Parameter, Record};

/// Definitions that all headers contain. The guard lets a program include several headers.
const STATUS: &str = "\
#ifndef MITHRIL_STATUS
#define MITHRIL_STATUS
/* Return values of functions. On an error, a function has written nothing. */
enum mithril_status {
  MITHRIL_OK = 0,
  /* A dim is out of range, or the dims do not fit together. */
  MITHRIL_ERROR_DIMS = 1,
  /* A pointer to an array, a struct or the workspace is NULL, but must not be. */
  MITHRIL_ERROR_NULL = 2,
  /* The workspace is not 64-byte aligned. */
  MITHRIL_ERROR_ALIGNMENT = 3,
  /* The library does not support this processor. */
  MITHRIL_ERROR_CPU = 4,
  /* An integer that indexes an axis is out of range. */
  MITHRIL_ERROR_INDEX = 5
};
#endif
";

/// The struct with which a caller provides threads.
const THREADS: &str = "\
#ifndef MITHRIL_THREADS
#define MITHRIL_THREADS
/* Threads that the caller provides for a call. */
struct mithril_threads {
  /* The number of threads, 1 to 4096. */
  int64_t count;
  /* Calls part(argument, i) for each i from 0 to parts - 1, in parallel, and returns when all calls
   * have returned. There are at most as many parts as threads. */
  void (*run)(void *context, int64_t parts, void (*part)(void *argument, int64_t i), void *argument);
  /* The first argument of run. */
  void *context;
};
#endif

";

/// Prints the header. `about` is the first comment, which describes the file.
pub fn header(interface: &Interface, about: &str) -> String {
    let mut text = comment(&format!("{about}\n\n{CALLING}"), "");
    let guard = format!("MITHRIL_{}_H", interface.model.to_uppercase());
    let _ = write!(
        text,
        "#ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n{STATUS}\n"
    );
    if interface.shared {
        text += THREADS;
    }
    let mut known: Vec<&str> = Vec::new();
    for entry in &interface.entries {
        for record in &entry.records {
            if !known.contains(&record.type_name.as_str()) {
                known.push(&record.type_name);
                text += &structure(entry, record);
            }
        }
        text += &functions(entry);
        if interface.shared {
            text += &parallel(entry);
        }
    }
    let _ = write!(text, "#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n");
    text
}

const CALLING: &str = "\
Arrays are dense and row-major, and have the alignment of their elements. A comment has_result the \
shape of each. A result must not overlap with another array. The workspace is 64-byte aligned \
memory, whose contents need not be kept between calls. Any number of threads may call at the same \
time, each with its own workspace and results. Functions allocate no memory and keep no state.";

/// The C type of an element of this dtype in memory.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 | DType::BF16 | DType::U16 => "uint16_t",
        DType::I64 => "int64_t",
        DType::I32 => "int32_t",
        DType::I16 => "int16_t",
        DType::I8 | DType::I4 => "int8_t",
        DType::U64 => "uint64_t",
        DType::U32 => "uint32_t",
        DType::U8 | DType::Bool | DType::U4 | DType::F8E4M3 | DType::F8E5M2 => "uint8_t",
    }
}

/// Describes a dtype, if its C type does not.
fn meaning(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F16 => Some("bits of IEEE binary16"),
        DType::BF16 => Some("bits of bfloat16"),
        DType::Bool => Some("0 or 1"),
        DType::I4 => Some("-8 to 7"),
        DType::U4 => Some("0 to 15"),
        DType::F8E4M3 => Some("bits of float8 e4m3fn"),
        DType::F8E5M2 => Some("bits of float8 e5m2"),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8 => None,
    }
}

fn structure(entry: &Entry, record: &Record) -> String {
    let what = match record.group {
        Group::Param => "The params",
        Group::State => "The state before a call",
        Group::NextState => "The state after a call, which the call writes",
        Group::Gradient => "The gradients of params, which a call writes",
        Group::Input | Group::Output => "Arrays",
    };
    let mut text = comment(&format!("{what}, by name."), "");
    let name = &record.type_name;
    let _ = writeln!(text, "typedef struct {name} {{");
    for array in entry.fields(record) {
        let _ = writeln!(text, "  {}; /* {} */", declaration(array), describe(entry, array));
    }
    let _ = write!(text, "}} {name};\n\n");
    text
}

/// Prints a declaration: `const float *x`.
fn declaration(array: &Array) -> String {
    let constant = if array.group.is_read() { "const " } else { "" };
    format!("{constant}{} *{}", c_type(array.ty.dtype), array.name)
}

/// Describes an array: ``param `linear.w`: f32 [8, 16]``.
fn describe(entry: &Entry, array: &Array) -> String {
    let role = match (array.group, array.role) {
        (Group::Output, _) => "output",
        (Group::Gradient, _) => "gradient of",
        (_, Role::Data | Role::Constant) => "input",
        (_, Role::Key) => "key of random numbers,",
        (_, Role::Cotangent) => "gradient of the output",
        (_, Role::Param | Role::State) => array.role.name(),
    };
    let dims = array.ty.shape.dims.iter();
    let dims: Vec<String> = dims.map(|dim| named(dim, &entry.symbols).to_string()).collect();
    let meaning = meaning(array.ty.dtype).map_or(String::new(), |text| format!(" ({text})"));
    let path = quoted(&array.path);
    let end = if array.is_optional() { "; NULL stands for zeros" } else { "" };
    format!("{role} {path}: {} [{}]{meaning}{end}", array.ty.dtype, dims.join(", "))
}

/// Quotes a name for a C comment.
fn quoted(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    format!("`{}`", escaped(&plain.collect::<String>()))
}

/// Escapes text so that it neither ends nor begins a C comment.
fn escaped(text: &str) -> String {
    text.replace("*/", "* /").replace("/*", "/ *")
}

fn functions(entry: &Entry) -> String {
    let symbols: Vec<String> =
        entry.symbols.iter().map(|s| format!("int64_t {}", s.name)).collect();
    let dims = if symbols.is_empty() { "void".to_string() } else { symbols.join(", ") };
    let about = "The size of the workspace in bytes; SIZE_MAX if the dims are invalid.";
    let mut text = comment(about, "");
    let _ = write!(text, "size_t {}_workspace_bytes({dims});\n\n", entry.name);
    text += &comment(&documentation(entry), "");
    let parameters = entry.parameters();
    let parameters =
        parameters.iter().map(|parameter| format!("    {}", parameter_text(entry, *parameter)));
    let parameters: Vec<String> = parameters.collect();
    let _ = write!(text, "int {}(\n{});\n\n", entry.name, parameters.join(",\n"));
    text
}

/// Declares the functions that share the work among threads.
fn parallel(entry: &Entry) -> String {
    let dims = entry.symbols.iter().map(|s| format!("int64_t {}, ", s.name));
    let dims: String = dims.collect();
    let name = &entry.name;
    let about = "The size of the workspace in bytes, for a call with this number of threads.";
    let mut text = comment(about, "");
    let _ = write!(text, "size_t {name}_parallel_workspace_bytes({dims}int64_t count);\n\n");
    let about = format!(
        "Like {name}, but shares the work among threads. The results have the same bits. If threads \
         is NULL, the calling thread does all work."
    );
    text += &comment(&about, "");
    let parameters = entry.parameters();
    let parameters =
        parameters.iter().map(|parameter| format!("    {}", parameter_text(entry, *parameter)));
    let parameters: Vec<String> = parameters.collect();
    let threads = "    const struct mithril_threads *threads";
    let _ = write!(text, "int {name}_parallel(\n{},\n{threads});\n\n", parameters.join(",\n"));
    text
}

/// Prints a parameter: `int64_t n`, `const float *x`, `const mithril_mlp_params *params`.
pub fn parameter_text(entry: &Entry, parameter: Parameter) -> String {
    match parameter {
        Parameter::Symbol(at) => format!("int64_t {}", entry.symbols[at].name),
        Parameter::Argument(at) => declaration(&entry.arguments[at]),
        Parameter::Result(at) => declaration(&entry.results[at]),
        Parameter::Record(at) => {
            let record = &entry.records[at];
            format!("const {} *{}", record.type_name, record.name)
        }
        Parameter::Workspace => "void *workspace".to_string(),
    }
}

fn documentation(entry: &Entry) -> String {
    let has_result = |group| entry.results.iter().any(|array| array.group == group);
    let mut computed = vec![];
    for (group, what) in [
        (Group::Output, "the outputs"),
        (Group::Gradient, "the gradients of params"),
        (Group::NextState, "the next state"),
    ] {
        computed.extend(has_result(group).then_some(what));
    }
    let mut text = match computed.split_last() {
        Some((last, [])) => format!("Computes {last}."),
        Some((last, others)) => format!("Computes {} and {last}.", others.join(", ")),
        None => String::new(),
    };
    for symbol in &entry.symbols {
        let _ = write!(text, "\n  {}: 0 to {}", symbol.name, entry.limit);
    }
    for check in &entry.checks {
        let _ = write!(text, "\n  {}", check.text);
    }
    for indices in &entry.indices {
        let _ = write!(text, "\n  {}", indices.text);
    }
    for parameter in entry.parameters() {
        let array = match parameter {
            Parameter::Argument(at) => &entry.arguments[at],
            Parameter::Result(at) => &entry.results[at],
            Parameter::Symbol(_) | Parameter::Record(_) | Parameter::Workspace => continue,
        };
        let _ = write!(text, "\n  {}: {}", array.name, describe(entry, array));
    }
    text + "\n  workspace: memory of the size above, 64-byte aligned; may be NULL if the size is 0"
}

/// Prints a C comment with these lines. Long lines are wrapped.
pub fn comment(text: &str, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in escaped(text).lines() {
        let lead = &line[..line.len() - line.trim_start().len()];
        let mut words = line.split_whitespace();
        let mut current = format!("{lead}{}", words.next().unwrap_or(""));
        for word in words {
            if current.len() + word.len() > 92 {
                let next = format!("{lead}{lead}{word}");
                lines.push(std::mem::replace(&mut current, next));
                continue;
            }
            current = format!("{current} {word}");
        }
        lines.push(current);
    }
    let body: Vec<String> =
        lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_string()).collect();
    match body.as_slice() {
        [one] => format!("{indent}/*{} */\n", &one[indent.len() + 2..]),
        _ => format!("{indent}/*\n{}\n{indent} */\n", body.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_wrapped_and_escaped() {
        assert_eq!(comment("one line", ""), "/* one line */\n");
        assert_eq!(comment("two\n  lines", "  "), "  /*\n   * two\n   *   lines\n   */\n");
        assert_eq!(quoted("a*/ b/*"), "`a* / b/ *`");
        assert_eq!(comment("in */ int f(void);/*", ""), "/* in * / int f(void);/ * */\n");
    }
}
