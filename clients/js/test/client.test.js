import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { toBase64, toHex } from "../src/bytes.js";
import { subtle } from "../src/crypto.js";
import { Draws } from "../src/features.js";
import { Client, deviceOf, FeatureMap, Message, NoAnswer, Turned } from "../src/index.js";
import { Stream } from "./stream.js";

const { messages, contexts } = JSON.parse(readFileSync(new URL("vectors.json", import.meta.url), "utf8"));
const vector = messages.find((/** @type {any} */ one) => one.name === "reports, subset, any");
const EPSILON = vector.guarantee.epsilon;
const sums = messages.find((/** @type {any} */ one) => one.name === "contexts, linear");
const LIFE = /** @type {const} */ ([[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0], [0, 1, 0.5, 0, 1]]);

const OURS = { service: "discreet/1" };

/** A clock that sleeping moves, and what was slept. share: of the longest wait that is waited. */
function clocked(share = 1) {
  const clock = { at: 1.7e9, slept: /** @type {number[]} */ ([]) };
  const sleep = async (/** @type {number} */ seconds) => {
    clock.slept.push(seconds);
    clock.at += seconds;
  };
  return { clock, pace: { now: () => clock.at, sleep, random: () => share } };
}

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
  path === "/plan" ? [200, await published(), { etag: '"one"' }] : path === "/places" ? [201, { status: "placed", plan: 1, seconds: 600, ...OURS }] : [202, { status: "counted", plan: 1, ...OURS }];

