// Checks the console page in a browser, over the local edition: a key becomes hot and recovers, items
// are written and read, and the page stays legible and accessible. LOCAL_BINARY and CHROMIUM are the
// programs to run, and CONSOLE_SCREENSHOTS is the folder for the pictures. `console.png` is that of
// docs/.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { crc32 } from 'node:zlib';
import { chromium } from 'playwright-core';

import { layoutFaults } from './layout.mjs';
import { serve } from './server.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const HEAL_MS = 90_000;
const SOON_MS = 15_000;
const DESKTOP = { width: 1280, height: 900 };
const PICTURE = { x: 0, y: 0, width: 1280, height: 1280 };
const PHONE = { width: 390, height: 844 };
const LOOKS = [
  { name: 'light', viewport: DESKTOP, colorScheme: 'light' },
  { name: 'dark', viewport: DESKTOP, colorScheme: 'dark' },
  { name: 'phone-light', viewport: PHONE, colorScheme: 'light' },
  { name: 'phone-dark', viewport: PHONE, colorScheme: 'dark' },
];
const CALM = { row: 3, tolerated: 0.01 };

const pictures = process.env.CONSOLE_SCREENSHOTS || mkdtempSync(join(tmpdir(), 'console-'));
const profile = mkdtempSync(join(tmpdir(), 'chromium-'));
let server;
let context;
let page;
let troubles = [];

before(async () => {
  mkdirSync(pictures, { recursive: true });
  server = await serve(process.env.LOCAL_BINARY);
  context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM,
    headless: true,
    viewport: DESKTOP,
    args: [
      '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
    ],
  });
  context.setDefaultTimeout(SOON_MS);
  page = context.pages()[0];
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && troubles.push(message.text()));
  page.on('pageerror', (error) => troubles.push(error.stack));
  page.on('requestfailed', (request) => troubles.push(`${request.url()}: ${request.failure().errorText}`));
  page.on('request', (request) => request.url().startsWith(`${server.url}/`) || troubles.push(`asks ${request.url()}`));
  await page.addInitScript(recordSamples);
});

after(async () => {
  await context?.close();
  await server?.stop();
  rmSync(profile, { recursive: true, force: true });
  console.log(`pictures in ${pictures}`);
});

test('the page opens without an error and shows samples', async () => {
  const response = await page.goto(`${server.url}/console`);
  assert.match(response.headers()['content-security-policy'] ?? '', /default-src 'self'/);
  await shows('#connection', 'Connected');
  await samples(() => window.seen.length >= 2, 'two samples');
  await shows('#load-status', 'No load is running.');
  assertQuiet();
});

test('the keyboard reaches the skip link first, then the one primary button', async () => {
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Skip to the content');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'Make one key hot');
  assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'none');
});

test('a wrong value is reported beside its form and at its field', async () => {
  const wrong = [
    ['load', 'Number of keys', 'none', 'Start this load'],
    ['write', 'Partition key', '', 'Write'],
    ['write', 'Attributes, as JSON', '{"bytes": ', 'Write'],
    ['read', 'Items a page', '0', 'Read'],
  ];
  for (const [form, label, value, button] of wrong) {
    const place = page.locator(`#${form}-form`);
    const input = control(place, label);
    const before = await input.inputValue();
    await input.fill(value);
    await place.getByRole('button', { name: button, exact: true }).click();
    await shows(`#${form}-problem`, /\S/);
    assert.equal(await input.getAttribute('aria-invalid'), 'true', `${label} is not marked`);
    assert.equal(await input.getAttribute('aria-describedby'), `${form}-problem`);
    assert.ok(await input.evaluate((element) => element === document.activeElement), `${label} has not the focus`);
    await input.fill(before);
  }
  assertQuietBut(/status of 400/);
});

test('items are written, and read page by page', async () => {
  for (const sortKey of ['a', 'b', 'c']) {
    await fill('#write-form', { 'Partition key': 'checked', 'Sort key (optional)': sortKey, 'Attributes, as JSON': '{"digits": 1.50000000000000000001}' });
    await page.locator('#write-form').getByRole('button', { name: 'Write' }).click();
    await shows('#write-result', new RegExp(`^Stored on shard 1 of 1, sort key ${sortKey}\\.$`));
  }
  await fill('#read-form', { 'Partition key': 'checked', 'Items a page': '2' });
  await page.locator('#read-form').getByRole('button', { name: 'Read' }).click();
  await shows('#read-result', /^Page 1: 2 items, 1 shard read, [\d.]+ read units consumed\.$/);
  assert.deepEqual(await itemsShown(), [['a', '{"digits":1.50000000000000000001}'], ['b', '{"digits":1.50000000000000000001}']]);

  await page.getByRole('button', { name: 'Next page' }).click();
  await shows('#read-result', /^Page 2: 1 item, .*last page\.$/);
  assert.deepEqual((await itemsShown()).map(([sortKey]) => sortKey), ['c']);
  assert.equal(await page.locator('#next-page').getAttribute('aria-disabled'), 'true');

  await page.locator('#read-form').getByRole('combobox', { name: 'Order of sort keys' }).selectOption('desc');
  await page.locator('#read-form').getByRole('button', { name: 'Read' }).click();
  await shows('#read-result', /^Page 1/);
  assert.deepEqual((await itemsShown()).map(([sortKey]) => sortKey), ['c', 'b']);
  assertQuiet();
});

