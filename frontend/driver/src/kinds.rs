//! The kinds of errors. Each has a code that messages show, and a page in `docs/errors/` that
//! `mithril error` prints.

use mithril_ir::diagnostic::Diagnostic;

/// A kind of error.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    pub code: &'static str,
    pub heading: &'static str,
    /// Texts of which the first line of an error of this kind contains at least one. An error has
    /// the first kind that matches.
    says: &'static [&'static str],
}

const fn kind(code: &'static str, heading: &'static str, says: &'static [&'static str]) -> Kind {
    Kind { code, heading, says }
}

/// Every kind. The last one is the fallback.
pub const KINDS: &[Kind] = &[
    kind("E0901", "Mithril has a bug here", &["Mithril has a bug here"]),
    kind("E0107", "Terminal not found", &["Terminal not found"]),
    kind(
        "E0201",
        "Incompatible shapes during compilation",
        &["Incompatible shapes during compilation"],
    ),
    kind("E0202", "Incompatible shapes", &["Incompatible shapes"]),
    kind("E0205", "Index out of range", &["Index out of range"]),
    kind("E0602", "A function in text", &["the text of the function"]),
    kind("E0501", "Backend does not support operation", &["Backend does not support operation"]),
    kind(
        "E0506",
        "Out of memory",
        &[
            "Out of memory",
            "larger than memory",
            "more elements than any memory",
            "does not fit into `memory_budget`",
            "a size is too large",
        ],
    ),
    kind(
        "E0504",
        "C cannot be compiled",
        &["C cannot be compiled", "the library cannot be linked"],
    ),
    kind("E0503", "Native code", &["Native code", "native code", "there is no such processor"]),
    kind(
        "E0502",
        "A framework or a device is missing",
        &[
            "which cannot be imported",
            "has no device",
            "computes only on the CPU",
            "computes in floats",
            "this version compiles a model for one backend",
            "has no such arrays",
        ],
    ),
    kind("E0101", "No such block", &["there is no block", "module `mithril"]),
    kind("E0104", "Two blocks write one name", &["two blocks write"]),
    kind(
        "E0105",
        "A name that cannot be",
        &[
            "two blocks are called",
            "the name of a ",
            "has a terminal `",
            "must be the name of the block",
        ],
    ),
    kind("E0106", "A model in use is complete", &["can no longer be changed"]),
    kind("E0108", "A cycle", &["has a cycle"]),
    kind("E0109", "An empty model", &["` is empty", "has no output", "has not been constructed"]),
    kind(
        "E0110",
        "A connection has no value before a call",
        &[
            "takes numbers, and a connection has none",
            "has no truth value",
            "what a connection contains",
            "cannot be iterated over",
            "has a length before it is computed",
        ],
    ),
    kind(
        "E0111",
        "A connection of another model",
        &["a connection of one model is used in another", "belongs to no model"],
    ),
    kind(
        "E0103",
        "A connection that cannot be made",
        &[
            "cannot be connected to this",
            "is connected twice",
            "has fewer terminals",
            "is an output",
            "no standard",
            "reads nothing",
            "takes a list of connections",
            "cannot be the value of a terminal",
            "a positional terminal is None",
            "a list output",
            "is a list, but its",
            "expression cannot start",
            "an input of a model must have a name",
            "is an input",
        ],
    ),
    kind(
        "E0204",
        "Ranks that are not known yet",
        &["needs known ranks", "has no values before", "has no value yet", "known ranks"],
    ),
    kind(
        "E0203",
        "Dtypes that do not fit",
        &[
            "different dtype",
            "differ in dtype",
            "does not take this dtype",
            "this is not a dtype",
            "the wrong kind of dtype",
            "the wrong dtype",
            "` does not fit i",
            "` does not fit u",
            "` does not fit b",
            "` does not fit f",
            "beyond every dtype",
        ],
    ),
    kind("E0301", "An array is missing", &["missing from", "is missing"]),
    kind(
        "E0302",
        "No array of the backend",
        &[
            "is not an array of the backend",
            "is an array of another framework",
            "this is not an array",
            "does not have all its elements in memory",
        ],
    ),
    kind("E0303", "A dict of arrays by name", &["must be a dict of"]),
    kind("E0304", "An index out of range", &["out of range of", "the index"]),
    kind(
        "E0403",
        "A model to be trained",
        &[
            "the model to be trained",
            "cannot combine the losses",
            "reads no output of the model",
            "cannot be trained",
            "has no gradients",
            "not a model to be trained",
        ],
    ),
    kind(
        "E0402",
        "A keyword or an argument",
        &[
            "Unexpected argument",
            "has no keyword",
            "has no option",
            "another value than it takes",
            "must be a collection of names",
            "must be True or False",
            "is not a backend",
            "is not a model",
            "is where Python source",
            "there is no backend",
            "there is no target",
            "there is no such",
            "is both in",
            "is a block",
            "must be a block",
            "trains a model",
            "takes names",
            "is called with arrays",
        ],
    ),
    kind(
        "E0102",
        "A setting of a block",
        &[
            "` has no parameter `",
            "takes fewer parameters",
            "is given twice",
            "` needs `",
            "has the wrong type",
            "is out of range",
            "cannot be given this",
            "beyond the integers of 64 bits",
        ],
    ),
    kind(
        "E0601",
        "A file",
        &[
            "cannot be read",
            "cannot be written",
            "the saved model",
            "the text is not JSON",
            "saved by a newer version",
        ],
    ),
    kind("E0100", "A value that does not fit", &[]),
];

impl Kind {
    /// The kind of an error.
    pub fn of(error: &Diagnostic) -> &'static Kind {
        Kind::of_text(&error.what)
    }

    /// The kind of an error whose first line is this text.
    pub fn of_text(what: &str) -> &'static Kind {
        let fits = |kind: &&Kind| kind.says.iter().any(|says| what.contains(says));
        KINDS.iter().find(fits).unwrap_or(&KINDS[KINDS.len() - 1])
    }

    /// The kind of this code, ignoring case.
    pub fn find(code: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.code.eq_ignore_ascii_case(code))
    }
}
