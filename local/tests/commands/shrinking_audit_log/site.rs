//! The process under test, and a client of it that survives restarts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// The limit keeps the keys' widths independent of the machine's speed.
const MAX_SHARDS: &str = "16";
/// The timeout of every wait.
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
        command.env_clear().env("MAX_SHARDS", MAX_SHARDS).args([
            "serve",
            "--port",
            "0",
            "--dynamodb-port",
            "0",
        ]);
        command
            .args(["--drain-period", "1", "--drain-wait", "5", "--data-dir"])
            .arg(data)
            .args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the local edition starts");
        let lines = BufReader::new(process.stdout.take().expect("its output"))
            .lines()
            .map_while(Result::ok);
        let lines: Vec<String> = lines.take_while(|line| !line.starts_with("stop")).collect();
        let address = |name: &str| {
            let line = lines
                .iter()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{name}: {lines:?}"));
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
        // The calls fail if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of the process and its address. The address is `None` while the process is down.
pub(crate) type At = (u64, Option<String>);

/// The process was killed before it sent its response.
pub(crate) struct Cut;

/// A client of the current process.
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
        let up = async {
            at.wait_for(|(_, url)| url.is_some()).await.expect("the test goes on").clone()
        };
        let (number, url) = timeout(PATIENCE, up).await.expect("it listens again");
        let url = url.expect("it listens");
        let mut request =
            self.http.request(method.parse().expect("a method"), format!("{url}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let exchange = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        };
        match timeout(PATIENCE, exchange).await.expect("a response or an error") {
            Ok((status, body)) => Ok((status, serde_json::from_slice(&body).unwrap_or_default())),
            Err(error) => {
                let killed =
                    timeout(Duration::from_secs(10), at.wait_for(|(now, _)| *now != number)).await;
                assert!(killed.is_ok(), "it was not killed and does not respond: {error:?}");
                Err(Cut)
            }
        }
    }

    /// Sends an event to the shard-scaler, until a process responds. Returns the response.
    pub(crate) async fn scaler(&self, event: &Value) -> Value {
        loop {
            if let Ok((status, response)) = self.send("POST", SCALER, &[], Some(event)).await {
                assert_eq!(status, 200, "{response}");
                return response;
            }
        }
    }

    pub(crate) async fn widths(&self, key: &str) -> Widths {
        let shown = self.scaler(&json!({"action": "show", "partition_key": key})).await;
        let metadata = &shown["metadata"];
        let number =
            |name: &str| metadata[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}"));
        let (closing, draining) = (metadata["closing"].is_u64(), metadata["draining"] == true);
        let step = match (closing, draining) {
            (true, _) => Some("closing"),
            (false, true) if metadata["drain"]["emptied_at"].is_null() => Some("moving"),
            (false, true) => Some("found empty"),
            (false, false) => None,
        };
        Widths {
            write: number("number_of_shards"),
            read: number("read_shards"),
            closing,
            draining,
            step,
        }
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
