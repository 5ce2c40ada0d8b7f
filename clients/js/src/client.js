/**
 * A person's side of the policy service: fetch the plan, act, encode on her own device, send, try again.
 *
 *     const client = new Client("https://study.example", { key: "9f3c...", promised: 4.0 });
 *     const place = await client.place(ticket);
 *     // at each step h: place.action(h, state) says what to do; act, observe
 *     const message = await place.message(states, actions, rewards); // encoded once
 *     await client.send(message); // as often as it takes: the same bytes
 *
 * A message is kept and sent again until there is an answer; two messages about one trajectory would cost what
 * two people's cost. `promised` is what the person was told: a plan that asks for more is refused.
 *
 * Requests carry the ticket and the message, no cookies and no referrer, and nothing is kept in a cache.
 * @module
 */
import { fromBase64, fromHex, toBase64, toHex } from "./bytes.js";
import { ExactCoins } from "./coins.js";
import { subtle, web } from "./crypto.js";
import { deviceOf } from "./device.js";

/** @typedef {import("./device.js").Device} Device */
/** @typedef {import("./guarantee.js").Guarantee} Guarantee */
/** What the service publishes. @typedef {{identity: string, trust: string, turn: number, over: boolean, plans: {number: number, users: number, policy: any}[], world: {states: number, actions: number, horizon: number, rewards: [number, number], mask: boolean[][] | null}, form: string | null, shuffler?: {url: string, key: string} | null}} Book */
/** @typedef {(input: string, init?: RequestInit) => Promise<Response>} Fetch */

const WAITS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]; // seconds between tries
const ALMOST = 1 - 1e-9; // two computations of one epsilon may differ in their last digits

