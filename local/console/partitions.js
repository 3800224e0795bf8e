// Shows the heat of every physical partition: as cells, as a sentence and as a table.

import { setAttribute, setLength, setText, tableRow } from './in_place.js';
import { count, plural, units } from './numbers.js';

const FULL = 0.95;

const summary = document.getElementById('heat-summary');
const shown = document.getElementById('heat-shown');
const cells = document.getElementById('heat');
const details = document.getElementById('heat-details');
const rows = document.getElementById('heat-rows');

export function showPartitions({ partitions, limits }) {
  shown.hidden = partitions.length === 0 || !limits;
  if (shown.hidden) {
    setText(summary, 'This DynamoDB server does not report its partitions.');
    return;
  }
  setText(summary, inWords(partitions, limits));
  setAttribute(cells, 'data-size', sizeFor(partitions.length));
  setLength(cells, partitions.length, newCell);
  partitions.forEach((partition, index) => showCell(cells.children[index], partition, index, limits));
  if (details.open) {
    showRows(partitions);
  }
}

function inWords(partitions, limits) {
  const hottest = partitions.reduce((best, partition, index) => (partition.write_units > partitions[best].write_units ? index : best), 0);
  const load = partitions[hottest].write_units / limits.write_units;
  const throttled = partitions.filter((partition) => partition.throttled > 0).length;
  const heat = load > 0 ? `the hottest, ${hottest + 1}, at ${percent(load)} of its ${count(limits.write_units)} write units per second` : 'all idle';
  return `${plural(partitions.length, 'partition')}, ${heat}; ${throttled === 0 ? 'none' : count(throttled)} throttled.`;
}

function newCell() {
  const cell = document.createElement('span');
  cell.className = 'cell';
  return cell;
}

function showCell(cell, partition, index, limits) {
  const load = partition.write_units / limits.write_units;
  setAttribute(cell, 'data-heat', String(level(load)));
  cell.toggleAttribute('data-throttled', partition.throttled > 0);
  setText(cell, percent(load));
  setAttribute(cell, 'title', [
    `Partition ${index + 1}`,
    `${units(partition.write_units)} of ${count(limits.write_units)} write units`,
    `${units(partition.read_units)} of ${count(limits.read_units)} read units`,
    `${count(partition.throttled)} throttled`,
  ].join('\n'));
}

function showRows(partitions) {
  setLength(rows, partitions.length, () => tableRow(['', 'number', 'number', 'number']));
  partitions.forEach((partition, index) => {
    const [name, writes, reads, throttled] = rows.children[index].children;
    setText(name, count(index + 1));
    setText(writes, units(partition.write_units));
    setText(reads, units(partition.read_units));
    setText(throttled, count(partition.throttled));
  });
}

function level(load) {
  if (load <= 0) {
    return 0;
  }
  return load >= FULL ? 5 : 1 + [0.25, 0.5, 0.75].filter((step) => load >= step).length;
}

function percent(load) {
  return `${count(load * 100)} %`;
}

function sizeFor(length) {
  return length <= 32 ? 'large' : length <= 128 ? 'middle' : 'small';
}

// Fills the table when it opens, instead of with the next sample.
export function whenTableOpens(show) {
  details.addEventListener('toggle', show);
}
