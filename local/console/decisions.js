// The latest scaling decisions, newest first.

import { what, why } from './decision_words.js';
import { timeOfDay } from './numbers.js';

const KEPT = 50;

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
  const outcome = document.createElement('p');
  outcome.append(key, ` ${what(decision)}`);
  const reason = document.createElement('p');
  reason.className = 'reason';
  reason.textContent = why(decision);
  item.append(time, outcome, reason);
  return item;
}
