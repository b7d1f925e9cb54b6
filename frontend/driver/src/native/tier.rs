//! Selects the compiler of the code that calls run, and the kernels that wait for LLVM.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Attention, Library};
use mithril_kernels::program::Plan;
use mithril_runtime::program::{Launch, UNLIMITED};

/// The compiler that the first call waits for. The results do not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tier {
    /// The first call waits for LLVM's code of all kernels. If LLVM would take more than a few
    /// seconds, the call waits only for kernels that are slow without LLVM. See
    /// [`MAX_LLVM_VALUES`].
    #[default]
    Llvm,
    /// Calls run Cranelift's code, which is available at once, until LLVM has compiled in the
    /// background.
    Auto,
    /// Calls always run Cranelift's code, for tests.
    Instant,
}

impl Tier {
    pub const ALL: [Tier; 3] = [Tier::Llvm, Tier::Auto, Tier::Instant];

    pub fn name(self) -> &'static str {
        match self {
            Tier::Llvm => "llvm",
            Tier::Auto => "auto",
            Tier::Instant => "instant",
        }
    }

    /// The tier of this name. Errors: the name is unknown.
    pub fn find(name: &str) -> Result<Tier> {
        let names = Tier::ALL.map(Tier::name);
        Tier::ALL.into_iter().find(|tier| tier.name() == name).ok_or_else(|| {
            let mut error =
                Diagnostic::of(ErrorKind::Native, "there is no such tier of native code")
                    .got(name)
                    .expected("llvm, auto or instant");
            error.hint = did_you_mean(name, names.into_iter());
            Box::new(error)
        })
    }
}

/// The maximum size of loop code, in SSA values, for which calls wait for LLVM. LLVM compiles
/// 60,000 values per second on one core of a Xeon of 2023 (Sapphire Rapids) if kernels are long.
pub const MAX_LLVM_VALUES: usize = 250_000;

/// For each kernel of a plan, whether the first calls may run Cranelift's code.
pub fn quick(plan: &Plan, tier: Tier) -> Vec<bool> {
    let values = plan.kernels.iter().map(|kernel| kernel.lowered.code.types.len());
    match tier {
        Tier::Llvm if values.sum::<usize>() <= MAX_LLVM_VALUES => vec![false; plan.kernels.len()],
        Tier::Llvm | Tier::Auto => finishes_before_llvm(plan),
        Tier::Instant => vec![true; plan.kernels.len()],
    }
}

/// The number of steps, such as products of a contraction, that Cranelift's code executes while
/// LLVM compiles one value of loop code: 3 steps per nanosecond for code with many spills, times 75
/// microseconds per value.
const STEPS_PER_VALUE: i64 = 225_000;
/// The assumed size of a dim that is known only at a call.
const ASSUMED_SIZE: i64 = 64;

/// For each kernel of a plan, whether a call with Cranelift's code finishes before LLVM would have
/// compiled the kernel.
fn finishes_before_llvm(plan: &Plan) -> Vec<bool> {
    let mut steps = vec![0i64; plan.kernels.len()];
    let unknown = vec![ASSUMED_SIZE; plan.program.symbols];
    for (at, launch) in plan.program.launches.iter().enumerate() {
        // The runtime's copy kernel is not in the plan.
        if let Some(kernel) = plan.kernels.get(launch.kernel).filter(|own| own.external.is_none()) {
            let loops = plan.program.loops_around(at);
            let trips = loops.map(|own| match own.trips == UNLIMITED {
                true => ASSUMED_SIZE,
                false => own.trips.eval(&unknown).unwrap_or(ASSUMED_SIZE),
            });
            let own = trips
                .fold(steps_of(&kernel.outlined.function, launch, &unknown), i64::saturating_mul);
            steps[launch.kernel] = steps[launch.kernel].saturating_add(own);
        }
    }
    let values = plan.kernels.iter().map(|kernel| kernel.lowered.code.types.len() as i64);
    steps.iter().zip(values).map(|(&steps, values)| steps <= values * STEPS_PER_VALUE).collect()
}

/// The approximate number of steps of a launch.
fn steps_of(function: &Function, launch: &Launch, unknown: &[i64]) -> i64 {
    let sizes: Vec<i64> =
        (launch.dims.iter()).map(|dim| dim.eval(unknown).unwrap_or(ASSUMED_SIZE)).collect();
    let size = |name: &str| sizes.get(name.get(1..)?.parse::<usize>().ok()?).copied();
    let dims = |value| -> Vec<i64> {
        let dims = function.ty(value).shape.dims.iter();
        dims.map(|d| d.evaluate(&|s| size(s.as_str())).unwrap_or(ASSUMED_SIZE)).collect()
    };
    let count = |dims: &[i64]| dims.iter().fold(1i64, |all, dim| all.saturating_mul(*dim));
    let steps = |op: &Operation| {
        let result = count(&dims(op.result()));
        match op.op.access {
            Access::Contract => result.saturating_mul(contracted(op, &dims(op.operands[0]))),
            Access::Library(Library::Attention(Attention::Output)) => {
                let keys = dims(op.operands[1]);
                let length = keys.iter().rev().nth(1).copied().unwrap_or(1);
                result.saturating_mul(2 * length)
            }
            Access::Fold(_) | Access::Library(Library::ArgExtremum { .. }) => {
                count(&dims(op.operands[0]))
            }
            _ => result,
        }
    };
    function.ops.iter().fold(0i64, |all, op| all.saturating_add(steps(op)))
}

/// The number of products in each sum of a contraction.
fn contracted(dot: &Operation, x: &[i64]) -> i64 {
    let Attr::Ints(axes) = dot.attr("x_contract") else { return 1 };
    let size = |axis: &i64| x.get(axis.rem_euclid(x.len().max(1) as i64) as usize).copied();
    axes.iter().filter_map(size).fold(1, i64::saturating_mul)
}
