//! The load of a Python program with boto3: it writes through an endpoint of the edition.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{ITEM_BYTES, KEY};
use crate::edition::Edition;
use crate::traffic::{Generated, Meter};

/// The program is in the binary, so it needs only Python and boto3.
const PROGRAM: &str = include_str!("boto3_client.py");
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running program, its endpoint, and the count of its writes. All end when this is dropped.
pub(super) struct Boto3 {
    /// Killed on drop.
    _program: Child,
    input: ChildStdin,
    _tasks: JoinSet<()>,
}

impl Boto3 {
    pub(super) async fn start(
        edition: &mut Edition,
        generated: Generated,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (listener, server) = edition.endpoint.take().ok_or("there is no endpoint")?;
        let url = format!("http://{}", listener.local_addr()?);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(error) = server.serve(listener, std::future::pending()).await {
                tracing::error!(%error, "the endpoint of the demo failed");
            }
        });
        let mut program = Command::new("python3")
            .args(["-c", PROGRAM, KEY, &ITEM_BYTES.to_string()])
            .env("AWS_ENDPOINT_URL_DYNAMODB", url)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("python3 cannot be started: {error}"))?;
        let (Some(input), Some(output)) = (program.stdin.take(), program.stdout.take()) else {
            return Err("python3 has no input or output".into());
        };
        let mut lines = BufReader::new(output).lines();
        if !matches!(timeout(START_TIMEOUT, lines.next_line()).await, Ok(Ok(Some(_)))) {
            return Err("python3 cannot use boto3: pip install boto3".into());
        }
        let meter = edition.functions().meter.clone();
        tasks.spawn(count(lines, generated, meter));
        Ok(Self { _program: program, input, _tasks: tasks })
    }

    /// Changes the load to this number of writes per second.
    pub(super) async fn load(&mut self, writes: u32) -> io::Result<()> {
        self.input.write_all(format!("{writes}\n").as_bytes()).await
    }
}

/// Counts what the program says of its writes.
async fn count(mut lines: Lines<BufReader<ChildStdout>>, generated: Generated, meter: Meter) {
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["sent", _] => generated.sent_one(),
            [outcome, sort_key, ms] => {
                let stored = (outcome == "stored").then(|| sort_key.parse().unwrap_or_default());
                let took = Duration::from_secs_f64(ms.parse::<f64>().unwrap_or_default() / 1e3);
                meter.put(stored.is_some(), took);
                generated.answered_one(stored);
            }
            _ => {}
        }
    }
}
