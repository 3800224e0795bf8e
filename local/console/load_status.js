// Describes a running load in a sentence.

import { count, plural } from './numbers.js';

export function inWords(load) {
  return `Load on ${plural(load.keys, 'key')}, prefix “${load.partition_key}”, for ${plural(Math.round(load.seconds), 'second')}: `
    + `${plural(load.writes, 'write')} and ${plural(load.reads, 'read')} per second requested; `
    + `${count(load.stored)} stored, ${count(load.throttled)} throttled, ${count(load.failed)} failed, `
    + `${count(waiting(load))} without a response${behind(load)}.`;
}

// The writes that were sent and have no response yet.
export function waiting({ sent, stored, failed }) {
  return Math.max(0, sent - stored - failed);
}

function behind(load) {
  return load.not_sent > 0 ? `; the machine cannot keep up: ${plural(load.not_sent, 'write')} not sent` : '';
}
