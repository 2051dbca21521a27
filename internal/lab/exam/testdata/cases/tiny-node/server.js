// Sorts SIZE numbers for each request.
const isOdd = require('is-odd');
const size = Number(process.env.SIZE);

function sortAll(n) {
  const numbers = [];
  for (let i = 0; i < n; i++) numbers.push((i * 7919) % 104729);
  return numbers.sort((a, b) => a - b)[0];
}

require('http')
  .createServer((request, response) => response.end(String(isOdd(sortAll(size) + 1))))
  .listen(Number(process.argv[2]), '127.0.0.1');
