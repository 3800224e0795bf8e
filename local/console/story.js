// Describes the effect of a load on its keys, in stages. Screen readers announce each stage, so
// stages must not alternate quickly.

import { waiting } from './load_status.js';
import { count, plural } from './numbers.js';

const TOLERATED = 0.01; // throttled attempts per accepted write
const STEADY = 3; // consecutive samples

export class Story {
  #load = null;

  // Returns the stage and a sentence that changes only with the stage. The stage is null if the
  // state of the keys is unknown.
  add(sample) {
    if (!sample.load) {
      this.#load = null;
      return { stage: 'calm', text: 'No load is running. Start one and watch its keys.' };
    }
    const startedAt = sample.at - sample.load.seconds;
    if (!this.#load || Math.abs(startedAt - this.#load.startedAt) > 2) {
      this.#load = { startedAt, throttledAt: null, relieved: null, row: 0, state: null, wasCalm: false };
    }
    return this.#describe(this.#load, sample);
  }

  #describe(load, sample) {
    const state = stateOf(sample);
    load.row = load.state === state ? load.row + 1 : 1;
    load.state = state;
    if (state === 'silent' && load.row >= STEADY) {
      return { stage: null, text: 'No write gets a response, so the throttles are unknown.' };
    }
    if (state === 'late' && load.row >= STEADY) {
      return {
        stage: null,
        text: 'The machine cannot keep up: more than a second of writes waits. With a smaller --partition-write-units, fewer writes make a key hot.',
      };
    }
    if (state === 'calm') {
      load.wasCalm = true;
    }
    if (state === 'throttled' && (load.throttledAt === null || (load.relieved && load.row >= STEADY))) {
      load.throttledAt = sample.at;
      load.relieved = null;
    }
    const shards = widest(sample) ?? 1;
    if (state === 'calm' && load.throttledAt !== null && !load.relieved && load.row >= STEADY) {
      const seconds = Math.max(1, Math.round(sample.at - (STEADY - 1) - load.throttledAt));
      load.relieved = { seconds, shards };
    }
    if (load.relieved) {
      const { seconds, shards: enough } = load.relieved;
      const where = enough > 1 ? ` on ${count(enough)} shards` : '';
      return { stage: 'relieved', text: `Relieved after ${plural(seconds, 'second')}${where}: less than 1 % is throttled.` };
    }
    if (load.throttledAt === null) {
      const text = load.wasCalm ? 'The load runs, and nothing is throttled.' : 'The load has started.';
      return { stage: 'calm', text };
    }
    if (shards > 1) {
      return { stage: 'spreading', text: 'The key spreads over more shards until the throttles end.' };
    }
    return { stage: 'throttled', text: 'The key gets more writes than its partition can serve. Throttles show this to the writer.' };
  }
}

// An absence of throttles does not mean calm if no writes are accepted, or if more of them wait than
// come in a second.
function stateOf({ writes, load }) {
  if (writes.throttled > TOLERATED * writes.accepted) {
    return 'throttled';
  }
  if (writes.accepted === 0 && load.writes > 0) {
    return 'silent';
  }
  return waiting(load) > load.writes ? 'late' : 'calm';
}

// Returns the shards of the widest key: of the load's keys, if a load runs, because a sample also
// has keys of earlier loads for a while. Returns null if there is no such key.
export function widest({ keys, load }) {
  const counted = load ? keys.filter((key) => isOf(load, key.partition_key)) : keys;
  return counted.length === 0 ? null : Math.max(...counted.map((key) => key.number_of_shards));
}

// One key is the prefix itself; several are numbered from 1.
function isOf(load, name) {
  if (load.keys === 1) {
    return name === load.partition_key;
  }
  const number = Number(name.slice(load.partition_key.length + 1));
  return number >= 1 && number <= load.keys && name === `${load.partition_key}-${number}`;
}
