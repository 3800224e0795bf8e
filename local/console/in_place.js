// Changes to the document that leave alone what stays the same: no flicker, no lost focus or selection, and nothing for a
// screen reader to say again.

export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) {
    element.setAttribute(name, value);
  }
}

// The element's children become as many as `length`; new ones are made by `make`.
export function setLength(element, length, make) {
  while (element.children.length > length) {
    element.lastElementChild.remove();
  }
  while (element.children.length < length) {
    element.append(make());
  }
}

export function tableRow(columns) {
  const row = document.createElement('tr');
  columns.forEach((className, index) => {
    const cell = document.createElement(index === 0 ? 'th' : 'td');
    if (index === 0) {
      cell.scope = 'row';
    }
    cell.className = className;
    row.append(cell);
  });
  return row;
}

// A button that is off keeps the focus, which a disabled one would lose.
export function setEnabled(button, enabled) {
  setAttribute(button, 'aria-disabled', String(!enabled));
}

export function isEnabled(button) {
  return button.getAttribute('aria-disabled') !== 'true';
}
