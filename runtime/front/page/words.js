// Elements and words: nothing of the server's is shown but through textContent.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'text') node.textContent = value;
    else if (key === 'onclick') node.addEventListener('click', value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at++;
  }
  return `${at === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}

export function timeText(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(ns < 1e4 ? 1 : 0)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(ns < 1e8 ? 1 : 0)} ms`;
  const s = ns / 1e9;
  if (s < 100) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;
}

export function numberText(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 0.001 || size >= 1e7) return value.toExponential(2);
  return size < 1 ? value.toFixed(4) : size < 10 ? value.toFixed(3) : size < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en');
}

export const rateText = (value) => (value < 0.05 ? '0' : value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString('en'));
export const countText = (value) => Number(value || 0).toLocaleString('en');
export const percentText = (part) => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;

// Keeps the rows in this order; those that stay are not touched, so that the focus stays. make(key) gives {node, ...}.
export function keepRows(parent, rows, keys, make) {
  const wanted = new Set(keys);
  for (const [key, row] of rows)
    if (!wanted.has(key)) {
      row.node.remove();
      rows.delete(key);
    }
  let before = parent.firstChild;
  for (const key of keys) {
    if (!rows.has(key)) rows.set(key, make(key));
    const { node } = rows.get(key);
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
}

export function clearRows(rows) {
  for (const row of rows.values()) row.node.remove();
  rows.clear();
}
