//! The load of a Python program with boto3: it writes through the endpoint of the edition.

use std::error::Error;
use std::process::Stdio;
use std::time::Duration;

use embedded_dynamodb::Engine;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::{ITEM_BYTES, KEY};
use crate::Edition;
use crate::traffic::{Generated, Meter};

/// The program is in the binary, so it needs only Python and boto3.
const PROGRAM: &str = include_str!("boto3_client.py");

/// Starts the endpoint and the program as tasks, whose end kills it. Returns its input: each line
/// is a number of writes per second.
pub(super) async fn start(
    edition: &mut Edition,
    generated: Generated,
    tasks: &mut JoinSet<()>,
) -> Result<ChildStdin, Box<dyn Error>> {
    let (listener, server) = edition.endpoint.take().ok_or("there is no endpoint")?;
    let url = format!("http://{}", listener.local_addr()?);
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
    let input = program.stdin.take().ok_or("python3 has no input")?;
    let mut lines = BufReader::new(program.stdout.take().ok_or("python3 has no output")?).lines();
    lines.next_line().await?.ok_or("python3 cannot use boto3: pip install boto3")?;
    let engine = edition.engine().ok_or("there is no engine")?.clone();
    let meter = edition.functions().meter.clone();
    tasks.spawn(async move {
        count(lines, &engine, &generated, &meter).await;
        drop(program);
    });
    Ok(input)
}

/// Counts what the program says of its writes. It does not know of throttles, but the engine does.
async fn count(
    mut lines: Lines<BufReader<ChildStdout>>,
    engine: &Engine,
    generated: &Generated,
    meter: &Meter,
) {
    let mut throttled_before = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        let words: Vec<&str> = line.split(' ').collect();
        let [outcome, sort_key, ms] = words[..] else {
            generated.sent_one();
            continue;
        };
        let is_stored = outcome == "stored";
        let throttled = engine.traffic("items").throttled_writes;
        let newly_throttled = throttled - throttled_before;
        throttled_before = throttled;
        let took = Duration::from_secs_f64(ms.parse::<f64>().unwrap_or_default() / 1e3);
        meter.writes(is_stored.into(), (!is_stored).into(), newly_throttled, took);
        generated.answered(sort_key.parse().unwrap_or_default(), is_stored, newly_throttled);
    }
}
