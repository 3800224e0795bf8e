// Starts and stops a load, and shows its status.

import { carryOut, oneAtATime, whenSubmitted } from './forms.js';
import { isEnabled, setEnabled, setText } from './in_place.js';
import { inWords } from './load_status.js';
import { ask, askJson } from './requests.js';

const URL = '/console/load';

const form = document.getElementById('load-form');
const startHot = document.getElementById('start-hot');
const hot = document.getElementById('hot');
const stops = document.querySelectorAll('[data-action="stop-load"]');
const status = document.getElementById('load-status');

export function prepareLoad() {
  whenSubmitted(form, (values) => startLoad(numbersIn(values)));
  const start = oneAtATime(() => carryOut(hot, makeOneKeyHot));
  startHot.addEventListener('click', () => isEnabled(startHot) && start());
  for (const stop of stops) {
    stop.addEventListener('click', () => isEnabled(stop) && carryOut(hot.contains(stop) ? hot : form, stopLoad));
  }
}

export function showLoad(load) {
  setEnabled(startHot, !load);
  for (const stop of stops) {
    setEnabled(stop, Boolean(load));
  }
  setText(status, load ? inWords(load) : 'No load is running.');
}

// Suggests a rate above the limit of one partition that all partitions together can serve, even if
// the shards are distributed unevenly.
export function suggestRate({ limits, partitions }) {
  if (!limits || partitions.length === 0) {
    return;
  }
  const one = limits.write_units;
  const writes = String(Math.round(Math.max(1.5 * one, Math.min(3 * one, 0.4 * one * partitions.length))));
  const input = form.elements.writes;
  if (input.value === input.defaultValue && input.value !== writes) {
    input.defaultValue = writes;
  }
}

function makeOneKeyHot() {
  // Each run uses a new key, because a key that has already grown would not be throttled.
  const time = new Date().toTimeString().slice(0, 8).replaceAll(':', '');
  const writes = Number(form.elements.writes.defaultValue);
  return startLoad({ partition_key: `hot-${time}`, keys: 1, writes, reads: 20, item_size: 500, skew: 0 });
}

async function startLoad(load) {
  showLoad(await askJson(URL, JSON.stringify(load)));
  forgetResults();
  return 'The load has started.';
}

async function stopLoad() {
  await ask(URL, { method: 'DELETE' });
  showLoad(null);
  forgetResults();
  return 'The load has stopped.';
}

// Two places start and stop a load, so the last result of each may be outdated.
function forgetResults() {
  for (const place of [hot, form]) {
    setText(place.querySelector('.result'), '');
  }
}

// Text that is not a number is sent unchanged: the server's response explains the error.
function numbersIn({ partition_key, ...values }) {
  const number = (text) => (text.trim() === '' || Number.isNaN(Number(text)) ? text : Number(text));
  return { partition_key, ...Object.fromEntries(Object.entries(values).map(([name, text]) => [name, number(text)])) };
}