test('a load on one key is throttled, spreads over shards, and is relieved', { timeout: 2 * HEAL_MS }, async () => {
  await fill('#load-form', { 'Partition key prefix': 'warm', 'Number of keys': '1', 'Writes a second, in total': '300', 'Reads a second': '10' });
  await page.locator('#load-form').getByRole('button', { name: 'Start this load' }).click();
  await shows('#load-result', 'The load has started.');
  await shows('#load-status', /Load on 1 key, prefix “warm”/);

  await samples(() => window.seen.some((sample) => sample.throttled > 0), 'throttles');
  await samples(() => window.seen.some((sample) => sample.throttledCells > 0), 'a partition that is marked as throttled');
  await samples(() => window.seen.at(-1).shards > 1, 'more than one shard', HEAL_MS);
  await page.locator('#decisions-list li', { hasText: /warm.* 1 → \d+ shards/ }).first().waitFor();
  await page.locator('#keys-rows tr', { hasText: 'warm' }).first().waitFor();
  await samples(
    ({ row, tolerated }) => {
      const last = window.seen.slice(-row);
      return last.length === row && last.every(({ accepted, throttled }) => accepted > 0 && throttled <= tolerated * accepted);
    },
    'the end of the throttles', HEAL_MS,
  );
  await samples(() => window.seen.at(-1).stage === 'relieved', 'the stage “Relieved”');
  await shows('#story', /^Relieved after \d+ seconds? on \d+ shards/);
  assertQuiet();
});

test('a second load is refused while one runs', async () => {
  await page.locator('#load-form').getByRole('button', { name: 'Start this load' }).click();
  await shows('#load-problem', /running|runs/);
  assertQuietBut(/status of 409/);
});

test('a sample changes the existing elements, and creates none', async () => {
  await page.evaluate(() => {
    window.watched = ['.heat .cell', '#keys-rows tr', '#decisions-list li', '#chart-writes canvas', '#chart-writes .legend li']
      .map((selector) => document.querySelector(selector));
  });
  await freshSamples(2);
  assert.deepEqual(await page.evaluate(() => window.watched.map((element) => element.isConnected)), [true, true, true, true, true]);
});

test('the picture in docs/ is of this page', async () => {
  await page.emulateMedia({ colorScheme: 'light' });
  await freshSamples(5);
  const words = await page.locator('h1, h2, h3, dt, button, .stages li, #hot-explained').allTextContents();
  const digest = createHash('sha256').update(words.join('\n')).digest('hex');
  const path = join(pictures, 'console.png');
  writeFileSync(path, withText(await page.screenshot({ fullPage: true, clip: PICTURE }), 'Comment', digest));
  assert.ok(readFileSync('docs/console.png').includes(digest), `docs/console.png has other words than the page: replace it by ${path}`);
});

for (const { name, viewport, colorScheme } of LOOKS) {
  test(`the page is legible, accessible and complete: ${name}`, { timeout: 60_000 }, async () => {
    await page.setViewportSize(viewport);
    await page.emulateMedia({ colorScheme });
    await page.evaluate(() => { document.getElementById('heat-details').open = true; });
    await freshSamples(1);
    await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
    assert.deepEqual(await page.evaluate(layoutFaults), []);
    assert.deepEqual(await accessibilityFaults(), []);
    assert.ok(await page.evaluate(chartHasColour, '--accepted'), 'the chart is not in the colours of the scheme');
    assertQuiet();
  });
}

test('the load stops', async () => {
  await page.locator('#stop-load').click();
  await shows('#hot-result', 'The load has stopped.');
  await shows('#load-status', 'No load is running.');
  await samples(() => window.seen.at(-1).accepted === 0, 'a second without writes');
  assertQuiet();
});

test('the label of the button is legible under the pointer, before and after the click', async () => {
  const button = page.getByRole('button', { name: 'Make one key hot' });
  const legible = async (disabled) => {
    await page.waitForSelector(`#start-hot[aria-disabled="${disabled}"]`);
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      assert.ok(await button.evaluate((element) => element.matches(':hover')), 'the pointer is elsewhere');
      const ratio = await button.evaluate(contrast);
      assert.ok(ratio >= 4.5, `${colorScheme}, aria-disabled=${disabled}: ${ratio.toFixed(1)}:1`);
    }
  };
  await button.hover();
  await legible(false);
  await button.click();
  await legible(true);
  await page.locator('#stop-load').click();
  await shows('#load-status', 'No load is running.');
  assertQuiet();
});

