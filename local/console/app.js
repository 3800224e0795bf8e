// Passes the server's samples and decisions to the parts of the page that show them.

import { Board } from './board.js';
import { Decisions } from './decisions.js';
import { setAttribute, setText } from './in_place.js';
import { prepareItems } from './items.js';
import { showKeys } from './keys.js';
import { prepareLoad, showLoad, suggestRate } from './load.js';
import { count, milliseconds } from './numbers.js';
import { showPartitions, whenTableOpens } from './partitions.js';
import { Samples } from './samples.js';
import { Story, widest } from './story.js';
import { follow } from './stream.js';

const samples = new Samples();
const decisions = new Decisions();
const board = new Board(() => decisions.grown());
let story = new Story();
let current = null; // the latest stage and sentence of the story

const connection = document.getElementById('connection');
const figures = Object.fromEntries([...document.querySelectorAll('[data-figure]')].map((element) => [element.dataset.figure, element]));

function show() {
  const sample = samples.last;
  if (!sample || document.hidden) {
    return;
  }
  board.draw(samples.withGaps());
  showPartitions(sample);
  showKeys(sample.keys, sample.warm_write_units);
  showLoad(sample.load);
  suggestRate(sample);
  showFigures(sample);
  showStory();
  document.documentElement.dataset.at = sample.at; // the time of the shown sample, for tests
}

function showFigures(sample) {
  const { writes, latency_ms: latency } = sample;
  const shards = widest(sample);
  setText(figures.accepted, count(writes.accepted));
  setText(figures.throttled, count(writes.throttled));
  setText(figures.shards, shards === null ? '–' : count(shards));
  setText(figures.p99, latency.writes ? milliseconds(latency.writes.p99) : '–');
}

function showStory() {
  setText(document.getElementById('story'), current.text);
  for (const step of document.querySelectorAll('.stages [data-stage]')) {
    if (step.dataset.stage === current.stage) {
      setAttribute(step, 'aria-current', 'step');
    } else {
      step.removeAttribute('aria-current');
    }
  }
}

function showConnection(state, text) {
  document.documentElement.dataset.connection = state;
  setText(connection, text);
}

prepareLoad();
prepareItems();
whenTableOpens(show);
document.addEventListener('visibilitychange', show);

follow('/console/stream', {
  connected() {
    showConnection('open', 'Connected');
  },
  gone() {
    showConnection('gone', 'The server does not respond; trying again…');
  },
  history(all) {
    samples.replace(all);
    decisions.clear();
    story = new Story();
    for (const sample of all) {
      current = story.add(sample);
    }
    show();
  },
  sample(sample) {
    samples.add(sample);
    current = story.add(sample);
    show();
  },
  decision(decision) {
    decisions.add(decision);
  },
});
