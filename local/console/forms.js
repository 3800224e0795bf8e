// What all forms do: one request at a time, and what is wrong is told beside the form and at the field.

import { setText } from './in_place.js';
import { Problem } from './requests.js';

// `send` gets the form's values, carries them out and returns the sentence that tells the result.
export function whenSubmitted(form, send) {
  const carryOutOnce = oneAtATime(() => carryOut(form, () => send(Object.fromEntries(new FormData(form)))));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    return carryOutOnce();
  });
}

// The action, except that it is not begun again while it runs.
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

// `place` is a form, or what else has a `.problem` and a `.result`.
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

// A field may be a path: `attributes.bytes` is wrong in the field `attributes`.
function mark(place, alert, field) {
  const control = field && place.elements?.namedItem(field.split(/[.[]/)[0]);
  if (control) {
    control.setAttribute('aria-invalid', 'true');
    control.setAttribute('aria-describedby', alert.id);
    control.focus();
  }
}
