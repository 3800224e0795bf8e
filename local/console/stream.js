// The server's events, for as long as the page is open: a stream that breaks or falls silent is opened again.

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

  // The browser would try again by itself in some cases only, and not after an answer that is no stream.
  function reopen() {
    source.close();
    clearTimeout(silence);
    clearTimeout(reopening);
    reopening = setTimeout(open, PAUSE_MS);
    gone();
  }

  open();
}
