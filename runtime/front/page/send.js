// The buttons' POSTs, and the token that a server may ask for.

import { server } from './known.js';
import { byId, el, setText } from './words.js';

let saidTimer = 0;

export function say(text, isBad) {
  const said = byId('said');
  said.className = isBad ? 'bad' : '';
  setText(said, text);
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => setText(said, ''), isBad ? 15000 : 4000);
}

const storedToken = () => sessionStorage.getItem('switchyard-token');

// The token, or null if nobody gives one.
function askToken(why) {
  const dialog = byId('ask');
  const field = byId('token');
  if (why) setText(byId('ask-why'), why);
  field.value = '';
  return new Promise((resolve) => {
    dialog.returnValue = '';
    dialog.onclose = () => {
      const token = dialog.returnValue === 'given' ? field.value.trim() : '';
      if (token) sessionStorage.setItem('switchyard-token', token);
      resolve(token || null);
    };
    dialog.showModal();
  });
}

async function post(path, body) {
  const headers = { 'Content-Type': 'application/json' };
  if (server.hello?.needs_token) headers.Authorization = `Bearer ${storedToken() || (await askToken()) || ''}`;
  let reply = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  if (reply.status === 401) {
    sessionStorage.removeItem('switchyard-token');
    const token = await askToken('The server does not take this token. It is the one that serve --page-token was started with.');
    if (!token) return 'no token';
    headers.Authorization = `Bearer ${token}`;
    reply = await fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  }
  if (reply.ok) return null;
  if (reply.status === 401) sessionStorage.removeItem('switchyard-token');
  const answer = await reply.json().catch(() => ({}));
  return answer.error || `HTTP ${reply.status}`;
}

// control: disabled until the server has answered.
export async function act(control, what, path, body = {}) {
  control.disabled = true;
  try {
    const error = await post(path, body);
    say(error ? `${what}: ${error}` : `${what}: done`, Boolean(error));
    return !error;
  } catch {
    say(`${what}: the server does not answer`, true);
    return false;
  } finally {
    control.disabled = false;
  }
}

export const modelPath = (name, verb) => `/api/models/${encodeURIComponent(name)}/${verb}`;

export function actionButton(text, label, path) {
  const button = el('button', { type: 'button', text, 'aria-label': label });
  button.addEventListener('click', () => act(button, label, path));
  return button;
}

export function setUpToken() {
  byId('ask').querySelector('form').addEventListener('submit', () => {
    byId('ask').returnValue = 'given';
  });
  byId('ask-cancel').addEventListener('click', () => byId('ask').close(''));
}
