/**
 * Web Crypto: the browser's, or Node's (which hides it in a module before version 19).
 * @module
 */

const NODE = "node:crypto"; // not a literal below, so that tools which bundle for browsers do not look for it

/** @type {Crypto} */
export const web = globalThis.crypto ?? (await import(/* @vite-ignore */ /* webpackIgnore: true */ NODE)).webcrypto;

/** @returns {SubtleCrypto} */
export function subtle() {
  if (!web.subtle) throw new Error("Web Crypto: is not whole here: a page must come by https, or from this machine");
  return web.subtle;
}
