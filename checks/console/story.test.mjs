// Checks the page's sentences without a browser. checks/console_page copies the page's own scripts to
// `page`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { oneAtATime } from './page/forms.js';
import { inWords } from './page/load_status.js';
import { Story } from './page/story.js';

const CALM = { accepted: 100, throttled: 0 };
const HOT = { accepted: 50, throttled: 80 };
const STUCK = { accepted: 0, throttled: 0 };

// Returns the page's sentences, sample by sample, for a load with these writes each second.
function sentences(seconds, { load = {}, keys = [] } = {}) {
  const story = new Story();
  return seconds.map((writes, index) => story.add({
    at: 1000 + index,
    writes,
    keys,
    load: { partition_key: 'hot', keys: 1, writes: 300, reads: 0, seconds: index, ...load },
  }));
}

const stages = (seconds, more) => sentences(seconds, more).map(({ stage }) => stage);
const key = (partition_key, number_of_shards) => ({ partition_key, number_of_shards });

test('a key is throttled, spreads and is relieved', () => {
  const story = [CALM, HOT, HOT, CALM, CALM, CALM, CALM];
  assert.deepEqual(stages(story), ['calm', 'throttled', 'throttled', 'throttled', 'throttled', 'relieved', 'relieved']);
  const keys = [key('hot', 8)];
  assert.deepEqual(stages(story, { keys }), ['calm', 'spreading', 'spreading', 'spreading', 'spreading', 'relieved', 'relieved']);
  assert.match(sentences(story, { keys }).at(-1).text, /^Relieved after 2 seconds on 8 shards: /);
});

test('shards of another load’s key are not this load’s', () => {
  const other = { keys: [key('hot-123', 18), key('hot-1-2', 18), key('hotter', 18)] };
  assert.equal(stages([HOT], other).at(-1), 'throttled');
  assert.doesNotMatch(sentences([HOT, CALM, CALM, CALM], other).at(-1).text, /18/);
  const many = { load: { keys: 20 } };
  for (const name of ['hot', 'hot-21', 'hot-0', 'hot-01', 'hot-1x', 'hot-1-2', 'hotter-1']) {
    assert.equal(stages([HOT], { ...many, keys: [key(name, 18)] }).at(-1), 'throttled', name);
  }
  assert.equal(stages([HOT], { ...many, keys: [key('hot-20', 18)] }).at(-1), 'spreading');
});

test('writes without a response are not called calm', () => {
  const stuck = sentences([STUCK, STUCK, STUCK, STUCK]);
  assert.ok(stuck.every(({ text }) => !/nothing is throttled/.test(text)), JSON.stringify(stuck));
  assert.deepEqual(stuck.map(({ stage }) => stage), ['calm', 'calm', null, null]);
  assert.match(stuck.at(-1).text, /No write .*response/);
  const later = sentences([CALM, STUCK, CALM, STUCK, STUCK, STUCK, CALM]);
  assert.deepEqual(later.map(({ stage }) => stage), ['calm', 'calm', 'calm', 'calm', 'calm', null, 'calm']);
  assert.ok(stages([HOT, HOT, STUCK, STUCK, STUCK, STUCK]).every((stage) => stage !== 'relieved'));
});

test('a load that only reads waits for no writes', () => {
  assert.deepEqual(stages([STUCK, STUCK, STUCK, STUCK], { load: { writes: 0 } }), ['calm', 'calm', 'calm', 'calm']);
});

test('the page reports writes that the machine did not send', () => {
  const load = { partition_key: 'hot', keys: 1, writes: 5000, reads: 1, seconds: 2, stored: 10, throttled: 0, failed: 0 };
  assert.doesNotMatch(inWords({ ...load, sent: 10, not_sent: 0 }), /machine/);
  assert.doesNotMatch(inWords(load), /machine/);
  assert.match(inWords({ ...load, sent: 10, not_sent: 1 }), /failed; the machine cannot keep up: 1 write not sent\.$/);
  assert.match(inWords({ ...load, sent: 10, not_sent: 12345 }), /the machine cannot keep up: 12,345 writes not sent\.$/);
});

test('while an action runs, it is not begun again, and its failure lets the next one in', async () => {
  let begun = 0;
  let end;
  const action = oneAtATime(() => new Promise((resolve, reject) => { begun += 1; end = reject; }));
  const first = action();
  await action();
  assert.equal(begun, 1);
  end(new Error('a failure'));
  await assert.rejects(first, /a failure/);
  action();
  assert.equal(begun, 2);
});
