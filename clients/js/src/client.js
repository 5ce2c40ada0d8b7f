/**
 * Client of the policy service: fetch the plan, select actions, encode the message on the user's device, send it.
 *
 *     const client = new Client("https://study.example", { key: "9f3c...", promised: 4.0 });
 *     const place = await client.place(ticket);
 *     // at each step h: place.action(h, state) is the action; act, observe
 *     const message = place.message(states, actions, rewards); // encoded once
 *     await client.send(message); // repeats the same bytes until the service answers
 *
 * The message is stored and sent again until the service answers. Two different messages about one trajectory
 * would add their privacy losses. `promised` is what the user was promised: a plan that requests more is rejected.
 *
 * An answer is an answer of the service only if it is JSON that names the service (`"service": "discreet/1"`). Any
 * other answer (an error page of a proxy, the login page of a network) and a broken connection are neither a
 * refusal nor a receipt. The same bytes are then sent again after a random wait. The bound of the wait doubles
 * each time, up to one minute, and `Retry-After` is added. A message is sent until its place expires. After that,
 * `NoAnswer` contains it.
 *
 * Requests contain the ticket and the message, but no cookies and no referrer. Nothing is stored in a cache.
 * @module
 */
import { fromBase64, fromHex, toBase64, toHex } from "./bytes.js";
import { ExactCoins } from "./coins.js";
import { subtle, web } from "./crypto.js";
import { deviceOf } from "./device.js";
import { Draws, FeatureMap } from "./features.js";
import { checked } from "./pairs.js";
import { checkedRecord } from "./sums.js";

/** @typedef {import("./device.js").Device} Device */
/** @typedef {import("./guarantee.js").Guarantee} Guarantee */
/** Publication of the service. @typedef {{identity: string, trust: string, turn: number, over: boolean, plans: {number: number, users: number, policy: any, context?: any}[], fallback?: number | null, world: {states: number, actions: number, horizon: number, rewards: [number, number], mask: boolean[][] | null, features?: any}, form: string | null, shuffler?: {url: string, key: string} | null}} Book */
/** @typedef {(input: string, init?: RequestInit) => Promise<Response>} Fetch */

const SERVICE = "discreet/1"; // value of "service" in every answer of the service
const [FIRST, LONGEST] = [0.1, 60]; // seconds: bound of the first wait, and largest bound
const MOST_AFTER = 300; // seconds: a longer Retry-After is reduced to this limit
const STALE = [0, 0.05, 0.1, 0.2, 0.5, 1, 2]; // seconds to wait before each new download while a cache returns an older plan
const COME_AGAIN = [408, 425, 429]; // 4xx codes after which the same request can succeed later
const KEPT = "message, 1";
const SPKI = "302a300506032b6570032100"; // DER prefix of the 32 bytes of an Ed25519 public key
const ALMOST = 1 - 1e-9; // two computations of epsilon can differ in the last digits

/** Seconds since 1970, a sleep in seconds, and random numbers in [0, 1) for waits. @typedef {{now: () => number, sleep: (seconds: number) => Promise<unknown>, random: () => number}} Pace */
/** @type {Pace} */
const PACE = {
  now: () => Date.now() / 1000,
  sleep: (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds)),
  random: Math.random, // spreads requests over time; needs no secrecy
};

/**
 * The service refuses a request. reason: full, late, spent, foreign, malformed, ...; status: the HTTP status code.
 * final: the service will always refuse the same request. "full", "paused" and "again" are not final. After "full" and
 * "paused", ask for a place again, after `after` seconds if the service named a time. After "again", release is the number of
 * the release from which the user can take part again; null if the user took part as often as allowed, or has an open place.
 */
export class Turned extends Error {
  /** @param {number} status @param {string} reason @param {string} words @param {number | null} [after] @param {unknown} [release] */
  constructor(status, reason, words, after = null, release = null) {
    super(`${reason}: ${words}`);
    this.name = "Turned";
    this.status = status;
    this.reason = reason;
    this.after = after;
    this.release = Number.isSafeInteger(release) ? Number(release) : null;
    this.final = !["full", "paused", "again"].includes(reason);
  }
}

