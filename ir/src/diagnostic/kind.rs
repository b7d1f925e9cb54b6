//! The kinds of errors. Each has a code that messages show, and a page in `docs/errors/` that
//! `mithril error` prints.

macro_rules! kinds {
    ($($(#[$default:ident])? $name:ident $code:literal $heading:literal)*) => {
        /// The kind of an error.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum ErrorKind {
            $($(#[$default])? $name,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of codes.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$name),*];

            /// The code that messages show: `E0107`.
            pub const fn code(self) -> &'static str {
                match self {
                    $(ErrorKind::$name => $code,)*
                }
            }

            /// The title of its page.
            pub const fn heading(self) -> &'static str {
                match self {
                    $(ErrorKind::$name => $heading,)*
                }
            }
        }
    };
}

kinds! {
    #[default] Value "E0100" "A value that does not fit"
    UnknownBlock "E0101" "No such block"
    Setting "E0102" "A setting of a block"
    Connection "E0103" "A connection that cannot be made"
    TwoWriters "E0104" "Two blocks write one name"
    Name "E0105" "A name that cannot be"
    ModelInUse "E0106" "A model in use is complete"
    Terminal "E0107" "Terminal not found"
    Cycle "E0108" "A cycle"
    EmptyModel "E0109" "An empty model"
    NoValueYet "E0110" "A connection has no value before a call"
    OtherModel "E0111" "A connection of another model"
    Shapes "E0201" "Incompatible shapes during compilation"
    ShapesAtCall "E0202" "Incompatible shapes"
    DType "E0203" "Dtypes that do not fit"
    Rank "E0204" "Ranks that are not known yet"
    IndexRange "E0205" "Index out of range"
    MissingArray "E0301" "An array is missing"
    OtherArray "E0302" "No array of the backend"
    NotADict "E0303" "A dict of arrays by name"
    Index "E0304" "An index out of range"
    Argument "E0402" "A keyword or an argument"
    Training "E0403" "A model to be trained"
    Unsupported "E0501" "Backend does not support operation"
    Framework "E0502" "A framework or a device is missing"
    Native "E0503" "Native code"
    CCompiler "E0504" "C cannot be compiled"
    Memory "E0506" "Out of memory"
    File "E0601" "A file"
    FunctionText "E0602" "A function in text"
    Bug "E0901" "Mithril has a bug here"
}

impl ErrorKind {
    /// The kind with this code, ignoring case.
    pub fn find(code: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.iter().copied().find(|kind| kind.code().eq_ignore_ascii_case(code))
    }

    /// Whether messages of this kind begin with the heading.
    pub(super) fn shows_heading(self) -> bool {
        use ErrorKind::*;
        matches!(self, Terminal | Shapes | ShapesAtCall | IndexRange)
    }
}
