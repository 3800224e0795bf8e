// Common behaviour of forms: one request at a time, and errors shown in the form and at the field.

import { setText } from './in_place.js';
import { Problem } from './requests.js';

// `send` gets the form's values, sends the request and returns a sentence about the result.
export function whenSubmitted(form, send) {
  const carryOutOnce = oneAtATime(() => carryOut(form, () => send(Object.fromEntries(new FormData(form)))));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    return carryOutOnce();
  });
}

// Wraps an action so that it does not start again while it runs.
export function oneAtATime(action) {
  let busy = false;
  return async () => {
    if (!busy) {
      busy = true;
      try {
        await action();
      } finally {
        busy = false;
      }
    }
  };
}

// `place` is a form or another element that contains a `.problem` and a `.result`.
export async function carryOut(place, action) {
  const alert = place.querySelector('.problem');
  const result = place.querySelector('.result');
  clear(place, alert);
  try {
    setText(result, await action());
  } catch (error) {
    if (!(error instanceof Problem)) {
      throw error;
    }
    setText(result, '');
    setText(alert, error.message);
    mark(place, alert, error.field);
  }
}

function clear(place, alert) {
  setText(alert, '');
  for (const control of place.querySelectorAll('[aria-invalid]')) {
    control.removeAttribute('aria-invalid');
    control.removeAttribute('aria-describedby');
  }
}

// A problem may name a path: `attributes.bytes` belongs to the field `attributes`.
function mark(place, alert, field) {
  const control = field && place.elements?.namedItem(field.split(/[.[]/)[0]);
  if (control) {
    control.setAttribute('aria-invalid', 'true');
    control.setAttribute('aria-describedby', alert.id);
    control.focus();
  }
}
