// What a load does to its keys, told in stages. A stage is announced, so it must not change to and fro.

import { count, plural } from './numbers.js';

const TOLERATED = 0.01; // throttled for each accepted write
const STEADY = 3; // samples in a row

export class Story {
  #load = null;

  // The stage, and a sentence that changes with the stage only.
  add(sample) {
    if (!sample.load) {
      this.#load = null;
      return { stage: 'calm', text: 'Nothing is writing now. Start a load and follow what happens to its keys.' };
    }
    const startedAt = sample.at - sample.load.seconds;
    if (!this.#load || Math.abs(startedAt - this.#load.startedAt) > 2) {
      this.#load = { startedAt, throttledAt: null, relieved: null, row: 0, calm: true };
    }
    return this.#tell(this.#load, sample);
  }

  #tell(load, sample) {
    const calm = sample.writes.throttled <= TOLERATED * sample.writes.accepted;
    load.row = load.calm === calm ? load.row + 1 : 1;
    load.calm = calm;
    if (!calm && (load.throttledAt === null || (load.relieved && load.row >= STEADY))) {
      load.throttledAt = sample.at;
      load.relieved = null;
    }
    const shards = widest(sample);
    if (calm && load.throttledAt !== null && !load.relieved && load.row >= STEADY) {
      const seconds = Math.max(1, Math.round(sample.at - (STEADY - 1) - load.throttledAt));
      load.relieved = { seconds, shards };
    }
    if (load.relieved) {
      const { seconds, shards: enough } = load.relieved;
      const where = enough > 1 ? ` on ${count(enough)} shards` : '';
      return { stage: 'relieved', text: `Relieved after ${plural(seconds, 'second')}${where}: less than 1 % is throttled.` };
    }
    if (load.throttledAt === null) {
      return { stage: 'calm', text: 'The load runs, and nothing is throttled.' };
    }
    if (shards > 1) {
      return { stage: 'spreading', text: 'The key spreads over more shards, until the throttles end.' };
    }
    return { stage: 'throttled', text: 'The key gets more writes than its partition can take. The writer learns it from the throttles.' };
  }
}

function widest(sample) {
  const own = sample.keys.filter((key) => key.partition_key.startsWith(sample.load.partition_key));
  return Math.max(1, ...own.map((key) => key.number_of_shards));
}
