//! The adviser's program.

fn main() -> std::process::ExitCode {
    adviser::run()
}
