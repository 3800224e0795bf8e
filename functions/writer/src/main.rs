//! The writer as a Lambda function.

use sharding::ShardedTable;
use sharding::variables::read;
use writer::{ShardScaler, VARIABLES};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_http::Error> {
    let shard_scaler = read(&*VARIABLES, None, |name| std::env::var(name).ok())?;
    let started = |table: &'static ShardedTable, aws: &api::SdkConfig| {
        if let Some(function) = shard_scaler {
            tokio::spawn(ShardScaler::new(aws, function).wake_when_short(table));
        }
    };
    api::serve(api::Access::Write, started, writer::handle).await
}
