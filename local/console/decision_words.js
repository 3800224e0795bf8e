// Describes a scaling decision: what happens, and why.

import { count, plural, timeOfDay } from './numbers.js';

const ACTORS = { writer: 'the writer', 'shard-scaler': 'the shard-scaler' };

export function what({ from, to, outcome }) {
  if (from === to) {
    return `stays at ${plural(to, 'shard')} (${outcome})`;
  }
  const change = `${count(from)} → ${plural(to, 'shard')}`;
  if (outcome === 'closing') {
    return `changing, ${change}: writers wait about a second`;
  }
  return outcome === 'scaled' ? change : `${change} (${outcome})`;
}

export function why({ reason, by, until }) {
  const next = until ? `; it decides again at ${timeOfDay(until)}` : '';
  return `${reason}; decided by ${ACTORS[by] ?? by}${next}`;
}
