// The local edition as a child process.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const PATIENCE_MS = 30_000;

// Resolves to { url, port, stop } once the server reports that it listens.
export async function serve(binary, port = 0) {
  const child = spawn(
    binary,
    ['serve', '--port', String(port), '--dynamodb-port', '0', '--endpoint-port', '0', '--partitions', '8', '--partition-write-units', '100'],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = once(child, 'exit');
  const early = ended.then(([code]) => { throw new Error(`the server ended with code ${code}`); });
  early.catch(() => {}); // Later its end is expected.
  let url;
  try {
    url = await soon(Promise.race([listening(child), early]), 'the server does not say that it listens');
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  }
  return {
    url,
    port: Number(new URL(url).port),
    async stop() {
      child.kill('SIGTERM');
      try {
        await soon(ended, 'the server does not end after SIGTERM');
      } finally {
        child.kill('SIGKILL');
      }
    },
  };
}

async function listening(child) {
  let url;
  for await (const line of createInterface({ input: child.stdout })) {
    url ??= /^API +(http:\S+)/.exec(line)?.[1];
    if (url && line.includes('stop with Ctrl-C')) {
      child.stdout.resume();
      return url;
    }
  }
  return new Promise(() => {}); // It has ended, which another promise reports.
}

async function soon(promise, message) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${message} (${PATIENCE_MS / 1000} s)`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
