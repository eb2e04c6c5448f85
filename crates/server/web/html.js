// The only place that names the vendored modules.

import htm from "./vendor/htm.js";
import { createContext, h, render } from "./vendor/preact.js";
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "./vendor/hooks.js";
import { batch, computed, effect, signal } from "./vendor/signals.js";

/** Templates: html`<p class=${name}>${text}</p>`. Text is never parsed as HTML. */
const html = htm.bind(h);

export {
  batch, computed, createContext, effect, html, render, signal, useContext, useEffect, useLayoutEffect, useRef, useState,
};
