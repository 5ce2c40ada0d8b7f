import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { toBase64, toHex } from "../src/bytes.js";
import { subtle } from "../src/crypto.js";
import { Client, deviceOf, Turned } from "../src/index.js";

const { messages } = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
const vector = messages.find((/** @type {any} */ one) => one.name === "reports, subset, any");
const EPSILON = vector.guarantee.epsilon;
const LIFE = /** @type {const} */ ([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0], [0, 1, 0.5, 0, 1]]);

/** JSON as the service writes it: keys in order, no spaces. @param {any} value @returns {string} */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!value || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`;
}

const keys = /** @type {CryptoKeyPair} */ (await subtle().generateKey({ name: "Ed25519" }, true, ["sign", "verify"]));
const KEY = toHex(new Uint8Array(await subtle().exportKey("raw", keys.publicKey)));

/** @param {any} [other] */
async function published(other = {}) {
  const content = canonical({
    study: "a test", identity: "ab".repeat(32), trust: "local", turn: 0, over: false, form: vector.form, answer_within: 60,
    plans: [{ number: 1, users: 5, policy: vector.policy }],
    world: { states: 3, actions: 2, horizon: 5, rewards: [0, 1], mask: null }, ...other,
  });
  const signed = new TextEncoder().encode(`discreet plan, 1\n${content}`);
  const signature = toHex(new Uint8Array(await subtle().sign({ name: "Ed25519" }, keys.privateKey, signed)));
  return `{"content":${content},"key":"${KEY}","signature":"${signature}"}`;
}

/** A service that answers what is given; keeps what it was asked. @param {(path: string, body: any, asked: any[]) => any} answers */
function service(answers) {
  /** @type {any[]} */
  const asked = [];
  const fetch = async (/** @type {string} */ url, /** @type {any} */ init) => {
    const path = new URL(url).pathname;
    asked.push({ path, ...init });
    const found = await answers(path, init.body && JSON.parse(init.body), asked);
    if (found instanceof Response) return found;
    const [status, body, headers] = found;
    return new Response(status === 304 ? null : typeof body === "string" ? body : JSON.stringify(body), { status, headers });
  };
  return { asked, fetch };
}

const usual = async (/** @type {string} */ path) =>
  path === "/plan" ? [200, await published(), { etag: '"one"' }] : path === "/places" ? [201, { status: "placed", plan: 1, seconds: 60 }] : [202, { status: "counted", plan: 1 }];

test("a person takes a place, acts, and sends one message; nothing but ticket and message leaves", async () => {
  const { asked, fetch } = service(usual);
  const client = new Client("http://a.test/", { promised: EPSILON, key: KEY, identity: "ab".repeat(32), fetch });
  const place = await client.place("a ticket");
  assert.equal(await client.place("a ticket"), place);
  assert.equal(place.action(0, 1), vector.policy[0][1]);
  assert.throws(() => place.action(9, 0), /step 9/);
  const message = place.message(...LIFE);
  assert.throws(() => place.message(...LIFE), /was made already/);
  assert.deepEqual(await client.send(message), { status: "counted", plan: 1 });
  await client.send(message);
  const sent = asked.filter((one) => one.path === "/messages").map((one) => one.body);
  assert.equal(sent[0], sent[1]);
  assert.deepEqual(Object.keys(JSON.parse(sent[0])), ["ticket", "message"]);
  assert.ok(asked.filter((one) => one.path === "/places").every((one) => one.body === '{"ticket":"a ticket"}'));
  for (const one of asked) {
    assert.deepEqual([one.credentials, one.referrerPolicy, one.cache], ["omit", "no-referrer", "no-store"]);
  }
});

test("a bad record is refused on the device, and may be said right then", async () => {
  const { asked, fetch } = service(usual);
  const place = await new Client("http://a.test", { promised: EPSILON, fetch }).place("t");
  for (const [life, words] of /** @type {[any, RegExp][]} */ ([
    [[[0, 1, 2, 0, 1], LIFE[1], LIFE[2]], /states: must be 6/], [[[0, 1, 2, 0, 1, 3], LIFE[1], LIFE[2]], /states/],
    [[LIFE[0], [0, 1, 0, 1, 0.5], LIFE[2]], /actions/], [[LIFE[0], LIFE[1], [0, 1, 2, 0, 0]], /rewards/],
    [[LIFE[0], LIFE[1], [0, 1, NaN, 0, 0]], /rewards/], [[LIFE[0], LIFE[1], [0, 1, "1", 0, 0]], /rewards/],
  ])) assert.throws(() => place.message(.../** @type {[any, any, any]} */ (life)), words);
  assert.ok(place.message(...LIFE));
  assert.ok(asked.every((one) => one.path !== "/messages"));
});

test("what is served is held to what was promised, before a ticket leaves", async () => {
  const counts = messages.find((/** @type {any} */ one) => one.name === "counts, gaussian, plain");
  const bits = messages.find((/** @type {any} */ one) => one.name === "bits, 13 fair flips");
  const four = { world: { states: 3, actions: 2, horizon: 4, rewards: [0, 1], mask: null } };
  for (const [other, promised, words] of /** @type {[any, any, RegExp][]} */ ([
    [{}, EPSILON * 0.999, /was promised/],
    [{ form: null, trust: "joint" }, EPSILON, /the record as it is/],
    [{ form: null }, "central", /asks for the record as it is/],
    [{ form: counts.form }, 1e6, /Infinity|was promised/],
    [{ form: counts.form }, { epsilon: counts["at 1e-6"] * 0.99, delta: 1e-6 }, /was promised/],
    [{ form: bits.form, ...four }, 1e6, /was promised/],
    [four, EPSILON, /another world/],
  ])) {
    const { asked, fetch } = service(async () => [200, await published(other)]);
    await assert.rejects(new Client("http://a.test", { promised, fetch }).place("t"), words);
    assert.ok(asked.every((one) => one.path === "/plan"));
  }
  const { fetch } = service(async (path) => (path === "/plan" ? [200, await published({ form: counts.form })] : usual(path)));
  const place = await new Client("http://a.test", { promised: { epsilon: counts["at 1e-6"], delta: 1e-6 }, fetch }).place("t");
  assert.match(String(place.guarantee), /zero-concentrated/);
  for (const wrong of [0, -1, NaN, Infinity, "local", undefined, { epsilon: 1, delta: 1 }, { epsilon: 1, delta: "0" }]) {
    assert.throws(() => new Client("http://a.test", { promised: /** @type {any} */ (wrong) }), /promised/);
  }
});

test("under shuffle trust tickets and messages go to the shuffler that was told of, and to no other", async () => {
  const bits = messages.find((/** @type {any} */ one) => one.name === "bits, 13 fair flips");
  const world = { states: 3, actions: 2, horizon: 4, rewards: [0, 1], mask: null };
  const shuffler = { url: "http://shuffler.test", key: "00".repeat(32) };
  const plans = [{ number: 1, users: 5, policy: Array(4).fill([0, 0, 1]) }];
  const book = { form: bits.form, trust: "shuffle", world, shuffler, plans };
  const told = /** @type {const} */ ({ promised: "shuffle", shuffler: shuffler.url });
  const { asked, fetch } = service(async (path) => (path === "/plan" ? [200, await published(book)] : usual(path)));
  /** @type {string[]} */
  const urls = [];
  const client = new Client("http://a.test", { ...told, fetch: (url, init) => (urls.push(url), fetch(url, init)) });
  const place = await client.place("t");
  assert.match(String(place.guarantee), /Without the shuffler.*no epsilon holds/);
  await client.send(place.message([0, 0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]));
  assert.deepEqual(urls, ["http://a.test/plan", "http://shuffler.test/places", "http://shuffler.test/messages"]);
  assert.equal(Buffer.from(JSON.parse(asked.at(-1).body).message, "base64").length, Buffer.from(bits.message, "base64").length);
  for (const [other, options, words] of /** @type {[any, any, RegExp][]} */ ([
    [{ shuffler: { ...shuffler, url: "http://other.test" } }, told, /another shuffler/],
    [{ shuffler: null }, told, /another shuffler/],
    [{ trust: "local" }, told, /not of shuffle trust/],
    [{ form: null }, told, /the record as it is/],
    [{}, { promised: "central" }, /is of shuffle trust/],
    [{}, { promised: 100 }, /was promised/],
  ])) {
    const changed = service(async () => [200, await published({ ...book, ...other })]);
    await assert.rejects(new Client("http://a.test", { ...options, fetch: changed.fetch }).place("t"), words);
    assert.ok(changed.asked.every((one) => one.path === "/plan"));
  }
  assert.throws(() => new Client("http://a.test", { promised: "shuffle" }), /shuffler: must be/);
});

test("plans that the key did not sign, or of another study, are refused", async () => {
  const good = await published();
  const swapped = good.replace('"users":5', '"users":6');
  for (const text of [swapped, good.replace(/.{8}"}$/, '00000000"}'), good.replace('{"content":', '{"content": '), "{}", "<html>"]) {
    const { fetch } = service(() => [200, text]);
    await assert.rejects(new Client("http://a.test", { promised: EPSILON, key: KEY, fetch }).plan(), /plan: is not/);
  }
  const { fetch } = service(() => [200, good]);
  assert.equal((await new Client("http://a.test", { promised: EPSILON, key: KEY, fetch }).plan()).turn, 0);
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, key: "ab".repeat(32), fetch }).plan(), /plan: is not|key/);
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, identity: "cd".repeat(32), fetch }).plan(), /another study/);
  assert.throws(() => new Client("http://a.test", { promised: 1, key: "ab" }), /key/);
});

test("forms that no service of ours publishes are refused in words", async () => {
  const known = (/** @type {string} */ name) => messages.find((/** @type {any} */ one) => one.name === name).form;
  /** @param {string} form @param {(head: any) => any} change */
  const changed = (form, change) => {
    const bytes = Buffer.from(form, "base64");
    const head = JSON.parse(bytes.subarray(12).toString());
    const text = Buffer.from(JSON.stringify(change(head) ?? head));
    const size = Buffer.alloc(4);
    size.writeUInt32LE(text.length);
    return new Uint8Array(Buffer.concat([bytes.subarray(0, 8), size, text]));
  };
  const [counts, reports, bits] = ["counts, laplace, plain", "reports, oue, any", "bits, 13 fair flips"].map(known);
  for (const [form, change, words] of /** @type {[string, (head: any) => any, RegExp][]} */ ([
    [counts, (head) => void (head.kind = "sums"), /linear sums are not supported/],
    [counts, (head) => void (head.fields.grid = null), /protects nobody/],
    [counts, (head) => void (head.fields.grid = 1000), /power of two/],
    [counts, (head) => void (head.fields.families[0][1] = 0), /positive scale/],
    [counts, (head) => void (head.fields.families[0][0] = "tears"), /must be of visits/],
    [counts, (head) => void (head.fields.noise = "cauchy"), /laplace or gaussian/],
    [counts, (head) => void (head.fields.more = 1), /nothing else/],
    [counts, (head) => void delete head.fields.step, /nothing else/],
    [counts, (head) => void (head.fields.centered = true), /do not fit/],
    [counts, (head) => void (head.fields.session = "12"), /session/],
    [counts, (head) => void (head.fields.rows = [[0, 1], [2, 2], [3, 4]]), /rows/],
    [reports, (head) => void (head.fields.moves[0][1] = 8), /randomizer of 9/],
    [reports, (head) => void (head.fields.moves[0][3] = "40000000000000"), /own/],
    [reports, (head) => void (head.fields.share = "20000000000000"), /share/],
    [reports, (head) => void (head.fields.steps = 6), /steps/],
    [bits, (head) => void (head.fields.families[0][2] = 2 ** 32), /coin/],
    [bits, (head) => void (head.fields.families = []), /at least one/],
    [bits, (head) => void (head.kind = "tears"), /of kind 'tears'/],
    [bits, () => ({ kind: "bits" }), /its head/],
  ])) await assert.rejects(deviceOf(changed(form, change)), words);
  const cut = new Uint8Array(Buffer.from(counts, "base64"));
  for (const bytes of [cut.slice(0, 40), cut.slice(0, 5), cut.map((one, i) => (i === 4 ? 2 : one))]) {
    await assert.rejects(deviceOf(bytes), /form:/);
  }
  assert.ok((await deviceOf(cut)).guarantee.epsilon);
});

test("the plan is asked for by its ETag, and kept", async () => {
  const { asked, fetch } = service(async (path, _, asked) => (asked.at(-1).headers["If-None-Match"] === '"one"' ? [304, null] : usual(path)));
  const client = new Client("http://a.test", { promised: EPSILON, fetch });
  assert.equal(await client.plan(), await client.plan());
  assert.equal(asked.length, 2);
  assert.equal(asked[1].headers["If-None-Match"], '"one"');
});

test("a request is sent until it is answered, the same bytes; refusals are words", async () => {
  let broken = 3;
  const { asked, fetch } = service(async (path) => {
    if (path === "/messages" && broken-- > 0) {
      if (broken === 1) throw new TypeError("connection lost");
      return [broken ? 503 : 429, { reason: broken ? "busy" : "often", words: "send it again" }];
    }
    return usual(path);
  });
  const client = new Client("http://a.test", { promised: EPSILON, fetch });
  const message = (await client.place("t")).message(...LIFE);
  assert.equal((await client.send(message)).status, "counted");
  const sent = asked.filter((one) => one.path === "/messages").map((one) => one.body);
  assert.deepEqual(sent, Array(4).fill(sent[0]));
  const refusing = service(async (path) => (path === "/places" ? [409, { reason: "full", words: "ask again" }] : usual(path)));
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, fetch: refusing.fetch }).place("t"), (error) => error instanceof Turned && error.reason === "full" && error.status === 409);
  const dead = service(() => [503, ""]);
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, fetch: dead.fetch, tries: 2 }).plan(), /no answer after 2 tries/);
});

test("of probabilities, an action is drawn by its law; what has none is never drawn", async () => {
  const stochastic = messages.find((/** @type {any} */ one) => one.name === "reports, subset, probabilities");
  const policy = stochastic.policy.map((/** @type {number[][]} */ one) => one.map(() => [0, 1]));
  policy[0][0] = [0.25, 0.75];
  const { fetch } = service(async (path) => (path === "/plan" ? [200, await published({ form: stochastic.form, plans: [{ number: 1, users: 5, policy }] })] : usual(path)));
  const place = await new Client("http://a.test", { promised: 100, fetch }).place("t");
  let ones = 0;
  for (let i = 0; i < 4000; i++) ones += place.action(0, 0);
  assert.ok(Math.abs(ones - 3000) < 5.5 * Math.sqrt(750), `${ones}`); // a false alarm in 2e7 runs
  assert.ok(Array.from({ length: 200 }, () => place.action(1, 0)).every((one) => one === 1));
});

test("where the server is trusted, the record is sent as it is", async () => {
  const { asked, fetch } = service(async (path) => (path === "/plan" ? [200, await published({ form: null, trust: "joint", world: { states: 3, actions: 2, horizon: 5, rewards: [-1, 2], mask: null } })] : usual(path)));
  const client = new Client("http://a.test", { promised: "central", fetch });
  const place = await client.place("t");
  assert.equal(place.guarantee, null);
  await client.send(place.message(LIFE[0], LIFE[1], [-1, 2, 0, 0, 1.5]));
  const { nonce, ...rest } = JSON.parse(asked.at(-1).body);
  assert.match(nonce, /^[0-9a-f]{32}$/);
  assert.deepEqual(rest, { ticket: "t", plan: 1, states: [...LIFE[0]], actions: [...LIFE[1]], rewards: [-1, 2, 0, 0, 1.5] });
  assert.equal(toBase64(new Uint8Array([1, 2])), "AQI=");
});
