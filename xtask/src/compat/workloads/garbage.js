// Objects that live long and others that do not, strings, typed arrays, and a worker with a heap of its own.
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');

function fill(count) {
  const all = new Map();
  let sum = 0;
  for (let n = 0; n < count; n++) all.set(n, { n, text: `value ${n}`, list: [n, n + 1] });
  for (let n = 0; n < count; n++) sum += all.get((n * 7919) % count).text.length + all.get(n).list[1];
  return sum;
}

function sort(count) {
  const words = new Uint32Array(count);
  for (let n = 0; n < count; n++) words[n] = (n * 2654435761) >>> 0;
  words.sort();
  return words.reduce((sum, word, n) => (sum + word * (n % 7)) % 1000003, 0);
}

if (isMainThread) {
  console.log('objects', fill(400000), 'words', sort(4000000));
  new Worker(__filename, { workerData: 200000 }).on('message', (sum) => console.log('worker', sum));
} else {
  parentPort.postMessage(fill(workerData));
}
