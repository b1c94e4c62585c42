// The table of models: those that the core has, and those that are in the repository only.

import { known, rateOf, server } from './known.js';
import { actionButton, modelPath } from './send.js';
import { byId, bytesText, clearRows, countText, el, keepRows, rateText, setText, timeText } from './words.js';

const modelRows = new Map(); // by key
const STATES = { ready: 'good', loading: 'warn', unavailable: 'bad', unloaded: '' };

function cell(row, label, className = '') {
  const td = el('td', { 'data-label': label, class: className });
  row.append(td);
  return td;
}

function makeModelRow(name) {
  const node = el('tr');
  const row = { node };
  const first = el('td');
  row.name = el('span', { class: 'name', text: name });
  row.version = el('span', { class: 'version' });
  row.why = el('span', { class: 'why', hidden: '' });
  first.append(row.name, ' ', row.version, row.why);
  node.append(first);
  row.state = el('span', { class: 'state' });
  cell(node, 'State').append(row.state);
  row.fill = el('i');
  row.residentText = el('span');
  cell(node, 'Resident').append(el('div', { class: 'resident' }, el('span', { class: 'meter' }, row.fill), row.residentText));
  for (const [key, label] of [['rate', 'Requests/s'], ['latency', 'Latency'], ['swap', 'Swap'], ['swaps', 'Swaps'], ['failed', 'Failed']]) row[key] = cell(node, label, 'number');
  row.load = actionButton('Load', `load ${name}`, modelPath(name, 'load'));
  row.unload = actionButton('Unload', `unload ${name}`, modelPath(name, 'unload'));
  row.evict = actionButton('Evict', `evict ${name}`, modelPath(name, 'evict'));
  node.append(el('td', {}, el('div', { class: 'buttons' }, row.load, row.evict, row.unload)));
  return row;
}

// Of requests that were answered lately: their mean.
function latencyOf(model, key, nowNs) {
  if (model.answered === undefined) return '–';
  const count = rateOf(`${key} answered`, nowNs, model.answered);
  const ns = rateOf(`${key} answered ns`, nowNs, model.answered_ns);
  return count > 0 ? timeText(ns / count) : '–';
}

function fillModelRow(row, model, tick) {
  const key = `model ${model.place} ${model.name}`;
  const nowNs = tick.account.elapsed_ns;
  setText(row.version, `v${model.version}`);
  setText(row.state, model.state);
  row.state.className = `state ${STATES[model.state] ?? ''}`;
  row.why.hidden = !model.error;
  setText(row.why, model.error || '');
  const part = model.pool_bytes ? model.resident_bytes / model.pool_bytes : 0;
  row.fill.style.width = `${100 * Math.min(1, part)}%`;
  setText(row.residentText, `${bytesText(model.resident_bytes)} of ${bytesText(model.pool_bytes)}`);
  setText(row.rate, rateText(rateOf(`${key} requests`, nowNs, model.requests)));
  setText(row.latency, latencyOf(model, key, nowNs));
  setText(row.swap, model.predicted_swap_ns ? timeText(model.predicted_swap_ns) : '–');
  setText(row.swaps, countText(model.swaps));
  setText(row.failed, countText(model.failed));
  row.load.hidden = !server.hello?.has_repository || model.state !== 'unavailable';
  row.evict.hidden = model.state !== 'ready';
  row.unload.hidden = model.state === 'loading';
}

// In the folder, and not with the core.
function fillRepositoryRow(row, entry) {
  // As in Triton's index: what was unloaded is unavailable for this reason.
  const isUnloaded = !entry.state || entry.state === 'UNLOADED' || entry.reason === 'unloaded';
  const state = isUnloaded ? 'unloaded' : entry.state.toLowerCase();
  setText(row.version, entry.version ? `v${entry.version}` : '');
  setText(row.state, state);
  row.state.className = `state ${STATES[state] ?? ''}`;
  row.why.hidden = isUnloaded || !entry.reason;
  setText(row.why, entry.reason || '');
  row.fill.style.width = '0';
  for (const name of ['residentText', 'rate', 'latency', 'swap', 'swaps', 'failed']) setText(row[name], '–');
  row.load.hidden = state === 'loading';
  row.unload.hidden = row.evict.hidden = true;
}

function modelEntries() {
  const entries = [...known.models.values()].map((model) => ({ key: `core ${model.place} ${model.name} ${model.version}`, name: model.name, version: model.version, model }));
  const has = new Set(entries.map((entry) => `${entry.name} ${entry.version}`));
  for (const entry of known.repository)
    if (entry.state !== 'READY' && !has.has(`${entry.name} ${entry.version}`))
      entries.push({ key: `folder ${entry.name} ${entry.version}`, name: entry.name, version: Number(entry.version), entry });
  return entries.sort((a, b) => a.name.localeCompare(b.name) || a.version - b.version);
}

export function showModels(tick) {
  const all = modelEntries();
  byId('filter-field').hidden = all.length < 12 && !byId('filter').value;
  const word = byId('filter').value.trim().toLowerCase();
  const entries = word ? all.filter((entry) => entry.name.toLowerCase().includes(word)) : all;
  const names = new Map(entries.map((entry) => [entry.key, entry.name]));
  keepRows(byId('models').tBodies[0], modelRows, entries.map((entry) => entry.key), (key) => makeModelRow(names.get(key)));
  const told = new Set(tick.models);
  for (const { key, model, entry } of entries) {
    const row = modelRows.get(key);
    // What this tick does not tell of stays as it was: a rate of old numbers would sink.
    if (model && (told.has(model) || !row.isFilled)) fillModelRow(row, model, tick);
    else if (entry) fillRepositoryRow(row, entry);
    row.isFilled = true;
  }
  byId('models').hidden = all.length === 0;
  byId('no-models').hidden = all.length > 0;
  const ready = all.filter((entry) => entry.model?.state === 'ready').length;
  setText(byId('models-sum'), all.length ? `${ready} of ${all.length} ready${word ? `, ${entries.length} shown` : ''}` : '');
}

export function clearModels() {
  clearRows(modelRows);
}

export function setUpModels() {
  byId('filter').addEventListener('input', () => known.tick && showModels(known.tick));
}
