//! Runs the commands as processes. Checks their output, their exit status, and that a killed
//! process loses nothing.

mod demo;
mod dynamodb_port;
mod endpoint_url;
mod killed;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A process that serves. It is killed when dropped.
struct Served {
    process: Child,
    lines: Vec<String>,
}

impl Served {
    /// Starts it with these arguments, and in an environment of these variables alone.
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
        command.env_clear().envs(variables.iter().copied()).arg("serve").args(arguments);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the local edition starts");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let lines = lines.map_while(Result::ok).take_while(|it| !it.starts_with("stop")).collect();
        Self { process, lines }
    }

    /// The address in the line with this name.
    fn address(&self, name: &str) -> String {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(name));
        let address = line.and_then(|line| line.split_whitespace().next());
        address.unwrap_or_else(|| panic!("{name}: {:?}", self.lines)).to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The calls fail if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
