// The chat page: asks /v1/chat/completions and shows what comes. Text of messages reaches the page through text nodes alone.
'use strict';

const $ = id => document.getElementById(id);
const kStore = 'assay.conversations', kSettings = 'assay.settings', kKey = 'assay.key';
const kNumbers = ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty', 'max_tokens', 'seed'];

let conversations = read(localStorage, kStore, []);  // {id, title, messages: [{role, content, reasoning, seed, tokens, note}]}
let current = null;
let running = null;  // the AbortController of the answer that comes
let nContext = 0;

function read(store, key, standard) {
  try { return JSON.parse(store.getItem(key)) ?? standard; } catch { return standard; }
}
function keep() {
  try { localStorage.setItem(kStore, JSON.stringify(conversations)); } catch { say('The browser has no room for more history.'); }
}
function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== 'list') element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}
function say(text) { $('announce').textContent = text; }

// ---- the server ----

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(kKey);
  const headers = {...(options.body ? {'Content-Type': 'application/json'} : {}), ...(key ? {Authorization: `Bearer ${key}`} : {})};
  const reply = await fetch(path, {...options, headers});
  if (reply.status === 401 && await askForKey()) return ask(path, options);
  if (!reply.ok) throw new Error((await reply.json().catch(() => null))?.error?.message ?? `the server says ${reply.status}`);
  return reply;
}

function askForKey() {
  return new Promise(resolve => {
    const dialog = $('key-dialog');
    const end = given => {
      dialog.onclose = null;
      if (dialog.open) dialog.close();
      if (given) sessionStorage.setItem(kKey, $('key').value);
      $('key').value = '';
      resolve(given);
    };
    $('key-form').onsubmit = event => { event.preventDefault(); end($('key').value !== ''); };
    $('key-cancel').onclick = () => end(false);
    dialog.onclose = () => end(false);
    if (!dialog.open) dialog.showModal();
    $('key').focus();
  });
}

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).replace(/^data: /, '');
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

function settings() {
  const form = $('settings').elements, asked = {};
  for (const name of kNumbers) if (form[name].value !== '') asked[name] = Number(form[name].value);
  return asked;
}

async function answer() {
  const conversation = current, system = $('settings').elements.system.value;
  const sent = conversation.messages.filter(m => !m.failed).map(m => ({role: m.role, content: m.content}));
  const body = {...settings(), messages: [...(system ? [{role: 'system', content: system}] : []), ...sent],
                stream: true, stream_options: {include_usage: true}};
  if ($('settings').elements.probabilities.checked) Object.assign(body, {logprobs: true, top_logprobs: 5});
  const message = {role: 'assistant', content: '', reasoning: '', tokens: []};
  conversation.messages.push(message);
  running = new AbortController();
  busy(true);
  const view = messageView(message, conversation.messages.length - 1);
  $('messages').append(view);
  let first = 0, n = 0, last = 0;
  try {
    const reply = await ask('/v1/chat/completions', {method: 'POST', body: JSON.stringify(body), signal: running.signal});
    for await (const event of events(reply)) {
      if (event.error) throw new Error(event.error.message);
      message.seed = event.seed;
      if (event.usage) { count(event.usage, n > 1 ? (n - 1) * 1000 / (last - first) : 0); message.usage = event.usage.completion_tokens; }
      const choice = event.choices?.[0];
      if (!choice) continue;
      message.content += choice.delta.content ?? '';
      message.reasoning += choice.delta.reasoning_content ?? '';
      for (const t of choice.logprobs?.content ?? []) message.tokens.push([t.token, t.logprob, t.top_logprobs.map(o => [o.token, o.logprob])]);
      if (choice.delta.content || choice.delta.reasoning_content) { last = performance.now(); n += choice.logprobs?.content?.length || 1; first ||= last; }
      if (choice.finish_reason === 'length') message.note = 'cut: the limit of tokens or the end of the context';
      soon(view, message);
    }
    say(`Answer: ${message.content}`);
  } catch (error) {
    if (error.name === 'AbortError') { message.note = 'stopped'; say('Stopped.'); }
    else { message.note = error.message; message.failed = message.content === ''; say(`Error: ${error.message}`); }
  }
  running = null;
  busy(false);
  keep();
  show();
}

function count(usage, speed) {
  const used = usage.prompt_tokens + usage.completion_tokens;
  $('figures').textContent = `${speed ? speed.toFixed(1) + ' tokens/s, ' : ''}${used} of ${nContext || '?'} positions`;
}

function busy(on) {
  $('stop').hidden = !on;
  $('send').hidden = on;
  $('messages').setAttribute('aria-busy', String(on));
}

