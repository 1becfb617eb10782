// Sends a browser that is known to its own pages: the server knows it below the root that acts.js keeps, and nowhere else.
// It runs where the server has not let the browser in. A root that was refused is forgotten.
"use strict";
(() => {
  const kept = (() => { try { return localStorage; } catch { return {}; } })(); // a browser may refuse it
  const [, own = "", path] = /^(\/~[0-9a-f]{16}(?=\/))?(.*)$/s.exec(location.pathname);
  const root = kept.amplifierRoot;
  if (root && root !== own) location.replace(root + path + location.search + location.hash);
  else delete kept.amplifierRoot;
})();
