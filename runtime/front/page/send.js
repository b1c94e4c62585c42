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

const REFUSED_TOKEN = 'The server does not take this token. It is the one that serve --page-token was started with.';

async function send(path, body, token) {
  const headers = { 'Content-Type': 'application/json', ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  return fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
}

// Null, or what went wrong. Where a token is needed it is asked for until it is right, or nobody gives one.
async function post(path, body) {
  let token = storedToken();
  if (!token && server.hello?.needs_token) token = await askToken();
  if (!token && server.hello?.needs_token) return 'no token was given';
  let reply = await send(path, body, token);
  while (reply.status === 401) {
    sessionStorage.removeItem('switchyard-token');
    token = await askToken(REFUSED_TOKEN);
    if (!token) return 'no token was given';
    reply = await send(path, body, token);
  }
  if (reply.ok) return null;
  const answer = await reply.json().catch(() => ({}));
  return answer.error || `HTTP ${reply.status}`;
}

// control: busy until the server has answered. It is not disabled, which would take the focus away.
export async function act(control, what, path, body = {}) {
  if (control.ariaBusy === 'true') return false;
  control.ariaBusy = 'true';
  try {
    const error = await post(path, body);
    say(error ? `${what}: ${error}` : `${what}: done`, Boolean(error));
    return !error;
  } catch {
    say(`${what}: the server does not answer`, true);
    return false;
  } finally {
    control.ariaBusy = null;
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
