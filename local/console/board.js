// The page's charts: their lines, and the values of the lines in a sample.

import { Chart } from './charts.js';
import { count, units } from './numbers.js';

const KEY_LINES = [
  ['--line-1', 'solid'], ['--line-2', 'dashed'], ['--line-3', 'dotted'],
  ['--line-4', 'solid'], ['--line-5', 'dashed'], ['--line-6', 'dotted'],
];

export class Board {
  #charts;
  #hottest = new HottestKeys(KEY_LINES.length);

  // `grown` returns the times at which writers began to use more shards.
  constructor(grown) {
    this.#charts = [
      chart('chart-writes', [
        line('accepted', '--accepted', 'solid', (sample) => sample.writes.accepted, { filled: true }),
        line('throttled', '--throttled', 'dashed', (sample) => sample.writes.throttled, { filled: true }),
        line('failed', '--failed', 'dotted', (sample) => sample.writes.failed),
      ], { format: count, least: 10, marks: grown }),
      chart('chart-shards', KEY_LINES.map(([colour, dash], slot) => ({
        label: () => this.#hottest.at(slot) ?? '',
        colour,
        line: dash,
        value: (sample) => width(sample, this.#hottest.at(slot)),
      })), { format: count, least: 4, stepped: true, marks: grown }),
      chart('chart-consumed', [
        line('write units', '--accepted', 'solid', (sample) => sample.consumed.write_units, { filled: true }),
        line('read units', '--line-2', 'dashed', (sample) => sample.consumed.read_units),
      ], { format: units, least: 10 }),
      chart('chart-write-latency', [
        line('p50', '--line-1', 'solid', (sample) => positive(sample.latency_ms.writes?.p50)),
        line('p95', '--line-2', 'dashed', (sample) => positive(sample.latency_ms.writes?.p95)),
        line('p99', '--line-3', 'dotted', (sample) => positive(sample.latency_ms.writes?.p99)),
      ], { format: units, log: true }),
      chart('chart-read-latency', [
        line('p50', '--line-1', 'solid', (sample) => positive(sample.latency_ms.reads?.p50)),
        line('p99', '--line-3', 'dotted', (sample) => positive(sample.latency_ms.reads?.p99)),
      ], { format: units, log: true }),
    ];
  }

  draw(moments) {
    this.#hottest.follow(moments);
    for (const each of this.#charts) {
      each.draw(moments);
    }
  }
}

function chart(id, lines, options) {
  return new Chart(document.getElementById(id), lines, options);
}

function line(label, colour, dash, value, more = {}) {
  return { label: () => label, colour, line: dash, value, ...more };
}

function width(sample, partitionKey) {
  return sample.keys.find((key) => key.partition_key === partitionKey)?.number_of_shards ?? null;
}

// A logarithmic axis cannot show zero.
function positive(value) {
  return value > 0 ? value : null;
}

// The keys with the most throttles in the window. A key keeps its line while it is one of them.
class HottestKeys {
  #slots;

  constructor(length) {
    this.#slots = new Array(length).fill(null);
  }

  at(slot) {
    return this.#slots[slot];
  }

  follow(moments) {
    const heat = new Map();
    for (const { sample } of moments) {
      for (const key of sample?.keys ?? []) {
        heat.set(key.partition_key, (heat.get(key.partition_key) ?? 0) + key.throttled);
      }
    }
    const hottest = [...heat].sort(([a, more], [b, less]) => less - more || (a < b ? -1 : 1)).map(([key]) => key);
    const chosen = new Set(hottest.slice(0, this.#slots.length));
    this.#slots = this.#slots.map((key) => (chosen.delete(key) ? key : null));
    const waiting = chosen.values();
    this.#slots = this.#slots.map((key) => key ?? waiting.next().value ?? null);
  }
}