const pause = (/** @type {number} */ seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/**
 * The service refuses. reason: full, late, spent, foreign, malformed, ...; status: HTTP's. After "full" another
 * plan comes: ask for a place again. After the others nothing more is to be sent.
 */
export class Turned extends Error {
  /** @param {number} status @param {string} reason @param {string} words */
  constructor(status, reason, words) {
    super(`${reason}: ${words}`);
    this.name = "Turned";
    this.status = status;
    this.reason = reason;
  }
}

/** What is sent: `table` as JSON. To be kept until it is answered, and sent as it is. */
export class Message {
  /** @param {Readonly<Record<string, unknown>>} table */
  constructor(table) {
    this.table = Object.freeze({ ...table });
    Object.freeze(this);
  }
}

/** A place in a plan: what to do, and how to tell of it once. */
export class Place {
  #ticket;
  #book;
  #told = false;

  /** @param {string} ticket @param {number} seconds @param {Book["plans"][number]} plan @param {Book} book @param {Device | null} device */
  constructor(ticket, seconds, plan, book, device) {
    this.#ticket = ticket;
    this.#book = book;
    /** Of the plan. */
    this.number = plan.number;
    /** Until she is absent. */
    this.seconds = seconds;
    /** (H, S) actions, or (H, S, A) probabilities. @type {any} */
    this.policy = plan.policy;
    this.horizon = book.world.horizon;
    /** What randomizes here; null where the server is trusted with the record. */
    this.device = device;
  }

  /** What her message gives away by itself; null under central trust: all of it, to the server. @returns {Guarantee | null} */
  get guarantee() {
    return this.device && this.device.guarantee;
  }

  /** What the policy does at step h in a state; of probabilities, a draw by the system's coins. @param {number} h @param {number} state @returns {number} */
  action(h, state) {
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

  /**
   * The message about one trajectory: H + 1 states, H actions, H rewards in the study's units. Made once: an
   * error the second time.
   * @param {readonly number[]} states @param {readonly number[]} actions @param {readonly number[]} rewards
   * @param {import("./coins.js").Bytes} [bytes] of the device; the system's by default
   * @returns {Message}
   */
  message(states, actions, rewards, bytes) {
    if (this.#told) throw new Error("message: was made already; send the same one again, never a second one");
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
      table = { ticket: this.#ticket, plan: this.number, nonce, states: [...states], actions: [...actions], rewards: earned };
    }
    this.#told = true;
    return new Message(table);
  }
}

/** Of a message; null where the record itself may be sent, or what a shuffler is to hide. @param {any} promised @returns {{epsilon: number, delta: number} | null} */
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
  #tag = "";
  /** @type {Book | null} */
  #book = null;
  /** @type {Device | null} */
  #device = null;
  /** @type {Map<string, Place>} */
  #places = new Map();

  /**
   * @param {string} url where it is; under shuffle trust, where the shuffler is
   * @param {object} options
   * @param {"central" | "shuffle" | number | {epsilon: number, delta?: number}} options.promised what the person was told:
   *   "central" if the server may see records as they are; "shuffle" if her message goes to `shuffler`, which is to
   *   let out sums alone; else the largest epsilon that a message may give away
   * @param {string} [options.shuffler] its address, without / at the end; plans that name another are refused
   * @param {string} [options.key] the service's public key, 64 hexadecimal digits; plans that it did not sign are refused
   * @param {string} [options.identity] of the study, from its statement; plans of another one are refused
   * @param {number} [options.tries] how often a request is sent that nobody answered
   * @param {number} [options.timeout] seconds until an answer is not waited for any more
   * @param {Fetch} [options.fetch] in place of the global one
   */
  constructor(url, { promised, shuffler, key, identity, tries = 8, timeout = 30, fetch = globalThis.fetch.bind(globalThis) }) {
    this.#url = url.replace(/\/+$/, "");
    this.#promised = promise(promised);
    this.#shuffled = promised === "shuffle";
    this.#shuffler = shuffler;
    if (this.#shuffled && !shuffler) throw new RangeError('shuffler: must be the address that the person was told, with promised: "shuffle"');
    if (key !== undefined && !/^[0-9a-fA-F]{64}$/.test(key)) throw new RangeError("key: must be 64 hexadecimal digits");
    this.#key = key;
    this.#identity = identity;
    this.#tries = tries;
    this.timeout = timeout;
    this.#fetch = fetch;
  }

  // ----------------------------------------------------------------------------- what is public
  /** What is published now; asked by its ETag. @returns {Promise<Book>} */
  async plan() {
    const answer = await this.#asked("GET", "/plan", undefined, this.#tag ? { "If-None-Match": this.#tag } : {});
    if (answer.status !== 304 || !this.#book) {
      const content = await this.#verified(await answer.text());
      /** @type {Book} */
      const book = JSON.parse(content);
      const device = book.form === null ? null : await deviceOf(fromBase64(book.form));
      this.#check(book, device);
      [this.#book, this.#device, this.#tag] = [book, device, answer.headers.get("etag") ?? ""];
    }
    return this.#book;
  }

  /** What is promised to people. @returns {Promise<any>} */
  async statement() {
    return (await this.#asked("GET", "/statement")).json();
  }

  /** The sums that a release made public. @param {number} number @returns {Promise<any>} */
  async release(number) {
    return (await this.#asked("GET", `/releases/${number}`)).json();
  }

  /**
   * The content of a signed plan. The service writes it in one form, so the signed bytes are those that came;
   * nothing is written anew, and what was signed is what is read.
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
  /** A place for one person. Raises Turned where there is none ("full": ask again later). @param {string} ticket @returns {Promise<Place>} */
  async place(ticket) {
    await this.plan(); // refused before a ticket leaves
    const given = await (await this.#asked("POST", this.#to("/places"), { ticket })).json();
    for (const wait of [0, ...WAITS.slice(0, 6)]) { // what is in hand, or in a cache on the way, may be an older one
      for (const plan of this.#book?.plans ?? []) {
        if (plan.number !== given.plan) continue;
        const known = this.#places.get(ticket); // one place a ticket, and so one message
        if (known) return known;
        const place = new Place(ticket, given.seconds, plan, /** @type {Book} */ (this.#book), this.#device);
        this.#places.set(ticket, place);
        return place;
      }
      await pause(wait);
      await this.plan();
    }
    throw new Turned(410, "late", "the plan of this place is not published any more");
  }

  /** Send a message, again and again until there is an answer. Raises Turned. @param {Message} message @returns {Promise<any>} */
  async send(message) {
    return (await this.#asked("POST", this.#to("/messages"), message.table)).json();
  }

  /** Where tickets and messages go: to the shuffler, where there is one. @param {string} path @returns {string} */
  #to(path) {
    return (this.#shuffler ?? this.#book?.shuffler?.url ?? "") + path;
  }

  /**
   * One request, sent until it is answered by more than "come again".
   * @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
   * @returns {Promise<Response>}
   */
  async #asked(method, path, body, headers = {}) {
    const content = body === undefined ? undefined : JSON.stringify(body);
    for (let i = 0; i < this.#tries; i++) {
      /** @type {Response} */
      let answer;
      try {
        answer = await this.#fetch(path.startsWith("/") ? this.#url + path : path, {
          method,
          body: content,
          headers: content === undefined ? headers : { ...headers, "Content-Type": "application/json" },
          cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer", redirect: "error",
          signal: AbortSignal.timeout(1000 * this.timeout),
        });
      } catch {
        await pause(WAITS[Math.min(i, WAITS.length - 1)]);
        continue;
      }
      if (answer.status === 429 || answer.status === 503) {
        await pause(WAITS[Math.min(i, WAITS.length - 1)]);
        continue;
      }
      if (answer.status >= 400) {
        const said = await answer.json().catch(() => null);
        const [reason, words] = said && said.reason ? [said.reason, said.words] : ["refused", `HTTP status ${answer.status}`];
        throw new Turned(answer.status, String(reason), String(words));
      }
      return answer;
    }
    throw new Error(`${method} ${path}: no answer after ${this.#tries} tries`);
  }
}
