//! The process under test, and a way to it that outlives it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// So that a fast machine's load does not make wider keys than a slow one's.
const MAX_SHARDS: &str = "16";
/// For anything that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(400);
const SCALER: &str = "/2015-03-31/functions/shard-scaler/invocations";

/// The process.
pub(crate) struct Served {
    process: Child,
    pub(crate) api: String,
    pub(crate) dynamodb: String,
}

impl Served {
    pub(crate) fn start(data: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local"));
        command.env_clear().env("MAX_SHARDS", MAX_SHARDS).args(["serve", "--port", "0", "--dynamodb-port", "0"]);
        command.args(["--drain-period", "1", "--drain-wait", "5", "--data-dir"]).arg(data).args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the local edition starts");
        let told = BufReader::new(process.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let told: Vec<String> = told.take_while(|line| !line.starts_with("stop")).collect();
        let address = |name: &str| {
            let line =
                told.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {told:?}"));
            line.split_whitespace().next().expect("an address").to_owned()
        };
        Self { api: address("API"), dynamodb: address("DynamoDB"), process }
    }

    pub(crate) fn kill(&mut self) {
        assert!(self.process.try_wait().expect("its state").is_none(), "it has ended by itself");
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it has ended");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already, where all went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the process listens, and which one in order it is; none while it is down.
pub(crate) type At = (u64, Option<String>);

/// The process was killed before it had answered.
pub(crate) struct Cut;

/// A way to the process, whichever it is.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) at: watch::Receiver<At>,
    pub(crate) http: reqwest::Client,
}

impl Site {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<(u16, Value), Cut> {
        let mut at = self.at.clone();
        let up = async { at.wait_for(|(_, url)| url.is_some()).await.expect("the test goes on").clone() };
        let (number, url) = timeout(PATIENCE, up).await.expect("it listens again");
        let url = url.expect("it listens");
        let mut request = self.http.request(method.parse().expect("a method"), format!("{url}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answered = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        };
        match timeout(PATIENCE, answered).await.expect("an answer, or none") {
            Ok((status, body)) => Ok((status, serde_json::from_slice(&body).unwrap_or_default())),
            Err(error) => {
                let killed = timeout(Duration::from_secs(10), at.wait_for(|(now, _)| *now != number)).await;
                assert!(killed.is_ok(), "it was not killed, and does not answer: {error:?}");
                Err(Cut)
            }
        }
    }

    /// The answer of the shard-scaler, of whichever process gives one.
    pub(crate) async fn scaler(&self, event: &Value) -> Value {
        loop {
            if let Ok((status, answer)) = self.send("POST", SCALER, &[], Some(event)).await {
                assert_eq!(status, 200, "{answer}");
                return answer;
            }
        }
    }

    pub(crate) async fn widths(&self, key: &str) -> Widths {
        let shown = self.scaler(&json!({"action": "show", "partition_key": key})).await;
        let metadata = &shown["metadata"];
        let number = |name: &str| metadata[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}"));
        let (closing, draining) = (metadata["closing"].is_u64(), metadata["draining"] == true);
        let step = match (closing, draining) {
            (true, _) => Some("closing"),
            (false, true) if metadata["drain"]["emptied_at"].is_null() => Some("moving"),
            (false, true) => Some("found empty"),
            (false, false) => None,
        };
        Widths { write: number("number_of_shards"), read: number("read_shards"), closing, draining, step }
    }
}

#[derive(Debug)]
pub(crate) struct Widths {
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) closing: bool,
    pub(crate) draining: bool,
    pub(crate) step: Option<&'static str>,
}

impl Widths {
    pub(crate) fn is_narrow(&self) -> bool {
        (self.write, self.read, self.closing, self.draining) == (1, 1, false, false)
    }
}
