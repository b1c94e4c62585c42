// Training jobs: a card each, with its loss curve.

import { known, rateOf } from './known.js';
import { act, say } from './send.js';
import { byId, bytesText, clearRows, countText, el, keepRows, numberText, percentText, rateText, setText, timeText } from './words.js';

const jobCards = new Map(); // by id
const SVG = 'http://www.w3.org/2000/svg';
const JOB_STATES = { training: 'train', paused: 'busy', waiting: 'warn', suspended: 'warn', spilled: 'warn', ended: 'good', failed: 'bad' };
const JOB_FACTS = ['Loss', 'Accuracy', 'Steps/s', 'Device', 'Left', 'Memory'];

function makeChart() {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 100 100');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const lines = ['raw', 'smooth'].map((name) => {
    const line = document.createElementNS(SVG, 'polyline');
    line.setAttribute('class', name);
    svg.append(line);
    return line;
  });
  const [top, bottom, first, last] = ['top', 'bottom', 'first', 'last'].map((name) => el('span', { class: name }));
  const node = el('div', { class: 'chart', role: 'img' }, top, svg, bottom, el('div', { class: 'steps' }, first, last));
  return { node, lines, top, bottom, first, last };
}

function smoothed(values) {
  let mean = values[0];
  return values.map((value) => (mean = 0.85 * mean + 0.15 * value));
}

function drawChart(chart, curve) {
  const points = curve.filter(([, loss]) => Number.isFinite(loss));
  chart.node.classList.toggle('empty', points.length < 2);
  if (points.length < 2) {
    setText(chart.first, 'the loss curve begins when the page is opened');
    setText(chart.top, '');
    setText(chart.bottom, '');
    return;
  }
  const losses = points.map(([, loss]) => loss);
  const least = Math.min(...losses);
  const most = Math.max(...losses);
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const x = (step) => ((step - first) / Math.max(1, last - first)) * 100;
  const y = (loss) => 94 - (88 * (loss - least)) / Math.max(1e-12, most - least);
  const path = (values) => values.map((loss, i) => `${x(points[i][0]).toFixed(2)},${y(loss).toFixed(2)}`).join(' ');
  chart.lines[0].setAttribute('points', path(losses));
  chart.lines[1].setAttribute('points', path(smoothed(losses)));
  setText(chart.top, numberText(most));
  setText(chart.bottom, numberText(least));
  setText(chart.first, `loss from step ${countText(first)}`);
  setText(chart.last, `to ${countText(last)}`);
  chart.node.setAttribute('aria-label', `Loss from step ${first} to ${last}: between ${numberText(least)} and ${numberText(most)}, now ${numberText(losses.at(-1))}`);
}

function makePriority(job) {
  const input = el('input', { type: 'number', min: '-1000', max: '1000', step: '1', value: String(job.priority), 'aria-label': `Priority of ${job.name}, smaller is more urgent` });
  input.addEventListener('change', async () => {
    const value = Number(input.value);
    if (input.value === '' || !Number.isInteger(value) || Math.abs(value) > 1000) {
      say('The priority is a whole number from -1000 (most urgent) to 1000', true);
      input.value = String(known.jobs.get(job.job)?.priority ?? 0);
      return;
    }
    await act(input, `priority of ${job.name}`, `/api/jobs/${job.job}/priority`, { priority: value });
  });
  return input;
}

function makeJobCard(job) {
  const card = { facts: {}, chart: makeChart() };
  card.state = el('span', { class: 'state' });
  card.about = el('span', { class: 'quiet' });
  card.why = el('span', { class: 'why', hidden: '' });
  card.fill = el('i');
  card.steps = el('span', { class: 'quiet' });
  card.pause = el('button', { type: 'button' });
  card.pause.addEventListener('click', () => act(card.pause, `${card.verb} ${job.name}`, `/api/jobs/${job.job}/${card.verb}`));
  card.priority = makePriority(job);
  const facts = el('dl');
  for (const name of JOB_FACTS) {
    card.facts[name] = el('dd');
    facts.append(el('div', {}, el('dt', { text: name }), card.facts[name]));
  }
  card.controls = el('div', { class: 'buttons' }, card.pause, el('label', { class: 'field' }, 'Priority ', card.priority));
  card.node = el('li', {}, el('div', { class: 'head' }, el('span', { class: 'name', text: job.name }), card.about, card.state), card.why,
    el('span', { class: 'meter train' }, card.fill), card.steps, card.chart.node, facts, card.controls);
  return card;
}

const isOver = (job) => job.state === 'ended' || job.state === 'failed';

function showFacts(card, job, tick) {
  const nowNs = tick.account.elapsed_ns;
  setText(card.facts.Loss, job.step ? numberText(job.loss) : '–');
  setText(card.facts.Accuracy, job.accuracy === null ? '–' : numberText(job.accuracy));
  setText(card.facts['Steps/s'], isOver(job) ? '–' : rateText(rateOf(`job ${job.job} steps`, nowNs, job.step)));
  setText(card.facts.Device, isOver(job) ? '–' : percentText(job.share ?? 0));
  setText(card.facts.Left, job.left_s === null || isOver(job) ? '–' : timeText(job.left_s * 1e9));
  setText(card.facts.Memory, bytesText(job.persistent_bytes + job.ephemeral_bytes));
}

function fillJobCard(card, job, tick) {
  setText(card.state, job.state);
  card.state.className = `state ${JOB_STATES[job.state] ?? ''}`;
  setText(card.about, `job ${job.job} · ${job.class} · ${job.tenant}`);
  const why = job.error || job.waits_for || '';
  card.why.hidden = !why;
  card.why.className = job.error ? 'why' : 'why note';
  setText(card.why, job.error ? why : why && `waits for ${why}`);
  card.fill.style.width = `${job.total_steps ? (100 * job.step) / job.total_steps : 0}%`;
  setText(card.steps, `step ${countText(job.step)} of ${countText(job.total_steps)}${job.snapshot_step ? `, snapshot of ${countText(job.snapshot_step)}` : ''}`);
  card.verb = job.state === 'suspended' ? 'resume' : 'pause';
  setText(card.pause, card.verb === 'resume' ? 'Resume' : 'Pause');
  card.pause.setAttribute('aria-label', `${card.verb} ${job.name}`);
  card.controls.hidden = isOver(job);
  if (document.activeElement !== card.priority && card.priority.ariaBusy !== 'true') card.priority.value = String(job.priority);
  showFacts(card, job, tick);
  drawChart(card.chart, known.curves.get(job.job)?.points ?? []);
}

export function showJobs(tick) {
  const jobs = [...known.jobs.values()].sort((a, b) => isOver(a) - isOver(b) || a.job - b.job);
  keepRows(byId('jobs'), jobCards, jobs.map((job) => job.job), (id) => makeJobCard(known.jobs.get(id)));
  for (const job of tick.jobs) fillJobCard(jobCards.get(job.job), job, tick);
  byId('no-jobs').hidden = jobs.length > 0;
  const n = jobs.filter((job) => !isOver(job)).length;
  setText(byId('jobs-sum'), jobs.length ? `${n} under way, ${jobs.length - n} over` : '');
}

export function clearJobs() {
  clearRows(jobCards);
}