/**
 * The service did not answer. It may have received the request. sent: the Message, if one was sent. Store it, and
 * send the same message again: if it was already counted, the service sends the same answer.
 */
export class NoAnswer extends Error {
  /** @param {string} words @param {Message | null} sent */
  constructor(words, sent) {
    super(words);
    this.name = "NoAnswer";
    this.sent = sent;
  }
}

/**
 * Message to send, with the JSON content `table`. Store it until the service answers, and send it unchanged. plan:
 * number of the plan, which the answer must also state. until: time at which the place expires, in seconds since
 * 1970 on the device's clock; 0 if it is unknown.
 */
export class Message {
  /** @param {Readonly<Record<string, unknown>>} table @param {number} [plan] @param {number} [until] */
  constructor(table, plan = 0, until = 0) {
    this.table = Object.freeze({ ...table });
    this.plan = plan;
    this.until = until;
    Object.freeze(this);
  }

  /** The message as bytes for a file or a browser's storage. Protect them like the message. @returns {Uint8Array} */
  toBytes() {
    const kept = { discreet: KEPT, plan: this.plan, until: this.until, table: this.table };
    return new TextEncoder().encode(JSON.stringify(kept));
  }

  /** The message from bytes of `toBytes` or of the Python client. @param {Uint8Array} content @returns {Message} */
  static fromBytes(content) {
    const { discreet, plan, until, table } = objectOf(new TextDecoder().decode(content));
    if (discreet !== KEPT || !Number.isSafeInteger(plan) || !Number.isFinite(until) || !isObject(table)) {
      throw new RangeError("content: must be the bytes of a message, from toBytes");
    }
    return new Message(table, plan, until);
  }
}

/** @param {unknown} found @returns {boolean} */
const isObject = (found) => typeof found === "object" && found !== null && !Array.isArray(found);

/** The JSON object of a text; empty where it is none. @param {string} text @returns {any} */
function objectOf(text) {
  try {
    const found = JSON.parse(text);
    return isObject(found) ? found : {};
  } catch {
    return {};
  }
}

/** The 64 digits of a public key, given as these or as PEM. @param {unknown} key @returns {string} */
function publicKey(key) {
  const wrong = new RangeError("key: must be the service's public key: 64 hexadecimal digits, or the PEM text of service.key.pub");
  if (typeof key !== "string") throw wrong;
  if (/^\s*[0-9a-fA-F]{64}\s*$/.test(key)) return key.trim();
  const pem = /^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/.exec(key);
  let digits = "";
  try {
    digits = pem ? toHex(fromBase64(pem[1].replace(/\s+/g, ""))) : "";
  } catch {
    throw wrong;
  }
  if (!digits.startsWith(SPKI) || digits.length !== SPKI.length + 64) throw wrong;
  return digits.slice(SPKI.length);
}

/** Seconds that Retry-After asks to wait (a number or a date); null if it cannot be read. @param {Response} answer @param {number} now @returns {number | null} */
function retryAfter(answer, now) {
  const said = (answer.headers.get("retry-after") ?? "").trim();
  if (/^[0-9]{1,9}$/.test(said)) return Math.min(Number(said), MOST_AFTER);
  const at = /^[A-Za-z]{3}, /.test(said) ? Date.parse(said) / 1000 : NaN;
  return Number.isNaN(at) ? null : Math.min(Math.max(at - now, 0), MOST_AFTER);
}

/** @param {any} found @returns {boolean} */
const isPlace = (found) => found.status === "placed" && Number.isSafeInteger(found.plan) && Number.isFinite(found.seconds);

/** Is it a plan? The signature is not checked. @param {any} found @returns {boolean} */
function isPlan(found) {
  if (!isObject(found.content) || typeof found.signature !== "string") return false;
  return ["identity", "trust", "plans", "world", "form"].every((name) => name in found.content);
}

/** A published policy for a user without a place. The user sends nothing. */
export class Guest {
  #draws = new Draws();

  /** @param {Book["plans"][number]} plan @param {Book} book @param {FeatureMap | null} [features] map of contexts */
  constructor(plan, book, features = null) {
    /** Number of the plan. */
    this.number = plan.number;
    /** (H, S) actions, (H, S, A) probabilities, or (blocks, p) coefficients of contexts. @type {any} */
    this.policy = plan.policy;
    /** Arrays that tell users with contexts how to explore. @type {any} */
    this.context = plan.context;
    /** Public map of contexts; null in a study with states. */
    this.features = features;
    this.horizon = book.world.horizon;
  }

