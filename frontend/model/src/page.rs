//! Pages about blocks, generated from the block table: Markdown for the docs, text for `help`.

use std::fmt::Write;

use mithril_ir::graph::Role;
use mithril_ir::op::Class;

use crate::blocks::{
    Default, Entry, FAMILIES, Family, Input, Meaning, Parameter, Publication, table,
};
use crate::stub::default;

/// The longest line of an example.
const WIDTH: usize = 100;
const NOTE: &str = "Generated from the block table: `make bless` regenerates it.";

/// The pages: file names under `docs/`, and their texts.
pub fn pages() -> Vec<(String, String)> {
    let families = FAMILIES.iter().map(|f| (format!("blocks/{}.md", f.name), family(f)));
    std::iter::once(("blocks.md".to_string(), index())).chain(families).collect()
}

fn index() -> String {
    let mut page = format!(
        "# Blocks\n\nAll blocks, by family. Each name links to its page: arguments, terminals, \
         formula, initial values, a tested example. In Python, `help(ml.Linear)` shows the \
         same.\n\nEvery block is `ml.X` and `mithril.models.X`, and takes `name=`, \
         `backend=` and `device=`, [where it runs](guide/several-backends.md), and `dtype=`, \
         `precision=` and `acc=`, [in what it computes](guide/compiling.md#dtypes). A block that \
         is a model of others takes `checkpoint=True`, which [saves \
         memory](guide/training.md#memory). A block that learns nothing takes `gradient=`, [a \
         gradient of your own](guide/training.md#gradients-of-your-own).\n\n{NOTE}\n"
    );
    for family in FAMILIES {
        let link = |e: &Entry| {
            format!("[`{}`](blocks/{}.md#{})", e.name, family.name, e.name.to_lowercase())
        };
        let links: Vec<String> = family.blocks().map(link).collect();
        let about = family.about.replace("](../", "](").replace("](arith", "](blocks/arith");
        let _ = write!(
            page,
            "\n## [{}](blocks/{}.md)\n\n{about}\n\n{}\n",
            family.title,
            family.name,
            links.join(" · ")
        );
    }
    page
}

fn family(family: &'static Family) -> String {
    let mut page = format!(
        "# {}\n\n{}\n\nThe other families are in the [index](../blocks.md). A formula is an \
         expression of NumPy and SciPy over the block's arguments and terminals, with the other \
         arguments at their defaults; tests evaluate it. {NOTE}\n\nThe examples \
         need:\n\n```python\nimport numpy as np\n\nimport mithril as \
         ml\n\nnp.set_printoptions(precision=4)\n```\n",
        family.title, family.about
    );
    for entry in family.blocks() {
        let _ = write!(page, "\n## {}\n\n`{}`\n\n{}\n\n", entry.name, call(entry), entry.doc());
        for fact in facts(entry) {
            let _ = writeln!(page, "- {fact}");
        }
        let output = entry.example.output;
        let _ = write!(page, "\n```python\n{}```\n\n```text\n{output}\n```\n", code(entry));
    }
    page
}

