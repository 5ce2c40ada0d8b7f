/**
 * A device's coins: uniform integers made of random bytes, by rejection, without bias.
 *
 * The bytes are Web Crypto's; for tests any function that gives bytes. Which bytes make which integer is what
 * Python's `secrets.randbelow` and `int.from_bytes` do, so that equal bytes give equal messages.
 * @module
 */
import { web } from "./crypto.js";

/** So many random bytes. @typedef {(size: number) => Uint8Array} Bytes */

const POOL = 4096;

/** The system's cryptographic source, some bytes ahead; none is given twice. @returns {Bytes} */
export function systemBytes() {
  const pool = new Uint8Array(POOL);
  let at = POOL;
  return (size) => {
    if (size > POOL) {
      const found = new Uint8Array(size);
      for (let done = 0; done < size; done += 65536) web.getRandomValues(found.subarray(done, Math.min(size, done + 65536)));
      return found;
    }
    if (at + size > POOL) {
      web.getRandomValues(pool);
      at = 0;
    }
    const found = pool.slice(at, at + size);
    pool.fill(0, at, at + size);
    at += size;
    return found;
  };
}

/** How many binary digits. @param {bigint} n @returns {number} */
export function bitLength(n) {
  if (n < 0x80000000n) return 32 - Math.clz32(Number(n));
  const digits = n.toString(16);
  return 4 * digits.length - (Math.clz32(parseInt(digits[0], 16)) - 28);
}

/** @param {Uint8Array} bytes big-endian @returns {bigint} */
function bigEndian(bytes) {
  let found = 0n;
  for (const one of bytes) found = (found << 8n) | BigInt(one);
  return found;
}

/** Exact draws: uniform integers, and coins of probability n / 2^53. */
export class ExactCoins {
  /** @param {Bytes} [bytes] the system's by default */
  constructor(bytes = systemBytes()) {
    this.bytes = bytes;
  }

  /** A uniform integer in [0, n). @param {bigint} n @returns {bigint} */
  below(n) {
    const bits = bitLength(n);
    const size = (bits + 7) >> 3;
    const over = size * 8 - bits;
    if (bits <= 30) {
      const limit = Number(n);
      for (;;) {
        let found = 0;
        for (const one of this.bytes(size)) found = found * 256 + one;
        found = Math.floor(found / 2 ** over);
        if (found < limit) return BigInt(found);
      }
    }
    for (;;) {
      const found = bigEndian(this.bytes(size)) >> BigInt(over);
      if (found < n) return found;
    }
  }

  /** True with probability numerator / 2^53. @param {bigint} numerator @returns {boolean} */
  flip(numerator) {
    return this.below(1n << 53n) < numerator;
  }

  /** 16 fresh bytes, drawn after everything that depends on data. @returns {Uint8Array<ArrayBuffer>} */
  nonce() {
    const found = new Uint8Array(16);
    const view = new DataView(found.buffer);
    for (const at of [0, 8]) view.setBigUint64(at, this.below(1n << 64n), true);
    return found;
  }
}

/** Words of 64 bits, as they come: for the bits of the shuffle model. */
export class WordCoins {
  /** @param {Bytes} [bytes] the system's by default */
  constructor(bytes = systemBytes()) {
    this.bytes = bytes;
  }

  /** So many words, as bytes. @param {number} size @returns {Uint8Array} */
  words(size) {
    return this.bytes(8 * size);
  }

  /** So many words, as integers. @param {number} size @returns {bigint[]} */
  integers(size) {
    const found = this.words(size);
    const view = new DataView(found.buffer, found.byteOffset, found.byteLength);
    return Array.from({ length: size }, (_, i) => view.getBigUint64(8 * i, true));
  }

  /** 16 fresh bytes. @returns {Uint8Array} */
  nonce() {
    return this.words(2);
  }
}
