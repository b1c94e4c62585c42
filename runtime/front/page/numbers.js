// The numbers of the whole server, its workers, its policy.

import { known, rateOf } from './known.js';
import { act } from './send.js';
import { byId, bytesText, clearRows, countText, el, keepRows, rateText, setText, timeText } from './words.js';

const numberNodes = new Map();

function showNumber(name, text, isBad) {
  let node = numberNodes.get(name);
  if (!node) {
    node = el('dd');
    byId('numbers').append(el('div', {}, el('dt', { text: name }), node));
    numberNodes.set(name, node);
  }
  setText(node, text);
  node.classList.toggle('bad', Boolean(isBad));
}

export function showNumbers(tick) {
  const { counters, queue, preempt_wait_ns: wait, slab } = tick;
  const nowNs = tick.account.elapsed_ns;
  const rate = (key) => rateOf(`counter ${key}`, nowNs, counters[key]);
  showNumber('Requests/s', rateText(rate('requests')));
  showNumber('Waiting · running', `${countText(queue.waiting)} · ${countText(queue.started)}`);
  showNumber('Swaps/s', rateText(rate('swaps')));
  showNumber('Moved/s', bytesText(rate('moved_bytes')));
  showNumber('Read/s', bytesText(rate('storage_bytes')));
  showNumber('Preemptions', countText(counters.preemptions));
  showNumber('Preempt wait p99', wait.n ? timeText(wait.p99) : '–');
  showNumber('Evictions', countText(counters.evictions));
  showNumber('Refused as late', countText(counters.refused_late));
  showNumber('Late', countText(counters.late), counters.late > 0);
  showNumber('Failed', countText(counters.failed), counters.failed > 0);
  showNumber('Interrupts', `${countText(counters.interrupts)} (${countText(counters.continued)} continued)`);
  showNumber('Spilled', bytesText(counters.spilled_bytes));
  showNumber('Tensor slab', `${bytesText(slab.used_bytes)} of ${bytesText(slab.bytes)}`);
}

const workerRows = new Map();
const WORKER_STATES = { idle: '', loaded: 'good', running: 'busy', training: 'train', paused: 'warn' };

function makeWorkerRow() {
  const cells = ['number', '', '', 'number', 'number'].map((name) => el('td', { class: name }));
  const state = el('span', { class: 'state' });
  cells[1].append(state);
  return { node: el('tr', {}, ...cells), cells, state };
}

export function showWorkers(tick) {
  keepRows(byId('workers').tBodies[0], workerRows, tick.workers.map((worker) => worker.worker), makeWorkerRow);
  for (const worker of tick.workers) {
    const { cells, state } = workerRows.get(worker.worker);
    const job = known.jobs.get(worker.job);
    setText(cells[0], String(worker.worker));
    setText(state, worker.state.replaceAll('_', ' '));
    state.className = `state ${WORKER_STATES[worker.state] ?? ''}`;
    setText(cells[2], job ? job.name : worker.job ? `job ${worker.job}` : worker.request ? `request ${worker.request}` : '–');
    setText(cells[3], worker.pid > 0 ? String(worker.pid) : '–');
    setText(cells[4], countText(worker.deaths));
  }
}

// One slice of all cores is none: nothing is shown.
export function showSlices(tick) {
  const slices = tick.slices.length > 1 ? tick.slices : [];
  for (const slice of slices) showNumber(`Slice ${slice.name} (cores ${slice.cores})`, slice.computes ?? 'idle');
}

export function showHead(tick) {
  const { device, account, rules } = tick;
  const link = device.unified || device.emulated ? '' : ` · link ${device.link_gbps.toFixed(1)} GB/s`;
  setText(byId('device'), `${device.name.startsWith(device.kind) ? '' : `${device.kind} · `}${device.name}${link} · up ${timeText(account.elapsed_ns)}${tick.draining ? ' · stopping' : ''}`);
  const select = byId('policy');
  if (!select.options.length) select.append(...rules.policies.map((name) => el('option', { text: name })));
  if (select.dataset.shown !== rules.policy && select.ariaBusy !== 'true') select.value = select.dataset.shown = rules.policy;
  select.disabled = false;
}

export function setUpPolicy() {
  const select = byId('policy');
  select.addEventListener('change', async () => {
    const policy = select.value;
    const done = await act(select, `policy ${policy}`, '/api/policy', { policy });
    if (!done) select.value = known.tick?.rules.policy ?? policy;
  });
}

export function clearWorkers() {
  clearRows(workerRows);
}
