// Checks the page's sentences without a browser. checks/console_page copies the page's own scripts to
// `page`.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { why } from './page/decision_words.js';
import { oneAtATime } from './page/forms.js';
import { inWords } from './page/load_status.js';
import { Story, widest } from './page/story.js';

const LOAD = { partition_key: 'hot', keys: 1, writes: 300, reads: 0, sent: 0, not_sent: 0, stored: 0, throttled: 0, failed: 0 };
const CALM = { accepted: 100, throttled: 0 };
const HOT = { accepted: 50, throttled: 80 };
const STUCK = { accepted: 0, throttled: 0 };
const LATE = { accepted: 100, throttled: 0, waiting: 301 }; // more than a second of the load waits

// Returns the page's sentences, sample by sample, for a load with these writes each second.
function sentences(seconds, { load = {}, keys = [] } = {}) {
  const story = new Story();
  return seconds.map((writes, index) => story.add({
    at: 1000 + index,
    writes,
    keys,
    load: { ...LOAD, seconds: index, sent: writes.waiting ?? 0, ...load },
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

test('a load whose writes wait for the machine is neither calm nor relieved', () => {
  const late = sentences([LATE, LATE, LATE, LATE]);
  assert.ok(late.every(({ text }) => !/nothing is throttled/.test(text)), JSON.stringify(late));
  assert.deepEqual(late.map(({ stage }) => stage), ['calm', 'calm', null, null]);
  assert.match(late.at(-1).text, /machine .*wait/);
  assert.ok(stages([HOT, HOT, LATE, LATE, LATE, LATE]).every((stage) => stage !== 'relieved'));
  assert.equal(stages([HOT, HOT, LATE, CALM, CALM, CALM]).at(-1), 'relieved');
  assert.equal(stages([CALM, { ...LATE, waiting: 300 }, { ...LATE, waiting: 300 }, CALM]).at(-1), 'calm');
});

test('a load that only reads waits for no writes', () => {
  assert.deepEqual(stages([STUCK, STUCK, STUCK, STUCK], { load: { writes: 0 } }), ['calm', 'calm', 'calm', 'calm']);
});

test('the page counts writes without a response, and those that the machine did not send', () => {
  const load = { ...LOAD, writes: 5000, seconds: 2, sent: 10_013, stored: 10, failed: 3 };
  assert.match(inWords(load), /; 10 stored, 0 throttled, 3 failed, 10,000 without a response\.$/);
  assert.match(inWords({ ...load, sent: 13, not_sent: 1 }), /0 without a response; the machine cannot keep up: 1 write not sent\.$/);
  assert.match(inWords({ ...load, not_sent: 12345 }), /the machine cannot keep up: 12,345 writes not sent\.$/);
  assert.match(inWords({ ...load, stored: 11_000 }), / 0 without a response/);
});

test('the widest key is one of the load, if one runs', () => {
  const keys = [key('old', 18), key('hot', 4)];
  assert.equal(widest({ keys, load: LOAD }), 4);
  assert.equal(widest({ keys, load: null }), 18);
  assert.equal(widest({ keys: [key('old', 18)], load: LOAD }), null);
});

test('a decision says at what time the next one comes, as a time of day', () => {
  const decision = { reason: 'cooling down (60 throttles reported)', by: 'shard-scaler', until: 1_795_471_270 };
  assert.match(why(decision), /; decided by the shard-scaler; it decides again at \d\d:\d\d:\d\d$/);
  assert.equal(why({ ...decision, until: null }), 'cooling down (60 throttles reported); decided by the shard-scaler');
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