  /**
   * The action of the policy at step h in a state, or for a context. If the policy is stochastic, the action is drawn
   * with the system's random generator; with contexts, all calls use the same random numbers.
   * @param {number} h @param {any} state a state, or the numbers of one context (null: missing) @returns {number}
   */
  action(h, state) {
    if (this.features) return this.features.action(this, state, this.#draws);
    const found = this.policy[h]?.[state];
    if (found === undefined) throw new RangeError(`step ${h}, state ${state}: must be of the study's world`);
    if (typeof found === "number") return found;
    const sum = found.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const at = Number(new ExactCoins().below(1n << 53n)) / 2 ** 53;
    let [below, last] = [0, 0];
    for (let a = 0; a < found.length; a++) {
      if (!found[a]) continue;
      below += found[a];
      last = a;
      if (at < below / sum) return a;
    }
    return last;
  }
}

/** Place of one user in a plan, with the policy to follow and the encoder of the user's message. */
export class Place extends Guest {
  #ticket;
  #book;
  #until;
  #encoded = false;

  /** @param {string} ticket @param {number} seconds @param {Book["plans"][number]} plan @param {Book} book @param {Device | null} device @param {number} [until] @param {FeatureMap | null} [features] */
  constructor(ticket, seconds, plan, book, device, until = 0, features = null) {
    super(plan, book, features);
    this.#ticket = ticket;
    this.#until = until;
    this.#book = book;
    /** Seconds until the place expires and the user counts as absent. */
    this.seconds = seconds;
    /** The encoder that randomizes the message on this machine; null under central trust. */
    this.device = device;
  }

  /** Privacy loss of the message for its reader; null under central trust, as the server receives the trajectory unchanged. @returns {Guarantee | null} */
  get guarantee() {
    return this.device && this.device.guarantee;
  }

