// The page's formats of numbers.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

export function count(value) {
  return whole.format(value);
}

export function units(value) {
  return value < 100 ? tenth.format(value) : whole.format(value);
}

export function onAxis(value) {
  return short.format(value);
}

export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

export function milliseconds(value) {
  return `${units(value)} ms`;
}

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export function timeOfDay(seconds) {
  return clock.format(new Date(seconds * 1000));
}
