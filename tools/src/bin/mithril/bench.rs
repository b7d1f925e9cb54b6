//! `mithril bench`: measures operations on this machine. The Python package runs them.

use std::process::{ExitCode, Stdio};

use clap::Args;
use mithril_driver::calibration;
use mithril_driver::targets::{TARGETS, TargetEntry};
use mithril_ir::diagnostic::Result;
use serde_json::json;

use crate::output::print;
use crate::python;

/// The options of `mithril bench`.
#[derive(Args)]
pub struct Bench {
    /// The names of the backends to measure.
    #[arg(short, long, value_name = "NAME,…", value_delimiter = ',', help = help())]
    backends: Vec<String>,
    /// Measure the processes of a device mesh on this machine as well; alone without `--backends`.
    #[arg(long)]
    mesh: bool,
    /// Save the measurements; later compiles use them as their cost model.
    #[arg(long)]
    calibrate: bool,
}

/// The help of `--backends`.
fn help() -> String {
    let measured = TARGETS.iter().filter(|target| target.measured);
    let names = measured.map(TargetEntry::name).collect::<Vec<_>>().join(", ");
    format!("The backends to measure: {names}. Defaults to all that are available")
}

impl Bench {
    /// Runs the measurements and prints them.
    ///
    /// Errors: Python cannot be started, or the measurements cannot be saved or printed.
    pub fn run(&self) -> Result<ExitCode> {
        let request = json!({"backends": self.backends, "mesh": self.mesh});
        let mut command = python::call("calibration", &request.to_string());
        // Ignores the stored profile: the model is measured as it is written, and the profile may
        // be wrong.
        let ran = command.env("MITHRIL_PROFILE", "").stderr(Stdio::inherit()).output();
        let output = ran.map_err(|error| python::cannot_start(&error))?;
        if !output.status.success() {
            return Ok(ExitCode::from(output.status.code().map_or(2, |code| code as u8)));
        }
        let measured = calibration::parse(&String::from_utf8_lossy(&output.stdout))?;
        print(calibration::table(&measured))?;
        if self.calibrate {
            let path = calibration::save(&measured)?;
            print(format_args!("saved in {}\n", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