  /**
   * Encode the message about one trajectory: H + 1 states (or one context), H actions, H rewards in the study's units.
   * Throws a RangeError for an entry out of range, and an Error if a message was encoded before.
   * @param {readonly any[]} states @param {readonly number[]} actions @param {readonly number[]} rewards
   * @param {import("./coins.js").Bytes} [bytes] random generator; default: the system's
   * @returns {Message}
   */
  message(states, actions, rewards, bytes) {
    if (this.#encoded) throw new Error("message: was encoded already; send the same message again, never a second one");
    const [low, high] = this.#book.world.rewards;
    const earned = Array.from(rewards);
    if (!earned.every((one) => typeof one === "number" && one >= low && one <= high)) {
      throw new RangeError(`rewards: every entry must be a number in [${low}, ${high}]`);
    }
    /** @type {Record<string, unknown>} */
    let table;
    if (this.device) {
      const scaled = earned.map((one) => (low === 0 && high === 1 ? one : Math.min(1, Math.max(0, (one - low) / (high - low)))));
      const sent = this.device.message(this.number, this.policy, { states, actions, rewards: scaled }, bytes);
      table = { ticket: this.#ticket, message: toBase64(sent) };
    } else {
      const nonce = toHex(web.getRandomValues(new Uint8Array(16)));
      const own = this.#raw({ states, actions, rewards: earned.map(() => 0) });
      table = { ticket: this.#ticket, plan: this.number, nonce, ...own, actions: [...actions], rewards: earned };
    }
    this.#encoded = true;
    return new Message(table, this.number, this.#until);
  }

  /** The checked states, or the context clipped to its ranges. @param {{states: readonly any[], actions: readonly number[], rewards: number[]}} life @returns {{states: number[]} | {contexts: any[]}} */
  #raw(life) {
    if (this.features) return { contexts: [this.features.clipped(checkedRecord(this.features, life).x)] };
    const { states, actions, horizon, mask } = this.#book.world;
    const row = (/** @type {number} */ state, /** @type {number} */ action) => (mask === null || mask[state][action] ? 0 : -1);
    checked({ states, actions, horizon, row }, life);
    return { states: [...life.states] };
  }
}

/** Promised (epsilon, delta) of one message; null for "central" and "shuffle". @param {any} promised @returns {{epsilon: number, delta: number} | null} */
function promise(promised) {
  if (promised === "central" || promised === "shuffle") return null;
  const { epsilon, delta = 0 } = typeof promised === "number" ? { epsilon: promised } : promised ?? {};
  if (typeof epsilon === "number" && epsilon > 0 && epsilon < Infinity && typeof delta === "number" && delta >= 0 && delta < 1) {
    return { epsilon, delta };
  }
  throw new RangeError('promised: must be "central", "shuffle", a positive epsilon, or { epsilon, delta } with delta in [0, 1)');
}

/** A policy service at an address. */
export class Client {
  #url;
  #key;
  #promised;
  #shuffled;
  #shuffler;
  #identity;
  #tries;
  #fetch;
  #pace;
  #tag = "";
  /** @type {Book | null} */
  #book = null;
  /** @type {Device | null} */
  #device = null;
  /** @type {FeatureMap | null} */
  #features = null;
  /** @type {Map<string, Place>} */
  #places = new Map();

  /**
   * @param {string} url address of the service; under shuffle trust, of the shuffler
   * @param {object} options
   * @param {"central" | "shuffle" | number | {epsilon: number, delta?: number}} options.promised what the user was promised:
   *   "central" if the server is allowed to see trajectories unchanged; "shuffle" if the message goes to `shuffler`,
   *   which must release only sums; otherwise the largest epsilon of a message
   * @param {string} [options.shuffler] address of the shuffler, without a final /; plans that name another are rejected
   * @param {string} [options.key] the service's public key, 64 hexadecimal digits or PEM text; plans that are not signed with it are rejected
   * @param {string} [options.identity] of the study, from its statement; plans of other studies are rejected
   * @param {number} [options.tries] smallest number of tries before NoAnswer; a message is sent until its place expires
   * @param {number} [options.timeout] seconds after which one try fails
   * @param {Fetch} [options.fetch] replaces the global fetch
   * @param {Pace} [options.pace] clock, sleep and random numbers
   */
  constructor(url, { promised, shuffler, key, identity, tries = 8, timeout = 30, fetch = globalThis.fetch.bind(globalThis), pace = PACE }) {
    this.#url = url.replace(/\/+$/, "");
    this.#promised = promise(promised);
    this.#shuffled = promised === "shuffle";
    this.#shuffler = shuffler;
    if (this.#shuffled && !shuffler) throw new RangeError('shuffler: must be the address that was promised to the user, with promised: "shuffle"');
    if (!Number.isSafeInteger(tries) || tries < 1) throw new RangeError("tries: must be a positive integer");
    this.#key = key === undefined ? undefined : publicKey(key);
    this.#identity = identity;
    this.#tries = tries;
    this.timeout = timeout;
    this.#fetch = fetch;
    this.#pace = pace;
  }

  // ----------------------------------------------------------------------------- what is public
  /** The current publication; downloaded only if its ETag has changed. @returns {Promise<Book>} */
  async plan() {
    /** @type {Record<string, string>} */
    const headers = this.#tag ? { "If-None-Match": this.#tag } : {};
    const { answer, text } = await this.#asked("GET", "/plan", 200, isPlan, { headers });
    if (answer.status !== 304 || !this.#book) {
      const content = await this.#verified(text);
      /** @type {Book} */
      const book = JSON.parse(content);
      const device = book.form === null ? null : await deviceOf(fromBase64(book.form));
      const features = book.world.features ? await FeatureMap.of(book.world.features) : null;
      this.#check(book, device);
      [this.#book, this.#device, this.#features, this.#tag] = [book, device, features, answer.headers.get("etag") ?? ""];
    }
    return this.#book;
  }

  /** The study's privacy statement for users. @returns {Promise<any>} */
  async statement() {
    return (await this.#asked("GET", "/statement", 200, (found) => "identity" in found)).found;
  }

  /** The sums of a release. @param {number} number @returns {Promise<any>} */
  async release(number) {
    return (await this.#asked("GET", `/releases/${number}`, 200, (found) => found.number === number)).found;
  }

  /**
   * The content of a signed plan. The service writes it in one form, so the signed bytes are the received bytes.
   * @param {string} text @returns {Promise<string>}
   */
  async #verified(text) {
    const found = /^\{"content":(\{.*\}),"key":"[0-9a-f]{64}","signature":"([0-9a-f]{128})"\}$/s.exec(text);
    if (!found) throw new RangeError("plan: is not of the form that the service writes");
    if (this.#key !== undefined) {
      let good = false;
      try {
        const key = await subtle().importKey("raw", fromHex(this.#key), { name: "Ed25519" }, false, ["verify"]);
        const signed = new TextEncoder().encode(`discreet plan, 1\n${found[1]}`);
        good = await subtle().verify({ name: "Ed25519" }, key, fromHex(found[2]), signed);
      } catch (error) {
        if (/** @type {Error} */ (error).name === "NotSupportedError") {
          throw new Error("key: this browser cannot check Ed25519 signatures, so no plan is taken from it");
        }
        throw error;
      }
      if (!good) throw new RangeError("plan: is not signed with the service's key");
    }
    return found[1];
  }

  /** @param {Book} book @param {Device | null} device */
  #check(book, device) {
    if (this.#identity !== undefined && book.identity !== this.#identity) throw new RangeError("plan: is of another study");
    if (!device && book.trust !== "joint") throw new RangeError(`plan: of '${book.trust}' trust, asks for the record as it is`);
    for (const name of /** @type {const} */ (["states", "actions", "horizon"])) {
      if (device && device[name] !== book.world[name]) throw new RangeError("plan: its form is of another world");
    }
    if (this.#shuffler !== undefined && book.shuffler?.url !== this.#shuffler) {
      throw new RangeError(`plan: names another shuffler than ${this.#shuffler}, or none`);
    }
    if (this.#shuffled && book.trust !== "shuffle") throw new RangeError("plan: is not of shuffle trust, which was promised");
    if (!this.#promised) {
      if (book.trust === "shuffle" && !this.#shuffled) throw new RangeError('plan: is of shuffle trust; say promised: "shuffle", and whose shuffler');
      return;
    }
    const epsilon = device ? device.guarantee.epsilonAt(this.#promised.delta) : Infinity;
    if (!(epsilon * ALMOST <= this.#promised.epsilon)) {
      const given = device ? `epsilon = ${Number(epsilon.toPrecision(6))}` : "the record as it is";
      throw new RangeError(`plan: asks for ${given}, but epsilon = ${this.#promised.epsilon} was promised`);
    }
  }

  // ----------------------------------------------------------------------------- taking part
  /** Reserve a place for one user. Throws Turned if the service refuses ("full": ask again later). @param {string} ticket @returns {Promise<Place>} */
  async place(ticket) {
    await this.plan(); // checked before a ticket is sent
    const asked = this.#pace.now();
    const given = (await this.#asked("POST", this.#to("/places"), 201, isPlace, { body: { ticket } })).found;
    for (const wait of STALE) { // the stored publication, or one from a cache, can be out of date
      for (const plan of this.#book?.plans ?? []) {
        if (plan.number !== given.plan) continue;
        const known = this.#places.get(ticket); // one place for each ticket, and therefore one message
        if (known) return known;
        const place = new Place(ticket, given.seconds, plan, /** @type {Book} */ (this.#book), this.#device, asked + given.seconds, this.#features);
        this.#places.set(ticket, place);
        return place;
      }
      await this.#pace.sleep(wait);
      await this.plan();
    }
    throw new Turned(410, "late", "the plan of this place is not published any more");
  }

  /**
   * A policy for a user who found no place ("full"). No ticket is used. It is the newest published policy; if a
   * release has several plans, that of the plan with the most users. Throws Turned if no plan is published.
   * @returns {Promise<Guest>}
   */
  async guest() {
    const book = await this.plan();
    const number = book.fallback ?? Math.max(...book.plans.map((one) => one.number));
    const plan = book.plans.find((one) => one.number === number);
    if (!plan) throw new Turned(410, "over", "no plan is published");
    return new Guest(plan, book, this.#features);
  }

  /**
   * Send a message until the service answers, and return the receipt (status and plan). Throws Turned if the
   * service refuses it, and NoAnswer, which contains the message, if the place expires without an answer.
   * @param {Message} message @returns {Promise<any>}
   */
  async send(message) {
    if (this.#promised && !this.#shuffler && !this.#book) await this.#found(message);
    const counted = (/** @type {any} */ found) => found.status === "counted" && Number.isSafeInteger(found.plan) && [0, found.plan].includes(message.plan);
    return (await this.#asked("POST", this.#to("/messages"), 202, counted, { body: message.table, message })).found;
  }

  /**
   * Withdraw the place or the message of a ticket, and return the signed receipt: keep it. The message is removed,
   * and the user counts as absent. Throws Turned with the reason "closed" if the batch is complete.
   * @param {string} ticket @returns {Promise<any>}
   */
  async withdraw(ticket) {
    if (this.#promised && !this.#shuffler && !this.#book) await this.plan();
    const own = toHex(new Uint8Array(await subtle().digest("SHA-256", new TextEncoder().encode(ticket))));
    const withdrawn = (/** @type {any} */ { receipt }) => receipt?.content?.status === "withdrawn" && receipt.content.ticket === own;
    return (await this.#asked("POST", this.#to("/withdrawals"), 200, withdrawn, { body: { ticket } })).found.receipt;
  }

  /** Fetch the plan, which states where messages go; the message can come from an earlier page. @param {Message} message */
  async #found(message) {
    try {
      await this.plan();
    } catch (error) {
      throw error instanceof NoAnswer ? new NoAnswer(error.message, message) : error;
    }
  }

  /** Address of tickets and messages: the shuffler's, if there is one. @param {string} path @returns {string} */
  #to(path) {
    return (this.#shuffler ?? this.#book?.shuffler?.url ?? "") + path;
  }

  /**
   * Send a request until the service answers. good: status of success, in addition to 200. complete: has the JSON
   * the requested content? The answer to a POST must name the service.
   * @param {string} method @param {string} path @param {number} good @param {(found: any) => boolean} complete
   * @param {{body?: unknown, headers?: Record<string, string>, message?: Message}} [more]
   * @returns {Promise<{answer: Response, text: string, found: any}>} found: its JSON, without the name
   */
  async #asked(method, path, good, complete, { body, headers = {}, message } = {}) {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const until = message?.until ?? 0;
    for (let count = 1; ; count++) {
      let [last, after] = ["", 0];
      try {
        const answer = await this.#fetch(path.startsWith("/") ? this.#url + path : path, {
          method,
          body: content,
          headers: content === undefined ? headers : { ...headers, "Content-Type": "application/json" },
          cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer", redirect: "error",
          signal: AbortSignal.timeout(1000 * this.timeout),
        });
        if (answer.status === 304 && "If-None-Match" in headers) return { answer, text: "", found: {} };
        const text = await answer.text();
        const { service, ...found } = objectOf(text);
        const ours = service === SERVICE;
        if ((answer.status === good || answer.status === 200) && (ours || method === "GET") && complete(found)) return { answer, text, found };
        const said = retryAfter(answer, this.#pace.now());
        const refused = answer.status >= 400 && answer.status < 500 && !COME_AGAIN.includes(answer.status);
        if (refused && ours && "reason" in found && "words" in found) {
          throw new Turned(answer.status, String(found.reason), String(found.words), said, found.release);
        }
        last = `HTTP status ${answer.status}${ours ? "" : ", not from the service"}`;
        after = said ?? 0;
      } catch (error) {
        if (error instanceof Turned) throw error;
        last = String(error);
      }
      const left = until - this.#pace.now();
      if (left <= 0 && count >= this.#tries) {
        const kept = message ? "; keep the message, and send the same one again" : "";
        throw new NoAnswer(`${method} ${path}: no answer after ${count} tries (the last: ${last})${kept}`, message ?? null);
      }
      const wait = after + this.#pace.random() * Math.min(LONGEST, FIRST * 2 ** Math.min(count - 1, 30));
      await this.#pace.sleep(left <= 0 ? wait : Math.min(wait, left)); // the last try is made when the place expires
    }
  }
}