// ---- messages ----

function messageView(message, i) {
  const view = make('li', {className: message.role});
  view.append(make('p', {className: 'who'}, message.role === 'user' ? 'You' : 'Model'), make('div', {className: 'body'}), make('p', {className: 'foot'}));
  view.dataset.index = i;
  fill(view, message);
  return view;
}

function fill(view, message) {
  const [, body, foot] = view.children, i = Number(view.dataset.index), list = $('messages');
  const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  const thought = message.reasoning ? [make('details', {open: !message.content && !!running}, make('summary', {}, 'Reasoning'), make('p', {}, message.reasoning))] : [];
  body.replaceChildren(...thought, view.dataset.tokens === 'yes' ? tokensView(message.tokens) : markdown(message.content));
  const last = i === current.messages.length - 1;
  foot.replaceChildren();
  if (message.note) foot.append(make('span', {className: message.failed ? 'error' : ''}, message.note));
  if (message.seed !== undefined) foot.append(make('span', {}, `seed ${message.seed}`));
  if (message.usage) foot.append(make('span', {}, `${message.usage} tokens`));
  if (running && last) { if (follows) list.scrollTop = list.scrollHeight; return; }
  if (message.tokens?.length) {
    const on = view.dataset.tokens === 'yes';
    foot.append(make('button', {type: 'button', 'aria-pressed': String(on), onclick: () => { view.dataset.tokens = on ? 'no' : 'yes'; fill(view, message); view.querySelector('[aria-pressed]').focus(); }}, 'Probabilities'));
  }
  if (message.role === 'assistant' && last) foot.append(make('button', {type: 'button', onclick: () => regenerate(i)}, 'Regenerate'));
  if (message.role === 'user') foot.append(make('button', {type: 'button', onclick: () => edit(i)}, 'Edit'));
  foot.append(make('button', {type: 'button', onclick: () => navigator.clipboard?.writeText(message.content)}, 'Copy'));
  if (follows) list.scrollTop = list.scrollHeight;
}

// Once a frame, however many tokens come in it.
let waits = false;
function soon(view, message) {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => { waits = false; if (running && view.isConnected) fill(view, message); });
}

function regenerate(i) {
  if (running) return;
  current.messages.splice(i);
  show();
  answer();
}

function edit(i) {
  if (running) return;
  $('input').value = current.messages[i].content;
  current.messages.splice(i);
  keep();
  show();
  $('input').focus();
}

// What a token's place could have held, on hover and on focus.
function tokensView(tokens) {
  const view = make('div', {className: 'tokens'});
  for (const [token, logprob, top] of tokens) {
    const p = Math.exp(logprob);
    const span = make('span', {tabIndex: 0, className: p > 0.9 ? 'sure' : p > 0.2 ? 'half' : 'rare'}, token);
    const lines = top.map(([other, l]) => `${(100 * Math.exp(l)).toFixed(1).padStart(5)} %  ${JSON.stringify(other)}`).join('\n');
    const open = () => tip(span, `${(100 * p).toFixed(1)} % ${JSON.stringify(token)}\n${lines}`);
    for (const name of ['mouseenter', 'focus']) span.addEventListener(name, open);
    for (const name of ['mouseleave', 'blur']) span.addEventListener(name, () => { $('tip').hidden = true; });
    view.append(span);
  }
  return view;
}

function tip(at, text) {
  const box = $('tip'), place = at.getBoundingClientRect();
  box.textContent = text;
  box.hidden = false;
  const size = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(place.left, innerWidth - size.width - 4))}px`;
  box.style.top = `${place.bottom + size.height + 8 > innerHeight ? place.top - size.height - 4 : place.bottom + 4}px`;
}

// A small Markdown: fenced code, headings, lists, paragraphs; `code`, **bold** and *italic* inside them. All else is text.
function markdown(text) {
  const view = make('div', {className: 'text'});
  const lines = text.split('\n');
  for (let i = 0; i < lines.length;) {
    const fence = lines[i].match(/^\s*```/);
    if (fence) {
      const code = [];
      for (i++; i < lines.length && !/^\s*```\s*$/.test(lines[i]); i++) code.push(lines[i]);
      i++;
      view.append(make('pre', {tabIndex: 0}, make('code', {}, code.join('\n'))));
      continue;
    }
    const heading = lines[i].match(/^(#{1,6})\s+(.*)$/);
    if (heading) {
      view.append(inline(make('h3'), heading[2]));
      i++;
      continue;
    }
    const item = /^\s*(?:[-*]|\d+[.)])\s+(.*)$/;
    if (item.test(lines[i])) {
      const numbered = /^\s*\d/.test(lines[i]);
      const list = make(numbered ? 'ol' : 'ul', numbered ? {start: parseInt(lines[i], 10)} : {});
      for (; i < lines.length && item.test(lines[i]); i++) list.append(inline(make('li'), lines[i].match(item)[1]));
      view.append(list);
      continue;
    }
    const paragraph = [];
    for (; i < lines.length && lines[i].trim() !== '' && !/^\s*```|^#{1,6}\s/.test(lines[i]) && !item.test(lines[i]); i++) paragraph.push(lines[i]);
    if (paragraph.length) view.append(inline(make('p'), paragraph.join('\n')));
    else i++;
  }
  return view;
}

