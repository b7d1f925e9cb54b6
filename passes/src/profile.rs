//! The performance of targets.

/// The throughput of a target's machine per nanosecond, and its overheads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    /// Nanoseconds of overhead for each operation, whatever its size.
    pub overhead: f64,
    /// Bytes read and written per nanosecond.
    pub bytes: f64,
    /// Multiplications and additions of contractions per nanosecond.
    pub products: f64,
    /// Additions of elementwise operations and reductions per nanosecond.
    pub scalars: f64,
    /// The fraction of `overhead` that an operation costs which only creates a view.
    pub view: f64,
    /// Whether results that only the next operation reads stay in registers.
    pub fuses: bool,
    /// The time of a composite that the target takes whole, as a fraction of the time of its parts.
    pub whole: f64,
    /// Whether products read contiguous operands as fast as they multiply. If so, joining products
    /// that share such an operand gains nothing, whatever `bytes` says.
    pub streams: bool,
}

/// A framework on one core that runs operations one at a time.
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

/// A framework whose views cost little: only their sizes change.
pub const PLAIN: Profile = Profile { view: 0.25, ..FRAMEWORK };

/// A framework that compiles functions. It transposes a transposed operand again for each product.
pub const COMPILED: Profile =
    Profile { overhead: 100.0, fuses: true, whole: 0.9, streams: true, ..FRAMEWORK };

/// Native code on one core.
pub const CPU: Profile =
    Profile { overhead: 40.0, products: 80.0, scalars: 8.0, streams: false, ..COMPILED };
