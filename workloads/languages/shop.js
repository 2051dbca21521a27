// One fault in JavaScript: shop.js FAULT sick|cured PORT BACKEND. README.md beside it says what each is.
'use strict';
const net = require('net');
const os = require('os');
const crypto = require('crypto');
const { Worker, isMainThread, parentPort } = require('worker_threads');

const [, , fault, mode, port] = process.argv;
const sick = mode === 'sick';

// --- regex
const NAMES = sick ? /^(\w+\s?)+;/ : /^\w+(?:\s\w+)*\s?;/;
const TEXT = 'one of the names' + 'a'.repeat(8);

function matchNames() {
  return NAMES.test(TEXT);
}

// --- pool: the four threads of libuv are two here; each request wants one for a key
function deriveKey(done) {
  crypto.pbkdf2('password', 'salt', 20000, 32, 'sha256', done);
}

// --- loop
const cell = new Int32Array(new SharedArrayBuffer(4));

function retryLater(done) {
  if (!sick) return setTimeout(done, 20);
  Atomics.wait(cell, 0, 0, 20);
  done();
}

// --- gc: a cache that keeps what it has for long, and drops it when it is old
const kept = new Map();
let made = 0;

function makeOrders() {
  for (let i = 0; i < (sick ? 20000 : 200); i++) {
    const n = made++;
    kept.set(n, { n, lines: [[n, 1], [n, 2]], name: 'order-' + n });
    kept.delete(n - (sick ? 300000 : 3000));
  }
}

// --- sized
function digestPart() {
  const data = Buffer.alloc(1 << 16);
  for (let i = 0; i < 50; i++) crypto.createHash('md5').update(data).digest().copy(data);
}

const workers = [];
const waiting = [];

function openWorkers() {
  for (let i = 0; i < (sick ? 4 * os.cpus().length : 1); i++) {
    const w = new Worker(__filename, { argv: process.argv.slice(2) });
    w.on('message', () => waiting.shift()());
    workers.push(w);
  }
}

function digestAll(done) {
  let left = 8;
  for (let i = 0; i < 8; i++) {
    waiting.push(() => { if (--left === 0) done(); });
    workers[i % workers.length].postMessage(0);
  }
}

const now = (f) => (done) => { f(); done(); };
const handle = { regex: now(matchNames), pool: deriveKey, loop: retryLater, gc: now(makeOrders), sized: digestAll }[fault];

if (!isMainThread) {
  parentPort.on('message', () => { digestPart(); parentPort.postMessage(0); });
} else {
  if (fault === 'sized') openWorkers();
  net.createServer((c) => {
    c.on('data', () => handle(() => c.write('ok\n')));
    c.on('error', () => c.destroy());
  }).listen(Number(port), '127.0.0.1');
}
