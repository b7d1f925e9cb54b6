//! Machines: the speed of their devices, and of the links between these.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType;

use super::layout::{Axis, Mesh};

/// A connection between two devices, in one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Link {
    /// Bytes per second.
    pub bytes: f64,
    /// Seconds until the first byte arrives.
    pub latency: f64,
}

/// The devices that a mesh consists of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    pub name: &'static str,
    /// Floating-point operations of matrix products per second of a device, for elements of at most
    /// 16 bits.
    pub half: f64,
    /// The same for larger elements.
    pub single: f64,
    /// Bytes that a device reads or writes per second.
    pub bandwidth: f64,
    /// Bytes of memory of a device.
    pub memory: f64,
    /// The number of devices of a host. Devices of a mesh are numbered along its last axis first.
    pub host: i64,
    /// Links within a host.
    pub inside: Link,
    /// Links between hosts.
    pub across: Link,
}

/// The H100 SXM by NVIDIA's data sheet: dense products in bfloat16 and TF32, HBM3, NVLink 4. The
/// latencies are estimates.
const H100: Machine = Machine {
    name: "8xH100",
    half: 989e12,
    single: 494e12,
    bandwidth: 3.35e12,
    memory: 80e9,
    host: 8,
    inside: Link { bytes: 450e9, latency: 1e-6 },
    across: Link { bytes: 50e9, latency: 5e-6 },
};

/// The machines that are known by name.
pub const MACHINES: &[Machine] = &[
    // Processes of one machine with a core each, over gloo: the order of magnitude of current CPUs.
    Machine {
        name: "cpu-gloo",
        half: 60e9,
        single: 60e9,
        bandwidth: 10e9,
        memory: 8e9,
        host: i64::MAX,
        inside: Link { bytes: 1e9, latency: 100e-6 },
        across: Link { bytes: 1e9, latency: 100e-6 },
    },
    H100,
    // Hosts with one 400 Gb/s network port for each device.
    Machine { name: "2x8xH100", ..H100 },
    // By Google's documentation: 197 TFLOP/s in bfloat16, and 1.6 Tb/s between chips in two axes.
    Machine {
        name: "TPU-v5e-16",
        half: 197e12,
        single: 197e12 / 3.0,
        bandwidth: 819e9,
        memory: 16e9,
        host: i64::MAX,
        inside: Link { bytes: 100e9, latency: 1e-6 },
        across: Link { bytes: 100e9, latency: 1e-6 },
    },
];

impl Machine {
    /// The machine of this name. Errors: there is none.
    pub fn find(name: &str) -> Result<&'static Machine> {
        MACHINES.iter().find(|machine| machine.name == name).ok_or_else(|| {
            let names = || MACHINES.iter().map(|machine| machine.name);
            let mut error =
                Diagnostic::of(ErrorKind::Argument, format!("there is no machine `{name}`"))
                    .expected(names().collect::<Vec<_>>().join(", "));
            error.hint = did_you_mean(name, names());
            Box::new(error)
        })
    }

    /// Floating-point operations per second of products of this dtype.
    pub fn products(&self, dtype: DType) -> f64 {
        if dtype.bits() <= 16 { self.half } else { self.single }
    }

    /// The links along an axis of a mesh.
    pub fn link(&self, mesh: &Mesh, axis: Axis) -> Link {
        let later = mesh.axes().skip(usize::from(axis)).map(|(_, size)| size);
        if later.product::<i64>() <= self.host { self.inside } else { self.across }
    }
}
