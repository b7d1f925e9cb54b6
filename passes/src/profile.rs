//! How fast targets are.

/// What a target's machine does in a nanosecond, and what it spends beside.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// Nanoseconds for each operation, whatever its size.
    pub overhead: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Multiplications and additions of contractions.
    pub products: f64,
    /// Additions of elementwise operations and folds.
    pub scalars: f64,
    /// The share of `overhead` of an operation that only looks at the same memory in another way.
    pub view: f64,
    /// Whether results that only the next operation reads stay in registers.
    pub fuses: bool,
    /// The share of the time of its parts that a composite takes which the target has whole.
    pub whole: f64,
    /// Whether products read what lies in their order as fast as they multiply: joining those that
    /// share such an operand gains nothing, whatever `bytes` says.
    pub streams: bool,
}

/// A framework on one core, which runs each operation for itself.
pub const FRAMEWORK: Profile = Profile {
    overhead: 1000.0,
    bytes: 8.0,
    products: 60.0,
    scalars: 4.0,
    view: 1.0,
    fuses: false,
    whole: 0.5,
    streams: false,
};

/// A framework whose views are little more than their new sizes.
pub const PLAIN: Profile = Profile { view: 0.25, ..FRAMEWORK };

/// A framework that compiles what it is given. Operands that are turned it turns for each product.
pub const COMPILED: Profile =
    Profile { overhead: 100.0, fuses: true, whole: 0.9, streams: true, ..FRAMEWORK };

/// Native code on one core.
pub const CPU: Profile =
    Profile { overhead: 40.0, products: 80.0, scalars: 8.0, streams: false, ..COMPILED };