test("a person takes a place, acts, and sends one message; nothing but ticket and message leaves", async () => {
  const { asked, fetch } = service(usual);
  const client = new Client("http://a.test/", { promised: EPSILON, key: KEY, identity: "ab".repeat(32), fetch });
  const place = await client.place("a ticket");
  assert.equal(await client.place("a ticket"), place);
  assert.equal(place.action(0, 1), vector.policy[0][1]);
  assert.throws(() => place.action(9, 0), /step 9/);
  const message = place.message(...LIFE);
  assert.throws(() => place.message(...LIFE), /was encoded already/);
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

test("under central trust the device checks the record, and a second try is possible", async () => {
  const mask = [[true, true], [true, false], [true, true]];
  const open = { trust: "joint", form: null, world: { states: 3, actions: 2, horizon: 5, rewards: [0, 1], mask } };
  const shown = await published(open);
  const { fetch } = service((path) => (path === "/plan" ? [200, shown] : usual(path)));
  const place = await new Client("http://a.test", { promised: "central", fetch }).place("t");
  const [states, , rewards] = LIFE;
  const actions = [0, 0, 0, 1, 0];
  for (const [life, words] of /** @type {[any, RegExp][]} */ ([
    [[[0, 1, 2, 0, 1], actions, rewards], /states: must be 6/], [[[0, 1, 2, 0, 1, 3], actions, rewards], /states/],
    [[states, [0, 0, 0, 1, 0.5], rewards], /actions/], [[states, [0, 1, 0, 1, 0], rewards], /not admissible/],
    [[states, actions, [0, 1]], /rewards: must be 5/],
  ])) assert.throws(() => place.message(.../** @type {[any, any, any]} */ (life)), words);
  assert.deepEqual(place.message(states, actions, rewards).table.actions, actions);
});

test("a user without a place gets a published policy and uses no ticket", async () => {
  const plans = [3, 4, 5].map((number) => ({ number, users: 5, policy: [[number, [0, 1]]] }));
  for (const [fallback, number] of [[4, 4], [null, 5]]) {
    const shown = await published({ plans, fallback });
    const { asked, fetch } = service(() => [200, shown]);
    const guest = await new Client("http://a.test", { promised: EPSILON, fetch }).guest();
    assert.deepEqual([guest.number, guest.action(0, 0), guest.action(0, 1)], [number, number, 1]);
    assert.throws(() => guest.action(0, 2), /must be of the study's world/);
    assert.deepEqual(asked.map((one) => one.path), ["/plan"]);
  }
  const { fetch } = service(async () => [200, await published({ plans: [], over: true })]);
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, fetch }).guest(), (/** @type {any} */ error) => error.reason === "over" && error.final);
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
  for (const text of [swapped, good.replace(/.{8}"}$/, '00000000"}'), good.replace('{"content":', '{"content": ')]) {
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

// Everything that is not the service's word: [status, body, headers], or a broken connection.
const PORTAL = "<!doctype html><title>Log in to the network</title>";
const NOT_OURS = /** @type {Record<string, any>} */ ({
  ...Object.fromEntries([400, 403, 404, 408, 410, 413, 425, 429, 431, 500, 502, 503, 504, 507].map((one) => [`${one} HTML`, [one, "<h1>Something</h1>"]])),
  "a portal": [200, PORTAL], "nothing": [200, ""], "204": new Response(null, { status: 204 }), "{}": [200, {}], "a list": [200, ["counted"]],
  "304": [304, null], "another's JSON": [200, { status: "counted", plan: 1 }], "another's refusal": [403, { reason: "forbidden", words: "no account" }],
  "our name alone": [202, OURS], "another plan": [202, { status: "counted", plan: 2, ...OURS }], "a plan of another type": [202, { status: "counted", plan: "1", ...OURS }],
  "busy": [503, { reason: "busy", words: "again", ...OURS }], "slow": [408, { reason: "slow", words: "again", ...OURS }],
  "gone": new TypeError("connection lost"), "late": new DOMException("timeout", "TimeoutError"),
});
for (const [name, answer] of Object.entries(NOT_OURS)) {
  test(`what is not the service's word is no answer: ${name}`, async () => {
    const { pace } = clocked();
    const counts = /** @type {Record<string, number>} */ ({});
    const { asked, fetch } = service(async (path) => {
      counts[path] = (counts[path] ?? 0) + 1;
      if (counts[path] > 3) return usual(path);
      if (answer instanceof Error) throw answer;
      return answer instanceof Response ? answer.clone() : answer;
    });
    const client = new Client("http://a.test", { promised: EPSILON, key: KEY, fetch, pace });
    const message = (await client.place("t")).message(...LIFE);
    assert.deepEqual(await client.send(message), { status: "counted", plan: 1 });
    const sent = asked.filter((one) => one.path === "/messages").map((one) => one.body);
    assert.deepEqual(sent, Array(4).fill(sent[0]));
    assert.deepEqual(counts, { "/plan": 4, "/places": 4, "/messages": 4 });
  });
}

test("an answer that is cut in the middle is no answer", async () => {
  const { pace } = clocked();
  const cut = () => new Response(new ReadableStream({ start: (controller) => controller.error(new TypeError("cut")) }), { status: 202 });
  const { asked, fetch } = service(async (path, _, asked) => (path === "/messages" && asked.length < 5 ? cut() : usual(path)));
  const client = new Client("http://a.test", { promised: EPSILON, fetch, pace });
  assert.equal((await client.send((await client.place("t")).message(...LIFE))).status, "counted");
  assert.equal(asked.filter((one) => one.path === "/messages").length, 3);
});

test("refusals are the service's own; full is not final, and says when to come again", async () => {
  for (const [status, reason, headers, wanted] of /** @type {[number, string, any, any][]} */ ([
    [409, "full", { "retry-after": "120" }, { final: false, after: 120 }], [403, "foreign", {}, { final: true, after: null }],
    [410, "late", {}, { final: true, after: null }], [400, "malformed", {}, { final: true, after: null }],
    [403, "again", {}, { final: false, after: null, release: 7 }],
  ])) {
    const { asked, fetch } = service(async (path) => (path === "/places" ? [status, { reason, words: "so it is", release: wanted.release, ...OURS }, headers] : usual(path)));
    await assert.rejects(new Client("http://a.test", { promised: EPSILON, fetch }).place("t"), (/** @type {any} */ error) => {
      assert.ok(error instanceof Turned);
      assert.deepEqual([error.status, error.reason, error.final, error.after], [status, reason, wanted.final, wanted.after]);
      assert.equal(error.release, wanted.release ?? null);
      return true;
    });
    assert.equal(asked.length, 2);
  }
});

test("a message is sent until its place ends, and is then given back", async () => {
  const { clock, pace } = clocked();
  let broken = Infinity;
  const { asked, fetch } = service(async (path) => (path === "/messages" && broken-- > 0 ? [502, "<h1>Bad Gateway</h1>"] : usual(path)));
  const options = { promised: EPSILON, fetch, pace, tries: 3 };
  const message = await (await new Client("http://a.test", options).place("t")).message(...LIFE);
  assert.deepEqual([message.plan, message.until], [1, 1.7e9 + 600]);
  await assert.rejects(new Client("http://a.test", options).send(message), (/** @type {any} */ error) => {
    assert.ok(error instanceof NoAnswer && error.sent === message);
    assert.match(error.message, /HTTP status 502, not from the service\); keep the message/);
    return true;
  });
  assert.deepEqual(clock.slept.slice(0, 11), [...Array.from({ length: 10 }, (_, k) => 0.1 * 2 ** k), 60]);
  assert.ok(Math.abs(clock.slept.reduce((a, b) => a + b) - 600) < 1e-6);
  const again = Message.fromBytes(message.toBytes()); // the next day, in another page
  assert.deepEqual({ ...again }, { ...message });
  broken = 2;
  const before = asked.length;
  assert.equal((await new Client("http://a.test", options).send(again)).status, "counted");
  const sent = asked.slice(before).filter((one) => one.path === "/messages").map((one) => one.body);
  assert.deepEqual(sent, Array(3).fill(JSON.stringify(message.table)));
  const dead = service(() => [502, ""]);
  await assert.rejects(new Client("http://a.test", { ...options, fetch: dead.fetch }).send(again), (/** @type {any} */ error) => error instanceof NoAnswer && error.sent === again);
});

test("a kept message has one form, that of the Python client", () => {
  const text = '{"discreet":"message, 1","plan":3,"until":12.5,"table":{"ticket":"é","message":"AAAA"}}';
  const message = new Message({ ticket: "é", message: "AAAA" }, 3, 12.5);
  assert.equal(new TextDecoder().decode(message.toBytes()), text);
  for (const one of [text, text.replace("é", "\\u00e9")]) assert.deepEqual({ ...Message.fromBytes(new TextEncoder().encode(one)) }, { ...message });
  for (const wrong of ["", "[]", "{}", text.slice(1), text.replace(", 1", ", 2"), text.replace("12.5", "null"), text.replace(":3", ":true"), text.replace(":3", ":3.5")]) {
    assert.throws(() => Message.fromBytes(new TextEncoder().encode(wrong)), /content: must be the bytes of a message/);
  }
});

test("without a place a request is tried so often; Retry-After is kept, in seconds or as a date", async () => {
  const { clock, pace } = clocked();
  const dead = service(() => [503, ""]);
  await assert.rejects(new Client("http://a.test", { promised: EPSILON, fetch: dead.fetch, pace, tries: 4 }).plan(), /GET \/plan: no answer after 4 tries/);
  assert.deepEqual(clock.slept, [0.1, 0.2, 0.4]);
  assert.throws(() => new Client("http://a.test", { promised: 1, tries: 0 }), /tries/);
  const date = (/** @type {number} */ seconds) => new Date(1000 * (1.7e9 + seconds)).toUTCString();
  for (const [said, least] of /** @type {[string, number][]} */ ([["7", 7], [date(30), 30], [date(-30), 0], ["1000000", 300], [date(1e8), 300], ["-5", 0], ["soon", 0], ["7.5", 0]])) {
    const one = clocked();
    const { fetch } = service(async (path, _, asked) => (asked.length === 1 ? [503, "", { "retry-after": said }] : usual(path)));
    await new Client("http://a.test", { promised: EPSILON, fetch, pace: one.pace }).plan();
    assert.equal(one.clock.slept.length, 1);
    assert.ok(Math.abs(one.clock.slept[0] - least - 0.1) < 1e-6, said);
  }
});

test("a key is 64 digits or PEM text", async () => {
  const pem = `-----BEGIN PUBLIC KEY-----\n${toBase64(new Uint8Array([...Buffer.from("302a300506032b6570032100", "hex"), ...Buffer.from(KEY, "hex")]))}\n-----END PUBLIC KEY-----\n`;
  for (const key of [KEY, KEY.toUpperCase(), pem, pem.trim()]) {
    const { fetch } = service(usual);
    assert.equal((await new Client("http://a.test", { promised: EPSILON, key, fetch }).plan()).turn, 0);
  }
  for (const key of ["", "ab", KEY + "0", KEY.slice(1) + "x", "service.key.pub", pem.slice(0, 60), pem.replace("MCow", "AAAA"), pem.replace("PUBLIC", "PRIVATE"), null, 7]) {
    assert.throws(() => new Client("http://a.test", { promised: 1, key: /** @type {any} */ (key) }), /key: must be/);
  }
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

const FEATURES = contexts[0].features; // three columns, three actions
const OF_CONTEXTS = { world: { states: 1, actions: 3, horizon: 1, rewards: [0, 2], mask: null, features: FEATURES }, plans: [{ number: 1, users: 5, policy: contexts[0].policy, context: { random: [0] } }] };

test("under central trust a context leaves clipped to its ranges, with the action of the plan", async () => {
  const { asked, fetch } = service(async (path) => (path === "/plan" ? [200, await published({ ...OF_CONTEXTS, trust: "joint", form: null })] : usual(path)));
  const place = await new Client("http://a.test", { promised: "central", key: KEY, fetch }).place("t");
  const x = [200, null, NaN];
  assert.equal(place.action(0, x), place.features?.action({ policy: contexts[0].policy, context: { random: [0] } }, x, new Draws()));
  for (const wrong of [[[x], [3], [1]], [[x, x], [0], [1]], [[[1, 2]], [0], [1]], [[x], [0], [3]], [[x], [0.5], [1]], [[["1", 2, 3]], [0], [1]]]) {
    assert.throws(() => place.message(wrong[0], /** @type {any} */ (wrong[1]), /** @type {any} */ (wrong[2])), RangeError);
  }
  const { nonce, ...table } = /** @type {any} */ (place.message([x], [2], [2]).table);
  assert.match(nonce, /^[0-9a-f]{32}$/);
  assert.deepEqual(table, { ticket: "t", plan: 1, contexts: [[90, null, null]], actions: [2], rewards: [2] });
  assert.ok(asked.every((one) => one.path !== "/messages"));
});

test("under local trust a context leaves as noisy sums alone, within the promise", async () => {
  const { fetch } = service(async (path) => (path === "/plan" ? [200, await published({ ...OF_CONTEXTS, form: sums.form })] : usual(path)));
  const { epsilon } = sums.guarantee;
  const place = await new Client("http://a.test", { promised: epsilon, key: KEY, fetch }).place("t");
  assert.ok(Math.abs(/** @type {number} */ (place.guarantee?.epsilon) / epsilon - 1) < 1e-12);
  const message = place.message([[50, 60, 0]], [1], [0.5]);
  assert.deepEqual(Object.keys(message.table), ["ticket", "message"]);
  await assert.rejects(() => new Client("http://a.test", { promised: 0.9 * epsilon, key: KEY, fetch }).place("t"), /was promised/);
});

test("users at random and explorers use one draw for each place, of the right law", async () => {
  const features = await FeatureMap.of({ ranges: [["x", 0, 1]], actions: 2, form: "per_action", basis: "linear", radius: 1, intercept: false });
  const stream = new Stream("law: explorers");
  const [n, root] = [3000, [[[0]], [[2]]]];
  const counts = [0, 0];
  for (let i = 0; i < n; i++) {
    const draws = new Draws(stream.bytes);
    const one = features.action({ policy: [[1], [0]], context: { random: [0], root } }, [1], draws);
    assert.equal(features.action({ policy: [[1], [0]], context: { random: [0], root } }, [1], draws), one);
    counts[0] += one; // 2 z > 1: probability 0.3085
    counts[1] += features.action({ policy: [[0], [0]], context: { random: [1] } }, [1], draws);
  }
  assert.ok(Math.abs(counts[0] / n - 0.30854) < 6 * Math.sqrt((0.3085 * 0.6915) / n), `${counts}`);
  assert.ok(Math.abs(counts[1] / n - 0.5) < 6 * Math.sqrt(0.25 / n), `${counts}`);
});

test("a form of contexts or a feature map that is not allowed is refused", async () => {
  const bytes = Uint8Array.from(atob(sums.form), (one) => one.charCodeAt(0));
  for (const cut of [bytes.length - 1, bytes.length - 8, 40]) await assert.rejects(() => deviceOf(bytes.slice(0, cut)), RangeError);
  const size = 12 + new DataView(bytes.buffer).getUint32(8, true);
  for (const [at, value] of [[size + 8, 5], [bytes.length - 1, 1]]) { // an offset, and a unit
    const other = bytes.slice();
    other[at] ^= value;
    await assert.rejects(() => deviceOf(other), /offsets, units/);
  }
  for (const wrong of [{ radius: 0 }, { actions: 1 }, { form: "x" }, { basis: ["poly", 3] }, { ranges: [["x", 1, 1]] }, { intercept: 1 }, { more: 1 }, { basis: ["fourier", 2e4, 1, 0] }]) {
    await assert.rejects(() => FeatureMap.of({ ...FEATURES, ...wrong }), RangeError);
  }
});

test("a withdrawal returns the receipt of its own ticket", async () => {
  const own = toHex(new Uint8Array(await subtle().digest("SHA-256", new TextEncoder().encode("a ticket"))));
  const receipt = { content: { status: "withdrawn", identity: "ab", ticket: own }, key: KEY, signature: "00" };
  let count = 0;
  const { asked, fetch } = service(async (path, body) => {
    if (path === "/plan") return [200, await published()];
    count += 1;
    if (body.ticket === "late") return [410, { ...OURS, reason: "closed", words: "too late" }];
    const of = count === 1 ? { ...receipt, content: { ...receipt.content, ticket: "00" } } : receipt;
    return [200, { ...OURS, status: "withdrawn", receipt: of }];
  });
  const client = new Client("https://study.example", { promised: EPSILON, key: KEY, fetch, pace: clocked().pace });
  assert.deepEqual(await client.withdraw("a ticket"), receipt); // another ticket's receipt is not taken
  assert.deepEqual(asked.map((/** @type {any} */ one) => one.path), ["/plan", "/withdrawals", "/withdrawals"]);
  await assert.rejects(client.withdraw("late"), (error) => error instanceof Turned && error.reason === "closed" && error.final);
});
