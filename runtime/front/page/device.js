// Who has the device: the timeline, and the shares of the time.

import { known, LANES, rateOf, shareOf, WINDOW_NS } from './known.js';
import { byId, countText, el, percentText, setText, timeText } from './words.js';

const timeline = byId('timeline');
const LABEL_WIDTH = 68;
const ROW = 28;
const AXIS = 22;
const BEHIND_NS = 350e6; // what is drawn as now: by then its spans have come
const FRAME_MS = 50; // on this machine others compute: 20 pictures a second are enough

const calm = matchMedia('(prefers-reduced-motion: reduce)');
const SHADES = [1, 0.84, 0.7];
const colours = {};
let shades = [];
let heldNs = 0; // the time that is held, 0: it moves
let cursor = null; // 0..1 of the timeline's width
let drawnAt = 0;

function mixed(over, under, part) {
  const [a, b] = [over, under].map((colour) => colour.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] * part + b[i] * (1 - part))).join(' ')})`;
}

// From page.css, where they depend on the theme.
export function readColours() {
  const probe = el('span', { hidden: '' });
  document.body.append(probe);
  for (const name of [...LANES, 'quiet', 'line', 'sunk', 'text', 'on-colour']) {
    probe.style.color = `var(--${name})`;
    colours[name === 'on-colour' ? 'onColour' : name] = getComputedStyle(probe).color;
  }
  probe.remove();
  shades = LANES.map((lane) => SHADES.map((part) => mixed(colours[lane], colours.sunk, part)));
}

const serverNow = () => (known.clockOffsetNs === null ? 0 : performance.now() * 1e6 + known.clockOffsetNs);
const windowNs = () => Number(byId('window').value) * 1e9;
const shownNow = () => heldNs || (calm.matches && known.tick?.timeline ? known.tick.timeline.now_ns : serverNow() - BEHIND_NS);

function drawAxis(context, width) {
  const seconds = windowNs() / 1e9;
  const step = seconds / (width < 500 ? 2 : 6);
  context.fillStyle = colours.quiet;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  for (let s = 0; s < seconds; s += step) {
    const x = LABEL_WIDTH + (width - LABEL_WIDTH) * (1 - s / seconds);
    context.fillText(s === 0 ? (heldNs ? 'held' : 'now') : `−${Math.round(10 * s) / 10} s`, x - 3, 4 * ROW + AXIS / 2 + 3);
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x) - 1, 0, 1, 4 * ROW + AXIS);
    context.fillStyle = colours.quiet;
  }
}

// A name's own shade, so that neighbours of a lane can be told apart. Opaque: spans may overlap by a pixel.
function shadeOf(lane, name) {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return shades[lane][Math.abs(hash) % SHADES.length];
}

// Height is the busy part: runs that were drawn together because they are close do not look like one long one.
function drawSpan(context, lane, span, fromX, toX) {
  const height = ROW - 6;
  const busy = Math.max(0.12, Math.min(1, span.busy / Math.max(1, span.end - span.start)));
  context.fillStyle = shadeOf(lane, span.name);
  context.fillRect(fromX, lane * ROW + 3 + height * (1 - busy), Math.max(1, toX - fromX), height * busy);
}

// One label for spans of one name that follow each other closely, where it fits.
function drawLabel(context, lane, label) {
  const text = label.name || 'several';
  if (label.toX - label.fromX < 24 || context.measureText(text).width > label.toX - label.fromX - 8) return;
  context.fillStyle = colours.onColour;
  context.textAlign = 'left';
  context.fillText(text, label.fromX + 4, lane * ROW + ROW / 2 + 1);
}

function addLabel(labels, span, fromX, toX) {
  const last = labels.at(-1);
  if (span.busy < 0.7 * (span.end - span.start)) return;
  if (last && last.name === span.name && fromX - last.toX < 1.5) last.toX = toX;
  else labels.push({ name: span.name, fromX, toX });
}

function spansOf(lane, endNs) {
  const under = known.underWay
    .filter(([of, , start]) => of === lane && start < endNs)
    .map(([, name, start]) => ({ name, start, end: endNs, busy: endNs - start, n: 1, goesOn: true }));
  return [...known.spans[lane], ...under];
}

function drawLane(context, lane, width, startNs, endNs) {
  const scale = (width - LABEL_WIDTH) / (endNs - startNs);
  context.fillStyle = colours.sunk;
  context.fillRect(LABEL_WIDTH, lane * ROW + 3, width - LABEL_WIDTH, ROW - 6);
  const labels = [];
  for (const span of spansOf(lane, endNs)) {
    if (span.end < startNs || span.start > endNs) continue;
    const from = LABEL_WIDTH + Math.max(0, (span.start - startNs) * scale);
    const to = LABEL_WIDTH + Math.min(width - LABEL_WIDTH, (span.end - startNs) * scale);
    drawSpan(context, lane, span, from, to);
    addLabel(labels, span, from, to);
  }
  for (const label of labels) drawLabel(context, lane, label);
  context.fillStyle = colours[LANES[lane]];
  context.fillRect(0, lane * ROW + 9, 3, ROW - 18);
  context.fillStyle = colours.text;
  context.textAlign = 'left';
  context.fillText(LANES[lane], 8, lane * ROW + ROW / 2 + 1);
}

export function drawTimeline() {
  const ratio = window.devicePixelRatio || 1;
  const width = timeline.clientWidth;
  const height = timeline.clientHeight;
  if (timeline.width !== Math.round(width * ratio) || timeline.height !== Math.round(height * ratio)) {
    timeline.width = Math.round(width * ratio);
    timeline.height = Math.round(height * ratio);
  }
  const context = timeline.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  const endNs = shownNow();
  for (let lane = 0; lane < LANES.length; lane++) drawLane(context, lane, width, endNs - windowNs(), endNs);
  drawAxis(context, width);
  if (cursor !== null) {
    context.fillStyle = colours.text;
    context.fillRect(Math.round(LABEL_WIDTH + cursor * (width - LABEL_WIDTH)), 0, 1, 4 * ROW);
  }
}

function frame(now) {
  if (now - drawnAt >= FRAME_MS && !calm.matches && !document.hidden && !heldNs) {
    drawnAt = now;
    drawTimeline();
  }
  requestAnimationFrame(frame);
}

// What the lanes had at the cursor.
function showCursor() {
  if (cursor === null) return;
  const endNs = shownNow();
  const at = endNs - windowNs() * (1 - cursor);
  const near = windowNs() / 1000; // about a pixel
  const words = [];
  for (let lane = 0; lane < LANES.length; lane++) {
    const span = spansOf(lane, endNs).findLast((s) => s.start - near <= at && s.end + near >= at);
    if (!span) continue;
    const many = span.n > 1 ? `${countText(span.n)} × , ${percentText(span.busy / (span.end - span.start))} busy, ` : '';
    words.push(`${LANES[lane]}: ${span.name || 'several'} (${many}${timeText(span.end - span.start)}${span.goesOn ? ' so far' : ''})`);
  }
  setText(byId('timeline-detail'), `${((at - endNs) / 1e9).toFixed(2)} s: ${words.join(' · ') || 'nobody had the device'}`);
}

function moveCursor(to) {
  cursor = Math.max(0, Math.min(1, to));
  showCursor();
  drawTimeline();
}

function hold(on) {
  heldNs = on ? serverNow() - BEHIND_NS : 0;
  byId('hold').setAttribute('aria-pressed', String(on));
  setText(byId('hold'), on ? 'Go on' : 'Hold');
  drawTimeline();
}

export function setUpTimeline() {
  timeline.addEventListener('pointermove', (event) => moveCursor((event.offsetX - LABEL_WIDTH) / (timeline.clientWidth - LABEL_WIDTH)));
  timeline.addEventListener('pointerleave', () => {
    cursor = null;
  });
  timeline.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -0.01, ArrowRight: 0.01, Home: -1, End: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    if (!heldNs) hold(true); // nobody can read what moves
    moveCursor((cursor ?? 1) + step);
  });
  byId('hold').addEventListener('click', () => hold(!heldNs));
  byId('window').addEventListener('change', drawTimeline);
  new ResizeObserver(drawTimeline).observe(timeline);
  requestAnimationFrame(frame);
}

// Whose the time was lately, from what the account has charged.
export function showShares(tick) {
  const now = tick.account.elapsed_ns;
  const elapsed = rateOf('elapsed', now, now);
  let trained = 0;
  let inferred = 0;
  for (const job of known.jobs.values()) trained += shareOf(job, `job ${job.job}`, tick);
  for (const model of known.models.values()) inferred += shareOf(model, `model ${model.place} ${model.name}`, tick);
  const parts = elapsed > 0 ? [['inference', inferred], ['training', trained]] : [];
  const bar = byId('shares');
  if (!bar.childElementCount) bar.append(...['inference', 'training'].map((lane) => el('span', { class: `lane-${lane}` })));
  parts.forEach(([, part], i) => {
    bar.children[i].style.width = `${100 * Math.min(1, part)}%`;
  });
  const idle = Math.max(0, 1 - trained - inferred);
  const words = `inference ${percentText(inferred)}, training ${percentText(trained)}, idle ${percentText(idle)}`;
  bar.setAttribute('aria-label', `Lately: ${words}`);
  const has = known.underWay.map(([lane, name]) => `${LANES[lane]}: ${name}`).join(', ');
  setText(byId('now'), has || 'idle');
  setText(byId('lately'), `last ${WINDOW_NS / 1e9} s: ${words}`);
}

// After a tick: what does not move by itself.
export function showTimeline() {
  if (calm.matches || heldNs) drawTimeline();
  if (cursor !== null && !heldNs) showCursor();
}
