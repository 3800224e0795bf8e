// Finds visible layout faults: text that is cut off, overflows its box or overlaps other text, and
// horizontal scrolling. Runs in the page.

export function layoutFaults() {
  const SLACK = 2; // pixels
  const faults = [];
  const texts = [];

  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    faults.push(`the page is ${root.scrollWidth} pixels wide, the window ${innerWidth}`);
  }

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && isVisible(element)) {
      const range = document.createRange();
      range.selectNodeContents(walker.currentNode);
      note(element, [...range.getClientRects()]);
    }
  }
  for (const control of document.querySelectorAll('input, textarea, select')) {
    if (isVisible(control)) {
      note(control, [control.getBoundingClientRect()]);
      checkControl(control);
    }
  }
  for (const element of new Set(texts.flatMap(({ element }) => withAncestors(element)))) {
    checkBox(element);
  }
  checkOverlaps();
  return [...new Set(faults)];

  function note(element, rects) {
    for (const rect of rects) {
      const seen = clip(element, rect);
      if (seen.right - seen.left < 1 || seen.bottom - seen.top < 1 || seen.bottom + scrollY <= 0) {
        continue;
      }
      if (seen.left < -1 || seen.right > innerWidth + 1) {
        faults.push(`${name(element)} reaches beyond the window`);
      }
      texts.push({ element, ...seen });
    }
  }

  function checkControl(control) {
    const style = getComputedStyle(control);
    if (control.matches('input') && control.scrollWidth > control.clientWidth + 1) {
      faults.push(`${name(control)}: its value is cut off`);
    }
    if (control.matches('select')) {
      const pen = document.createElement('canvas').getContext('2d');
      pen.font = style.font;
      const arrow = 20;
      const room = control.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow;
      if ([...control.options].some((option) => pen.measureText(option.text).width > room)) {
        faults.push(`${name(control)}: an option is cut off`);
      }
    }
  }

  function checkBox(element) {
    const style = getComputedStyle(element);
    const wide = element.scrollWidth > element.clientWidth + 1;
    const high = element.scrollHeight > element.clientHeight + 1;
    const cuts = (overflow) => overflow === 'hidden' || overflow === 'clip';
    if ((wide && cuts(style.overflowX)) || (high && cuts(style.overflowY))) {
      faults.push(`${name(element)}: its text is cut off`);
    } else if (wide && style.display !== 'inline' && element.clientWidth > 0 && !element.matches('input, textarea, select')) {
      faults.push(`${name(element)}: its text spills out`);
    }
  }

  function checkOverlaps() {
    texts.sort((a, b) => a.top - b.top);
    texts.forEach((a, index) => {
      for (let next = index + 1; next < texts.length && texts[next].top < a.bottom - SLACK; next += 1) {
        const b = texts[next];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        const related = a.element.contains(b.element) || b.element.contains(a.element);
        if (!related && across > SLACK && down > SLACK) {
          faults.push(`${name(a.element)} and ${name(b.element)} overlap`);
        }
      }
    });
  }

  function isVisible(element) {
    return element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  }

  // Content that is scrolled out of a box within the page is invisible.
  function clip(element, { left, right, top, bottom }) {
    for (const ancestor of withAncestors(element.parentElement)) {
      if (ancestor !== document.body && ancestor !== root && getComputedStyle(ancestor).overflow !== 'visible') {
        const box = ancestor.getBoundingClientRect();
        left = Math.max(left, box.left);
        right = Math.min(right, box.right);
        top = Math.max(top, box.top);
        bottom = Math.min(bottom, box.bottom);
      }
    }
    return { left, right, top, bottom };
  }

  function withAncestors(element) {
    return element ? [element, ...withAncestors(element.parentElement)] : [];
  }

  function name(element) {
    const label = element.id ? `#${element.id}` : element.localName + (element.name ? `[name=${element.name}]` : '');
    return `${label} "${String(element.value || element.textContent).trim().slice(0, 30)}"`;
  }
}
