/**
 * Web Crypto, of the browser or of Node.
 * @module
 */

/** @type {Crypto} */
export const web = globalThis.crypto;

/** @returns {SubtleCrypto} */
export function subtle() {
  if (!web?.subtle) throw new Error("Web Crypto: is not whole here: a page must come by https, or from this machine; Node must be 20 or later");
  return web.subtle;
}