/// The `help` text of a block.
pub fn help(entry: &Entry) -> String {
    let mut text = format!("{}\n\n", entry.doc());
    for fact in facts(entry) {
        let _ = writeln!(text, "- {fact}");
    }
    text.push_str("\nExample:\n\n    import numpy as np\n    import mithril as ml\n\n");
    for line in code(entry).lines() {
        let _ = writeln!(text, "    {line}");
    }
    text.push('\n');
    for line in entry.example.output.lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// The `help` text of the library: the blocks by family.
pub fn listing() -> String {
    let mut text = format!(
        "The library of blocks, and the classes that models are built \
         with.\n\n`help(mithril.models.Linear)` shows the page of a block. Models are built\nwith \
         `Model`, `TrainModel`, `Connection` and `IOKey`.\n\n{} blocks:\n",
        table().count()
    );
    for family in FAMILIES {
        let _ = write!(text, "\n{}\n", family.title);
        let mut line = String::from("   ");
        for entry in family.blocks() {
            if line.len() + entry.name.len() > 78 {
                let _ = writeln!(text, "{line}");
                line = String::from("   ");
            }
            let _ = write!(line, " {}", entry.name);
        }
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The constructor call with its defaults.
fn call(entry: &Entry) -> String {
    let parameter = |p: &Parameter| match p.default {
        Default::Required => p.name.to_string(),
        _ => format!("{}={}", p.name, default(p)),
    };
    let parameters: Vec<String> = entry.parameters.iter().map(parameter).collect();
    format!("ml.{}({})", entry.name, parameters.join(", "))
}

/// Formula, arguments, terminals and sources, one line each.
fn facts(entry: &Entry) -> Vec<String> {
    let mut facts = Vec::new();
    if !entry.formula.is_empty() {
        facts.push(format!("formula: `{}`", entry.formula));
    }
    for parameter in entry.parameters {
        let kind = parameter.kind.name();
        let given = match parameter.default {
            Default::Required => String::new(),
            Default::None => ", optional".to_string(),
            _ => format!(", `{}` by default", default(parameter)),
        };
        let doc = parameter.doc;
        facts.push(format!("argument `{}`: {doc}; {kind}{given}", parameter.name));
    }
    facts.extend(entry.inputs.iter().map(terminal));
    for output in entry.outputs {
        let list = if output.list.is_some() { ", a list" } else { "" };
        facts.push(format!("output `{}`{list}", output.name));
    }
    let named = format!("{} {}", entry.doc(), entry.source);
    for source in Publication::named(&named) {
        // The location within the publication comes from the entry's `source` or from its doc.
        let place = entry.source.strip_prefix(source.short).unwrap_or("");
        facts.push(format!("source: {}{place}: {}", source.short, source.full));
    }
    facts
}

fn terminal(input: &Input) -> String {
    let mut parts = Vec::new();
    if input.list {
        parts.push("a list".to_string());
    }
    if !input.doc.is_empty() {
        parts.push(input.doc.to_string());
    }
    let role = match input.role {
        Role::Param => "param",
        Role::State => "state",
        Role::Data | Role::Key | Role::Constant | Role::Cotangent => {
            parts.push(input.class.name().to_string());
            "input"
        }
    };
    if matches!(input.role, Role::Param | Role::State) {
        parts.push(format!("starts {}", input.init.in_words()));
    }
    if input.optional {
        parts.push("optional".to_string());
    }
    if input.in_training {
        parts.push("used only in training".to_string());
    }
    format!("{role} `{}`: {}", input.name, parts.join("; "))
}

/// The example as Python code.
fn code(entry: &Entry) -> String {
    let example = entry.example;
    if !example.code.is_empty() {
        return example.code.to_string();
    }
    let arrays = entry.inputs.iter().filter(|i| is_data(i) && !i.optional);
    let arrays: Vec<&Input> = arrays.filter(|i| !is_setting(entry, i)).collect();
    let mut made = format!("ml.{}({})", entry.name, example.settings);
    let mut text = String::new();
    let inputs: Vec<String> = match arrays.first() {
        Some(list) if list.list => {
            let names: Vec<String> =
                ('a'..='z').zip(example.inputs).map(|(n, _)| format!("\"{n}\"")).collect();
            let _ = writeln!(text, "model = ml.Model()");
            let joined = names.join(", ");
            let _ = writeln!(text, "model |= {made}(inputs=[{joined}], output=\"output\")");
            made = "model".to_string();
            names.iter().zip(example.inputs).map(|(n, v)| item(n, list.class, v)).collect()
        }
        _ => {
            let pairs = arrays.iter().zip(example.inputs);
            pairs.map(|(i, v)| item(&format!("\"{}\"", i.name), i.class, v)).collect()
        }
    };
    let whole = format!("compiled = ml.compile({made}, ml.NumpyBackend())");
    let _ = match whole.len() <= WIDTH {
        true => writeln!(text, "{whole}"),
        false => {
            writeln!(text, "block = {made}\ncompiled = ml.compile(block, ml.NumpyBackend())")
        }
    };
    let learned: Vec<&Input> = entry.inputs.iter().filter(|i| i.role == Role::Param).collect();
    let drawn = !learned.is_empty() || matches!(entry.meaning, Meaning::Compose(_));
    let params = match example.params {
        [] if drawn => {
            text.push_str("params = compiled.randomize_params()\n");
            "params"
        }
        [] => "{}",
        values => {
            let pairs = learned.iter().zip(values);
            let pairs = pairs.map(|(i, v)| item(&format!("\"{}\"", i.name), i.class, v)).collect();
            text.push_str(&dict("params", pairs));
            "params"
        }
    };
    text.push_str(&dict("inputs", inputs));
    let _ = writeln!(text, "outputs = compiled.evaluate({params}, inputs)");
    let shape = if example.prints_shapes() { ".shape" } else { "" };
    let outputs: Vec<String> = match entry.outputs {
        [] => Vec::new(),
        [only] if only.list.is_some() => vec!["*outputs.values()".to_string()],
        [first, rest @ ..] if rest.iter().all(|o| o.name == "new_key") => {
            vec![format!("outputs[\"{}\"]{shape}", first.name)]
        }
        all => all.iter().map(|o| format!("outputs[\"{}\"]{shape}", o.name)).collect(),
    };
    let _ = writeln!(text, "print({})", outputs.join(", "));
    text
}

fn is_data(input: &Input) -> bool {
    matches!(input.role, Role::Data | Role::Key)
}

/// Whether the example gives the terminal as a setting of the same name.
fn is_setting(entry: &Entry, input: &Input) -> bool {
    entry.parameters.iter().any(|p| p.name == input.name)
}

/// A dict as a statement, on one line if it is short enough.
fn dict(name: &str, items: Vec<String>) -> String {
    let line = format!("{name} = {{{}}}\n", items.join(", "));
    match line.len() > 101 {
        true => format!("{name} = {{\n    {},\n}}\n", items.join(",\n    ")),
        false => line,
    }
}

/// One item of a dict of arrays.
fn item(name: &str, class: Class, value: &str) -> String {
    let array = match class {
        _ if value.starts_with("np.") => value.to_string(),
        Class::Int | Class::Bits | Class::Bool => format!("np.array({value})"),
        Class::Key => format!("np.uint32({value})"),
        Class::Any | Class::Number | Class::Float | Class::Wide => format!("np.float32({value})"),
    };
    format!("{name}: {array}")
}
