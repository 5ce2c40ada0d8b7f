/**
 * People in Node for benchmarks/studies/service_restart.py: `node service_restart.mjs URL KEY`, tickets as JSON on the first
 * line of standard input. Takes a place for each, says so, waits for another line, and sends all messages at once.
 */
import { createInterface } from "node:readline";

import { Client } from "../clients/js/src/index.js";

const [url, key] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const tickets = JSON.parse((await lines.next()).value);
const say = (/** @type {any} */ one) => process.stdout.write(`${JSON.stringify(one)}\n`);

const met = new Set(); // bodies of messages that met an answer that is not the service's
let addresses = 0;
/** Each request comes from an address of its own, as people's do. @param {string} to @param {any} init */
async function fetched(to, init) {
  const n = addresses++;
  const answer = await fetch(to, { ...init, headers: { ...init.headers, "X-Forwarded-For": `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}` } });
  if (to.endsWith("/messages") && answer.status === 502 && !met.has(init.body)) {
    met.add(init.body);
    say({ met: met.size });
  }
  return answer;
}

const client = new Client(url, { key, promised: "central", fetch: fetched });
const { world } = await client.plan();
const messages = [];
for (let at = 0; at < tickets.length; at += 50) {
  const places = await Promise.all(tickets.slice(at, at + 50).map((/** @type {string} */ one) => client.place(one)));
  for (const place of places) {
    messages.push(place.message(Array(world.horizon + 1).fill(0), Array(world.horizon).fill(0), Array(world.horizon).fill(0)));
  }
}
say({ placed: messages.length });
await lines.next();
let counted = 0;
await Promise.all(messages.map(async (one) => {
  try {
    await client.send(one);
    say({ counted: ++counted });
  } catch (error) {
    say({ lost: String(error) });
  }
}));
say({ end: true });
process.exit(0);
