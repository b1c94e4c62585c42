// The live page: reads /events and shows what they say. No library, nothing from elsewhere.

import { drawTimeline, readColours, setUpTimeline, showShares, showTimeline } from './device.js';
import { clearJobs, showJobs } from './jobs.js';
import { forgetAll, server, take } from './known.js';
import { clearModels, setUpModels, showModels } from './models.js';
import { clearWorkers, setUpPolicy, showHead, showNumbers, showSlices, showWorkers } from './numbers.js';
import { clearPool, setUpMap, showPool } from './pool.js';
import { setUpToken } from './send.js';
import { byId, el, setText } from './words.js';

// ---- what is shown ---------------------------------------------------------------------------------------------

function onTick(tick) {
  take(tick);
  for (const show of [showHead, showShares, showPool, showModels, showNumbers, showSlices, showJobs, showWorkers, showTimeline]) show(tick);
}

function startAnew() {
  forgetAll();
  for (const clear of [clearModels, clearJobs, clearWorkers, clearPool]) clear();
}

// ---- the connection --------------------------------------------------------------------------------------------

const AGAIN_MS = 1000;
const SILENT_MS = 5000; // a server that says nothing for so long is taken for gone

let source = null;
let lostAt = 0;
let silence = 0;

function setLive(className, text) {
  byId('live').className = className;
  setText(byId('live'), text);
}

function showNotice(text, button) {
  const notice = byId('notice');
  notice.replaceChildren(text, ...(button ? [button] : []));
  notice.hidden = !text;
}

function lost() {
  source.close();
  clearTimeout(silence);
  if (!lostAt) {
    lostAt = Date.now();
    document.body.classList.add('stale');
    setLive('off', 'no connection');
    showNotice('The server does not answer. What is shown is from before; the page connects again by itself.');
  }
  setTimeout(connect, AGAIN_MS);
}

function heard() {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENT_MS);
}

function onHello(said) {
  const before = server.hello;
  const isOther = before && before.instance !== said.instance;
  const isOtherPage = before && before.page !== said.page;
  if (isOther) startAnew();
  server.hello = isOtherPage ? { ...said, page: before.page } : said;
  document.body.classList.remove('stale');
  setLive('on', isOther ? 'live (the server was started again)' : 'live');
  lostAt = 0;
  if (isOtherPage) showNotice('The server has another version of this page.', el('button', { type: 'button', text: 'Reload', onclick: () => location.reload() }));
  else showNotice('');
}

function connect() {
  source = new EventSource('/events');
  heard(); // a server that takes the connection and says nothing is taken for gone, too
  source.addEventListener('hello', (event) => {
    heard();
    onHello(JSON.parse(event.data));
  });
  source.addEventListener('tick', (event) => {
    heard();
    onTick(JSON.parse(event.data));
  });
  source.onerror = lost;
}

// ---- light and dark --------------------------------------------------------------------------------------------

const THEMES = ['auto', 'light', 'dark'];

function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem('switchyard-theme', theme);
  setText(byId('theme'), `Theme: ${theme}`);
  readColours();
  drawTimeline();
}

function setUpTheme() {
  const kept = localStorage.getItem('switchyard-theme');
  setTheme(THEMES.includes(kept) ? kept : 'auto');
  byId('theme').addEventListener('click', () => {
    const now = document.documentElement.dataset.theme ?? 'auto';
    setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readColours();
    drawTimeline();
  });
}


for (const setUp of [setUpTheme, setUpTimeline, setUpMap, setUpModels, setUpPolicy, setUpToken, connect]) setUp();
