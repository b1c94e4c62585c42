// The pool as a map: what lies where.

import { known } from './known.js';
import { byId, bytesText, el, setText } from './words.js';

const BLOCK_WIDTH = 7; // the narrowest that can be pointed at
let mapKey = '';

// Everything that is known to lie in the pool; what is used otherwise is a request's workspace, or a model of a slice still to come.
function ownedBlocks(tick) {
  const blocks = [];
  for (const model of known.models.values())
    for (const place of model.places) blocks.push({ kind: place.head ? 'model head' : 'model', name: model.name, offset: place.offset, bytes: place.bytes });
  for (const job of known.jobs.values())
    if (job.admitted && job.persistent_bytes) blocks.push({ kind: 'job', name: job.name, offset: job.persistent_offset, bytes: job.persistent_bytes });
  for (const lane of tick.lanes) blocks.push({ kind: 'lane', name: `lane ${lane.lane}`, offset: lane.offset, bytes: lane.bytes });
  return blocks.sort((a, b) => a.offset - b.offset);
}

// Fills the stretch between two owned blocks with what the pool's own map says of it.
function fillGap(out, pool, from, to) {
  for (const block of pool.blocks) {
    const start = Math.max(from, block.offset);
    const end = Math.min(to, block.offset + block.bytes);
    if (end > start) out.push({ kind: block.used ? 'other' : 'free', name: block.used ? 'workspace, or padding' : 'free', offset: start, bytes: end - start });
  }
}

function poolBlocks(tick) {
  const out = [];
  let at = 0;
  for (const block of ownedBlocks(tick)) {
    if (block.offset < at) continue; // moved between two ticks
    fillGap(out, tick.pool, at, block.offset);
    const last = out.at(-1);
    if (last && last.kind === block.kind && last.name === block.name && last.offset + last.bytes === block.offset) last.bytes += block.bytes;
    else out.push(block);
    at = block.offset + block.bytes;
  }
  fillGap(out, tick.pool, at, tick.pool.bytes);
  return out.filter((block) => block.kind !== 'other' || block.bytes >= 4096);
}

// Neighbours become one, the two smallest first, until all are wide enough to point at.
function fitBlocks(blocks, most) {
  while (blocks.length > most) {
    let best = 0;
    for (let i = 1; i + 1 < blocks.length; i++)
      if (blocks[i].bytes + blocks[i + 1].bytes < blocks[best].bytes + blocks[best + 1].bytes) best = i;
    const [a, b] = blocks.splice(best, 2, null).concat();
    const names = new Set([...(a.names ?? [a.name]), ...(b.names ?? [b.name])]);
    const larger = a.bytes >= b.bytes ? a : b;
    blocks[best] = { kind: larger.kind, name: [...names].slice(0, 4).join(', ') + (names.size > 4 ? ' and others' : ''), names, offset: a.offset, bytes: a.bytes + b.bytes };
  }
  return blocks;
}

const blockText = (block) => `${block.name}${block.kind === 'model head' ? ' (kept)' : ''} · ${bytesText(block.bytes)} at ${bytesText(block.offset)}`;

function makeBlock(block, i, width, total) {
  const wide = (block.bytes / total) * width > 48;
  const button = el('button', { type: 'button', class: block.kind + (wide ? ' wide' : ''), tabindex: i === 0 ? '0' : '-1', 'aria-label': blockText(block), text: wide ? block.name : '' });
  button.style.flexGrow = String(block.bytes / total);
  button.addEventListener('pointerenter', () => setText(byId('map-detail'), blockText(block)));
  button.addEventListener('focus', () => setText(byId('map-detail'), blockText(block)));
  return button;
}

export function showPool(tick) {
  const map = byId('map');
  const width = map.clientWidth;
  const { bytes, free_bytes: free, largest_free_bytes: largest } = tick.pool;
  const image = tick.image ? ` · host image ${bytesText(tick.image.bytes - tick.image.free_bytes)} of ${bytesText(tick.image.bytes)}` : '';
  setText(byId('pool-sum'), `${bytesText(bytes - free)} of ${bytesText(bytes)} used · largest free ${bytesText(largest)}${image}`);
  const blocks = fitBlocks(poolBlocks(tick), Math.max(4, Math.floor(width / BLOCK_WIDTH)));
  const key = JSON.stringify([width, blocks]);
  if (key === mapKey) return;
  mapKey = key;
  const had = [...map.children].indexOf(document.activeElement);
  map.replaceChildren(...blocks.map((block, i) => makeBlock(block, i, width, bytes)));
  if (had >= 0) focusBlock(Math.min(had, blocks.length - 1));
}

function focusBlock(to) {
  const buttons = [...byId('map').children];
  buttons.forEach((button, i) => button.setAttribute('tabindex', i === to ? '0' : '-1'));
  buttons[to]?.focus();
}

export function setUpMap() {
  byId('map').addEventListener('keydown', (event) => {
    const buttons = [...byId('map').children];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    focusBlock(Math.max(0, Math.min(buttons.length - 1, to)));
  });
}

export function clearPool() {
  mapKey = '';
}
