// The busiest keys, and their names as suggestions for the forms.

import { setLength, setText, tableRow } from './in_place.js';
import { count } from './numbers.js';

const table = document.getElementById('keys-table');
const rows = document.getElementById('keys-rows');
const empty = document.getElementById('keys-empty');
const suggestions = document.getElementById('known-keys');
const warm = document.getElementById('warm');

export function showKeys(keys, warmWriteUnits) {
  warm.hidden = !warmWriteUnits;
  if (warmWriteUnits) {
    setText(warm, `The table's warm throughput is ${count(warmWriteUnits)} write units per second. More shards do not relieve a higher load.`);
  }
  // Sorted by width, which seldom changes. Sorted by load, the rows would move all the time.
  const sorted = [...keys].sort((a, b) => b.number_of_shards - a.number_of_shards || (a.partition_key < b.partition_key ? -1 : 1));
  table.hidden = sorted.length === 0;
  empty.hidden = sorted.length > 0;
  setLength(rows, sorted.length, () => tableRow(['key', 'number', 'number', 'number']));
  sorted.forEach((key, index) => showRow(rows.children[index], key));
  setLength(suggestions, sorted.length, () => document.createElement('option'));
  sorted.forEach((key, index) => setText(suggestions.children[index], key.partition_key));
}

function showRow(row, key) {
  const [name, write, read, throttled] = row.children;
  row.dataset.key = key.partition_key;
  setText(name, key.partition_key);
  setText(write, count(key.number_of_shards));
  const state = key.closing ? ' changing' : key.draining ? ' draining' : '';
  row.toggleAttribute('data-changing', state !== '');
  setText(read, `${count(key.read_shards)}${state}`);
  setText(throttled, count(key.throttled));
}
