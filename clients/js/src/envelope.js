/**
 * The one envelope of everything that a device sends (docs/messages.md), and how a form is published.
 * @module
 */
import { crc32, integer } from "./bytes.js";

export const HEADER = 52;
export const TAIL = 4;
/** In the order of their codes, from 1. */
export const KINDS = /** @type {const} */ (["counts", "reports", "bits", "sums"]);
/** @typedef {typeof KINDS[number]} Kind */

/**
 * A message as it is sent.
 * @param {Kind} kind @param {number} plan @param {Uint8Array} form 16 bytes @param {Uint8Array} nonce 16 bytes
 * @param {Uint8Array} payload @returns {Uint8Array<ArrayBuffer>}
 */
export function envelope(kind, plan, form, nonce, payload) {
  integer("plan", plan, 0, Number.MAX_SAFE_INTEGER);
  const found = new Uint8Array(HEADER + payload.length + TAIL);
  const view = new DataView(found.buffer);
  found.set([0x64, 0x73, 0x63, 0x72, 1, KINDS.indexOf(kind) + 1]); // "dscr", the version, the kind
  view.setBigUint64(8, BigInt(plan), true);
  found.set(form, 16);
  found.set(nonce, 32);
  view.setUint32(48, payload.length, true);
  found.set(payload, HEADER);
  view.setUint32(HEADER + payload.length, crc32(found.subarray(0, HEADER + payload.length)), true);
  return found;
}

/**
 * The head of a published form: its kind and its fields. Raises on anything else.
 * @param {Uint8Array} data @returns {{kind: string, fields: Record<string, unknown>}}
 */
export function headOf(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length < 12 || view.getUint32(0) !== 0x64736366 || view.getUint32(4) !== 0x01000000) {
    throw new RangeError("form: must begin with 'dscf', version 1");
  }
  const size = view.getUint32(8, true);
  if (data.length < 12 + size) throw new RangeError("form: ends too early");
  /** @type {any} */
  let head;
  try {
    head = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data.subarray(12, 12 + size)));
  } catch {
    throw new RangeError("form: its head is no JSON");
  }
  const keys = head && typeof head === "object" ? Object.keys(head).sort().join() : "";
  if (keys !== "arrays,fields,kind" || typeof head.kind !== "string" || !head.fields || !Array.isArray(head.arrays)) {
    throw new RangeError("form: its head must hold arrays, fields and kind");
  }
  if (head.kind === "sums" || (head.kind !== "contexts" && (head.arrays.length || data.length !== 12 + size))) {
    throw new RangeError(`form: of kind '${head.kind}' with arrays: linear sums are not supported here, except of contexts; use the Python client`);
  }
  return { kind: head.kind, fields: head.fields };
}

/**
 * The arrays of one axis after the head of a form. Raises on anything else, also on bytes after them.
 * @param {Uint8Array} data whose head was read @returns {Record<string, number[]>}
 */
export function arraysOf(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 12 + view.getUint32(8, true);
  /** @type {Record<string, number[]>} */
  const found = {};
  for (const one of JSON.parse(new TextDecoder().decode(data.subarray(12, at))).arrays) {
    const [name, type, shape] = Array.isArray(one) ? one : [];
    const size = Array.isArray(shape) && shape.length === 1 && Number.isSafeInteger(shape[0]) && shape[0] >= 0 ? shape[0] : NaN;
    if (typeof name !== "string" || name in found || !["<f8", "<i8"].includes(type) || !(at + 8 * size <= data.length)) throw new RangeError("form: an array of it is damaged");
    const begin = at;
    found[name] = Array.from({ length: size }, (_, i) => (type === "<f8" ? view.getFloat64(begin + 8 * i, true) : Number(view.getBigInt64(begin + 8 * i, true))));
    at += 8 * size;
  }
  if (at !== data.length) throw new RangeError("form: goes on after its arrays");
  return found;
}
