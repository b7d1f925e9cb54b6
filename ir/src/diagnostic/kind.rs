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
    #[default] Value "E0100" "Invalid value"
    UnknownBlock "E0101" "No such block"
    Setting "E0102" "Invalid parameter of a block"
    Connection "E0103" "Invalid connection"
    TwoWriters "E0104" "Two blocks write the same terminal"
    Name "E0105" "Invalid or duplicate name"
    ModelInUse "E0106" "A used model cannot be changed"
    Terminal "E0107" "Terminal not found"
    Cycle "E0108" "The model has a cycle"
    EmptyModel "E0109" "The model is empty"
    NoValueYet "E0110" "A connection has no value before a call"
    OtherModel "E0111" "Connection of another model"
    Shapes "E0201" "Incompatible shapes during compilation"
    ShapesAtCall "E0202" "Incompatible shapes"
    DType "E0203" "Incompatible dtypes"
    Rank "E0204" "Unknown ranks"
    IndexRange "E0205" "Index out of range"
    MissingArray "E0301" "Missing array"
    OtherArray "E0302" "Not an array of the backend"
    NotADict "E0303" "Not a dict of arrays"
    Index "E0304" "Index of a list output out of range"
    Argument "E0402" "Invalid argument"
    Training "E0403" "Invalid training model"
    Unsupported "E0501" "Backend does not support operation"
    Framework "E0502" "Missing framework or device"
    Native "E0503" "Native code cannot be made or run"
    CCompiler "E0504" "C cannot be compiled"
    Memory "E0506" "Out of memory"
    File "E0601" "A file cannot be read or written"
    FunctionText "E0602" "Invalid text of a function"
    Bug "E0901" "Internal error"
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
