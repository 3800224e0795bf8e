// A chart: lines over the last two minutes, with a legend of the latest values or of the values
// under the pointer.

import uPlot from './vendor/uPlot.esm.js';
import { setAttribute, setText } from './in_place.js';
import { onAxis } from './numbers.js';
import { SPAN_SECONDS } from './samples.js';

const DASHES = { solid: [], dashed: [7, 4], dotted: [2, 3] };
const FONT = '12px system-ui, sans-serif';

// A line: { label, colour (a custom property), line (of DASHES), filled?, value(sample) or null }.
// Options: { format, log?, stepped?, least (the top of an empty axis),
// marks? (times of vertical lines) }.
export class Chart {
  #figure;
  #lines;
  #options;
  #entries;
  #plot;
  #times = [];
  #data;

  constructor(figure, lines, options) {
    this.#figure = figure;
    this.#lines = lines;
    this.#options = options;
    this.#entries = lines.map(legendEntry);
    figure.querySelector('.legend').append(...this.#entries.map((entry) => entry.item));
    const place = figure.querySelector('.plot');
    this.#data = this.#columns([]);
    this.#plot = new uPlot(this.#settings(place), this.#data, place);
    new ResizeObserver(() => this.#plot.setSize({ width: place.clientWidth, height: place.clientHeight })).observe(place);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#plot.redraw(false));
  }

  draw(moments) {
    this.#times = moments.map(({ at }) => at);
    this.#data = this.#columns(moments);
    this.#plot.setData(this.#data);
    this.#describe();
  }

  #columns(moments) {
    const column = (line) => moments.map(({ sample }) => (sample ? line.value(sample) : null));
    return [moments.map(({ at }) => at), ...this.#lines.map(column)];
  }

  #describe() {
    const title = this.#figure.querySelector('h3').textContent;
    const latest = this.#lines.map((line, index) => {
      const label = line.label();
      setText(this.#entries[index].label, label);
      this.#entries[index].item.hidden = label === '';
      return label === '' ? '' : `${label} ${this.#text(index, this.#times.length - 1)}`;
    });
    setAttribute(this.#figure.querySelector('.plot'), 'aria-label', `${title}, now: ${latest.filter(Boolean).join(', ') || 'none'}`);
    this.#showValues(this.#plot.cursor.idx);
  }

  #showValues(index) {
    const at = index ?? this.#times.length - 1;
    this.#entries.forEach((entry, line) => setText(entry.value, this.#text(line, at)));
  }

  #text(line, index) {
    const value = this.#data[line + 1][index];
    return value === null || value === undefined ? '–' : this.#options.format(value);
  }

  #settings(place) {
    const { log = false, stepped = false } = this.#options;
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : undefined;
    return {
      width: place.clientWidth,
      height: place.clientHeight,
      padding: [10, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, sync: { key: 'console' } },
      scales: {
        x: { time: false, range: () => [this.#end() - SPAN_SECONDS, this.#end()] },
        y: { distr: log ? 3 : 1, range: (_, low, high) => (log ? decades(low, high) : [0, roof(high, this.#options.least)]) },
      },
      axes: [
        {
          ...axisColours(),
          size: 30,
          splits: () => [120, 90, 60, 30, 0].map((ago) => this.#end() - ago),
          values: (_, splits) => splits.map((at) => ago(this.#end() - at)),
        },
        { ...axisColours(), size: 52, space: 32, values: (_, splits) => splits.map(onAxis), ...(log && { splits: powersOfTen, filter: (_, splits) => splits }) },
      ],
      series: [{}, ...this.#lines.map((line) => ({
        stroke: () => colour(line.colour),
        fill: line.filled ? () => `${colour(line.colour)}26` : undefined,
        dash: DASHES[line.line],
        width: 2,
        points: { show: false },
        paths,
      }))],
      hooks: {
        setCursor: [(plot) => this.#showValues(plot.cursor.idx)],
        drawAxes: [(plot) => this.#drawMarks(plot)],
      },
    };
  }

  #end() {
    return this.#times.at(-1) ?? SPAN_SECONDS;
  }

  #drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour('--mark');
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const at of this.#options.marks?.() ?? []) {
      if (at > this.#end() - SPAN_SECONDS && at <= this.#end()) {
        const x = Math.round(plot.valToPos(at, 'x', true));
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
    }
    ctx.restore();
  }
}

function legendEntry(line) {
  const item = document.createElement('li');
  const swatch = document.createElement('span');
  swatch.className = 'swatch';
  swatch.dataset.line = line.line;
  swatch.style.setProperty('--colour', `var(${line.colour})`);
  const label = document.createElement('span');
  label.className = 'label';
  const value = document.createElement('span');
  value.className = 'value';
  item.append(swatch, label, value);
  return { item, label, value };
}

function axisColours() {
  return {
    stroke: () => colour('--muted'),
    grid: { stroke: () => colour('--grid'), width: 1 },
    ticks: { show: false },
    font: FONT,
    gap: 6,
  };
}

// Read for each drawing, because the colour differs between the light and the dark scheme.
function colour(property) {
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim();
}

function ago(seconds) {
  return seconds < 1 ? 'now' : `−${Math.round(seconds)} s`;
}

// The top of the axis is a round number, so that the axis does not change with every sample.
function roof(high, least) {
  const wanted = Math.max(least, (high ?? 0) * 1.05);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= wanted);
}

function powersOfTen(plot, axis, low, high) {
  const first = Math.round(Math.log10(low));
  return Array.from({ length: Math.round(Math.log10(high)) - first + 1 }, (_, step) => 10 ** (first + step));
}

function decades(low, high) {
  if (!(low > 0 && high > 0)) {
    return [1, 100];
  }
  const from = Math.floor(Math.log10(low));
  return [10 ** from, 10 ** Math.max(from + 1, Math.ceil(Math.log10(high)))];
}