test('one button makes one key hot, once', async () => {
  const asked = [];
  const note = (request) => request.method() === 'POST' && asked.push(request.url());
  page.on('request', note);
  await page.getByRole('button', { name: 'Make one key hot' }).evaluate((button) => { button.click(); button.click(); });
  await samples(() => window.seen.at(-1).accepted > 0, 'writes');
  await shows('#load-status', /Load on 1 key, prefix “hot-/);
  page.off('request', note);
  assert.deepEqual(asked, [`${server.url}/console/load`]);
  await page.locator('#stop-load').click();
  await shows('#load-status', 'No load is running.');
  assertQuiet();
});

test('the page reports that the server has stopped, and finds the next one', { timeout: 60_000 }, async () => {
  await shows('#connection', 'Connected');
  await server.stop();
  await shows('#connection', 'The server does not respond; trying again…');
  assert.deepEqual(await page.evaluate(layoutFaults), []);
  await page.screenshot({ path: join(pictures, 'gone.png') });
  server = await serve(process.env.LOCAL_BINARY, server.port);
  await shows('#connection', 'Connected');
  await freshSamples(1);
  await server.stop();
  await shows('#connection', /does not respond/);
});

// Records each shown sample. Runs in the page before its own scripts.
function recordSamples() {
  window.seen = [];
  const number = (name) => Number(document.querySelector(`[data-figure="${name}"]`).textContent.replaceAll(',', ''));
  new MutationObserver(() => {
    window.seen.push({
      accepted: number('accepted'),
      throttled: number('throttled'),
      shards: number('shards'),
      throttledCells: document.querySelectorAll('#heat [data-throttled]').length,
      stage: document.querySelector('.stages [aria-current]')?.dataset.stage,
    });
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ['data-at'] });
}

// The condition runs in the page.
async function samples(condition, what, timeout = SOON_MS) {
  try {
    await page.waitForFunction(condition, CALM, { timeout });
  } catch (error) {
    const last = await page.evaluate(() => window.seen.slice(-5));
    throw new Error(`the page does not show ${what} within ${timeout / 1000} s; its last samples: ${JSON.stringify(last)}`, { cause: error });
  }
}

async function freshSamples(number) {
  const already = await page.evaluate(() => window.seen.length);
  await page.waitForFunction((length) => window.seen.length >= length, already + number, { timeout: SOON_MS });
}

async function shows(selector, expected) {
  const element = page.locator(selector);
  try {
    await page.waitForFunction(
      ({ selector: place, text, pattern }) => {
        const found = document.querySelector(place).textContent.trim();
        return pattern === undefined ? found === text : new RegExp(pattern).test(found);
      },
      typeof expected === 'string' ? { selector, text: expected } : { selector, pattern: expected.source }, { timeout: SOON_MS },
    );
  } catch (error) {
    throw new Error(`${selector} shows “${await element.textContent()}” and not ${expected}`, { cause: error });
  }
}

async function fill(form, values) {
  for (const [label, value] of Object.entries(values)) {
    await control(page.locator(form), label).fill(value);
  }
}

// A text box with suggestions is a combo box.
function control(place, label) {
  return place.getByRole('textbox', { name: label, exact: true }).or(place.getByRole('combobox', { name: label, exact: true }));
}

function itemsShown() {
  return page.locator('#read-rows tr').evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));
}

function focused() {
  return page.evaluate(() => document.activeElement.textContent);
}

async function accessibilityFaults() {
  await page.evaluate(AXE); // The debugger evaluates it, so the page's script policy stays in force.
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }));
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html} ${node.failureSummary}`));
}

// Returns the contrast of an element's text (WCAG 2.2, contrast ratio). Runs in the page.
function contrast(element) {
  const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const luminance = (colour) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...pen.getImageData(0, 0, 1, 1).data]
      .map((channel) => channel / 255)
      .map((channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const { color, backgroundColor } = getComputedStyle(element);
  const [dark, light] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// Returns whether the chart of writes has a pixel in the custom property's colour. Runs in the page.
function chartHasColour(property) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const canvas = document.querySelector('#chart-writes canvas');
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 200 && wanted.every((channel, index) => Math.abs(channel - data[at + index]) < 6)) {
      return true;
    }
  }
  return false;
}

// Adds a text to a PNG, after its first chunk (PNG specification, tEXt).
function withText(png, keyword, text) {
  const chunk = Buffer.from(`....tEXt${keyword}\0${text}....`);
  chunk.writeUInt32BE(chunk.length - 12);
  chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), chunk.length - 4);
  const first = 8 + 12 + png.readUInt32BE(8); // the signature and the chunk
  return Buffer.concat([png.subarray(0, first), chunk, png.subarray(first)]);
}

function assertQuiet() {
  assertQuietBut();
}

function assertQuietBut(expected) {
  const unexpected = troubles.filter((trouble) => !expected?.test(trouble));
  troubles = [];
  assert.deepEqual(unexpected, []);
}
