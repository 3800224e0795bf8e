// Receives the server's events while the page is open. It reopens a stream that breaks or goes
// silent.

const SILENCE_MS = 5_000; // a sample comes every second
const PAUSE_MS = 1_000;

export function follow(url, { connected, gone, ...listeners }) {
  let source;
  let silence;
  let reopening;

  function open() {
    source = new EventSource(url);
    source.onopen = () => {
      listen();
      connected();
    };
    source.onerror = reopen;
    for (const [name, listener] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => {
        listen();
        listener(JSON.parse(event.data));
      });
    }
    listen();
  }

  function listen() {
    clearTimeout(silence);
    silence = setTimeout(reopen, SILENCE_MS);
  }

  // The browser reconnects only in some cases, and not after a response that is not a stream.
  function reopen() {
    source.close();
    clearTimeout(silence);
    clearTimeout(reopening);
    reopening = setTimeout(open, PAUSE_MS);
    gone();
  }

  open();
}
