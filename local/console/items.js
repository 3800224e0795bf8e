// Writes one item, and reads a key page by page.

import { carryOut, whenSubmitted } from './forms.js';
import { isEnabled, setEnabled, setLength, setText, tableRow } from './in_place.js';
import { count, plural, units } from './numbers.js';
import { Problem, ask, askJson } from './requests.js';

const writeForm = document.getElementById('write-form');
const readForm = document.getElementById('read-form');
const nextPage = document.getElementById('next-page');
const shown = document.getElementById('read-shown');
const rows = document.getElementById('read-rows');

export function prepareItems() {
  whenSubmitted(writeForm, async (values) => {
    const stored = await askJson('/items', itemBody(values));
    return `Stored on shard ${count(stored.shard)} of ${count(stored.number_of_shards)}, sort key ${stored.sort_key}.`;
  });

  let following = null;
  async function readPage(query, number) {
    const page = await ask(`/items?${new URLSearchParams(query)}`);
    following = page.cursor ? { query: { ...query, cursor: page.cursor }, number: number + 1 } : null;
    setEnabled(nextPage, following !== null);
    showItems(page.items);
    return `Page ${count(number)}: ${plural(page.items.length, 'item')}, ${plural(page.shards, 'shard')} read, `
      + `${units(page.consumed_capacity)} read units consumed${following ? '' : '; this is the last page'}.`;
  }
  whenSubmitted(readForm, ({ limit, ...values }) => readPage(limit === '' ? values : { ...values, limit }, 1));
  nextPage.addEventListener('click', () => {
    if (isEnabled(nextPage)) {
      setEnabled(nextPage, false);
      const { query, number } = following;
      carryOut(readForm, () => readPage(query, number));
    }
  });
}

// The attributes are sent as typed, so that numbers keep all their digits.
function itemBody({ partition_key, sort_key, attributes }) {
  try {
    JSON.parse(attributes);
  } catch (error) {
    throw new Problem({ detail: `attributes: it is not JSON: ${error.message}`, field: 'attributes' });
  }
  const sortKey = sort_key === '' ? '' : `"sort_key":${JSON.stringify(sort_key)},`;
  return `{"partition_key":${JSON.stringify(partition_key)},${sortKey}"attributes":${attributes}}`;
}

function showItems(items) {
  shown.hidden = items.length === 0;
  setLength(rows, items.length, () => tableRow(['key', 'json']));
  items.forEach((item, index) => {
    const [sortKey, attributes] = rows.children[index].children;
    setText(sortKey, typeof item.sort_key === 'string' ? item.sort_key : JSON.stringify(item.sort_key));
    setText(attributes, JSON.stringify(item.attributes));
  });
}