function inline(element, text) {
  const mark = /(`+)([^`]+)\1|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*/g;
  let at = 0;
  for (let m; (m = mark.exec(text)); at = mark.lastIndex) {
    element.append(text.slice(at, m.index));
    element.append(m[2] !== undefined ? make('code', {}, m[2]) : m[3] !== undefined ? make('strong', {}, m[3]) : make('em', {}, m[4]));
  }
  element.append(text.slice(at));
  return element;
}

// ---- conversations ----

function show() {
  $('messages').replaceChildren(...current.messages.map(messageView));
  $('messages').scrollTop = $('messages').scrollHeight;
  $('conversations').replaceChildren(...conversations.map(c => {
    const title = c.messages[0]?.content.slice(0, 60) || 'New conversation';
    return make('li', {}, make('button', {type: 'button', 'aria-current': String(c === current), onclick: () => open(c)}, title),
                make('button', {type: 'button', 'aria-label': `Delete ${title}`, onclick: () => remove(c)}, '×'));
  }));
}

function open(conversation) {
  if (running) running.abort();
  current = conversation;
  closeSide();
  show();
}

function begin() {
  if (!conversations.length || conversations[0].messages.length) conversations.unshift({id: crypto.randomUUID?.() ?? String(Date.now()), messages: []});
  open(conversations[0]);
  $('input').focus();
}

function remove(conversation) {
  conversations = conversations.filter(c => c !== conversation);
  keep();
  if (conversation === current) conversations.length ? open(conversations[0]) : begin();
  else show();
}

function download() {
  const url = URL.createObjectURL(new Blob([JSON.stringify(conversations, null, 1)], {type: 'application/json'}));
  make('a', {href: url, download: 'assay-conversations.json'}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function closeSide() {
  $('side').classList.remove('open');
  $('toggle-side').setAttribute('aria-expanded', 'false');
}

// ---- the page ----

function send() {
  const text = $('input').value.trim();
  if (!text || running) return;
  $('input').value = '';
  current.messages = current.messages.filter(m => !m.failed);
  if (current.messages.at(-1)?.role === 'user') current.messages.pop();
  current.messages.push({role: 'user', content: text});
  keep();
  show();
  answer();
}

$('composer').addEventListener('submit', event => { event.preventDefault(); send(); });
$('input').addEventListener('keydown', event => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener('keydown', event => { if (event.key === 'Escape') { $('tip').hidden = true; running?.abort(); closeSide(); } });
$('stop').addEventListener('click', () => running?.abort());
$('new').addEventListener('click', begin);
$('export').addEventListener('click', download);
$('clear').addEventListener('click', () => { if (confirm('Delete all conversations of this browser?')) { conversations = []; keep(); begin(); } });
$('toggle-side').addEventListener('click', () => $('toggle-side').setAttribute('aria-expanded', String($('side').classList.toggle('open'))));
$('settings').addEventListener('submit', event => event.preventDefault());
$('settings').addEventListener('change', () => {
  const form = $('settings').elements, kept = {system: form.system.value, probabilities: form.probabilities.checked};
  for (const name of kNumbers) kept[name] = form[name].value;
  localStorage.setItem(kSettings, JSON.stringify(kept));
});

const kept = read(localStorage, kSettings, {});
for (const [name, value] of Object.entries(kept)) {
  const field = $('settings').elements[name];
  if (field) field[field.type === 'checkbox' ? 'checked' : 'value'] = value;
}
if (conversations.length) open(conversations[0]);
else begin();
ask('/props').then(reply => reply.json()).then(props => {
  $('model').textContent = document.title = props.model_alias;
  nContext = props.default_generation_settings.n_ctx;
  const params = props.default_generation_settings.params;
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'repeat_penalty']) $('settings').elements[name].placeholder = String(params[name]);
}).catch(error => { $('figures').textContent = error.message; });
