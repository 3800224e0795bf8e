// Changes only the parts of the document that differ. This avoids flicker and keeps the focus and
// the selection, and screen readers do not repeat unchanged text.

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

// Adds or removes children until the element has `length` of them. `make` creates a child.
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

// Sets `aria-disabled`, because a button with `disabled` would lose the focus.
export function setEnabled(button, enabled) {
  setAttribute(button, 'aria-disabled', String(!enabled));
}

export function isEnabled(button) {
  return button.getAttribute('aria-disabled') !== 'true';
}
