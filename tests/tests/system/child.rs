//! A local edition in a process of its own, which a test may kill. The process runs this program:
//! the test calls [`is_served`] first.

use std::process::Stdio;
use std::time::Duration;

use local::{Edition, ServeOptions};
use system_tests::config;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The environment variable with the server that a process of this program uses.
const SERVER: &str = "CHILD_EDITION_SERVER";

/// In the process under test: serves until the process is killed. Otherwise does nothing, and
/// returns `false`.
#[expect(clippy::print_stdout, reason = "the test reads the address from it")]
pub(super) async fn is_served() -> bool {
    let Ok(server) = std::env::var(SERVER) else { return false };
    let options = ServeOptions { port: 0, endpoint_url: Some(server), ..ServeOptions::default() };
    let edition = Edition::start(&options, config()).await.expect("it starts");
    let (api, _) = edition.addresses().expect("its address is known");
    println!("\nAPI http://{api}");
    edition.serve(std::future::pending()).await.expect("it serves");
    true
}

/// A running process.
pub(super) struct Running {
    pub(super) api: String,
    pub(super) process: Child,
    /// The process's output, which stays open while it runs.
    pub(super) output: Lines<BufReader<ChildStdout>>,
}

/// Starts a process that runs this test, by its path, and uses this server.
pub(super) async fn start(test: &str, server: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this program's own path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(SERVER, server);
    let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it starts");
    let mut output = BufReader::new(process.stdout.take().expect("its output")).lines();
    let address = async {
        loop {
            let line =
                output.next_line().await.expect("its output").expect("it goes on until it listens");
            if let Some((_, address)) = line.split_once("API ") {
                return address.to_owned();
            }
        }
    };
    let api = timeout(Duration::from_secs(60), address).await.expect("it listens in time");
    Running { api, process, output }
}
