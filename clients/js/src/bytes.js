/**
 * Bytes: hexadecimal digits, base64, CRC-32, SHA-256, integers of 64 bits.
 * @module
 */
import { subtle } from "./crypto.js";

/** @param {Uint8Array} bytes @returns {string} */
export function toHex(bytes) {
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromHex(text) {
  if (typeof text !== "string" || !/^([0-9a-fA-F]{2})*$/.test(text)) throw new RangeError("must be hexadecimal digits");
  return Uint8Array.from(text.match(/../g) ?? [], (two) => parseInt(two, 16));
}

/** @param {Uint8Array} bytes @returns {string} */
export function toBase64(bytes) {
  let text = "";
  for (const one of bytes) text += String.fromCharCode(one);
  return btoa(text);
}

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

/** The check of zlib and PNG. @param {Uint8Array} bytes @returns {number} */
export function crc32(bytes) {
  let crc = ~0;
  for (const one of bytes) crc = (crc >>> 8) ^ CRC[(crc ^ one) & 255];
  return ~crc >>> 0;
}

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function sha256(bytes) {
  return new Uint8Array(await subtle().digest("SHA-256", bytes));
}

/** An integer in [low, high], or RangeError. @param {string} name @param {unknown} value @param {number} low @param {number} high @returns {number} */
export function integer(name, value, low, high) {
  if (typeof value !== "number" || !Number.isInteger(value) || value < low || value > high) {
    throw new RangeError(`${name} = ${JSON.stringify(value) ?? String(value)}: must be an integer in [${low}, ${high}]`);
  }
  return value;
}
