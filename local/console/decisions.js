// The latest scaling decisions, newest first.

import { count, timeOfDay } from './numbers.js';

const KEPT = 50;
const ACTORS = { writer: 'the writer', 'shard-scaler': 'the shard-scaler' };

const list = document.getElementById('decisions-list');
const scroll = document.getElementById('decisions-scroll');
const empty = document.getElementById('decisions-empty');

export class Decisions {
  #byId = new Map();

  // A restarted server numbers its decisions from 1 again.
  clear() {
    this.#byId.clear();
    list.replaceChildren();
    this.#showListOrNote();
  }

  add(decision) {
    if (this.#byId.has(decision.id)) {
      return;
    }
    this.#byId.set(decision.id, decision);
    list.prepend(entry(decision));
    while (list.children.length > KEPT) {
      this.#byId.delete(Number(list.lastElementChild.dataset.id));
      list.lastElementChild.remove();
    }
    this.#showListOrNote();
  }

  // The times at which writers began to use more shards.
  grown() {
    return [...this.#byId.values()].filter(({ outcome, from, to }) => outcome === 'scaled' && to > from).map(({ at }) => at);
  }

  #showListOrNote() {
    scroll.hidden = this.#byId.size === 0;
    empty.hidden = this.#byId.size > 0;
  }
}

function entry(decision) {
  const item = document.createElement('li');
  item.dataset.id = decision.id;
  const time = document.createElement('time');
  time.dateTime = new Date(decision.at * 1000).toISOString();
  time.textContent = timeOfDay(decision.at);
  const key = document.createElement('strong');
  key.textContent = decision.partition_key;
  const what = document.createElement('p');
  what.append(key, ` ${inWords(decision)}`);
  const why = document.createElement('p');
  why.className = 'reason';
  why.textContent = `${decision.reason}; decided by ${ACTORS[decision.by] ?? decision.by}`;
  item.append(time, what, why);
  return item;
}

function inWords({ from, to, outcome }) {
  if (from === to) {
    return `stays at ${shards(to)} (${outcome})`;
  }
  const change = `${count(from)} → ${shards(to)}`;
  if (outcome === 'closing') {
    return `changing, ${change}: writers wait about a second`;
  }
  return outcome === 'scaled' ? change : `${change} (${outcome})`;
}

function shards(value) {
  return `${count(value)} ${value === 1 ? 'shard' : 'shards'}`;
}
