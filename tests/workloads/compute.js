// Compute in JavaScript: hot loops for the JIT, shapes that change under it, strings, maps, promises.
// The argument says how often.
'use strict';
const rounds = Number(process.argv[2] || 1);

function sieve(limit) {
  const composite = new Uint8Array(limit);
  let primes = 0;
  for (let i = 2; i < limit; i++) {
    if (composite[i]) continue;
    primes++;
    for (let j = i * i; j < limit; j += i) composite[j] = 1;
  }
  return primes;
}

function words(count) {
  const seen = new Map();
  for (let i = 0; i < count; i++) {
    const word = ((i * 2654435) % 4096).toString(16);
    seen.set(word, (seen.get(word) || 0) + 1);
  }
  return [...seen].sort().reduce((sum, [word, times]) => sum + word.length * times, 0);
}

// Called with other shapes later, so that optimized code is thrown away.
function area(shape) { return shape.width * shape.height; }

async function run() {
  let total = 0;
  for (let round = 0; round < rounds; round++) {
    total += sieve(100000) + words(10000);
    for (let i = 0; i < 2000; i++) total += area({ width: i % 7, height: 2 });
    total += area(round % 2 ? { height: 3, width: 1 } : { width: 1.5, height: 2, depth: round });
    total += await Promise.resolve(round % 3);
    try { null.x; } catch (error) { total += error.message.length; }
  }
  return total;
}
run().then((total) => console.log(String(total)));
