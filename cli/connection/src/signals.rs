//! The signals that end a server.

/// Resolves at the first stop signal. A second one ends the process at once.
pub async fn stop_signal() {
    signalled().await;
    tokio::spawn(async {
        signalled().await;
        std::process::exit(130);
    });
}

async fn signalled() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = interrupt => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(_) => drop(interrupt.await),
        }
    }
    #[cfg(not(unix))]
    drop(interrupt.await);
}
